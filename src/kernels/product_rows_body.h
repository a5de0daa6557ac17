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

/// Calls body.run<R>(r) for all r of [0, count), R at a time, at most Most.
template <int Most, class Body>
VITRINE_INLINE void for_rows(std::int64_t count, const Body& body) {
  std::int64_t r = 0;
  for (; r + Most <= count; r += Most) body.template run<Most>(r);
  switch (count - r) {
#define VITRINE_ROWS(rest)                                 \
  case rest:                                               \
    if constexpr (rest < Most) body.template run<rest>(r); \
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

/// rows.run<MR>(task, column, block) for a block of the operand.
template <class Rows>
struct RowsOfBlock {
  const MatmulTask& task;
  const Rows& rows;
  std::int64_t column;
  BlockRows block;  // of its first row
  template <int MR>
  VITRINE_INLINE void run(std::int64_t r) const {
    rows.template run<MR>(task, column, {block.tile + r * kLine, block.step_bytes, block.row + r});
  }
};

/// The rows of the operand's block that begins at row `first` meet a panel, at most Most at a time.
template <int Most, class Rows>
VITRINE_INLINE void for_block(const MatmulTask& task, const Rows& rows, std::int64_t column, std::int64_t first) {
  const std::int64_t left = task.x.rows - first;
  const std::int64_t in_block = left < kTileRows ? left : kTileRows;
  const BlockRows block{task.x.tiles + first * task.x.steps * kLine, in_block * kLine, first};
  for_rows<Most>(in_block, RowsOfBlock<Rows>{task, rows, column, block});
}

}  // namespace
}  // namespace vitrine
