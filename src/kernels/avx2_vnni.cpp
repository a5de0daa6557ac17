// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX2, FMA and F16C; run only where there is AVX-VNNI too: integer products.
#include "kernels/simd_avx2.h"

namespace vitrine {
namespace {

/// In assembly: GCC 12 spills accumulators that it gets from the intrinsic (performance.md 0.2).
struct Dot {
  using Weights = __m256i;
  static constexpr std::int32_t kOffset = 128;
  static constexpr int kSums = 12;

  static VITRINE_INLINE Weights load(const void* p) {
    return _mm256_xor_si256(Simd::load_bits(p), _mm256_set1_epi8(static_cast<char>(kOffset)));
  }
  static VITRINE_INLINE Weights load_raised(const void* p) { return Simd::load_bits(p); }
  static VITRINE_INLINE void add(__m256i& sum, Weights w, __m256i x) {
    asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(w), "x"(x));
  }
  static VITRINE_INLINE void add_small(__m256i& sum, __m256i w, __m256i x) { add(sum, w, x); }
};

}  // namespace
}  // namespace vitrine

#include "kernels/attention_int8_body.h"
#include "kernels/int_product_body.h"

namespace vitrine {

void override_avx2_vnni(Kernels& kernels) {
  override_integer_products(kernels);
  override_int8_attention(kernels);
}

}  // namespace vitrine
