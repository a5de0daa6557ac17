// SPDX-License-Identifier: Apache-2.0
// The words of the shared kernel bodies in AVX-512. For files compiled with its flags only; all in an anonymous
// namespace, so that nothing built with these flags can end up in code for lesser CPUs.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace vitrine {
namespace {

#define VITRINE_INLINE inline __attribute__((always_inline))

struct Simd {
  using F = __m512;
  using I = __m512i;
  static constexpr std::int64_t kLanes = 16;

  static VITRINE_INLINE __mmask16 first(std::int64_t count) { return static_cast<__mmask16>((1u << count) - 1u); }

  static VITRINE_INLINE F zero() { return _mm512_setzero_ps(); }
  static VITRINE_INLINE F set(float x) { return _mm512_set1_ps(x); }
  static VITRINE_INLINE F load(const float* p) { return _mm512_loadu_ps(p); }
  /// The first `count` elements, at most all; the others are zero, and their memory is not touched.
  static VITRINE_INLINE F load(const float* p, std::int64_t count) { return _mm512_maskz_loadu_ps(first(count), p); }
  static VITRINE_INLINE void store(float* p, F v) { _mm512_storeu_ps(p, v); }
  static VITRINE_INLINE void store(float* p, F v, std::int64_t count) { _mm512_mask_storeu_ps(p, first(count), v); }

  static VITRINE_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
  static VITRINE_INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static VITRINE_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static VITRINE_INLINE F div(F a, F b) { return _mm512_div_ps(a, b); }
  /// The second operand where one is NaN.
  static VITRINE_INLINE F min(F a, F b) { return _mm512_min_ps(a, b); }
  static VITRINE_INLINE F max(F a, F b) { return _mm512_max_ps(a, b); }
  /// acc += a * b, rounded once. In assembly: GCC 12 moves accumulators kept in arrays to and from the stack.
  static VITRINE_INLINE void fma(F& acc, F a, F b) { asm("vfmadd231ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b)); }
  static VITRINE_INLINE F fmadd(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static VITRINE_INLINE F fnmadd(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
  static VITRINE_INLINE F round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  /// a * 2^n for a whole n.
  static VITRINE_INLINE F scale_by_power(F a, F n) { return _mm512_scalef_ps(a, n); }

  /// Halves, halves again, then neighbours: one order for every sum.
  static VITRINE_INLINE float sum(F v) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    const __m128 pairs = _mm_hadd_ps(quarter, quarter);
    return _mm_cvtss_f32(_mm_hadd_ps(pairs, pairs));
  }
  static VITRINE_INLINE float largest(F v) { return _mm512_reduce_max_ps(v); }
  static VITRINE_INLINE float square_root(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

  // kLanes pairs of bf16, the two of a pair apart: a shift or a mask widens them.
  static VITRINE_INLINE I load_bits(const void* p) { return _mm512_loadu_si512(p); }
  static VITRINE_INLINE F widen_low(I pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }
  static VITRINE_INLINE F widen_high(I pairs) {
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xFFFF0000))));
  }
  /// kLanes consecutive bf16.
  static VITRINE_INLINE F load_bf16(const void* p) {
    const __m256i bits = _mm256_loadu_si256(static_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  /// Rounded to nearest even: bf16 in the high half of each lane, anything in the low one.
  static VITRINE_INLINE I bf16_bits(F v) {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x400000));
  }
  static VITRINE_INLINE void store_bf16(void* p, F v) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), round_to_bf16(v));
  }
  static VITRINE_INLINE void store_bf16(void* p, F v, std::int64_t count) {
    _mm256_mask_storeu_epi16(p, first(count), round_to_bf16(v));
  }
  /// kLanes consecutive fp16.
  static VITRINE_INLINE F load_f16(const void* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }

  // ---- Integers ----
  static VITRINE_INLINE I zero_int() { return _mm512_setzero_si512(); }
  static VITRINE_INLINE I set_int(std::int32_t x) { return _mm512_set1_epi32(x); }
  static VITRINE_INLINE F to_float(I v) { return _mm512_cvtepi32_ps(v); }
  static VITRINE_INLINE I add_int(I a, I b) { return _mm512_add_epi32(a, b); }
  static VITRINE_INLINE I and_int(I a, I b) { return _mm512_and_si512(a, b); }
  static VITRINE_INLINE I set_bytes(char x) { return _mm512_set1_epi8(x); }
  static VITRINE_INLINE I add_bytes(I a, I b) { return _mm512_add_epi8(a, b); }
  static VITRINE_INLINE I sub_bytes(I a, I b) { return _mm512_sub_epi8(a, b); }
  template <int Bits>
  static VITRINE_INLINE I shift_right(I v) {  // of 32-bit lanes
    return _mm512_srli_epi32(v, Bits);
  }
  static VITRINE_INLINE void store_bits(void* p, I v) { _mm512_storeu_si512(p, v); }
  /// kLanes bytes, each as a 32-bit lane.
  static VITRINE_INLINE I load_bytes(const void* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  static VITRINE_INLINE I load_signed_bytes(const void* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }
  static VITRINE_INLINE I mul_words(I a, I b) { return _mm512_mullo_epi16(a, b); }
  static VITRINE_INLINE I words_right(I v) { return _mm512_srli_epi16(v, 8); }
  static VITRINE_INLINE I words_left(I v) { return _mm512_slli_epi16(v, 8); }
  static VITRINE_INLINE I or_int(I a, I b) { return _mm512_or_si512(a, b); }
  /// The low byte of each 32-bit lane in all four of its bytes.
  static VITRINE_INLINE I repeat_low_byte(I v) {
    return _mm512_shuffle_epi8(
        v, _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12)));
  }
  /// acc += low 16 bits of a, signed, times b in 0..32767.
  static VITRINE_INLINE I add_product(I acc, I a, I b) { return _mm512_add_epi32(acc, _mm512_madd_epi16(a, b)); }

  // ---- Rounding to int8 ----
  /// max of the bits of |v| and `most`, which orders as the numbers do, and infinity and NaN above them.
  static VITRINE_INLINE I max_magnitude(I most, F v) {
    return _mm512_max_epi32(most, _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7FFFFFFF)));
  }
  static VITRINE_INLINE std::int32_t largest_int(I v) { return _mm512_reduce_max_epi32(v); }
  static VITRINE_INLINE std::int32_t sum_int(I v) { return _mm512_reduce_add_epi32(v); }
  /// To the nearest whole number, ties to even.
  static VITRINE_INLINE I to_int(F v) { return _mm512_cvtps_epi32(v); }
  /// The lanes, which fit, as kLanes bytes.
  static VITRINE_INLINE void store_as_bytes(void* p, I v) {
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
  }

 private:
  static VITRINE_INLINE __m256i round_to_bf16(F v) {
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bf16_bits(v), 16));
  }
};

}  // namespace
}  // namespace vitrine
