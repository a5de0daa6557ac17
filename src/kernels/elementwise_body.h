// SPDX-License-Identifier: Apache-2.0
// Norm, rope, softmax, SiLU and rounding, written once in the words of Simd. Included by an instruction set's file
// after its simd_*.h.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace vitrine {
namespace {

constexpr std::int64_t kLanes = Simd::kLanes;

/// Numbers whose magnitude has bits from here on are not finite.
constexpr std::int32_t kInfinityBits = 0x7F800000;

VITRINE_INLINE std::int64_t at_most_lanes(std::int64_t count) { return count < kLanes ? count : kLanes; }

/// e^x within 1 ulp or so: x = n ln 2 + r with |r| <= ln 2 / 2, a polynomial in r (Taylor to the 7th power), times 2^n.
/// NaN stays NaN (min and max return their second operand then), below -104 it is zero.
VITRINE_INLINE Simd::F exp(Simd::F x) {
  using S = Simd;
  x = S::min(S::set(89.0f), x);
  x = S::max(S::set(-105.0f), x);
  const S::F n = S::round(S::mul(x, S::set(1.44269504f)));
  S::F r = S::fnmadd(n, S::set(0.693145752f), x);  // ln 2 in two parts: the first has few bits
  r = S::fnmadd(n, S::set(1.42860677e-6f), r);
  S::F p = S::set(1.0f / 5040);
  p = S::fmadd(p, r, S::set(1.0f / 720));
  p = S::fmadd(p, r, S::set(1.0f / 120));
  p = S::fmadd(p, r, S::set(1.0f / 24));
  p = S::fmadd(p, r, S::set(1.0f / 6));
  p = S::fmadd(p, r, S::set(0.5f));
  p = S::fmadd(p, r, S::set(1.0f));
  p = S::fmadd(p, r, S::set(1.0f));
  return S::scale_by_power(p, n);
}

/// body(i, [count]) for each vector of n elements: whole ones without a mask, which stores and the loads after them
/// prefer, the rest with its count.
template <class Body>
VITRINE_INLINE void for_vectors(std::int64_t n, Body body) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i);
  if (i < n) body(i, n - i);
}

void rms_norm(const float* x, const float* weight, std::int64_t n, float eps, float* y) {
  using S = Simd;
  constexpr int kSums = 4;  // chains of dependent operations side by side
  S::F acc[kSums] = {S::zero(), S::zero(), S::zero(), S::zero()};
  std::int64_t i = 0;
  for (; i + kSums * kLanes <= n; i += kSums * kLanes) {
#pragma GCC unroll 4
    for (int s = 0; s < kSums; ++s) {
      const S::F v = S::load(x + i + s * kLanes);
      S::fma(acc[s], v, v);
    }
  }
  for (; i < n; i += kLanes) {
    const S::F v = S::load(x + i, at_most_lanes(n - i));
    S::fma(acc[0], v, v);
  }
  const S::F sums = S::add(S::add(acc[0], acc[1]), S::add(acc[2], acc[3]));
  const S::F scale = S::set(1.0f / S::square_root(S::sum(sums) / static_cast<float>(n) + eps));
  for_vectors(
      n, [=](std::int64_t at, auto... rest) __attribute__((always_inline)) {
        const S::F normed = S::mul(S::load(x + at, rest...), scale);
        S::store(y + at, S::mul(S::load(weight + at, rest...), normed), rest...);
      });
}

void rope(float* x, const float* cosines, const float* sines, std::int64_t n) {
  using S = Simd;
  const std::int64_t half = n / 2;
  for_vectors(
      half, [=](std::int64_t at, auto... rest) __attribute__((always_inline)) {
        const S::F a = S::load(x + at, rest...);
        const S::F b = S::load(x + at + half, rest...);
        const S::F c = S::load(cosines + at, rest...);
        const S::F s = S::load(sines + at, rest...);
        // Separate products and sums, as the reference rounds them.
        S::store(x + at, S::sub(S::mul(a, c), S::mul(b, s)), rest...);
        S::store(x + at + half, S::add(S::mul(b, c), S::mul(a, s)), rest...);
      });
}

void softmax(float* x, std::int64_t n) {
  using S = Simd;
  const std::int64_t whole = n / kLanes * kLanes;
  const std::int64_t rest = n - whole;
  S::F max = S::set(-__builtin_inff());
  for (std::int64_t i = 0; i < whole; i += kLanes) max = S::max(max, S::load(x + i));
  float top = S::largest(max);
  for (std::int64_t i = whole; i < n; ++i) top = x[i] > top ? x[i] : top;
  S::F sum = S::zero();
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    const S::F e = exp(S::sub(S::load(x + i), S::set(top)));
    S::store(x + i, e);
    sum = S::add(sum, e);
  }
  if (rest > 0) {
    S::store(x + whole, exp(S::sub(S::load(x + whole, rest), S::set(top))), rest);
    sum = S::add(sum, S::load(x + whole, rest));  // the lanes beyond it are zero, whatever exp made of them
  }
  const S::F total = S::set(S::sum(sum));
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const std::int64_t count = at_most_lanes(n - i);
    S::store(x + i, S::div(S::load(x + i, count), total), count);
  }
}

