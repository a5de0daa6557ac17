// SPDX-License-Identifier: Apache-2.0
#include "kernels/dispatch.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#include <vitrine/error.h>

namespace vitrine {
namespace {

struct Table {
  const char* name;
  /// What is missing here; empty: the table can be used.
  std::string (*lacks)();
  /// Whether it is chosen where it can be used and nobody asked for another.
  bool (*preferred)();
  void (*build)(Kernels&, bool exact);
};

#if defined(__x86_64__)

struct Leaf {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};
/// Zeros where the CPU has no such leaf.
Leaf cpuid(unsigned leaf, unsigned subleaf) {
  Leaf r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}
bool bit(unsigned word, int index) { return (word >> index & 1u) != 0; }

// __builtin_cpu_supports also asks the operating system whether it keeps the wide registers (xgetbv). Not all compilers
// of today know all names: F16C, AVX-VNNI and the AMX parts are read from CPUID.
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && bit(cpuid(1, 0).ecx, 29); }
bool has_avx_vnni() { return has_avx2() && bit(cpuid(7, 1).eax, 4); }
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
bool has_avx512_vnni() { return has_avx512() && __builtin_cpu_supports("avx512vnni"); }
bool has_avx512_bf16() { return has_avx512() && bit(cpuid(7, 1).eax, 5); }
bool has_amx() {
  const unsigned features = cpuid(7, 0).edx;
  return has_avx512_vnni() && bit(features, 22) && bit(features, 24) && bit(features, 25);  // bf16, tile, int8
}

/// Whether this process may use tile registers: Linux wants to be asked once, and may say no.
bool tiles_granted() {
  static const bool granted = [] {
    unsigned low = 0;
    unsigned high = 0;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    constexpr int kTileData = 18;
    constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
    if (!bit(low, 17) || !bit(low, kTileData)) return false;
#if defined(SYS_arch_prctl)
    return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
    return false;
#endif
  }();
  return granted;
}

/// AMD from Zen 4 on runs vdpbf16ps at full speed; Intel's cores run FP32 FMA twice as fast (performance.md 0.3).
bool fast_avx512_bf16() {
  const Leaf vendor = cpuid(0, 0);
  const unsigned version = cpuid(1, 0).eax;
  const unsigned family = (version >> 8 & 15u) + (version >> 20 & 255u);
  return vendor.ebx == signature_AMD_ebx && family >= 0x19;
}

void build_avx2(Kernels& kernels, bool) {
  override_avx2(kernels);
  if (has_avx_vnni()) override_avx2_vnni(kernels);
}
void build_avx512(Kernels& kernels, bool exact) {
  build_avx2(kernels, exact);
  override_avx512(kernels);
  if (has_avx512_vnni()) override_avx512_vnni(kernels);
}
void build_avx512_bf16(Kernels& kernels, bool exact) {
  build_avx512(kernels, exact);
  if (!exact) override_avx512_bf16(kernels);
}
void build_amx(Kernels& kernels, bool exact) {
  build_avx512(kernels, exact);
  override_amx(kernels);
  if (!exact) override_amx_bf16(kernels);
  if (!exact && has_avx512_bf16()) override_amx_attention(kernels);
}

std::string needs(bool available, const char* what) { return available ? "" : std::string("needs ") + what; }
std::string lacks_amx() {
  if (!has_amx()) return "needs AMX with int8 and bf16, and AVX-512 with VNNI";
  return tiles_granted() ? "" : "the system does not grant AMX's tile registers";
}
#endif

bool always() { return true; }

constexpr Table kTables[] = {
    {"generic", [] { return std::string(); }, always, [](Kernels&, bool) {}},
#if defined(__x86_64__)
    {"avx2", [] { return needs(has_avx2(), "AVX2, FMA and F16C"); }, always, build_avx2},
    {"avx512", [] { return needs(has_avx512(), "AVX-512 F, BW, VL and DQ"); }, always, build_avx512},
    {"avx512bf16", [] { return needs(has_avx512_bf16(), "AVX-512 F, BW, VL, DQ and BF16"); }, fast_avx512_bf16,
     build_avx512_bf16},
    {"amx", lacks_amx, always, build_amx},
#endif
};

}  // namespace

std::vector<IsaInfo> kernel_choices() {
  std::vector<IsaInfo> choices;
  for (const Table& table : kTables) {
    const std::string lacks = table.lacks();
    choices.push_back({table.name, lacks.empty(), lacks});
  }
  return choices;
}

Kernels select_kernels(const std::string& name, bool exact) {
  const Table* chosen = nullptr;
  std::string known;
  for (const Table& table : kTables) {
    known += std::string(known.empty() ? "" : ", ") + table.name;
    if (name.empty() ? table.preferred() && table.lacks().empty() : table.name == name) chosen = &table;
  }
  if (chosen == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "unknown kernel table \"" + name + "\": expected one of " + known);
  }
  if (const std::string lacks = chosen->lacks(); !lacks.empty()) {
    throw Error(ErrorCode::kUnsupported, "kernel table \"" + name + "\" cannot be used on this machine: " + lacks);
  }
  Kernels kernels = generic_kernels();
  chosen->build(kernels, exact);
  kernels.name = chosen->name;
  return kernels;
}

}  // namespace vitrine
