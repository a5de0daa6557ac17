// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace vitrine {

/// The upper half of an IEEE float32 (1 sign, 8 exponent, 7 fraction bits), as stored in checkpoints and the KV cache.
struct BFloat16 {
  std::uint16_t bits = 0;
};

/// IEEE binary16 (1 sign, 5 exponent, 10 fraction bits).
struct Float16 {
  std::uint16_t bits = 0;
};

inline float to_float(float value) noexcept { return value; }
inline float to_float(BFloat16 value) noexcept { return std::bit_cast<float>(std::uint32_t{value.bits} << 16); }

/// Exact: every binary16 is a float32, subnormals and infinities included; NaNs stay NaN.
inline float to_float(Float16 value) noexcept {
  const std::uint32_t sign = std::uint32_t{value.bits & 0x8000u} << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1Fu;
  const std::uint32_t fraction = value.bits & 0x3FFu;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24 is exact in float32
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | (fraction << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

/// Round to nearest, ties to even; too large becomes infinity, NaN stays NaN.
inline Float16 to_float16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return {static_cast<std::uint16_t>(sign | 0x7E00u)};
  if (magnitude >= 0x477FF000u) return {static_cast<std::uint16_t>(sign | 0x7C00u)};  // 65520 rounds to infinity
  if (magnitude < 0x38800000u) {  // below 2^-14: a multiple of 2^-24, which adding 0.5 rounds to
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000u))};
  }
  const std::uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
  return {static_cast<std::uint16_t>(sign | (rounded - 0x38000000u) >> 13)};
}

/// Round to nearest, ties to even; NaN stays NaN.
inline BFloat16 to_bfloat16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace vitrine
