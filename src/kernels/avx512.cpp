// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX-512 F, BW, VL, DQ. Everything is in an anonymous namespace, so that no inline function built with
// these flags can end up in code for lesser CPUs. Weights are widened to float and multiplied by FMA.
#include <immintrin.h>

#include <cstdint>

#include "kernels/kernels.h"

namespace vitrine {
namespace {

constexpr std::int64_t kLanes = 16;

__mmask16 tail_mask(std::int64_t count) { return static_cast<__mmask16>((1u << count) - 1u); }

// One struct a storage type: 16 elements from element `i` of `p` widened to float, all of them or the first few.
struct F32 {
  static __m512 load(const void* p, std::int64_t i) { return _mm512_loadu_ps(static_cast<const char*>(p) + 4 * i); }
  static __m512 load(const void* p, std::int64_t i, __mmask16 mask) {
    return _mm512_maskz_loadu_ps(mask, static_cast<const char*>(p) + 4 * i);
  }
  static constexpr std::int64_t kBytes = 4;
};

struct F16 {
  static __m512 load(const void* p, std::int64_t i) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(static_cast<const char*>(p) + 2 * i)));
  }
  static __m512 load(const void* p, std::int64_t i, __mmask16 mask) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, static_cast<const char*>(p) + 2 * i));
  }
  static constexpr std::int64_t kBytes = 2;
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

// The one order in which 16 lanes are added, alone or four at a time: halves, halves again, then neighbours.
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

/// A tile of MR rows of x against NR rows of the weight, one accumulator each: the bits of an element do not depend
/// on the tile it falls into.
template <class W, int MR, int NR>
void tile(const MatmulTask& task, std::int64_t m0, std::int64_t n0) {
  __m512 acc[MR][NR];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < NR; ++n) acc[m][n] = _mm512_setzero_ps();
  }
  const float* x = task.x + m0 * task.x_stride;
  const char* w = static_cast<const char*>(task.weight) + n0 * task.k * W::kBytes;
  const std::int64_t row = task.k * W::kBytes;
  std::int64_t k = 0;
  for (; k + kLanes <= task.k; k += kLanes) {
    __m512 weights[NR];
#pragma GCC unroll 8
    for (int n = 0; n < NR; ++n) {
      weights[n] = W::load(w + n * row, k);
      // The same place in the next tile: rows are contiguous, so it is the memory needed next. Never faults.
      if constexpr (MR == 1) _mm_prefetch(w + (n + NR) * row + k * W::kBytes, _MM_HINT_T1);
    }
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      const __m512 xs = _mm512_loadu_ps(x + m * task.x_stride + k);
#pragma GCC unroll 8
      for (int n = 0; n < NR; ++n) acc[m][n] = _mm512_fmadd_ps(xs, weights[n], acc[m][n]);
    }
  }
  if (k < task.k) {
    const __mmask16 mask = tail_mask(task.k - k);
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      const __m512 xs = _mm512_maskz_loadu_ps(mask, x + m * task.x_stride + k);
#pragma GCC unroll 8
      for (int n = 0; n < NR; ++n) {
        acc[m][n] = _mm512_fmadd_ps(xs, W::load(w + n * row, k, mask), acc[m][n]);
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
    float* y = task.y + (m0 + m) * task.y_stride + n0;
    if constexpr (NR % 4 == 0) {
#pragma GCC unroll 8
      for (int n = 0; n < NR; n += 4) {
        __m128 sums = sum_lanes(acc[m][n], acc[m][n + 1], acc[m][n + 2], acc[m][n + 3]);
        if (task.accumulate) sums = _mm_add_ps(_mm_loadu_ps(y + n), sums);
        _mm_storeu_ps(y + n, sums);
      }
    } else {
#pragma GCC unroll 8
      for (int n = 0; n < NR; ++n) {
        const float sum = sum_lanes(acc[m][n]);
        y[n] = task.accumulate ? y[n] + sum : sum;
      }
    }
  }
}

template <class W, int MR>
void rows(const MatmulTask& task, std::int64_t m0) {
  // Enough independent sums to hide the latency of FMA; a single row waits for memory, where four streams are faster
  // than eight (+9 % in decoding Qwen3-0.6B, measured in turns).
  constexpr int kWide = MR == 2 ? 8 : 4;
  std::int64_t n = 0;
  for (; n + kWide <= task.n; n += kWide) tile<W, MR, kWide>(task, m0, n);
  for (; n < task.n; ++n) tile<W, MR, 1>(task, m0, n);
}

template <class W>
void matmul(const MatmulTask& task) {
  std::int64_t m = 0;
  for (; m + 6 <= task.m; m += 6) rows<W, 6>(task, m);
  switch (task.m - m) {
    case 1:
      rows<W, 1>(task, m);
      break;
    case 2:
      rows<W, 2>(task, m);
      break;
    case 3:
      rows<W, 3>(task, m);
      break;
    case 4:
      rows<W, 4>(task, m);
      break;
    case 5:
      rows<W, 5>(task, m);
      break;
    default:
      break;
  }
}

template <class W>
void load(const void* src, float* dst, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) _mm512_storeu_ps(dst + i, W::load(src, i));
  if (i < n) {
    const __mmask16 mask = tail_mask(n - i);
    _mm512_mask_storeu_ps(dst + i, mask, W::load(src, i, mask));
  }
}

__m256i round_to_bf16(__m512 v) {
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
  const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
  rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

void store_bf16(const float* src, void* dst, std::int64_t n) {
  char* out = static_cast<char*>(dst);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 2 * i), round_to_bf16(_mm512_loadu_ps(src + i)));
  }
  if (i < n) {
    const __mmask16 mask = tail_mask(n - i);
    _mm256_mask_storeu_epi16(out + 2 * i, mask, round_to_bf16(_mm512_maskz_loadu_ps(mask, src + i)));
  }
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

