// SPDX-License-Identifier: Apache-2.0
// Attention over keys and values in float32 and bfloat16: queries, weights and sums in float32. Included by an
// instruction set's file after its simd_*.h.
#pragma once

#include <cstdint>

#include "kernels/attention_body.h"
#include "kernels/float_product_body.h"

namespace vitrine {
namespace {

struct KvF32 {
  static constexpr bool kScaled = false;
  using Keys = WeightsF32;

  static KvPlaces places(std::int64_t head_dim) {
    const std::int64_t tiles = (head_dim + 15) / 16;
    return {tiles, tiles, 0, tiles * 2 * kTileBytes, 0, tiles * 4 * kTileBytes};
  }
  template <int NV, class Use>
  static VITRINE_INLINE void each_value(const unsigned char* values, std::int64_t tiles, std::int64_t tile, int part,
                                        Use use) {
    WeightsF32::each<NV>(values + (part * tiles + tile) * kTileBytes, 0, use);
  }
  template <int NV>
  static VITRINE_INLINE void fetch(const unsigned char* values, std::int64_t tiles, std::int64_t tile, int part) {
    fetch_lines<NV / kVecs * 16>(values + (part * tiles + tile) * kTileBytes);
  }
};

struct KvBF16 {
  static constexpr bool kScaled = false;
  using Keys = WeightsBF16;

  static KvPlaces places(std::int64_t head_dim) {
    const std::int64_t steps = (head_dim + 31) / 32;
    const std::int64_t tiles = (head_dim + 15) / 16;
    return {steps, tiles, 0, steps * 2 * kTileBytes, 0, steps * 2 * kTileBytes + tiles * kTileBytes};
  }
  template <int NV, class Use>
  static VITRINE_INLINE void each_value(const unsigned char* values, std::int64_t, std::int64_t tile, int part,
                                        Use use) {
    WeightsBF16::each<NV>(values + tile * kTileBytes, part, use);
  }
  template <int NV>
  static VITRINE_INLINE void fetch(const unsigned char* values, std::int64_t, std::int64_t tile, int part) {
    fetch_lines<NV / kVecs * 8>(values + tile * kTileBytes + part * (NV / kVecs * 8) * kLine);
  }
};

/// scores of MR queries with NV vectors of a block's tokens
template <class Keys, int MR, int NV>
void score_tile(const unsigned char* panel, std::int64_t steps, const unsigned char* q, std::int64_t step_bytes,
                float* scores, const unsigned char* ahead) {
  Simd::F acc[MR][NV];
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) acc[m][v] = Simd::zero();
  }
  for (std::int64_t step = 0; step < steps; ++step, panel += 2 * kTileBytes) {
    if (ahead != nullptr) fetch_lines<32>(ahead + step * 2 * kTileBytes);
#pragma GCC unroll 2
    for (int part = 0; part < Keys::kSteps; ++part, q += step_bytes) {
      Keys::template each<NV>(
          panel, part, [&](int k, const Simd::F* w) __attribute__((always_inline)) {
#pragma GCC unroll 16
            for (int m = 0; m < MR; ++m) {
              const Simd::F x = Simd::set(reinterpret_cast<const float*>(q + m * kLine)[k]);
#pragma GCC unroll 4
              for (int v = 0; v < NV; ++v) Simd::fma(acc[m][v], w[v], x);
            }
          });
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) Simd::store(scores + m * kScoreStride + v * Simd::kLanes, acc[m][v]);
  }
}

template <class Keys>
struct ScoreRows {
  const RowBlock& rows;
  const unsigned char* panel;
  std::int64_t steps;
  float* scores;
  const unsigned char* ahead;

  template <int MR>
  void run(std::int64_t r) const {
    const unsigned char* q = rows.queries + r * kLine;
    const std::int64_t step_bytes = rows.count * kLine;
    float* row = scores + r * kScoreStride;
    const unsigned char* fetched = r == 0 ? ahead : nullptr;
    if constexpr (MR * kWidth <= kFloatSums + 4) {
      score_tile<Keys, MR, kWidth>(panel, steps, q, step_bytes, row, fetched);
    } else {
      score_tile<Keys, MR, kVecs>(panel, steps, q, step_bytes, row, fetched);
      score_tile<Keys, MR, kVecs>(panel + kTileBytes, steps, q, step_bytes, row + kTileRows, nullptr);
    }
  }
};

/// A float storage with what the queries need.
template <class Storage>
struct FloatKv : Storage {
  /// Queries times scale and log2 e, for exp2. Returns the bytes of a row.
  static std::int64_t store_queries(const AttentionTask& task, const Frame& frame) {
    const std::int64_t steps = frame.places.key_steps * Storage::Keys::kSteps;
    const Simd::F factor = Simd::set(task.scale * 1.44269504f);
    for (std::int64_t row = 0; row < frame.num_rows; ++row) {
      const std::int64_t block = row / kTileRows * kTileRows;
      const std::int64_t step_bytes = smaller(kTileRows, frame.num_rows - block) * kLine;
      unsigned char* to = frame.queries + block * steps * kLine + row % kTileRows * kLine;
      const float* q = query_of(task, row);
      for (std::int64_t i = 0; i < steps * 16; i += Simd::kLanes) {
        const std::int64_t left = task.head_dim - i;
        const Simd::F x = left > 0 ? Simd::load(q + i, smaller(left, Simd::kLanes)) : Simd::zero();
        Simd::store(reinterpret_cast<float*>(to + i / 16 * step_bytes) + i % 16, Simd::mul(x, factor));
      }
    }
    return steps * kLine;
  }
  static VITRINE_INLINE void score(const Frame& frame, const RowBlock& rows, const unsigned char* panel, float* scores,
                                   const unsigned char* ahead) {
    for_rows<kFloatRows>(rows.count,
                         ScoreRows<typename Storage::Keys>{rows, panel, frame.places.key_steps, scores, ahead});
  }
};

void override_float_attention(Kernels& kernels) {
  kernels.attention[kKvF32] = attention<FloatKv<KvF32>>;
  kernels.attention[kKvBF16] = attention<FloatKv<KvBF16>>;
}

}  // namespace
}  // namespace vitrine
