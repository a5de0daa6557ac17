// SPDX-License-Identifier: Apache-2.0
// Attention on tiles: queries and softmax weights rounded to bfloat16, keys and values in bfloat16 or int8, sums in
// float32. Compiled for AVX-512 F, BW, VL and DQ; run only where there are AMX tiles and AVX512_BF16, too.
#include "kernels/amx_tiles.h"
#include "kernels/simd_avx512.h"
//
#include "kernels/attention_body.h"

namespace vitrine {
namespace {

// Tiles 0 to 3 are sums of two blocks of 16 rows by two tiles of 16 columns, 4 and 5 the rows, 6 and 7 the columns.
// A block of rows that is not full is filled up with zeros: a tile takes as long as the memory behind it in any case.

constexpr std::int64_t kRowsAtOnce = 2 * kTileRows;
constexpr std::int64_t kTileFloats = kTileBytes / 4;

/// A task's scratch.
struct TileFrame {
  RowStates rows;
  float* query_scales;       // [rows] int8
  std::int32_t* query_sums;  // [rows] int8
  unsigned char* queries;    // [block of 16 rows][step][16][64 bytes]
  float* out;                // [block of 16 rows][tile][16][16]
  float* scores;             // [kRowsAtOnce][kScoreStride]
  unsigned char* weights;    // [2][block of the span][16][32] bf16
  unsigned char* values;     // [block of the span][tile][16 pairs][16][2] bf16, where they had to be unpacked
  float* sums;               // 4 tiles
  std::int64_t num_rows;
  KvPlaces places;
};

/// Bytes of a block of rows as tiles, `steps` of them.
VITRINE_INLINE std::int64_t row_blocks(std::int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

TileFrame make_tile_frame(const AttentionTask& task, const KvPlaces& places) {
  TileFrame frame{};
  frame.places = places;
  frame.num_rows = task.tokens * task.heads;
  const std::int64_t blocks = row_blocks(frame.num_rows);
  unsigned char* at = task.scratch;
  const auto take = [&at](std::int64_t bytes) {
    unsigned char* taken = at;
    at += bytes;
    return taken;
  };
  float** const states[] = {&frame.rows.most, &frame.rows.sum, &frame.rows.correction, &frame.query_scales};
  for (float** state : states) *state = take_floats(at, blocks * kTileRows);
  frame.query_sums = reinterpret_cast<std::int32_t*>(take_floats(at, blocks * kTileRows));
  frame.queries = take(blocks * places.key_steps * kTileBytes);
  frame.out = reinterpret_cast<float*>(take(blocks * places.value_tiles * kTileBytes));
  frame.scores = take_floats(at, kRowsAtOnce * kScoreStride);
  frame.weights = take(2 * kBlocksOfSpan * kTileBytes);
  frame.sums = reinterpret_cast<float*>(take(4 * kTileBytes));
  frame.values = at;
  for (std::int64_t row = 0; row < blocks * kTileRows; ++row) {
    frame.rows.most[row] = kNoScore;
    frame.rows.sum[row] = 0;
    frame.rows.correction[row] = 1;
  }
  const auto clear = [](void* from, std::int64_t bytes) {
    for (std::int64_t i = 0; i < bytes; i += kLine) Simd::store_bits(static_cast<char*>(from) + i, Simd::zero_int());
  };
  clear(frame.queries, blocks * places.key_steps * kTileBytes);
  clear(frame.out, blocks * places.value_tiles * kTileBytes);
  clear(frame.weights, 2 * kBlocksOfSpan * kTileBytes);
  return frame;
}

// ---- What differs between bfloat16 and int8 ----

struct TilesBF16 {
  static constexpr bool kScaled = false;

  static KvPlaces places(std::int64_t head_dim) {
    const std::int64_t steps = (head_dim + 31) / 32;
    return {steps, (head_dim + 15) / 16, 0, steps * 2 * kTileBytes, 0, 0};
  }
  static void store_query(const AttentionTask& task, const TileFrame& frame, std::int64_t row, unsigned char* to) {
    const float* q = query_of(task, row);
    const Simd::F factor = Simd::set(task.scale * 1.44269504f);
    for (std::int64_t i = 0; i < frame.places.key_steps * 32; i += 16) {
      const std::int64_t left = task.head_dim - i;
      const Simd::F x = left > 0 ? Simd::load(q + i, smaller(left, 16)) : Simd::zero();
      Simd::store_bf16(to + i / 32 * kTileBytes + i % 32 * 2, Simd::mul(x, factor));
    }
  }
  template <int Sum, int A, int B>
  static VITRINE_INLINE void add_products() {
    add_bf16_products<Sum, A, B>();
  }
  /// The tiles of a block's values.
  static VITRINE_INLINE const unsigned char* values(const TileFrame& frame, const unsigned char* block, std::int64_t) {
    return block + frame.places.values;
  }
  static VITRINE_INLINE void unpack_values(const TileFrame&, const unsigned char*, std::int64_t) {}
};

struct TilesInt8 {
  static constexpr bool kScaled = true;

  static KvPlaces places(std::int64_t head_dim) { return int8_places(head_dim); }
  static void store_query(const AttentionTask& task, const TileFrame& frame, std::int64_t row, unsigned char* to) {
    const float* q = query_of(task, row);
    const Int8Scale scale = int8_scale(q, task.head_dim);
    Simd::I sum = Simd::zero_int();
    for (std::int64_t i = 0; i < frame.places.key_steps * 64; i += 16) {
      const std::int64_t left = task.head_dim - i;
      const Simd::I rounded = to_int8(left > 0 ? Simd::load(q + i, smaller(left, 16)) : Simd::zero(), scale);
      sum = Simd::add_int(sum, rounded);
      Simd::store_as_bytes(to + i / 64 * kTileBytes + i % 64, rounded);
    }
    frame.query_sums[row] = Simd::sum_int(sum);
    frame.query_scales[row] = scale.scale * (task.scale * 1.44269504f);
  }
  template <int Sum, int A, int B>
  static VITRINE_INLINE void add_products() {
    add_byte_products<Sum, A, B>();
  }
  static VITRINE_INLINE const unsigned char* values(const TileFrame& frame, const unsigned char*, std::int64_t place) {
    return frame.values + place * frame.places.value_tiles * kTileBytes;
  }
  /// Whole numbers below 128 are exact in bfloat16: two tokens side by side, the upper halves of their floats.
  static VITRINE_INLINE void unpack_values(const TileFrame& frame, const unsigned char* block, std::int64_t place) {
    const unsigned char* from = block + frame.places.values;
    unsigned char* to = frame.values + place * frame.places.value_tiles * kTileBytes;
    for (std::int64_t pair = 0; pair < frame.places.value_tiles * 16; ++pair, from += 32, to += kLine) {
      const Simd::F first = Simd::to_float(Simd::load_signed_bytes(from));
      const Simd::F second = Simd::to_float(Simd::load_signed_bytes(from + 16));
      Simd::store_bits(to,
                       Simd::or_int(Simd::shift_right<16>(_mm512_castps_si512(first)), _mm512_castps_si512(second)));
    }
  }
};

// ---- Scores ----

/// q k^T of `Blocks` blocks of rows with the tokens of a block.
template <class Kv, int Blocks>
VITRINE_INLINE void score(const TileFrame& frame, std::int64_t first, const unsigned char* panel, float* scores,
                          const unsigned char* ahead, std::int64_t ahead_bytes) {
  const std::int64_t steps = frame.places.key_steps;
  const unsigned char* q0 = frame.queries + first / kTileRows * steps * kTileBytes;
  const unsigned char* q1 = q0 + steps * kTileBytes;
  zero_tile<0>();
  zero_tile<1>();
  if constexpr (Blocks == 2) {
    zero_tile<2>();
    zero_tile<3>();
  }
  for (std::int64_t step = 0; step < steps; ++step, panel += 2 * kTileBytes) {
    load_tile<6>(panel, kLine);
    load_tile<4>(q0 + step * kTileBytes, kLine);
    Kv::template add_products<0, 4, 6>();
    load_tile<7>(panel + kTileBytes, kLine);
    Kv::template add_products<1, 4, 7>();
    if constexpr (Blocks == 2) {
      load_tile<5>(q1 + step * kTileBytes, kLine);
      Kv::template add_products<2, 5, 6>();
      Kv::template add_products<3, 5, 7>();
    }
    if (ahead == nullptr) continue;
    for (std::int64_t i = ahead_bytes * step / steps; i < ahead_bytes * (step + 1) / steps; i += kLine) {
      fetch_lines<1>(ahead + i);
    }
  }
  store_tile<0>(scores, kScoreStride * 4);
  store_tile<1>(scores + kTileRows, kScoreStride * 4);
  if constexpr (Blocks == 2) {
    store_tile<2>(scores + kTileRows * kScoreStride, kScoreStride * 4);
    store_tile<3>(scores + kTileRows * kScoreStride + kTileRows, kScoreStride * 4);
  }
}

// ---- Softmax ----

/// exp2 of attention_body.h for z <= 0, as exact as the rounding to bfloat16 that follows asks for (4e-6).
VITRINE_INLINE Simd::F exp2_for_bf16(Simd::F z) {
  const Simd::F f = _mm512_reduce_ps(z, 0);  // z less the nearest whole number; 0 for -infinity
  Simd::F p = Simd::set(0.00978291255f);
  p = Simd::fmadd(p, f, Simd::set(0.0559768836f));
  p = Simd::fmadd(p, f, Simd::set(0.240207111f));
  p = Simd::fmadd(p, f, Simd::set(0.693113604f));
  p = Simd::fmadd(p, f, Simd::set(1.0f));
  return _mm512_scalef_ps(p, Simd::sub(z, f));
}

/// Both rounded to nearest even, a before b.
VITRINE_INLINE Simd::I pack_bf16(Simd::F a, Simd::F b) {
  Simd::I packed;
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(packed) : "v"(a), "v"(b));
  return packed;
}

/// Integer products to scores.
VITRINE_INLINE void scale_scores(const TileFrame& frame, const Seen& seen, std::int64_t row, float* scores) {
  const Simd::I offset = Simd::set_int(-128 * frame.query_sums[row]);
  const Simd::F query_scale = Simd::set(frame.query_scales[row]);
  for (std::int64_t b = 0; b < seen.count; ++b, scores += kKvTokens) {
    const auto* scales = reinterpret_cast<const float*>(seen.block[b] + frame.places.key_scales);
    for (std::int64_t t = 0; t < kKvTokens; t += 16) {
      const Simd::F sum = Simd::to_float(Simd::add_int(Simd::load_bits(scores + t), offset));
      Simd::store(scores + t, Simd::mul(Simd::mul(sum, query_scale), Simd::load(scales + t)));
    }
  }
}

/// Scores of a row to weights in bfloat16, 64 bytes a block; their sum. Int8: times the values' scales, where the row may
/// look.
template <class Kv>
VITRINE_INLINE float weigh_for_tiles(const TileFrame& frame, const Seen& seen, Range range, const float* scores,
                                     float most, unsigned char* weights) {
  const Simd::F top = Simd::set(most);
  Simd::F sum = Simd::zero();
  for (std::int64_t b = 0; b < seen.count; ++b, scores += kKvTokens, weights += kTileBytes) {
    Simd::F low = exp2_for_bf16(Simd::sub(Simd::load(scores), top));
    Simd::F high = exp2_for_bf16(Simd::sub(Simd::load(scores + 16), top));
    sum = Simd::add(sum, Simd::add(low, high));
    if constexpr (Kv::kScaled) {
      const auto* scales = reinterpret_cast<const float*>(seen.block[b] + frame.places.value_scales);
      const std::int64_t from = smaller(larger(range.first - b * kKvTokens, 0), kKvTokens);
      const std::int64_t to = smaller(larger(range.end - b * kKvTokens, 0), kKvTokens);
      const std::uint64_t mask = ((std::uint64_t{1} << to) - 1) & ~((std::uint64_t{1} << from) - 1);
      low = _mm512_maskz_mul_ps(static_cast<__mmask16>(mask), low, Simd::load(scales));
      high = _mm512_maskz_mul_ps(static_cast<__mmask16>(mask >> 16), high, Simd::load(scales + 16));
    }
    Simd::store_bits(weights, pack_bf16(low, high));
  }
  return Simd::sum(sum);
}

template <class Kv>
VITRINE_INLINE void weigh_rows_for_tiles(const AttentionTask& task, const TileFrame& frame, const RowBlock& rows,
                                         const Seen& seen) {
  const std::int64_t length = seen.count * kKvTokens;
  Range ranges[kRowsAtOnce];
  alignas(64) float most[kRowsAtOnce];
  alignas(64) float sums[kRowsAtOnce];
  for (std::int64_t r = 0; r < rows.count; ++r) {
    float* scores = frame.scores + r * kScoreStride;
    if constexpr (Kv::kScaled) scale_scores(frame, seen, rows.first + r, scores);
    const Range range = visible(task, (rows.first + r) / task.heads);
    ranges[r] = {smaller(larger(range.first - seen.start, 0), length),
                 smaller(larger(range.end - seen.start, 0), length)};
    most[r] = largest_score(scores, ranges[r], length, frame.rows.most[rows.first + r]);
  }
  for (std::int64_t r = 0; r < rows.count; ++r) {
    unsigned char* weights = frame.weights + r / kTileRows * kBlocksOfSpan * kTileBytes + r % kTileRows * kLine;
    sums[r] = weigh_for_tiles<Kv>(frame, seen, ranges[r], frame.scores + r * kScoreStride, most[r], weights);
  }
  for (std::int64_t r = 0; r < rows.count; r += 16) {
    const std::int64_t count = smaller(rows.count - r, 16);
    float* before = frame.rows.most + rows.first + r;
    float* sum = frame.rows.sum + rows.first + r;
    const Simd::F correction = exp2(Simd::sub(Simd::load(before, count), Simd::load(most + r, count)));
    Simd::store(frame.rows.correction + rows.first + r, correction, count);
    Simd::store(before, Simd::load(most + r, count), count);
    Simd::store(sum, Simd::add(Simd::mul(Simd::load(sum, count), correction), Simd::load(sums + r, count)), count);
  }
}

// ---- Values ----

/// out = out * correction + sums, a tile. With a correction of 1 and sums of 0 nothing changes.
VITRINE_INLINE void add_tile(const float* sums, const float* correction, float* out) {
#pragma GCC unroll 4
  for (std::int64_t r = 0; r < kTileRows; ++r) {
    const Simd::F before = Simd::load(out + r * 16);
    Simd::store(out + r * 16, Simd::fmadd(before, Simd::set(correction[r]), Simd::load(sums + r * 16)));
  }
}

/// The weighted values of a span, two tiles of the head at a time.
template <class Kv, int Blocks>
VITRINE_INLINE void add_values_on_tiles(const TileFrame& frame, std::int64_t first, const Seen& seen,
                                        std::int64_t place, const unsigned char* const* ahead) {
  const std::int64_t tiles = frame.places.value_tiles;
  const unsigned char* w0 = frame.weights;
  const unsigned char* w1 = frame.weights + kBlocksOfSpan * kTileBytes;
  float* out = frame.out + first / kTileRows * tiles * kTileFloats;
  for (std::int64_t tile = 0; tile < tiles; tile += 2) {
    const bool both = tile + 1 < tiles;
    zero_tile<0>();
    zero_tile<1>();
    if constexpr (Blocks == 2) {
      zero_tile<2>();
      zero_tile<3>();
    }
    for (std::int64_t b = 0; b < seen.count; ++b) {
      const unsigned char* values = Kv::values(frame, seen.block[b], place + b) + tile * kTileBytes;
      load_tile<6>(values, kLine);
      load_tile<4>(w0 + b * kTileBytes, kLine);
      add_bf16_products<0, 4, 6>();
      load_tile<7>(both ? values + kTileBytes : values, kLine);
      add_bf16_products<1, 4, 7>();
      if constexpr (Blocks == 2) {
        load_tile<5>(w1 + b * kTileBytes, kLine);
        add_bf16_products<2, 5, 6>();
        add_bf16_products<3, 5, 7>();
      }
      if (ahead == nullptr || ahead[b] == nullptr) continue;
      const std::int64_t bytes = frame.places.key_steps * 2 * kTileBytes;
      for (std::int64_t i = bytes * tile / tiles; i < bytes * smaller(tile + 2, tiles) / tiles; i += kLine) {
        fetch_lines<1>(ahead[b] + i);
      }
    }
    float* to = out + tile * kTileFloats;
    store_tile<0>(frame.sums, kLine);
    store_tile<1>(frame.sums + kTileFloats, kLine);
    add_tile(frame.sums, frame.rows.correction + first, to);
    if (both) add_tile(frame.sums + kTileFloats, frame.rows.correction + first, to + kTileFloats);
    if constexpr (Blocks == 2) {
      store_tile<2>(frame.sums + 2 * kTileFloats, kLine);
      store_tile<3>(frame.sums + 3 * kTileFloats, kLine);
      to += tiles * kTileFloats;
      add_tile(frame.sums + 2 * kTileFloats, frame.rows.correction + first + kTileRows, to);
      if (both) {
        add_tile(frame.sums + 3 * kTileFloats, frame.rows.correction + first + kTileRows, to + kTileFloats);
      }
    }
  }
}

// ---- All of it ----

/// What may be fetched while a span is at work: the next span's keys.
struct Ahead {
  const unsigned char* keys[kBlocksOfSpan];
};

template <class Kv, int Blocks>
void attend_on_tiles(const AttentionTask& task, const TileFrame& frame, const RowBlock& rows, const Seen& seen,
                     std::int64_t place, const Ahead* ahead) {
  for (std::int64_t b = 0; b < seen.count; ++b) {
    // The first rows bring the span's values to the second cache while they go through its keys.
    const unsigned char* values = rows.first == 0 ? seen.block[b] + frame.places.values : nullptr;
    score<Kv, Blocks>(frame, rows.first, seen.block[b], frame.scores + b * kKvTokens, values,
                      frame.places.key_steps * 2 * kTileBytes);
  }
  weigh_rows_for_tiles<Kv>(task, frame, rows, seen);
  add_values_on_tiles<Kv, Blocks>(frame, rows.first, seen, place, ahead != nullptr ? ahead->keys : nullptr);
}

template <class Kv>
void attend_span(const AttentionTask& task, const TileFrame& frame, std::int64_t start, std::int64_t last) {
  Ahead ahead{};
  for (std::int64_t b = 0; b < kBlocksOfSpan; ++b) {
    const std::int64_t position = start + kSpanTokens + b * kKvTokens;
    if (position < last) ahead.keys[b] = task.cache + task.blocks[position / kKvTokens] * task.block_bytes;
  }
  if constexpr (Kv::kScaled) {
    const Seen all = seen_blocks(task, {0, frame.num_rows, nullptr}, start);
    for (std::int64_t b = 0; b < all.count; ++b) {
      Kv::unpack_values(frame, all.block[b], (all.start - start) / kKvTokens + b);
    }
  }
  for (std::int64_t first = 0; first < frame.num_rows; first += kRowsAtOnce) {
    const RowBlock rows{first, smaller(kRowsAtOnce, frame.num_rows - first), nullptr};
    const Seen seen = seen_blocks(task, rows, start);
    if (seen.count == 0) continue;
    const std::int64_t place = (seen.start - start) / kKvTokens;
    const Ahead* fetched = first == 0 ? &ahead : nullptr;
    if (rows.count > kTileRows) {
      attend_on_tiles<Kv, 2>(task, frame, rows, seen, place, fetched);
    } else {
      attend_on_tiles<Kv, 1>(task, frame, rows, seen, place, fetched);
    }
  }
}

template <class Kv>
void attention_on_tiles(const AttentionTask& task) {
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.rows[i] = kTileRows;
    config.row_bytes[i] = kLine;
  }
  const TileFrame frame = make_tile_frame(task, Kv::places(task.head_dim));
  for (std::int64_t row = 0; row < frame.num_rows; ++row) {
    Kv::store_query(task, frame, row,
                    frame.queries + row / kTileRows * frame.places.key_steps * kTileBytes + row % kTileRows * kLine);
  }
  configure_tiles(config);
  const std::int64_t last = visible(task, task.tokens - 1).end;
  for (std::int64_t start = visible(task, 0).first / kSpanTokens * kSpanTokens; start < last; start += kSpanTokens) {
    attend_span<Kv>(task, frame, start, last);
  }
  release_tiles();
  for (std::int64_t row = 0; row < frame.num_rows; ++row) {
    float* out = task.out + row / task.heads * task.out_stride + row % task.heads * task.head_dim;
    const float* sums = frame.out + row / kTileRows * frame.places.value_tiles * kTileFloats + row % kTileRows * 16;
    const Simd::F inverse = Simd::set(1.0f / frame.rows.sum[row]);
    for (std::int64_t d = 0; d < task.head_dim; d += 16, sums += kTileFloats) {
      const Simd::F value = Simd::add(Simd::mul(Simd::load(sums), inverse), Simd::zero());  // as in attention_body.h
      Simd::store(out + d, value, smaller(16, task.head_dim - d));
    }
  }
}

}  // namespace

void override_amx_attention(Kernels& kernels) {
  kernels.attention[kKvBF16] = attention_on_tiles<TilesBF16>;
  kernels.attention[kKvInt8] = attention_on_tiles<TilesInt8>;
}

}  // namespace vitrine
