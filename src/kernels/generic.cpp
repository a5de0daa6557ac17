// SPDX-License-Identifier: Apache-2.0
// What every kernel means, in plain loops. The fast twins in avx2.cpp and avx512.cpp are tested against these.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "kernels/attention_generic.h"
#include "kernels/kernels.h"

namespace vitrine {
namespace {

/// Element i of an array of T at any alignment.
template <class T>
T at(const void* array, std::int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(array) + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}
template <class T>
float float_at(const void* array, std::int64_t i) {
  return to_float(at<T>(array, i));
}

// ---- Products ----
// Where an element lies: see packed.h for weights and Operand for the left side. `byte` counts along k.

const unsigned char* panel_of(const MatmulTask& task, std::int64_t n) {
  return task.weight.panels + n / kPanelRows * task.weight.panel_bytes;
}

std::int64_t in_panel(std::int64_t row, std::int64_t byte) {
  return (byte / 64 * 2 + row / kTileRows) * kTileBytes + byte % 64 / 4 * 64 + row % kTileRows * 4 + byte % 4;
}

const unsigned char* in_operand(const Operand& x, std::int64_t m, std::int64_t byte) {
  const std::int64_t block = m / kTileRows * kTileRows;
  const std::int64_t rows = x.rows - block < kTileRows ? x.rows - block : kTileRows;
  return x.tiles + block * x.steps * 64 + (byte / 64 * rows + m % kTileRows) * 64 + byte % 64;
}

/// Row `row` of 32 in bytes that hold two: the first 16 rows in the low halves.
int nibble(const unsigned char* nibbles, std::int64_t row) {
  return nibbles[row % kTileRows] >> (row < kTileRows ? 0 : 4) & 15;
}

template <class W>
void matmul_float(const MatmulTask& task) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(W));
  const std::int64_t k_end = task.weight.steps * 64 / kSize;
  for (std::int64_t m = 0; m < task.x.rows; ++m) {
    for (std::int64_t n = 0; n < task.n; ++n) {
      float sum = 0;
      for (std::int64_t k = 0; k < k_end; ++k) {
        const float w = float_at<W>(panel_of(task, n) + in_panel(n % kPanelRows, k * kSize), 0);
        sum += at<float>(in_operand(task.x, m, 4 * k), 0) * w;
      }
      float& y = task.y[m * task.y_stride + n];
      y = task.accumulate ? y + sum : sum;
    }
  }
}

/// The whole number that element k of row n stands for, before float scales.
template <PackedType Type>
std::int32_t weight_at(const MatmulTask& task, std::int64_t n, std::int64_t k) {
  const unsigned char* panel = panel_of(task, n);
  const std::int64_t row = n % kPanelRows;
  if constexpr (Type == kPackedInt8 || Type == kPackedInt8Grouped) {
    return static_cast<signed char>(panel[in_panel(row, k)]);
  } else {
    const int byte = panel[k / 4 * 64 + row % kTileRows * 4 + k % 4];
    const int value = row < kTileRows ? byte & 15 : byte >> 4;
    const int shared = nibble(panel + task.weight.nibbles_offset + k / task.weight.group * kTileRows, row);
    return Type == kPackedInt4 ? (value - 8) * shared : value - shared;
  }
}

template <PackedType Type>
void matmul_int(const MatmulTask& task) {
  constexpr bool kGroupScales = Type == kPackedInt8Grouped || Type == kPackedInt4Grouped;
  const std::int64_t k_end = task.weight.steps * 64;
  const std::int64_t group = kGroupScales ? task.weight.group : kSegment;
  for (std::int64_t m = 0; m < task.x.rows; ++m) {
    for (std::int64_t n = 0; n < task.n; ++n) {
      const unsigned char* panel = panel_of(task, n);
      const std::int64_t row = n % kPanelRows;
      float total = 0;
      for (std::int64_t segment = 0; segment * kSegment < k_end; ++segment) {
        const std::int64_t end = std::min((segment + 1) * kSegment, k_end);
        float inner = 0;
        for (std::int64_t k = segment * kSegment; k < end;) {
          std::int32_t sum = 0;
          const std::int64_t first = k;
          for (const std::int64_t stop = std::min(k + group, end); k < stop; ++k) {
            sum += at<std::int8_t>(in_operand(task.x, m, k), 0) * weight_at<Type>(task, n, k);
          }
          const auto value = static_cast<float>(sum);
          if (kGroupScales) {
            const float scale = float_at<Float16>(panel + task.weight.scales_offset, first / group * kPanelRows + row);
            inner = std::fma(value, scale, inner);
          } else {
            inner = value;
          }
        }
        total = std::fma(inner, task.x.scales[m * task.x.segments + segment], total);
      }
      if (!kGroupScales) total *= at<float>(panel + task.weight.row_scales_offset, row);
      float& y = task.y[m * task.y_stride + n];
      y = task.accumulate ? y + total : total;
    }
  }
}

