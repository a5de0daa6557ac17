// SPDX-License-Identifier: Apache-2.0
// What the products of floats and of integers share: how the rows of an operand meet the panels of a weight.
// Written in the words of Simd; included through the bodies of the products.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace vitrine {
namespace {

constexpr int kVecs = static_cast<int>(kTileRows / Simd::kLanes);  // vectors that hold one value for each row of a tile
constexpr int kWidth = 2 * kVecs;                                  // the same for a panel
constexpr std::int64_t kLine = 64;                                 // bytes of a tile for one 4-byte step of k
constexpr std::int64_t kAhead = 8192;                              // prefetch distance, bytes (performance.md 0.4)

/// Brings a line to the second cache, which is where a stream from memory waits.
VITRINE_INLINE void fetch(const unsigned char* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }
/// Fetches what the stream needs next: for the first rows that meet a panel, memory is what they wait for.
VITRINE_INLINE void prefetch(const unsigned char* p) { fetch(p + kAhead); }

/// A block of the operand: its rows r0, r0 + 1 and so on.
struct BlockRows {
  const unsigned char* tile;  // of row r0
  std::int64_t step_bytes;
  std::int64_t row;  // number of r0 in the operand
};

VITRINE_INLINE void write(const MatmulTask& task, std::int64_t row, std::int64_t column, Simd::F v) {
  const std::int64_t left = task.n - column;
  if (left <= 0) return;
  float* y = task.y + row * task.y_stride + column;
  if (left >= Simd::kLanes) {
    Simd::store(y, task.accumulate ? Simd::add(Simd::load(y), v) : v);
  } else {
    Simd::store(y, task.accumulate ? Simd::add(Simd::load(y, left), v) : v, left);
  }
}

/// Calls rows.run<MR>(task, panel, column, block) so that all rows of the operand meet all panels, at most Most rows at
/// a time. Panels outside: each is read once and stays in the caches for all rows.
template <int Most, class Rows>
VITRINE_INLINE void for_block(const MatmulTask& task, const Rows& rows, std::int64_t column, std::int64_t first) {
  const std::int64_t left = task.x.rows - first;
  const std::int64_t in_block = left < kTileRows ? left : kTileRows;
  const unsigned char* tiles = task.x.tiles + first * task.x.steps * kLine;
  std::int64_t r = 0;
  for (; r + Most <= in_block; r += Most) {
    rows.template run<Most>(task, column, {tiles + r * kLine, in_block * kLine, first + r});
  }
  const BlockRows rest{tiles + r * kLine, in_block * kLine, first + r};
  switch (in_block - r) {
#define VITRINE_ROWS(count)                                                   \
  case count:                                                                 \
    if constexpr (count < Most) rows.template run<count>(task, column, rest); \
    break;
    VITRINE_ROWS(1)
    VITRINE_ROWS(2)
    VITRINE_ROWS(3)
    VITRINE_ROWS(4)
    VITRINE_ROWS(5)
    VITRINE_ROWS(6)
    VITRINE_ROWS(7)
#undef VITRINE_ROWS
    default:
      break;
  }
}

}  // namespace
}  // namespace vitrine
