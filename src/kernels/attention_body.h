// SPDX-License-Identifier: Apache-2.0
// Attention over the paged KV cache, written once in the words of Simd: what is the same however keys and values are
// stored. Included by an instruction set's file after its simd_*.h and its products.
#pragma once

#include <cstdint>

#include "kernels/product_rows_body.h"

namespace vitrine {
namespace {

constexpr std::int64_t kBlocksOfSpan = kSpanTokens / kKvTokens;
/// Below every score, but finite: a row that has seen nothing yet may subtract it from itself.
constexpr float kNoScore = -1e30f;

/// 2^z within 3e-9 of it before rounding: z = n + f with n whole and |f| <= 1/2, a polynomial in f (minimax, exact at
/// 0) times 2^n. 1 for 0, 0 for -infinity, NaN for NaN.
VITRINE_INLINE Simd::F exp2(Simd::F z) {
  using S = Simd;
  z = S::max(S::set(-160.0f), z);
  const S::F n = S::round(z);
  const S::F f = S::sub(z, n);
  S::F p = S::set(0.000155946775f);
  p = S::fmadd(p, f, S::set(0.00134066439f));
  p = S::fmadd(p, f, S::set(0.00961769297f));
  p = S::fmadd(p, f, S::set(0.0555031055f));
  p = S::fmadd(p, f, S::set(0.240226528f));
  p = S::fmadd(p, f, S::set(0.693147215f));
  p = S::fmadd(p, f, S::set(1.0f));
  return S::scale_by_power(p, n);
}

template <int Lines>
VITRINE_INLINE void fetch_lines(const unsigned char* p) {
  for (int line = 0; line < Lines; ++line) fetch(p + line * kLine);
}

/// Positions relative to the start of a span.
struct Range {
  std::int64_t first, end;
};

VITRINE_INLINE std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
VITRINE_INLINE std::int64_t larger(std::int64_t a, std::int64_t b) { return a > b ? a : b; }

/// The positions that a token of the task sees.
VITRINE_INLINE Range visible(const AttentionTask& task, std::int64_t token) {
  const std::int64_t position = task.position + token;
  return {task.window > 0 ? larger(position - task.window + 1, 0) : 0, position + 1};
}

/// The block of the cache that has a position of the task's sequence.
VITRINE_INLINE const unsigned char* block_of(const AttentionTask& task, std::int64_t position) {
  return task.cache + task.blocks[position / kKvTokens] * task.block_bytes;
}

/// What is kept of the rows of a task from span to span.
struct RowStates {
  float* most;        // largest score so far
  float* sum;         // of the weights 2^(score - most)
  float* correction;  // 2^(most before this span - most)
};

/// Where things are in one head's part of a block: KvFormat as plain numbers.
struct KvPlaces {
  std::int64_t key_steps, value_tiles;
  std::int64_t key_scales, values, value_scales, bytes;
};

VITRINE_INLINE KvPlaces int8_places(std::int64_t head_dim) {
  const std::int64_t steps = (head_dim + 63) / 64;
  const std::int64_t tiles = (head_dim + 15) / 16;
  const std::int64_t values = steps * 2 * kTileBytes + kKvTokens * 4;
  const std::int64_t scales = values + tiles * kKvTokens * kTileRows;
  return {steps, tiles, values - kKvTokens * 4, values, scales, scales + kKvTokens * 4};
}

/// How a vector is rounded to int8: q = round(x * inverse), x = q * scale.
struct Int8Scale {
  float inverse, scale;  // 0 and NaN where x is not finite
};

VITRINE_INLINE Int8Scale int8_scale(const float* x, std::int64_t n) {
  Simd::I most = Simd::zero_int();
  for (std::int64_t i = 0; i < n; i += Simd::kLanes) {
    most = Simd::max_magnitude(most, Simd::load(x + i, n - i < Simd::kLanes ? n - i : Simd::kLanes));
  }
  const std::int32_t bits = Simd::largest_int(most);
  if (bits >= 0x7F800000) return {0, __builtin_nanf("")};
  float max;
  __builtin_memcpy(&max, &bits, sizeof(max));
  if (max < kSmallestMagnitude) return {0, 0};
  return {127.0f / max, max / 127.0f};
}

VITRINE_INLINE Simd::I to_int8(Simd::F x, Int8Scale scale) {
  return scale.inverse == 0 ? Simd::zero_int() : Simd::to_int(Simd::mul(x, Simd::set(scale.inverse)));
}

/// The rows of a task that are taken together, a block of the operand of queries.
struct RowBlock {
  std::int64_t first, count;     // rows; at most kTileRows
  const unsigned char* queries;  // [step of 64 bytes][count][64 bytes]
};

/// The blocks of the cache that some row of a RowBlock sees in a span.
struct Seen {
  std::int64_t start;  // position of the first one
  std::int64_t count;
  const unsigned char* block[kBlocksOfSpan];
  const unsigned char* after;  // the first block of the next span or of the next task, or null
};

/// A task's scratch.
struct Frame {
  unsigned char* queries;
  float* out;     // [rows][tiles * 16] values weighted and summed so far
  float* scores;  // [kTileRows][kScoreStride]
  RowStates rows;
  float* query_scales;       // [rows] int8: what their products are multiplied with
  std::int32_t* query_sums;  // [rows] int8
  std::int64_t num_rows, out_stride;
  KvPlaces places;
};

constexpr std::int64_t kScoreStride = kSpanTokens + 16;  // rows a power of two apart would meet in the cache

VITRINE_INLINE float* take_floats(unsigned char*& at, std::int64_t count) {
  auto* taken = reinterpret_cast<float*>(at);
  at += (count * 4 + kLine - 1) / kLine * kLine;
  return taken;
}

VITRINE_INLINE Frame make_frame(const AttentionTask& task, const KvPlaces& places) {
  Frame frame{};
  frame.places = places;
  frame.num_rows = task.tokens * task.heads;
  frame.out_stride = places.value_tiles * kTileRows;
  unsigned char* at = task.scratch;
  frame.rows = {take_floats(at, frame.num_rows), take_floats(at, frame.num_rows), take_floats(at, frame.num_rows)};
  frame.query_scales = take_floats(at, frame.num_rows);
  frame.query_sums = reinterpret_cast<std::int32_t*>(take_floats(at, frame.num_rows));
  frame.scores = take_floats(at, kTileRows * kScoreStride);
  frame.out = take_floats(at, frame.num_rows * frame.out_stride);
  frame.queries = at;
  for (std::int64_t row = 0; row < frame.num_rows; ++row) {
    frame.rows.most[row] = kNoScore;
    frame.rows.sum[row] = 0;
  }
  for (std::int64_t i = 0; i < frame.num_rows * frame.out_stride; i += Simd::kLanes) {
    Simd::store(frame.out + i, Simd::zero());
  }
  return frame;
}

VITRINE_INLINE const float* query_of(const AttentionTask& task, std::int64_t row) {
  return task.q + row / task.heads * task.q_stride + row % task.heads * task.head_dim;
}

/// The largest score a row may look at; the others become -infinity, whose weight is 0.
VITRINE_INLINE float largest_score(float* scores, Range range, std::int64_t length, float before) {
  using S = Simd;
  for (std::int64_t t = 0; t < range.first; ++t) scores[t] = -__builtin_inff();
  for (std::int64_t t = range.end; t < length; ++t) scores[t] = -__builtin_inff();
  S::F top = S::set(before);
  for (std::int64_t t = 0; t < length; t += S::kLanes) top = S::max(top, S::load(scores + t));
  return S::largest(top);
}

/// Scores to weights 2^(score - most); their sum.
VITRINE_INLINE float weigh(float* scores, std::int64_t length, float most) {
  using S = Simd;
  S::F sum = S::zero();
  for (std::int64_t t = 0; t < length; t += S::kLanes) {
    const S::F weight = exp2(S::sub(S::load(scores + t), S::set(most)));
    S::store(scores + t, weight);
    sum = S::add(sum, weight);
  }
  return S::sum(sum);
}

/// Weights times the scales of their values, 0 where the row may not look: what stands there may be no number.
VITRINE_INLINE void scale_weights(float* weights, Range range, const Frame& frame, const Seen& seen) {
  for (std::int64_t b = 0; b < seen.count; ++b) {
    const auto* scales = reinterpret_cast<const float*>(seen.block[b] + frame.places.value_scales);
    float* of_block = weights + b * kKvTokens;
    for (std::int64_t t = 0; t < kKvTokens; t += Simd::kLanes) {
      Simd::store(of_block + t, Simd::mul(Simd::load(of_block + t), Simd::load(scales + t)));
    }
  }
  for (std::int64_t t = 0; t < range.first; ++t) weights[t] = 0;
  for (std::int64_t t = range.end; t < seen.count * kKvTokens; ++t) weights[t] = 0;
}

// ---- Values ----

constexpr int kValueRows = kVecs == 1 ? 8 : 6;

/// out[r] += weights[r] * values for MR rows and NV vectors of the head from tile `tile` on, tokens in order.
template <class Kv, int MR, int NV>
void value_tile(const Frame& frame, const Seen& seen, std::int64_t begin, std::int64_t end, std::int64_t row,
                std::int64_t first_row, std::int64_t tile, const unsigned char* ahead) {
  float* out = frame.out + (first_row + row) * frame.out_stride + tile * kTileRows;
  Simd::F acc[MR][NV];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) acc[m][v] = Simd::load(out + m * frame.out_stride + v * Simd::kLanes);
  }
  for (std::int64_t b = begin; b < end; ++b) {
    const unsigned char* values = seen.block[b] + frame.places.values;
    for (int part = 0; part < 2; ++part) {
      const float* weights = frame.scores + row * kScoreStride + b * kKvTokens + part * 16;
      if (ahead != nullptr) Kv::template fetch<NV>(ahead, frame.places.value_tiles, tile, part);
      Kv::template each_value<NV>(
          values, frame.places.value_tiles, tile, part, [&](int t, const Simd::F* w) __attribute__((always_inline)) {
#pragma GCC unroll 8
            for (int m = 0; m < MR; ++m) {
              const Simd::F weight = Simd::set(weights[m * kScoreStride + t]);
#pragma GCC unroll 4
              for (int v = 0; v < NV; ++v) Simd::fma(acc[m][v], w[v], weight);
            }
          });
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) Simd::store(out + m * frame.out_stride + v * Simd::kLanes, acc[m][v]);
  }
}