VITRINE_INLINE Simd::F silu(Simd::F gate) {
  return Simd::div(gate, Simd::add(Simd::set(1.0f), exp(Simd::sub(Simd::zero(), gate))));
}

void silu_mul(const float* gate, const float* up, std::int64_t n, float* out) {
  constexpr int kAtOnce = 4;  // chains of dependent operations side by side
  std::int64_t i = 0;
  for (; i + kAtOnce * kLanes <= n; i += kAtOnce * kLanes) {
    Simd::F value[kAtOnce];
#pragma GCC unroll 4
    for (int v = 0; v < kAtOnce; ++v) value[v] = silu(Simd::load(gate + i + v * kLanes));
#pragma GCC unroll 4
    for (int v = 0; v < kAtOnce; ++v) {
      Simd::store(out + i + v * kLanes, Simd::mul(value[v], Simd::load(up + i + v * kLanes)));
    }
  }
  for (; i < n; i += kLanes) {
    const std::int64_t count = at_most_lanes(n - i);
    Simd::store(out + i, Simd::mul(silu(Simd::load(gate + i, count)), Simd::load(up + i, count)), count);
  }
}

float largest(const float* x, std::int64_t n) {
  const std::int64_t whole = n / kLanes * kLanes;
  Simd::F max = Simd::set(-__builtin_inff());
  Simd::I magnitude = Simd::zero_int();
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    const Simd::F v = Simd::load(x + i);
    max = Simd::max(max, v);
    magnitude = Simd::max_magnitude(magnitude, v);
  }
  magnitude = Simd::max_magnitude(magnitude, Simd::load(x + whole, n - whole));
  if (Simd::largest_int(magnitude) >= kInfinityBits) return __builtin_nanf("");
  float top = Simd::largest(max);
  for (std::int64_t i = whole; i < n; ++i) top = x[i] > top ? x[i] : top;
  return top;
}

void store_operand_f32(const float* x, std::int64_t k, const OperandRow& row) {
  for (std::int64_t step = 0; step < row.steps; ++step) {
    auto* out = reinterpret_cast<float*>(row.tile + step * row.step_bytes);
    for (std::int64_t i = 0; i < 16; i += kLanes) {
      const std::int64_t left = k - step * 16 - i;
      Simd::store(out + i, left > 0 ? Simd::load(x + step * 16 + i, at_most_lanes(left)) : Simd::zero());
    }
  }
}

void store_operand_bf16(const float* x, std::int64_t k, const OperandRow& row) {
  for (std::int64_t step = 0; step < row.steps; ++step) {
    unsigned char* out = row.tile + step * row.step_bytes;
    for (std::int64_t i = 0; i < 32; i += kLanes) {
      const std::int64_t left = k - step * 32 - i;
      Simd::store_bf16(out + 2 * i, left > 0 ? Simd::load(x + step * 32 + i, at_most_lanes(left)) : Simd::zero());
    }
  }
}

void store_operand_int8(const float* x, std::int64_t k, const OperandRow& row) {
  using S = Simd;
  const std::int64_t padded = row.steps * 64;
  for (std::int64_t start = 0; start < padded; start += kSegment) {
    const std::int64_t end = start + kSegment < padded ? start + kSegment : padded;
    const std::int64_t filled = end < k ? end : k;
    S::I most = S::zero_int();
    for (std::int64_t i = start; i < filled; i += kLanes) {
      most = S::max_magnitude(most, S::load(x + i, at_most_lanes(filled - i)));
    }
    const std::int32_t bits = S::largest_int(most);
    float max;
    __builtin_memcpy(&max, &bits, sizeof(max));
    const bool finite = bits < kInfinityBits;
    const bool zero = max < kSmallestMagnitude;
    const S::F inverse = S::set(zero || !finite ? 0.0f : 127.0f / max);
    const std::int64_t segment = start / kSegment;
    row.scales[segment] = !finite ? __builtin_nanf("") : zero ? 0.0f : max / 127.0f;
    std::int32_t segment_sum = 0;
    for (std::int64_t group = start; group < end; group += kGroup) {
      S::I sum = S::zero_int();
      for (std::int64_t i = group; i < group + kGroup; i += kLanes) {
        unsigned char* out = row.tile + i / 64 * row.step_bytes + i % 64;
        const S::F v = i < filled ? S::load(x + i, at_most_lanes(filled - i)) : S::zero();
        const S::I q = finite ? S::to_int(S::mul(v, inverse)) : S::zero_int();
        S::store_as_bytes(out, q);
        sum = S::add_int(sum, q);
      }
      row.group_sums[group / kGroup] = S::sum_int(sum);
      segment_sum += row.group_sums[group / kGroup];
    }
    row.segment_sums[segment] = segment_sum;
  }
}

void override_elementwise(Kernels& kernels) {
  kernels.store_operand[kOperandF32] = store_operand_f32;
  kernels.store_operand[kOperandBF16] = store_operand_bf16;
  kernels.store_operand[kOperandInt8] = store_operand_int8;
  kernels.rms_norm = rms_norm;
  kernels.rope = rope;
  kernels.softmax = softmax;
  kernels.silu_mul = silu_mul;
  kernels.largest = largest;
}

}  // namespace
}  // namespace vitrine
