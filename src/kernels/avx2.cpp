// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX2, FMA and F16C.
#include "kernels/simd_avx2.h"
//
#include "kernels/elementwise_body.h"
#include "kernels/float_product_body.h"

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

#include "kernels/int_product_body.h"

namespace vitrine {
namespace {

// Loads of the last `count` < 8 elements, zeros behind them. _mm256_maskload_ps never touches what is masked.
__m256i tail_mask(std::int64_t count) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane);
}
__m256 load_tail(const float* p, std::int64_t count) { return _mm256_maskload_ps(p, tail_mask(count)); }
void store_tail(float* p, std::int64_t count, __m256 v) { _mm256_maskstore_ps(p, tail_mask(count), v); }
__m128i load_tail_16bit(const char* p, std::int64_t count) {  // AVX2 has no masked load of 16-bit elements
  alignas(16) char copy[16] = {};
  __builtin_memcpy(copy, p, static_cast<unsigned long>(2 * count));
  return _mm_load_si128(reinterpret_cast<const __m128i*>(copy));
}

// One struct a storage type: 8 elements from element `i` of `p` widened to float, all of them or the first few.
struct F32 {
  static __m256 load(const char* p, std::int64_t i) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p) + i); }
  static __m256 load(const char* p, std::int64_t i, std::int64_t count) {
    alignas(32) char copy[32] = {};  // by bytes: the file may not align it
    __builtin_memcpy(copy, p + 4 * i, static_cast<unsigned long>(4 * count));
    return _mm256_load_ps(reinterpret_cast<const float*>(copy));
  }
  static constexpr std::int64_t kBytes = 4;
};

struct BF16 {
  static __m256 widen(__m128i bits) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16)); }
  static __m256 load(const char* p, std::int64_t i) {
    return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 2 * i)));
  }
  static __m256 load(const char* p, std::int64_t i, std::int64_t count) {
    return widen(load_tail_16bit(p + 2 * i, count));
  }
  static constexpr std::int64_t kBytes = 2;
};

__m128 fold(__m256 v) { return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)); }
float sum_lanes(__m256 v) {
  const __m128 quarter = fold(v);
  const __m128 pairs = _mm_hadd_ps(quarter, quarter);
  return _mm_cvtss_f32(_mm_hadd_ps(pairs, pairs));
}
__m128 sum_lanes(__m256 a, __m256 b, __m256 c, __m256 d) {
  return _mm_hadd_ps(_mm_hadd_ps(fold(a), fold(b)), _mm_hadd_ps(fold(c), fold(d)));
}

template <class W>
__m256 dot(const float* q, const char* key, std::int64_t n) {
  __m256 acc = _mm256_setzero_ps();
  std::int64_t d = 0;
  for (; d + kLanes <= n; d += kLanes) acc = _mm256_fmadd_ps(_mm256_loadu_ps(q + d), W::load(key, d), acc);
  if (d < n) acc = _mm256_fmadd_ps(load_tail(q + d, n - d), W::load(key, d, n - d), acc);
  return acc;
}

template <class W>
void attention_scores(const ScoresTask& task) {
  const std::int64_t row = task.head_dim * W::kBytes;
  const __m128 scale = _mm_set1_ps(task.scale);
  for (std::int64_t h = 0; h < task.heads; ++h) {
    const float* q = task.q + h * task.q_stride;
    float* scores = task.scores + h * task.scores_stride;
    const char* keys = static_cast<const char*>(task.keys);
    std::int64_t t = 0;
    for (; t + 4 <= task.tokens; t += 4, keys += 4 * row) {
      const __m128 sums = sum_lanes(dot<W>(q, keys, task.head_dim), dot<W>(q, keys + row, task.head_dim),
                                    dot<W>(q, keys + 2 * row, task.head_dim), dot<W>(q, keys + 3 * row, task.head_dim));
      _mm_storeu_ps(scores + t, _mm_mul_ps(sums, scale));
    }
    for (; t < task.tokens; ++t, keys += row) scores[t] = sum_lanes(dot<W>(q, keys, task.head_dim)) * task.scale;
  }
}

/// NV vectors of the head at once, so that each value row is read once a head and the sums stay in registers.
template <class W, int NV>
void add_values(const ValuesTask& task, std::int64_t h, std::int64_t d) {
  float* out = task.out + h * task.out_stride + d;
  const float* weights = task.weights + h * task.weights_stride;
  const char* values = static_cast<const char*>(task.values);
  const std::int64_t row = task.head_dim * W::kBytes;
  __m256 acc[NV];
#pragma GCC unroll 8
  for (int v = 0; v < NV; ++v) acc[v] = _mm256_loadu_ps(out + v * kLanes);
  for (std::int64_t t = 0; t < task.tokens; ++t, values += row) {
    const __m256 weight = _mm256_set1_ps(weights[t]);
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) acc[v] = _mm256_fmadd_ps(weight, W::load(values, d + v * kLanes), acc[v]);
  }
#pragma GCC unroll 8
  for (int v = 0; v < NV; ++v) _mm256_storeu_ps(out + v * kLanes, acc[v]);
}

template <class W>
void attention_values(const ValuesTask& task) {
  for (std::int64_t h = 0; h < task.heads; ++h) {
    std::int64_t d = 0;
    for (; d + 8 * kLanes <= task.head_dim; d += 8 * kLanes) add_values<W, 8>(task, h, d);
    for (; d + kLanes <= task.head_dim; d += kLanes) add_values<W, 1>(task, h, d);
    if (d == task.head_dim) continue;
    const std::int64_t rest = task.head_dim - d;
    float* out = task.out + h * task.out_stride + d;
    __m256 acc = load_tail(out, rest);
    for (std::int64_t t = 0; t < task.tokens; ++t) {
      const char* value = static_cast<const char*>(task.values) + t * task.head_dim * W::kBytes;
      acc = _mm256_fmadd_ps(_mm256_set1_ps(task.weights[h * task.weights_stride + t]), W::load(value, d, rest), acc);
    }
    store_tail(out, rest, acc);
  }
}

}  // namespace

void override_avx2(Kernels& kernels) {
  override_elementwise(kernels);
  override_float_products(kernels);
  override_integer_products(kernels);
  kernels.attention_scores[kStoreF32] = attention_scores<F32>;
  kernels.attention_scores[kStoreBF16] = attention_scores<BF16>;
  kernels.attention_values[kStoreF32] = attention_values<F32>;
  kernels.attention_values[kStoreBF16] = attention_values<BF16>;
}

}  // namespace vitrine
