// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX-512 F, BW, VL and DQ: floats. Integer products need VNNI and are in avx512_vnni.cpp.
#include "kernels/simd_avx512.h"
//
#include "kernels/elementwise_body.h"
#include "kernels/float_product_body.h"

namespace vitrine {
namespace {

__mmask16 tail_mask(std::int64_t count) { return static_cast<__mmask16>((1u << count) - 1u); }

// One struct a storage type: 16 elements from element `i` of `p` widened to float, all of them or the first few.
struct F32 {
  static __m512 load(const void* p, std::int64_t i) { return _mm512_loadu_ps(static_cast<const char*>(p) + 4 * i); }
  static __m512 load(const void* p, std::int64_t i, __mmask16 mask) {
    return _mm512_maskz_loadu_ps(mask, static_cast<const char*>(p) + 4 * i);
  }
  static constexpr std::int64_t kBytes = 4;
};

struct BF16 {
  static __m512 widen(__m256i bits) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16)); }
  static __m512 load(const void* p, std::int64_t i) {
    return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(static_cast<const char*>(p) + 2 * i)));
  }
  static __m512 load(const void* p, std::int64_t i, __mmask16 mask) {
    return widen(_mm256_maskz_loadu_epi16(mask, static_cast<const char*>(p) + 2 * i));
  }
  static constexpr std::int64_t kBytes = 2;
};

__m128 fold(__m512 v) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}
float sum_lanes(__m512 v) {
  const __m128 quarter = fold(v);
  const __m128 pairs = _mm_hadd_ps(quarter, quarter);
  return _mm_cvtss_f32(_mm_hadd_ps(pairs, pairs));
}
__m128 sum_lanes(__m512 a, __m512 b, __m512 c, __m512 d) {
  return _mm_hadd_ps(_mm_hadd_ps(fold(a), fold(b)), _mm_hadd_ps(fold(c), fold(d)));
}

template <class W>
__m512 dot(const float* q, const char* key, std::int64_t n) {
  __m512 acc = _mm512_setzero_ps();
  std::int64_t d = 0;
  for (; d + kLanes <= n; d += kLanes) acc = _mm512_fmadd_ps(_mm512_loadu_ps(q + d), W::load(key, d), acc);
  if (d < n) {
    const __mmask16 mask = tail_mask(n - d);
    acc = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, q + d), W::load(key, d, mask), acc);
  }
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
  __m512 acc[NV];
#pragma GCC unroll 8
  for (int v = 0; v < NV; ++v) acc[v] = _mm512_loadu_ps(out + v * kLanes);
  for (std::int64_t t = 0; t < task.tokens; ++t, values += row) {
    const __m512 weight = _mm512_set1_ps(weights[t]);
#pragma GCC unroll 8
    for (int v = 0; v < NV; ++v) acc[v] = _mm512_fmadd_ps(weight, W::load(values, d + v * kLanes), acc[v]);
  }
#pragma GCC unroll 8
  for (int v = 0; v < NV; ++v) _mm512_storeu_ps(out + v * kLanes, acc[v]);
}

template <class W>
void attention_values(const ValuesTask& task) {
  for (std::int64_t h = 0; h < task.heads; ++h) {
    std::int64_t d = 0;
    for (; d + 8 * kLanes <= task.head_dim; d += 8 * kLanes) add_values<W, 8>(task, h, d);
    for (; d + kLanes <= task.head_dim; d += kLanes) add_values<W, 1>(task, h, d);
    if (d == task.head_dim) continue;
    const __mmask16 mask = tail_mask(task.head_dim - d);
    float* out = task.out + h * task.out_stride + d;
    __m512 acc = _mm512_maskz_loadu_ps(mask, out);
    for (std::int64_t t = 0; t < task.tokens; ++t) {
      const char* value = static_cast<const char*>(task.values) + t * task.head_dim * W::kBytes;
      acc = _mm512_fmadd_ps(_mm512_set1_ps(task.weights[h * task.weights_stride + t]), W::load(value, d, mask), acc);
    }
    _mm512_mask_storeu_ps(out, mask, acc);
  }
}

}  // namespace

void override_avx512(Kernels& kernels) {
  override_elementwise(kernels);
  override_float_products(kernels);
  kernels.attention_scores[kStoreF32] = attention_scores<F32>;
  kernels.attention_scores[kStoreBF16] = attention_scores<BF16>;
  kernels.attention_values[kStoreF32] = attention_values<F32>;
  kernels.attention_values[kStoreBF16] = attention_values<BF16>;
}

}  // namespace vitrine
