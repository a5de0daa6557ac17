// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX2, FMA and F16C.
#include "kernels/simd_avx2.h"
//
#include "kernels/attention_float_body.h"
#include "kernels/elementwise_body.h"
#include "kernels/float_product_body.h"
#include "kernels/kv_store_body.h"

namespace vitrine {
namespace {

/// Products of bytes without a dot product: maddubs would saturate for bytes of 8 bits, so the weights go in as
/// magnitudes and the activations take their signs.
struct Dot {
  struct Weights {
    __m256i magnitude, value;
  };
  static constexpr std::int32_t kOffset = 0;
  static constexpr int kSums = 8;

  static VITRINE_INLINE Weights load(const void* p) {
    const __m256i value = Simd::load_bits(p);
    return {_mm256_abs_epi8(value), value};
  }
  static VITRINE_INLINE Weights load_raised(const void* p) { return load(p); }
  static VITRINE_INLINE void add(__m256i& sum, Weights w, __m256i x) {
    add_pairs(sum, _mm256_maddubs_epi16(w.magnitude, _mm256_sign_epi8(x, w.value)));
  }
  static VITRINE_INLINE void add_small(__m256i& sum, __m256i w, __m256i x) {
    add_pairs(sum, _mm256_maddubs_epi16(w, x));
  }

 private:
  static VITRINE_INLINE void add_pairs(__m256i& sum, __m256i pairs) {
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
};

}  // namespace
}  // namespace vitrine

#include "kernels/attention_int8_body.h"
#include "kernels/int_product_body.h"

namespace vitrine {

void override_avx2(Kernels& kernels) {
  override_elementwise(kernels);
  override_float_products(kernels);
  override_float_attention(kernels);
  override_store_kv(kernels);
  override_integer_products(kernels);
  override_int8_attention(kernels);
}

}  // namespace vitrine