template <class T, class Round>
void store_floats(const float* x, std::int64_t k, const OperandRow& row, Round round) {
  constexpr std::int64_t kPerStep = 64 / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t i = 0; i < row.steps * kPerStep; ++i) {
    const T value = round(i < k ? x[i] : 0.0f);
    std::memcpy(row.tile + i / kPerStep * row.step_bytes + i % kPerStep * static_cast<std::int64_t>(sizeof(T)), &value,
                sizeof(T));
  }
}

void store_operand_f32(const float* x, std::int64_t k, const OperandRow& row) {
  store_floats<float>(x, k, row, [](float value) { return value; });
}

void store_operand_bf16(const float* x, std::int64_t k, const OperandRow& row) {
  store_floats<BFloat16>(x, k, row, to_bfloat16);
}

void store_operand_int8(const float* x, std::int64_t k, const OperandRow& row) {
  const std::int64_t k_end = row.steps * 64;
  for (std::int64_t start = 0; start < k_end; start += kSegment) {
    const std::int64_t end = std::min(start + kSegment, k_end);
    float most = 0;
    bool finite = true;
    for (std::int64_t i = start; i < std::min(end, k); ++i) {
      finite = finite && std::isfinite(x[i]);
      most = std::max(most, std::fabs(x[i]));
    }
    const bool zero = !finite || most < kSmallestMagnitude;
    const float inverse = zero ? 0.0f : 127.0f / most;
    row.scales[start / kSegment] = !finite ? NAN : zero ? 0.0f : most / 127.0f;
    row.segment_sums[start / kSegment] = 0;
    for (std::int64_t i = start; i < end; ++i) {
      const int q = zero || i >= k ? 0 : static_cast<int>(std::nearbyint(x[i] * inverse));
      row.tile[i / 64 * row.step_bytes + i % 64] = static_cast<unsigned char>(q);
      if (i % kGroup == 0) row.group_sums[i / kGroup] = 0;
      row.group_sums[i / kGroup] += q;
      row.segment_sums[start / kSegment] += q;
    }
  }
}

// ---- The rest ----

void rms_norm(const float* x, const float* weight, std::int64_t n, float eps, float* y) {
  float sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  const float scale = 1.0f / std::sqrt(sum / static_cast<float>(n) + eps);
  for (std::int64_t i = 0; i < n; ++i) y[i] = weight[i] * (x[i] * scale);
}

void rope(float* x, const float* cosines, const float* sines, std::int64_t n) {
  const std::int64_t half = n / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[i + half];
    x[i] = a * cosines[i] - b * sines[i];
    x[i + half] = b * cosines[i] + a * sines[i];
  }
}

void softmax(float* x, std::int64_t n) {
  float max = -INFINITY;
  for (std::int64_t i = 0; i < n; ++i) max = x[i] > max ? x[i] : max;
  float sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    x[i] = std::exp(x[i] - max);
    sum += x[i];
  }
  for (std::int64_t i = 0; i < n; ++i) x[i] /= sum;
}

void silu_mul(const float* gate, const float* up, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

float largest(const float* x, std::int64_t n) {
  float most = -INFINITY;
  for (std::int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) return NAN;
    most = x[i] > most ? x[i] : most;
  }
  return most;
}

}  // namespace

Kernels generic_kernels() {
  Kernels kernels = {
      .name = "generic",
      .matmul = {matmul_float<float>, matmul_float<BFloat16>, matmul_int<kPackedInt8>, matmul_int<kPackedInt8Grouped>,
                 matmul_int<kPackedInt4>, matmul_int<kPackedInt4Grouped>},
      .operand = {kOperandF32, kOperandF32, kOperandInt8, kOperandInt8, kOperandInt8, kOperandInt8},
      .store_operand = {store_operand_f32, store_operand_bf16, store_operand_int8},
      .rms_norm = rms_norm,
      .rope = rope,
      .softmax = softmax,
      .silu_mul = silu_mul,
      .largest = largest,
  };
  add_generic_attention(kernels);
  return kernels;
}

}  // namespace vitrine