void rms_norm(const float* x, const float* weight, std::int64_t n, float eps, float* y) {
  const std::int64_t whole = n / kLanes * kLanes;
  const __mmask16 mask = tail_mask(n - whole);
  __m512 acc = _mm512_setzero_ps();
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    const __m512 v = _mm512_loadu_ps(x + i);
    acc = _mm512_fmadd_ps(v, v, acc);
  }
  const __m512 last = _mm512_maskz_loadu_ps(mask, x + whole);
  acc = _mm512_fmadd_ps(last, last, acc);
  const float mean = sum_lanes(acc) / static_cast<float>(n) + eps;
  const __m512 scale = _mm512_set1_ps(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean))));
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    const __m512 normed = _mm512_mul_ps(_mm512_loadu_ps(x + i), scale);
    _mm512_storeu_ps(y + i, _mm512_mul_ps(_mm512_loadu_ps(weight + i), normed));
  }
  const __m512 normed = _mm512_mul_ps(last, scale);
  _mm512_mask_storeu_ps(y + whole, mask, _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, weight + whole), normed));
}

void rope(float* x, const float* cosines, const float* sines, std::int64_t n) {
  const std::int64_t half = n / 2;
  for (std::int64_t i = 0; i < half; i += kLanes) {
    const __mmask16 mask = half - i >= kLanes ? __mmask16{0xFFFF} : tail_mask(half - i);
    const __m512 a = _mm512_maskz_loadu_ps(mask, x + i);
    const __m512 b = _mm512_maskz_loadu_ps(mask, x + i + half);
    const __m512 c = _mm512_maskz_loadu_ps(mask, cosines + i);
    const __m512 s = _mm512_maskz_loadu_ps(mask, sines + i);
    // Separate products and sums, as the reference rounds them.
    _mm512_mask_storeu_ps(x + i, mask, _mm512_sub_ps(_mm512_mul_ps(a, c), _mm512_mul_ps(b, s)));
    _mm512_mask_storeu_ps(x + i + half, mask, _mm512_add_ps(_mm512_mul_ps(b, c), _mm512_mul_ps(a, s)));
  }
}

/// e^x within 1 ulp or so: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial in r (Taylor to the 7th power), times 2^n.
/// NaN stays NaN (min and max return their second operand then), below -104 it is zero.
__m512 exp(__m512 x) {
  x = _mm512_min_ps(_mm512_set1_ps(89.0f), x);
  x = _mm512_max_ps(_mm512_set1_ps(-105.0f), x);
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693145752f), x);  // ln 2 in two parts: the first has few bits
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860677e-6f), r);
  __m512 p = _mm512_set1_ps(1.0f / 5040);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
  return _mm512_scalef_ps(p, n);
}

void softmax(float* x, std::int64_t n) {
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  __m512 max = lowest;
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const __mmask16 mask = n - i >= kLanes ? __mmask16{0xFFFF} : tail_mask(n - i);
    max = _mm512_max_ps(max, _mm512_mask_loadu_ps(lowest, mask, x + i));
  }
  const __m512 top = _mm512_set1_ps(_mm512_reduce_max_ps(max));
  __m512 sum = _mm512_setzero_ps();
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const __mmask16 mask = n - i >= kLanes ? __mmask16{0xFFFF} : tail_mask(n - i);
    const __m512 e = exp(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x + i), top));
    _mm512_mask_storeu_ps(x + i, mask, e);
    sum = _mm512_mask_add_ps(sum, mask, sum, e);
  }
  const __m512 total = _mm512_set1_ps(sum_lanes(sum));
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const __mmask16 mask = n - i >= kLanes ? __mmask16{0xFFFF} : tail_mask(n - i);
    _mm512_mask_storeu_ps(x + i, mask, _mm512_div_ps(_mm512_maskz_loadu_ps(mask, x + i), total));
  }
}

void silu_mul(const float* gate, const float* up, std::int64_t n, float* out) {
  const __m512 one = _mm512_set1_ps(1.0f);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const __mmask16 mask = n - i >= kLanes ? __mmask16{0xFFFF} : tail_mask(n - i);
    const __m512 g = _mm512_maskz_loadu_ps(mask, gate + i);
    const __m512 silu = _mm512_div_ps(g, _mm512_add_ps(one, exp(_mm512_sub_ps(_mm512_setzero_ps(), g))));
    _mm512_mask_storeu_ps(out + i, mask, _mm512_mul_ps(silu, _mm512_maskz_loadu_ps(mask, up + i)));
  }
}

}  // namespace

void override_avx512(Kernels& kernels) {
  kernels.matmul[kStoreF32] = matmul<F32>;
  kernels.matmul[kStoreF16] = matmul<F16>;
  kernels.matmul[kStoreBF16] = matmul<BF16>;
  kernels.load[kStoreF32] = load<F32>;
  kernels.load[kStoreF16] = load<F16>;
  kernels.load[kStoreBF16] = load<BF16>;
  kernels.store[kStoreBF16] = store_bf16;
  kernels.attention_scores[kStoreF32] = attention_scores<F32>;
  kernels.attention_scores[kStoreBF16] = attention_scores<BF16>;
  kernels.attention_values[kStoreF32] = attention_values<F32>;
  kernels.attention_values[kStoreBF16] = attention_values<BF16>;
  kernels.rms_norm = rms_norm;
  kernels.rope = rope;
  kernels.softmax = softmax;
  kernels.silu_mul = silu_mul;
}

}  // namespace vitrine
