// SPDX-License-Identifier: Apache-2.0
#include "kernels/dispatch.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <vitrine/error.h>

namespace vitrine {
namespace {

struct Table {
  const char* name;
  const char* needs;
  bool (*available)();
  void (*apply)(Kernels&);  // null: the generic table itself
};

#if defined(__x86_64__)
/// Clang 14 does not know the name "f16c": leaf 1, ECX bit 29.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx >> 29 & 1u) != 0;
}
// __builtin_cpu_supports also asks the operating system whether it keeps the wide registers (xgetbv).
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c(); }
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
/// CPUID leaf 7, subleaf 1, EAX bit 4; the compilers of bookworm do not all know the name.
bool has_avx_vnni() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1u) != 0;
}

void apply_avx2(Kernels& kernels) {
  override_avx2(kernels);
  if (has_avx_vnni()) override_avx2_vnni(kernels);
}
void apply_avx512(Kernels& kernels) {
  override_avx512(kernels);
  if (__builtin_cpu_supports("avx512vnni")) override_avx512_vnni(kernels);
}
#endif

constexpr Table kTables[] = {
    {"generic", "nothing", [] { return true; }, nullptr},
#if defined(__x86_64__)
    {"avx2", "AVX2, FMA and F16C", has_avx2, apply_avx2},
    {"avx512", "AVX-512 F, BW, VL and DQ", has_avx512, apply_avx512},
#endif
};

}  // namespace

std::vector<IsaInfo> kernel_choices() {
  std::vector<IsaInfo> choices;
  for (const Table& table : kTables) {
    const bool available = table.available();
    choices.push_back({table.name, available, available ? "" : std::string("needs ") + table.needs});
  }
  return choices;
}

Kernels select_kernels(const std::string& name) {
  Kernels kernels = generic_kernels();
  bool found = false;
  // Each table takes over what the ones before it do, up to the one asked for or the last this CPU has.
  for (const Table& table : kTables) {
    const bool wanted = table.name == name;
    if (wanted && !table.available()) {
      throw Error(ErrorCode::kUnsupported,
                  "kernel table \"" + name + "\" needs " + table.needs + ", which this CPU does not have");
    }
    if (table.apply != nullptr && table.available()) {
      table.apply(kernels);
      kernels.name = table.name;
    }
    if (wanted) {
      found = true;
      break;
    }
  }
  if (!name.empty() && !found) {
    std::string known;
    for (const Table& table : kTables) known += std::string(known.empty() ? "" : ", ") + table.name;
    throw Error(ErrorCode::kInvalidArgument, "unknown kernel table \"" + name + "\": expected one of " + known);
  }
  return kernels;
}

}  // namespace vitrine