/// Blocks [begin, end) of a span for all rows and the whole head.
template <class Kv>
struct ValueRows {
  const Frame& frame;
  const Seen& seen;
  std::int64_t begin, end, first_row, tile, num_tiles;
  const unsigned char* ahead;

  template <int MR>
  void run(std::int64_t row) const {
    constexpr int kNV = MR * 4 <= (kVecs == 1 ? 16 : 8) ? 4 : 2;  // AVX2 has half the registers
    std::int64_t t = tile;
    for (; t + kNV / kVecs <= tile + num_tiles; t += kNV / kVecs) {
      value_tile<Kv, MR, kNV>(frame, seen, begin, end, row, first_row, t, ahead);
    }
    for (; t < tile + num_tiles; ++t) {
      value_tile<Kv, MR, kVecs>(frame, seen, begin, end, row, first_row, t, ahead);
    }
  }
};

template <class Kv>
VITRINE_INLINE void add_values(const Frame& frame, const Seen& seen, const RowBlock& rows) {
  const std::int64_t tiles = frame.places.value_tiles;
  if (frame.num_rows <= kTileRows) {  // waits for memory: block by block, as it lies there
    for (std::int64_t b = 0; b < seen.count; ++b) {
      const unsigned char* ahead = b + 1 < seen.count      ? seen.block[b + 1] + frame.places.values
                                   : seen.after != nullptr ? seen.after
                                                           : nullptr;
      for_rows<kValueRows>(rows.count, ValueRows<Kv>{frame, seen, b, b + 1, rows.first, 0, tiles, ahead});
    }
    return;
  }
  constexpr std::int64_t kTiles = 2 / kVecs;
  for (std::int64_t tile = 0; tile < tiles; tile += kTiles) {
    for_rows<kValueRows>(rows.count, ValueRows<Kv>{frame, seen, 0, seen.count, rows.first, tile,
                                                   smaller(kTiles, tiles - tile), nullptr});
  }
}

