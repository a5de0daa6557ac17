// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX2, FMA and F16C. Everything is in an anonymous namespace, so that no inline function built with
// these flags can end up in code for lesser CPUs. Weights are widened to float and multiplied by FMA.
#include <immintrin.h>

#include <cstdint>

#include "kernels/kernels.h"

namespace vitrine {
namespace {

constexpr std::int64_t kLanes = 8;

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

struct F16 {
  static __m256 load(const char* p, std::int64_t i) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 2 * i)));
  }
  static __m256 load(const char* p, std::int64_t i, std::int64_t count) {
    return _mm256_cvtph_ps(load_tail_16bit(p + 2 * i, count));
  }
  static constexpr std::int64_t kBytes = 2;
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

// The one order in which 8 lanes are added, alone or four at a time: halves, then neighbours.
__m128 fold(__m256 v) { return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1)); }
float sum_lanes(__m256 v) {
  const __m128 quarter = fold(v);
  const __m128 pairs = _mm_hadd_ps(quarter, quarter);
  return _mm_cvtss_f32(_mm_hadd_ps(pairs, pairs));
}
__m128 sum_lanes(__m256 a, __m256 b, __m256 c, __m256 d) {
  return _mm_hadd_ps(_mm_hadd_ps(fold(a), fold(b)), _mm_hadd_ps(fold(c), fold(d)));
}

/// A tile of MR rows of x against NR rows of the weight, one accumulator each: the bits of an element do not depend
/// on the tile it falls into.
template <class W, int MR, int NR>
void tile(const MatmulTask& task, std::int64_t m0, std::int64_t n0) {
  __m256 acc[MR][NR];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 8
    for (int n = 0; n < NR; ++n) acc[m][n] = _mm256_setzero_ps();
  }
  const float* x = task.x + m0 * task.x_stride;
  const char* w = static_cast<const char*>(task.weight) + n0 * task.k * W::kBytes;
  const std::int64_t row = task.k * W::kBytes;
  std::int64_t k = 0;
  for (; k + kLanes <= task.k; k += kLanes) {
    __m256 weights[NR];
#pragma GCC unroll 8
    for (int n = 0; n < NR; ++n) {
      weights[n] = W::load(w + n * row, k);
      // The same place in the next tile: rows are contiguous, so it is the memory needed next. Never faults.
      if constexpr (MR == 1) _mm_prefetch(w + (n + NR) * row + k * W::kBytes, _MM_HINT_T1);
    }
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      const __m256 xs = _mm256_loadu_ps(x + m * task.x_stride + k);
#pragma GCC unroll 8
      for (int n = 0; n < NR; ++n) acc[m][n] = _mm256_fmadd_ps(xs, weights[n], acc[m][n]);
    }
  }
  if (k < task.k) {
    const std::int64_t rest = task.k - k;
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      const __m256 xs = load_tail(x + m * task.x_stride + k, rest);
#pragma GCC unroll 8
      for (int n = 0; n < NR; ++n) acc[m][n] = _mm256_fmadd_ps(xs, W::load(w + n * row, k, rest), acc[m][n]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
    float* y = task.y + (m0 + m) * task.y_stride + n0;
#pragma GCC unroll 8
    for (int n = 0; n < NR; ++n) {
      const float sum = sum_lanes(acc[m][n]);
      y[n] = task.accumulate ? y[n] + sum : sum;
    }
  }
}

template <class W, int MR>
void rows(const MatmulTask& task, std::int64_t m0) {
  constexpr int kWide = MR == 1 ? 8 : MR == 2 ? 4 : 3;  // 16 registers: sums, weights and one vector of x
  std::int64_t n = 0;
  for (; n + kWide <= task.n; n += kWide) tile<W, MR, kWide>(task, m0, n);
  for (; n < task.n; ++n) tile<W, MR, 1>(task, m0, n);
}

template <class W>
void matmul(const MatmulTask& task) {
  std::int64_t m = 0;
  for (; m + 3 <= task.m; m += 3) rows<W, 3>(task, m);
  if (task.m - m == 2) rows<W, 2>(task, m);
  if (task.m - m == 1) rows<W, 1>(task, m);
}

template <class W>
void load(const void* src, float* dst, std::int64_t n) {
  const char* p = static_cast<const char*>(src);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) _mm256_storeu_ps(dst + i, W::load(p, i));
  if (i < n) store_tail(dst + i, n - i, W::load(p, i, n - i));
}

__m128i round_to_bf16(__m256 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  const __m256i high = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
}

void store_bf16(const float* src, void* dst, std::int64_t n) {
  char* out = static_cast<char*>(dst);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i), round_to_bf16(_mm256_loadu_ps(src + i)));
  }
  if (i < n) {
    alignas(16) char copy[16];
    _mm_store_si128(reinterpret_cast<__m128i*>(copy), round_to_bf16(load_tail(src + i, n - i)));
    __builtin_memcpy(out + 2 * i, copy, static_cast<unsigned long>(2 * (n - i)));
  }
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

