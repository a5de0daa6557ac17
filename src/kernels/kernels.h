// SPDX-License-Identifier: Apache-2.0
// The table of kernels: one function pointer an operation, chosen once at load for the instruction set at hand.
// Plain structs only, since the files behind the table are compiled for different instruction sets.
#pragma once

#include <cstdint>

#include "kernels/attention_task.h"
#include "quant/packed.h"

namespace vitrine {

/// How the left side of a product is written down for it; indexes the arrays of Kernels.
enum OperandType : std::uint8_t { kOperandF32, kOperandBF16, kOperandInt8, kNumOperandTypes };

/// The left side of a product, [rows, k], in tiles that match those of a packed weight: blocks of 16 rows, the last one
/// of as many as are left; in a block, for each 64 bytes of k, those 64 bytes of every row. Zeros beyond k.
/// Int8: x = q * scale, with one scale for each kSegment of a row, and sums of q.
struct Operand {
  unsigned char* tiles;
  float* scales;               // [rows, segments]
  std::int32_t* segment_sums;  // [rows, segments] sum of q over the segment
  std::int32_t* group_sums;    // [rows, groups] sum of q over kGroup elements
  std::int64_t rows;
  std::int64_t steps;  // 64-byte steps of k, which is padded to a multiple of kOperandPadding
  std::int64_t segments, groups;
};

/// A segment with nothing larger than this is rounded to zeros: 127 / it must be finite.
inline constexpr float kSmallestMagnitude = 1e-30f;

/// Where elements of one row of an Operand go, from the start of a segment on.
struct OperandRow {
  unsigned char* tile;      // the row's 64 bytes of the first step
  std::int64_t step_bytes;  // from a step to the next: 64 * rows of the block
  std::int64_t steps;       // how many to fill
  float* scales;
  std::int32_t* segment_sums;
  std::int32_t* group_sums;
};

/// y[m][n] (+)= sum over k of x[m][k] * weight[n][k], for n columns that begin with a panel.
/// Floats: one sum an element, k ascending. Integers: exact sums over a segment (and a group), then in float32
///   y = row_scale[n] * sum over segments of float(sum of q * w) * x_scale             with one scale a row
///   y = sum over segments of (sum over its groups of float(sum of q * w) * scale[n]) * x_scale    with group scales
/// each term added in that order with one rounding (fused multiply-add): the same bits from every table, and for a row whatever rows
/// and columns it is computed with.
struct MatmulTask {
  PackedWeight weight;  // from the panel of the first column on
  Operand x;
  float* y;  // [x.rows, n]
  std::int64_t y_stride;
  std::int64_t n;
  bool accumulate;         // y += instead of y =
  unsigned char* scratch;  // matmul_scratch_bytes, 64-byte aligned
};

/// Scratch that a product may need: a panel unpacked, and its sums for every row.
inline std::int64_t matmul_scratch_bytes(std::int64_t rows, std::int64_t k) {
  return kPanelRows * 4 * (k + kOperandPadding + rows + 2 * kTileRows);
}

struct Kernels {
  const char* name;

  void (*matmul[kNumPackedTypes])(const MatmulTask& task);
  /// What matmul of that type takes for x.
  OperandType operand[kNumPackedTypes];
  /// Writes x [k] into a row of an operand, zeros behind it. bf16 rounds to nearest even; int8 is
  /// q = round(x * (127 / max|x|)), scale = max|x| / 127 of its segment, a NaN scale where x is not finite.
  void (*store_operand[kNumOperandTypes])(const float* x, std::int64_t k, const OperandRow& row);

  /// Writes tokens into a block of the cache. Int8 is rounded as store_operand does it, a whole head with one scale.
  void (*store_kv[kNumKvStorages])(const StoreKvTask& task);
  void (*attention[kNumKvStorages])(const AttentionTask& task);

  /// y = weight * (x / sqrt(mean(x^2) + eps)); y may be x
  void (*rms_norm)(const float* x, const float* weight, std::int64_t n, float eps, float* y);
  /// Rotates the pairs (i, i + n/2) of one head in place by the angles whose cosines and sines are given, [n/2] each.
  void (*rope)(float* x, const float* cosines, const float* sines, std::int64_t n);
  /// x = exp(x - max(x)) / sum; -infinity counts as masked
  void (*softmax)(float* x, std::int64_t n);
  /// out = gate / (1 + exp(-gate)) * up; out may be gate
  void (*silu_mul)(const float* gate, const float* up, std::int64_t n, float* out);
  /// The largest element; NaN where one is not finite.
  float (*largest)(const float* x, std::int64_t n);
};

/// The scalar table: tutorial and oracle.
Kernels generic_kernels();
// Each replaces what its instruction set does better. Call only where the CPU has it (dispatch.cpp asks).
void override_avx2(Kernels& kernels);
void override_avx2_vnni(Kernels& kernels);  // integer products only, which have the same bits as without
void override_avx512(Kernels& kernels);
void override_avx512_vnni(Kernels& kernels);
void override_avx512_bf16(Kernels& kernels);    // bf16 products with activations rounded to bf16
void override_amx(Kernels& kernels);            // integer products
void override_amx_bf16(Kernels& kernels);       // bf16 products with activations rounded to bf16
void override_amx_attention(Kernels& kernels);  // queries and weights rounded to bf16; needs AVX512_BF16 as well

}  // namespace vitrine