// ---- All of it ----

/// Scores to weights, and the sums so far scaled to the new largest score. Step by step for all rows: a row alone would
/// wait for itself.
template <class Kv>
VITRINE_INLINE void weigh_rows(const AttentionTask& task, const Frame& frame, const RowBlock& rows, const Seen& seen) {
  using S = Simd;
  const std::int64_t length = seen.count * kKvTokens;
  Range ranges[kTileRows];
  alignas(64) float most[kTileRows];
  alignas(64) float sums[kTileRows];
  for (std::int64_t r = 0; r < rows.count; ++r) {
    const Range range = visible(task, (rows.first + r) / task.heads);
    ranges[r] = {smaller(larger(range.first - seen.start, 0), length),
                 smaller(larger(range.end - seen.start, 0), length)};
    most[r] = largest_score(frame.scores + r * kScoreStride, ranges[r], length, frame.rows.most[rows.first + r]);
  }
  for (std::int64_t r = 0; r < rows.count; ++r) {
    float* scores = frame.scores + r * kScoreStride;
    sums[r] = weigh(scores, length, most[r]);
    if constexpr (Kv::kScaled) scale_weights(scores, ranges[r], frame, seen);
  }
  for (std::int64_t r = 0; r < rows.count; r += S::kLanes) {
    const std::int64_t count = smaller(rows.count - r, S::kLanes);
    float* before = frame.rows.most + rows.first + r;
    float* sum = frame.rows.sum + rows.first + r;
    const S::F correction = exp2(S::sub(S::load(before, count), S::load(most + r, count)));
    S::store(frame.rows.correction + rows.first + r, correction, count);
    S::store(before, S::load(most + r, count), count);
    S::store(sum, S::add(S::mul(S::load(sum, count), correction), S::load(sums + r, count)), count);
  }
  for (std::int64_t row = rows.first; row < rows.first + rows.count; ++row) {
    const float correction = frame.rows.correction[row];
    if (correction == 1.0f) continue;
    float* out = frame.out + row * frame.out_stride;
    for (std::int64_t d = 0; d < frame.out_stride; d += S::kLanes) {
      S::store(out + d, S::mul(S::load(out + d), S::set(correction)));
    }
  }
}