void rms_norm(const float* x, const float* weight, std::int64_t n, float eps, float* y) {
  const std::int64_t whole = n / kLanes * kLanes;
  const std::int64_t rest = n - whole;
  __m256 acc = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    const __m256 v = _mm256_loadu_ps(x + i);
    acc = _mm256_fmadd_ps(v, v, acc);
  }
  const __m256 last = load_tail(x + whole, rest);
  acc = _mm256_fmadd_ps(last, last, acc);
  const float mean = sum_lanes(acc) / static_cast<float>(n) + eps;
  const __m256 scale = _mm256_set1_ps(1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean))));
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    const __m256 normed = _mm256_mul_ps(_mm256_loadu_ps(x + i), scale);
    _mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_loadu_ps(weight + i), normed));
  }
  const __m256 normed = _mm256_mul_ps(last, scale);
  store_tail(y + whole, rest, _mm256_mul_ps(load_tail(weight + whole, rest), normed));
}

void rope(float* x, const float* cosines, const float* sines, std::int64_t n) {
  const std::int64_t half = n / 2;
  for (std::int64_t i = 0; i < half; i += kLanes) {
    const std::int64_t count = half - i < kLanes ? half - i : kLanes;
    const __m256 a = load_tail(x + i, count);
    const __m256 b = load_tail(x + i + half, count);
    const __m256 c = load_tail(cosines + i, count);
    const __m256 s = load_tail(sines + i, count);
    // Separate products and sums, as the reference rounds them.
    store_tail(x + i, count, _mm256_sub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s)));
    store_tail(x + i + half, count, _mm256_add_ps(_mm256_mul_ps(b, c), _mm256_mul_ps(a, s)));
  }
}

/// e^x within 1 ulp or so: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial in r (Taylor to the 7th power), times 2^n.
/// NaN stays NaN (min and max return their second operand then); what would be subnormal is zero.
__m256 exp(__m256 x) {
  const __m256 lowest = _mm256_set1_ps(-87.3f);
  const __m256 tiny = _mm256_cmp_ps(x, lowest, _CMP_LT_OQ);
  x = _mm256_min_ps(_mm256_set1_ps(88.3f), x);
  x = _mm256_max_ps(lowest, x);
  const __m256 n =
      _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693145752f), x);  // ln 2 in two parts: the first has few bits
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(1.42860677e-6f), r);
  __m256 p = _mm256_set1_ps(1.0f / 5040);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
  const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_andnot_ps(tiny, _mm256_mul_ps(p, _mm256_castsi256_ps(exponent)));
}

void softmax(float* x, std::int64_t n) {
  const __m256 lowest = _mm256_set1_ps(-__builtin_inff());
  __m256 max = lowest;
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const std::int64_t count = n - i < kLanes ? n - i : kLanes;
    const __m256 inside = _mm256_castsi256_ps(tail_mask(count));
    max = _mm256_max_ps(max, _mm256_blendv_ps(lowest, load_tail(x + i, count), inside));
  }
  __m128 folded = _mm_max_ps(_mm256_castps256_ps128(max), _mm256_extractf128_ps(max, 1));
  folded = _mm_max_ps(folded, _mm_movehl_ps(folded, folded));
  folded = _mm_max_ss(folded, _mm_shuffle_ps(folded, folded, 1));
  const __m256 top = _mm256_set1_ps(_mm_cvtss_f32(folded));
  __m256 sum = _mm256_setzero_ps();
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const std::int64_t count = n - i < kLanes ? n - i : kLanes;
    const __m256 inside = _mm256_castsi256_ps(tail_mask(count));
    const __m256 e = _mm256_and_ps(exp(_mm256_sub_ps(load_tail(x + i, count), top)), inside);
    store_tail(x + i, count, e);
    sum = _mm256_add_ps(sum, e);
  }
  const __m256 total = _mm256_set1_ps(sum_lanes(sum));
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const std::int64_t count = n - i < kLanes ? n - i : kLanes;
    store_tail(x + i, count, _mm256_div_ps(load_tail(x + i, count), total));
  }
}

void silu_mul(const float* gate, const float* up, std::int64_t n, float* out) {
  const __m256 one = _mm256_set1_ps(1.0f);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const std::int64_t count = n - i < kLanes ? n - i : kLanes;
    const __m256 g = load_tail(gate + i, count);
    const __m256 silu = _mm256_div_ps(g, _mm256_add_ps(one, exp(_mm256_sub_ps(_mm256_setzero_ps(), g))));
    store_tail(out + i, count, _mm256_mul_ps(silu, load_tail(up + i, count)));
  }
}

}  // namespace

void override_avx2(Kernels& kernels) {
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
