// SPDX-License-Identifier: Apache-2.0
// Products of float operands with packed F32 and BF16 weights, written once in the words of Simd. Included by an
// instruction set's file after its simd_*.h.
#pragma once

#include <cstdint>

#include "kernels/product_rows_body.h"

namespace vitrine {
namespace {

constexpr int kFloatSums = kVecs == 1 ? 16 : 12;  // accumulators that leave registers for weights and activations
constexpr int kFloatRows = kVecs == 1 ? 8 : 6;

struct WeightsF32 {
  static constexpr int kSteps = 1;  // operand steps for one of the weight
  /// k positions 16 `part` + ... of a step, in order: use(k in the operand step, its weights by vector).
  template <int NV, class Use>
  static VITRINE_INLINE void each(const unsigned char* tiles, int, Use use) {
#pragma GCC unroll 1
    for (int q = 0; q < 16; ++q) {
      Simd::F w[NV];
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        w[v] = Simd::load(reinterpret_cast<const float*>(tiles + v / kVecs * kTileBytes + q * kLine) +
                          v % kVecs * Simd::kLanes);
      }
      use(q, w);
    }
  }
};

struct WeightsBF16 {
  static constexpr int kSteps = 2;
  template <int NV, class Use>
  static VITRINE_INLINE void each(const unsigned char* tiles, int part, Use use) {
#pragma GCC unroll 1
    for (int q = 0; q < 8; ++q) {
      const auto at = [&](int v) __attribute__((always_inline)) {
        return tiles + v / kVecs * kTileBytes + (part * 8 + q) * kLine + v % kVecs * 4 * Simd::kLanes;
      };
      Simd::F w[NV];
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) w[v] = Simd::widen_low(Simd::load_bits(at(v)));
      use(2 * q, w);
      // Loaded again rather than kept: AVX2 has no registers to spare.
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) w[v] = Simd::widen_high(Simd::load_bits(at(v)));
      use(2 * q + 1, w);
    }
  }
};

/// MR rows against NV vectors of a panel's rows, from vector `v0` on.
template <class W, int MR, int NV>
void float_tile(const MatmulTask& task, const unsigned char* panel, std::int64_t column, const BlockRows& block) {
  Simd::F acc[MR][NV];
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) acc[m][v] = Simd::zero();
  }
  const unsigned char* x = block.tile;
  for (std::int64_t step = 0; step < task.weight.steps; ++step, panel += 2 * kTileBytes) {
    if (block.row == 0) {
      for (int line = 0; line < 32; ++line) prefetch(panel + line * kLine);
    }
#pragma GCC unroll 1
    for (int part = 0; part < W::kSteps; ++part, x += block.step_bytes) {
      W::template each<NV>(
          panel, part, [&](int k, const Simd::F* w) __attribute__((always_inline)) {
#pragma GCC unroll 16
            for (int m = 0; m < MR; ++m) {
              const Simd::F xs = Simd::set(reinterpret_cast<const float*>(x + m * kLine)[k]);
#pragma GCC unroll 4
              for (int v = 0; v < NV; ++v) Simd::fma(acc[m][v], w[v], xs);
            }
          });
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) write(task, block.row + m, column + v * Simd::kLanes, acc[m][v]);
  }
}

/// MR rows against a whole panel, in as many parts as the registers ask for.
template <class W, int MR>
void float_rows(const MatmulTask& task, const unsigned char* panel, std::int64_t column, const BlockRows& block) {
  if constexpr (MR * kWidth <= kFloatSums) {
    float_tile<W, MR, kWidth>(task, panel, column, block);
  } else {
    float_tile<W, MR, kVecs>(task, panel, column, block);
    float_tile<W, MR, kVecs>(task, panel + kTileBytes, column + kTileRows, block);
  }
}

template <class W>
struct FloatRows {
  const unsigned char* panel;
  template <int MR>
  void run(const MatmulTask& task, std::int64_t column, const BlockRows& block) const {
    float_rows<W, MR>(task, panel, column, block);
  }
};

template <class W>
void matmul_float(const MatmulTask& task) {
  const unsigned char* panel = task.weight.panels;
  for (std::int64_t column = 0; column < task.n; column += kPanelRows, panel += task.weight.panel_bytes) {
    for (std::int64_t first = 0; first < task.x.rows; first += kTileRows) {
      for_block<kFloatRows>(task, FloatRows<W>{panel}, column, first);
    }
  }
}

void override_float_products(Kernels& kernels) {
  kernels.matmul[kPackedF32] = matmul_float<WeightsF32>;
  kernels.matmul[kPackedBF16] = matmul_float<WeightsBF16>;
}

}  // namespace
}  // namespace vitrine