/// A span for the rows of a block.
template <class Kv>
VITRINE_INLINE void attend(const AttentionTask& task, const Frame& frame, const RowBlock& rows, const Seen& seen) {
  for (std::int64_t b = 0; b < seen.count; ++b) {
    const unsigned char* next = b + 1 < seen.count ? seen.block[b + 1] : seen.block[0] + frame.places.values;
    Kv::score(frame, rows, seen.block[b], frame.scores + b * kKvTokens, rows.first == 0 ? next : nullptr);
  }
  weigh_rows<Kv>(task, frame, rows, seen);
  add_values<Kv>(frame, seen, rows);
}

/// The blocks that rows see in the span that begins at `start`; none if they see nothing there.
VITRINE_INLINE Seen seen_blocks(const AttentionTask& task, const RowBlock& rows, std::int64_t start) {
  const std::int64_t first = larger(visible(task, rows.first / task.heads).first, start) / kKvTokens;
  const std::int64_t end = smaller(visible(task, (rows.first + rows.count - 1) / task.heads).end, start + kSpanTokens);
  Seen seen{};
  seen.start = first * kKvTokens;
  for (std::int64_t b = first; b * kKvTokens < end; ++b) {
    seen.block[seen.count++] = block_of(task, b * kKvTokens);
  }
  const std::int64_t next = start + kSpanTokens;
  if (next < visible(task, task.tokens - 1).end) {
    seen.after = block_of(task, next);
  } else if (task.next != nullptr) {
    seen.after = block_of(*task.next, visible(*task.next, 0).first);
  }
  return seen;
}

template <class Kv>
void attention(const AttentionTask& task) {
  const Frame frame = make_frame(task, Kv::places(task.head_dim));
  const std::int64_t row_bytes = Kv::store_queries(task, frame);
  const std::int64_t last = visible(task, task.tokens - 1).end;
  for (std::int64_t start = visible(task, 0).first / kSpanTokens * kSpanTokens; start < last; start += kSpanTokens) {
    for (std::int64_t first = 0; first < frame.num_rows; first += kTileRows) {
      const RowBlock rows{first, smaller(kTileRows, frame.num_rows - first), frame.queries + first * row_bytes};
      const Seen seen = seen_blocks(task, rows, start);
      if (seen.count > 0) attend<Kv>(task, frame, rows, seen);
    }
  }
  for (std::int64_t row = 0; row < frame.num_rows; ++row) {
    float* out = task.out + row / task.heads * task.out_stride + row % task.heads * task.head_dim;
    const float* sums = frame.out + row * frame.out_stride;
    const Simd::F inverse = Simd::set(1.0f / frame.rows.sum[row]);
    for (std::int64_t d = 0; d < task.head_dim; d += Simd::kLanes) {
      // + 0: a zero that lost its sign among keys that only the neighbours see must not differ from one that did not
      const Simd::F value = Simd::add(Simd::mul(Simd::load(sums + d), inverse), Simd::zero());
      Simd::store(out + d, value, smaller(Simd::kLanes, task.head_dim - d));
    }
  }
}

}  // namespace
}  // namespace vitrine
