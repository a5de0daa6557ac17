// SPDX-License-Identifier: Apache-2.0
// The words of the shared kernel bodies in AVX2, FMA and F16C. For files compiled with their flags only; all in an
// anonymous namespace, so that nothing built with these flags can end up in code for lesser CPUs.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace vitrine {
namespace {

#define VITRINE_INLINE inline __attribute__((always_inline))

struct Simd {
  using F = __m256;
  using I = __m256i;
  static constexpr std::int64_t kLanes = 8;

  static VITRINE_INLINE I first(std::int64_t count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }

  static VITRINE_INLINE F zero() { return _mm256_setzero_ps(); }
  static VITRINE_INLINE F set(float x) { return _mm256_set1_ps(x); }
  static VITRINE_INLINE F load(const float* p) { return _mm256_loadu_ps(p); }
  /// The first `count` elements, at most all; the others are zero, and their memory is not touched.
  static VITRINE_INLINE F load(const float* p, std::int64_t count) { return _mm256_maskload_ps(p, first(count)); }
  static VITRINE_INLINE void store(float* p, F v) { _mm256_storeu_ps(p, v); }
  static VITRINE_INLINE void store(float* p, F v, std::int64_t count) { _mm256_maskstore_ps(p, first(count), v); }

  static VITRINE_INLINE F add(F a, F b) { return _mm256_add_ps(a, b); }
  static VITRINE_INLINE F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static VITRINE_INLINE F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static VITRINE_INLINE F div(F a, F b) { return _mm256_div_ps(a, b); }
  /// The second operand where one is NaN.
  static VITRINE_INLINE F min(F a, F b) { return _mm256_min_ps(a, b); }
  static VITRINE_INLINE F max(F a, F b) { return _mm256_max_ps(a, b); }
  /// acc += a * b, rounded once. In assembly: GCC 12 moves accumulators kept in arrays to and from the stack.
  static VITRINE_INLINE void fma(F& acc, F a, F b) { asm("vfmadd231ps %2, %1, %0" : "+x"(acc) : "x"(a), "x"(b)); }
  static VITRINE_INLINE F fmadd(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static VITRINE_INLINE F fnmadd(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
  static VITRINE_INLINE F round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  /// a * 2^n for a whole n from -151 to 129; zero below 2^-126 times a.
  static VITRINE_INLINE F scale_by_power(F a, F n) {
    // 2^128 and the like have no float of their own: half the power, twice.
    const I whole = _mm256_cvtps_epi32(n);
    const I half = _mm256_srai_epi32(whole, 1);
    const I bias = _mm256_set1_epi32(127);
    const F one = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    const F other = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(whole, half), bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(a, one), other);
  }

  /// Halves, halves again, then neighbours: one order for every sum.
  static VITRINE_INLINE float sum(F v) {
    const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 pairs = _mm_hadd_ps(quarter, quarter);
    return _mm_cvtss_f32(_mm_hadd_ps(pairs, pairs));
  }
  static VITRINE_INLINE float largest(F v) {
    __m128 top = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    top = _mm_max_ps(top, _mm_movehl_ps(top, top));
    return _mm_cvtss_f32(_mm_max_ss(top, _mm_shuffle_ps(top, top, 1)));
  }
  static VITRINE_INLINE float square_root(float x) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(x))); }

  // kLanes pairs of bf16, the two of a pair apart: a shift or a mask widens them.
  static VITRINE_INLINE I load_bits(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static VITRINE_INLINE F widen_low(I pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
  static VITRINE_INLINE F widen_high(I pairs) {
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xFFFF0000))));
  }
  /// kLanes consecutive bf16.
  static VITRINE_INLINE F load_bf16(const void* p) {
    const __m128i bits = _mm_loadu_si128(static_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  /// Rounded to nearest even: bf16 in the high half of each lane, anything in the low one.
  static VITRINE_INLINE I bf16_bits(F v) {
    const I bits = _mm256_castps_si256(v);
    const I odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const I rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    const I nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    return _mm256_blendv_epi8(rounded, _mm256_or_si256(bits, _mm256_set1_epi32(0x400000)), nan);
  }
  static VITRINE_INLINE void store_bf16(void* p, F v) { _mm_storeu_si128(static_cast<__m128i*>(p), round_to_bf16(v)); }
  static VITRINE_INLINE void store_bf16(void* p, F v, std::int64_t count) {
    alignas(16) char copy[16];
    _mm_store_si128(reinterpret_cast<__m128i*>(copy), round_to_bf16(v));
    __builtin_memcpy(p, copy, static_cast<unsigned long>(2 * (count < kLanes ? count : kLanes)));
  }
  /// kLanes consecutive fp16.
  static VITRINE_INLINE F load_f16(const void* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)));
  }

  // ---- Integers ----
  static VITRINE_INLINE I zero_int() { return _mm256_setzero_si256(); }
  static VITRINE_INLINE I set_int(std::int32_t x) { return _mm256_set1_epi32(x); }
  static VITRINE_INLINE F to_float(I v) { return _mm256_cvtepi32_ps(v); }
  static VITRINE_INLINE I add_int(I a, I b) { return _mm256_add_epi32(a, b); }
  static VITRINE_INLINE I and_int(I a, I b) { return _mm256_and_si256(a, b); }
  static VITRINE_INLINE I or_int(I a, I b) { return _mm256_or_si256(a, b); }
  static VITRINE_INLINE I set_bytes(char x) { return _mm256_set1_epi8(x); }
  static VITRINE_INLINE I add_bytes(I a, I b) { return _mm256_add_epi8(a, b); }
  static VITRINE_INLINE I sub_bytes(I a, I b) { return _mm256_sub_epi8(a, b); }
  template <int Bits>
  static VITRINE_INLINE I shift_right(I v) {  // of 32-bit lanes
    return _mm256_srli_epi32(v, Bits);
  }
  static VITRINE_INLINE void store_bits(void* p, I v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
  /// kLanes bytes, each as a 32-bit lane.
  static VITRINE_INLINE I load_bytes(const void* p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  }
  static VITRINE_INLINE I load_signed_bytes(const void* p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(p)));
  }
  static VITRINE_INLINE I mul_words(I a, I b) { return _mm256_mullo_epi16(a, b); }
  static VITRINE_INLINE I words_right(I v) { return _mm256_srli_epi16(v, 8); }
  static VITRINE_INLINE I words_left(I v) { return _mm256_slli_epi16(v, 8); }
  /// The low byte of each 32-bit lane in all four of its bytes.
  static VITRINE_INLINE I repeat_low_byte(I v) {
    return _mm256_shuffle_epi8(
        v, _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12)));
  }
  /// acc += low 16 bits of a, signed, times b in 0..32767.
  static VITRINE_INLINE I add_product(I acc, I a, I b) { return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b)); }

  // ---- Rounding to int8 ----
  /// max of the bits of |v| and `most`, which orders as the numbers do, and infinity and NaN above them.
  static VITRINE_INLINE I max_magnitude(I most, F v) {
    return _mm256_max_epi32(most, _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7FFFFFFF)));
  }
  static VITRINE_INLINE std::int32_t largest_int(I v) {
    __m128i top = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    top = _mm_max_epi32(top, _mm_shuffle_epi32(top, 0x4E));
    return _mm_cvtsi128_si32(_mm_max_epi32(top, _mm_shuffle_epi32(top, 0xB1)));
  }
  static VITRINE_INLINE std::int32_t sum_int(I v) {
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xB1)));
  }
  /// To the nearest whole number, ties to even.
  static VITRINE_INLINE I to_int(F v) { return _mm256_cvtps_epi32(v); }
  /// The lanes, which fit, as kLanes bytes.
  static VITRINE_INLINE void store_as_bytes(void* p, I v) {
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    _mm_storel_epi64(static_cast<__m128i*>(p), _mm_packs_epi16(words, words));
  }

 private:
  static VITRINE_INLINE __m128i round_to_bf16(F v) {
    const I high = _mm256_srli_epi32(bf16_bits(v), 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(high), _mm256_extracti128_si256(high, 1));
  }
};

}  // namespace
}  // namespace vitrine
