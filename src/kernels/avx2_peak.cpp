// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX2 and FMA. Inline assembly: GCC 12 keeps an array of accumulators on the stack.
#include <immintrin.h>

#include <cstdint>

#include "kernels/peak.h"

namespace vitrine {
namespace {

/// Twelve sums: the latency of a multiply-add times the two that start in a cycle, with some to spare.
double float_ops(std::int64_t iterations) {
  const __m256 x = _mm256_setzero_ps();
  __m256 a = x, b = x, c = x, d = x, e = x, f = x, g = x, h = x, i = x, j = x, k = x, l = x;
  for (std::int64_t n = 0; n < iterations; ++n) {
    asm volatile(
        "vfmadd231ps %12, %12, %0\n\tvfmadd231ps %12, %12, %1\n\tvfmadd231ps %12, %12, %2\n\t"
        "vfmadd231ps %12, %12, %3\n\tvfmadd231ps %12, %12, %4\n\tvfmadd231ps %12, %12, %5\n\t"
        "vfmadd231ps %12, %12, %6\n\tvfmadd231ps %12, %12, %7\n\tvfmadd231ps %12, %12, %8\n\t"
        "vfmadd231ps %12, %12, %9\n\tvfmadd231ps %12, %12, %10\n\tvfmadd231ps %12, %12, %11"
        : "+x"(a), "+x"(b), "+x"(c), "+x"(d), "+x"(e), "+x"(f), "+x"(g), "+x"(h), "+x"(i), "+x"(j), "+x"(k), "+x"(l)
        : "x"(x));
  }
  return static_cast<double>(iterations) * 12 * 8 * 2;
}

/// maddubs, madd, add: 32 products and as many additions. The sums depend on the last alone.
double int8_ops(std::int64_t iterations) {
  const __m256i x = _mm256_setzero_si256();
  __m256i a = x, b = x, c = x, d = x, s = x, t = x, u = x, v = x;
  for (std::int64_t n = 0; n < iterations; ++n) {
    asm volatile(
        "vpmaddubsw %8, %8, %4\n\tvpmaddubsw %8, %8, %5\n\tvpmaddubsw %8, %8, %6\n\tvpmaddubsw %8, %8, %7\n\t"
        "vpmaddwd %8, %4, %4\n\tvpmaddwd %8, %5, %5\n\tvpmaddwd %8, %6, %6\n\tvpmaddwd %8, %7, %7\n\t"
        "vpaddd %4, %0, %0\n\tvpaddd %5, %1, %1\n\tvpaddd %6, %2, %2\n\tvpaddd %7, %3, %3"
        : "+x"(a), "+x"(b), "+x"(c), "+x"(d), "+x"(s), "+x"(t), "+x"(u), "+x"(v)
        : "x"(x));
  }
  return static_cast<double>(iterations) * 4 * 32 * 2;
}

}  // namespace

void override_peak_avx2(PeakLoops& loops) {
  loops.float_ops = float_ops;
  loops.int8_ops = int8_ops;
}

}  // namespace vitrine
