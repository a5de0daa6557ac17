// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/simd_avx512.h"

namespace vitrine {
namespace {

/// Dot of int_product_body.h. In assembly: GCC 12 spills accumulators that it gets from the intrinsic
/// (performance.md 0.2).
struct Dot {
  using Weights = __m512i;
  static constexpr std::int32_t kOffset = 128;
  static constexpr int kSums = 16;

  static VITRINE_INLINE Weights load(const void* p) {
    return _mm512_xor_si512(Simd::load_bits(p), _mm512_set1_epi8(static_cast<char>(kOffset)));
  }
  static VITRINE_INLINE Weights load_raised(const void* p) { return Simd::load_bits(p); }
  static VITRINE_INLINE void add(__m512i& sum, Weights w, __m512i x) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
  }
  static VITRINE_INLINE void add_small(__m512i& sum, __m512i w, __m512i x) { add(sum, w, x); }
};

}  // namespace
}  // namespace vitrine
