// SPDX-License-Identifier: Apache-2.0
// Attention over keys and values in int8: queries rounded to int8 as well, so that their products with keys are exact;
// weights, scaled by their values' scales, and sums in float32. Included by an instruction set's file after its
// simd_*.h, its struct Dot and the products made of it (int_product_body.h).
#pragma once

#include <cstdint>

#include "kernels/attention_body.h"
#include "kernels/int_product_body.h"

namespace vitrine {
namespace {

/// float(sum of q * key) * query scale * key scale, for MR rows and NV vectors of a block's tokens.
template <int MR, int NV>
void int8_score_tile(const Frame& frame, const RowBlock& rows, std::int64_t r, const unsigned char* panel,
                     const float* key_scales, float* scores, const unsigned char* ahead) {
  Simd::I acc[MR][NV];
  start_sums(acc, frame.query_sums + rows.first + r, 1);
  const unsigned char* q = rows.queries + r * kLine;
  for (std::int64_t step = 0; step < frame.places.key_steps; ++step, panel += 2 * kTileBytes) {
    if (ahead != nullptr) fetch_lines<32>(ahead + step * 2 * kTileBytes);
    add_quads<false>(acc, panel, q, 0, 16);
    q += rows.count * kLine;
  }
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
    const Simd::F scale = Simd::set(frame.query_scales[rows.first + r + m]);
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      const Simd::F product = Simd::mul(Simd::to_float(acc[m][v]), scale);
      Simd::store(scores + m * kScoreStride + v * Simd::kLanes,
                  Simd::mul(product, Simd::load(key_scales + v * Simd::kLanes)));
    }
  }
}

struct Int8ScoreRows {
  const Frame& frame;
  const RowBlock& rows;
  const unsigned char* block;
  float* scores;
  const unsigned char* ahead;

  template <int MR>
  void run(std::int64_t r) const {
    const auto* scales = reinterpret_cast<const float*>(block + frame.places.key_scales);
    float* row = scores + r * kScoreStride;
    const unsigned char* fetched = r == 0 ? ahead : nullptr;
    if constexpr (MR * kWidth <= Dot::kSums) {
      int8_score_tile<MR, kWidth>(frame, rows, r, block, scales, row, fetched);
    } else {
      int8_score_tile<MR, kVecs>(frame, rows, r, block, scales, row, fetched);
      int8_score_tile<MR, kVecs>(frame, rows, r, block + kTileBytes, scales + kTileRows, row + kTileRows, nullptr);
    }
  }
};

struct KvInt8 {
  static constexpr bool kScaled = true;

  static KvPlaces places(std::int64_t head_dim) { return int8_places(head_dim); }

  static std::int64_t store_queries(const AttentionTask& task, const Frame& frame) {
    const std::int64_t steps = frame.places.key_steps;
    for (std::int64_t row = 0; row < frame.num_rows; ++row) {
      const std::int64_t block = row / kTileRows * kTileRows;
      const std::int64_t step_bytes = smaller(kTileRows, frame.num_rows - block) * kLine;
      unsigned char* to = frame.queries + block * steps * kLine + row % kTileRows * kLine;
      const float* q = query_of(task, row);
      const Int8Scale scale = int8_scale(q, task.head_dim);
      Simd::I sum = Simd::zero_int();
      for (std::int64_t i = 0; i < steps * 64; i += Simd::kLanes) {
        const Simd::F x =
            i < task.head_dim ? Simd::load(q + i, smaller(task.head_dim - i, Simd::kLanes)) : Simd::zero();
        const Simd::I rounded = to_int8(x, scale);
        sum = Simd::add_int(sum, rounded);
        Simd::store_as_bytes(to + i / 64 * step_bytes + i % 64, rounded);
      }
      frame.query_sums[row] = Simd::sum_int(sum);
      frame.query_scales[row] = scale.scale * (task.scale * 1.44269504f);
    }
    return steps * kLine;
  }
  static VITRINE_INLINE void score(const Frame& frame, const RowBlock& rows, const unsigned char* block, float* scores,
                                   const unsigned char* ahead) {
    for_rows<kInt8Rows>(rows.count, Int8ScoreRows{frame, rows, block, scores, ahead});
  }

  /// 16 tokens of a tile, a line of 16 bytes each.
  template <int NV, class Use>
  static VITRINE_INLINE void each_value(const unsigned char* values, std::int64_t, std::int64_t tile, int part,
                                        Use use) {
    const unsigned char* tokens = values + (tile * kKvTokens + part * 16) * kTileRows;
#pragma GCC unroll 2
    for (int t = 0; t < 16; ++t) {
      Simd::F w[NV];
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        w[v] = Simd::to_float(Simd::load_signed_bytes(tokens + v / kVecs * kKvTokens * kTileRows + t * kTileRows +
                                                      v % kVecs * Simd::kLanes));
      }
      use(t, w);
    }
  }
  template <int NV>
  static VITRINE_INLINE void fetch(const unsigned char* values, std::int64_t, std::int64_t tile, int part) {
    fetch_lines<NV / kVecs * 4>(values + tile * kKvTokens * kTileRows + part * (NV / kVecs * 4) * kLine);
  }
};

void override_int8_attention(Kernels& kernels) { kernels.attention[kKvInt8] = attention<KvInt8>; }

}  // namespace
}  // namespace vitrine
