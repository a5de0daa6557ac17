// SPDX-License-Identifier: Apache-2.0
#include "kernels/peak.h"

#include <string>

#include "kernels/dispatch.h"

namespace vitrine {
namespace {

/// Keeps a sum in a register of its own, so that the compiler neither drops it nor makes a vector of several.
void keep(std::int32_t& sum) { asm volatile("" : "+r"(sum)); }
void keep(float& sum) {
#if defined(__x86_64__)
  asm volatile("" : "+x"(sum));
#elif defined(__aarch64__)
  asm volatile("" : "+w"(sum));
#else
  asm volatile("" : "+m"(sum));
#endif
}

/// Eight sums, so that none waits for the one before.
template <class T>
double multiply_add(std::int64_t iterations) {
  T x = 1;
  keep(x);
  T a = 0, b = 0, c = 0, d = 0, e = 0, f = 0, g = 0, h = 0;
  const auto add_product = [&x](T& sum) {
    T product = x;
    keep(product);  // or the product is computed once
    sum += product * x;
    keep(sum);
  };
  for (std::int64_t n = 0; n < iterations; ++n) {
    add_product(a), add_product(b), add_product(c), add_product(d);
    add_product(e), add_product(f), add_product(g), add_product(h);
  }
  return static_cast<double>(iterations) * 8 * 2;
}

bool has_vnni() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512vnni") != 0;
#else
  return false;
#endif
}

}  // namespace

PeakLoops select_peak_loops(const char* table) {
  const std::string name = select_kernels(table).name;
  PeakLoops loops{multiply_add<float>, multiply_add<std::int32_t>, has_vnni()};
  // As the tables do it: each takes over from the ones before, up to the one asked for.
  for (const IsaInfo& choice : kernel_choices()) {
#if defined(__x86_64__)
    if (choice.available && choice.name == "avx2") override_peak_avx2(loops);
    if (choice.available && choice.name == "avx512") override_peak_avx512(loops);
    if (choice.available && choice.name == "amx") override_peak_amx(loops);
#endif
    if (choice.name == name) break;
  }
  return loops;
}

}  // namespace vitrine
