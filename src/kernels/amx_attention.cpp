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
// What stands in the rows that fill up a block does not matter: they touch no other row, and nobody reads them.
//
// Tiles and vectors are different units of a core, and both are kept at work: a task is cut into steps (32 rows and a
// span of keys), and while the vectors turn the scores of one step into weights, a few at a time, the tiles compute the
// scores of the next step and weigh the values of the one before.
//
// Weights are 2^(score - reference). The largest score so far need not be the reference, which would cost a pass over
// all scores and a correction of the sums with every new one: floats are as exact at 2^30. So the reference is the
// largest of the first few scores a row sees, until weights grow beyond that. A row decides for itself, from its own
// scores, span by span.

constexpr std::int64_t kRowsAtOnce = 2 * kTileRows;
constexpr std::int64_t kTileFloats = kTileBytes / 4;
/// Sum of the weights of a span from which on the row takes its largest score for a reference.
constexpr float kLargeSum = 1073741824.0f;  // 2^30
/// Blocks of a row's scores that are turned into weights in one go.
constexpr std::int64_t kBlocksOfPiece = 4;

/// 32 rows and the blocks they see of a span.
struct Step {
  std::int64_t start;         // of the span
  std::int64_t first, count;  // rows
  Seen seen;
  std::int64_t place;  // number in the span of the first block
  bool begins_span;    // the first rows to see something of it
  bool begins_rows;    // the first span that these rows see
};

/// What the vectors know of a step's rows.
struct StepRows {
  const float* scores;                      // [kRowsAtOnce][kScoreStride]
  unsigned char* weights;                   // [2][block of the span][16][32] bf16
  alignas(64) float sums[kRowsAtOnce][16];  // of the weights, by lane
  alignas(64) float reference[kRowsAtOnce];
  alignas(64) float correction[kRowsAtOnce];  // of the sums before the step
  bool corrected;                             // whether one is not 1
  Range ranges[kRowsAtOnce];
};

/// A task's scratch.
struct TileFrame {
  float* reference;        // [rows]
  float* sum;              // [rows] of the weights so far
  float* query_scales;     // [rows] int8
  unsigned char* queries;  // [block of 16 rows][step][16][64 bytes]
  float* out;              // [block of 16 rows][tile][16][16]
  float* scores[2];        // of two steps
  unsigned char* weights[2];
  unsigned char* values;  // [2][block of the span][tile][16 pairs][16][2] bf16, where they had to be unpacked
  std::int64_t num_rows;
  KvPlaces places;
};

TileFrame make_tile_frame(const AttentionTask& task, const KvPlaces& places) {
  TileFrame frame{};
  frame.places = places;
  frame.num_rows = task.tokens * task.heads;
  const std::int64_t blocks = (frame.num_rows + kTileRows - 1) / kTileRows;
  unsigned char* at = task.scratch;
  const auto take = [&at](std::int64_t bytes) __attribute__((always_inline)) {
    unsigned char* taken = at;
    at += bytes;
    return taken;
  };
  float** const states[] = {&frame.reference, &frame.sum, &frame.query_scales};
  for (float** state : states) *state = take_floats(at, blocks * kTileRows);
  frame.queries = take(blocks * places.key_steps * kTileBytes);
  frame.out = reinterpret_cast<float*>(take(blocks * places.value_tiles * kTileBytes));
  for (int i = 0; i < 2; ++i) {
    frame.scores[i] = take_floats(at, kRowsAtOnce * kScoreStride);
    frame.weights[i] = take(2 * kBlocksOfSpan * kTileBytes);
  }
  frame.values = at;
  for (std::int64_t row = 0; row < frame.num_rows; ++row) {
    frame.reference[row] = kNoScore;
    frame.sum[row] = 0;
  }
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
  /// Reads the scores of a row.
  struct Reader {
    VITRINE_INLINE Reader(const TileFrame&, std::int64_t) {}
    VITRINE_INLINE Simd::F operator()(const float* scores, const unsigned char*, std::int64_t) const {
      return Simd::load(scores);
    }
  };
  static VITRINE_INLINE Simd::F scaled(Simd::F weights, const TileFrame&, const unsigned char*, std::int64_t) {
    return weights;
  }
  /// The tiles of a block's values.
  static VITRINE_INLINE const unsigned char* values(const TileFrame& frame, const unsigned char* block, std::int64_t) {
    return block + frame.places.values;
  }
};

struct TilesInt8 {
  static constexpr bool kScaled = true;

  static KvPlaces places(std::int64_t head_dim) { return int8_places(head_dim); }
  static void store_query(const AttentionTask& task, const TileFrame& frame, std::int64_t row, unsigned char* to) {
    const float* q = query_of(task, row);
    const Int8Scale scale = int8_scale(q, task.head_dim);
    for (std::int64_t i = 0; i < frame.places.key_steps * 64; i += 16) {
      const std::int64_t left = task.head_dim - i;
      const Simd::I rounded = to_int8(left > 0 ? Simd::load(q + i, smaller(left, 16)) : Simd::zero(), scale);
      Simd::store_as_bytes(to + i / 64 * kTileBytes + i % 64, rounded);
    }
    frame.query_scales[row] = scale.scale * (task.scale * 1.44269504f);
  }
  template <int Sum, int A, int B>
  static VITRINE_INLINE void add_products() {
    add_byte_products<Sum, A, B>();
  }
  struct Reader {
    const TileFrame& frame;
    Simd::F scale;
    VITRINE_INLINE Reader(const TileFrame& of, std::int64_t row) : frame(of), scale(Simd::set(of.query_scales[row])) {}
    /// 16 integer products with the keys of a block from token t on.
    VITRINE_INLINE Simd::F operator()(const float* products, const unsigned char* block, std::int64_t t) const {
      const Simd::F sum = Simd::to_float(Simd::load_bits(products));
      const auto* scales = reinterpret_cast<const float*>(block + frame.places.key_scales);
      return Simd::mul(Simd::mul(sum, scale), Simd::load(scales + t));
    }
  };
  static VITRINE_INLINE Simd::F scaled(Simd::F weights, const TileFrame& frame, const unsigned char* block,
                                       std::int64_t t) {
    return Simd::mul(weights, Simd::load(reinterpret_cast<const float*>(block + frame.places.value_scales) + t));
  }
  static VITRINE_INLINE const unsigned char* values(const TileFrame& frame, const unsigned char*, std::int64_t place) {
    return frame.values + place * frame.places.value_tiles * kTileBytes;
  }
  /// Whole numbers below 128 are exact in bfloat16: two tokens side by side, the upper halves of their floats.
  static VITRINE_INLINE void unpack_values(const TileFrame& frame, const unsigned char* block, std::int64_t place,
                                           const unsigned char* ahead) {
    const unsigned char* from = block + frame.places.values;
    unsigned char* to = frame.values + place * frame.places.value_tiles * kTileBytes;
    for (std::int64_t tile = 0; tile < frame.places.value_tiles; ++tile) {
      if (ahead != nullptr) fetch_lines<8>(ahead + tile * 8 * kLine);  // its keys take as much room as the values
      for (std::int64_t pair = 0; pair < 16; ++pair, from += 32, to += kLine) {
        const Simd::I first = _mm512_castps_si512(Simd::to_float(Simd::load_signed_bytes(from)));
        const Simd::I second = _mm512_castps_si512(Simd::to_float(Simd::load_signed_bytes(from + 16)));
        Simd::store_bits(to, Simd::or_int(Simd::shift_right<16>(first), second));
      }
    }
  }
};

// ---- What the vectors do ----

/// 2^z to 8e-5, a fraction of what rounding the weight to bfloat16 takes. 0 for -infinity, NaN for NaN.
VITRINE_INLINE Simd::F exp2_for_bf16(Simd::F z) {
  const Simd::F f = _mm512_reduce_ps(z, 1);  // z less the whole number below; 0 for an infinity
  Simd::F p = Simd::set(0.0780245226f);
  p = Simd::fmadd(p, f, Simd::set(0.226067155f));
  p = Simd::fmadd(p, f, Simd::set(0.695833541f));
  p = Simd::fmadd(p, f, Simd::set(0.999925218f));
  return _mm512_scalef_ps(p, z);  // rounds z down itself
}

/// Both rounded to nearest even, a before b.
VITRINE_INLINE Simd::I pack_bf16(Simd::F a, Simd::F b) {
  Simd::I packed;
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(packed) : "v"(a), "v"(b));
  return packed;
}

/// The lanes of 16 places from `at` on that are in the range.
VITRINE_INLINE __mmask16 lanes_in(Range range, std::int64_t at) {
  const std::int64_t from = smaller(larger(range.first - at, 0), 16);
  const std::int64_t to = smaller(larger(range.end - at, 0), 16);
  return static_cast<__mmask16>(((1u << to) - 1u) & ~((1u << from) - 1u));
}

/// Scores of blocks [begin, end) of a row to weights in bfloat16, 64 bytes a block; 0 where it may not look. Their sum
/// is carried in lanes. Int8: the weights, but not their sum, times the scales of their values.
template <class Kv, bool Masked>
VITRINE_INLINE void weigh_blocks(const TileFrame& frame, const Step& step, StepRows& rows, std::int64_t r,
                                 std::int64_t begin, std::int64_t end) {
  const typename Kv::Reader read(frame, step.first + r);
  const float* scores = rows.scores + r * kScoreStride;
  unsigned char* weights = rows.weights + r / kTileRows * kBlocksOfSpan * kTileBytes + r % kTileRows * kLine;
  const Simd::F reference = Simd::set(rows.reference[r]);
  Simd::F sum = begin == 0 ? Simd::zero() : Simd::load(rows.sums[r]);
  for (std::int64_t b = begin; b < end; ++b) {
    const unsigned char* block = step.seen.block[b];
    Simd::F low = exp2_for_bf16(Simd::sub(read(scores + b * kKvTokens, block, 0), reference));
    Simd::F high = exp2_for_bf16(Simd::sub(read(scores + b * kKvTokens + 16, block, 16), reference));
    __mmask16 low_lanes = 0xFFFF;
    __mmask16 high_lanes = 0xFFFF;
    if constexpr (Masked) {
      low_lanes = lanes_in(rows.ranges[r], b * kKvTokens);
      high_lanes = lanes_in(rows.ranges[r], b * kKvTokens + 16);
      low = _mm512_maskz_mov_ps(low_lanes, low);
      high = _mm512_maskz_mov_ps(high_lanes, high);
    }
    sum = Simd::add(sum, Simd::add(low, high));
    low = Kv::scaled(low, frame, block, 0);
    high = Kv::scaled(high, frame, block, 16);
    if constexpr (Masked) {  // once more: a scale may be no number
      low = _mm512_maskz_mov_ps(low_lanes, low);
      high = _mm512_maskz_mov_ps(high_lanes, high);
    }
    Simd::store_bits(weights + b * kTileBytes, pack_bf16(low, high));
  }
  Simd::store(rows.sums[r], sum);
}

/// Largest score of a row at places [begin, end), whole vectors; `before` if none is larger.
template <class Kv>
VITRINE_INLINE float largest_in(const TileFrame& frame, const Step& step, const StepRows& rows, std::int64_t r,
                                std::int64_t begin, std::int64_t end, float before) {
  const typename Kv::Reader read(frame, step.first + r);
  Simd::F top = Simd::set(before);
  for (std::int64_t t = begin; t < end; t += 16) {
    const Simd::F score = read(rows.scores + r * kScoreStride + t, step.seen.block[t / kKvTokens], t % kKvTokens);
    top = _mm512_mask_max_ps(top, lanes_in(rows.ranges[r], t), top, score);
  }
  return Simd::largest(top);
}

/// What each row may look at, counted from the first block seen, and its reference.
void begin_rows(const AttentionTask& task, const TileFrame& frame, const Step& step, StepRows& rows) {
  const std::int64_t length = step.seen.count * kKvTokens;
  std::int64_t token = step.first / task.heads;
  std::int64_t head = step.first % task.heads;
  for (std::int64_t r = 0; r < step.count; ++r) {
    const Range range = visible(task, token);
    rows.ranges[r] = {smaller(larger(range.first - step.seen.start, 0), length),
                      smaller(larger(range.end - step.seen.start, 0), length)};
    rows.reference[r] = frame.reference[step.first + r];
    if (++head == task.heads) {
      head = 0;
      ++token;
    }
  }
}

/// Piece `piece` of the scores of a step.
template <class Kv>
VITRINE_INLINE void weigh_piece(const TileFrame& frame, const Step& step, StepRows& rows, std::int64_t r,
                                std::int64_t begin) {
  const Range range = rows.ranges[r];
  if (begin == 0 && rows.reference[r] == kNoScore && range.first < range.end) {
    const std::int64_t at = range.first / 16 * 16;
    rows.reference[r] = largest_in<Kv>(frame, step, rows, r, at, at + 16, kNoScore);
  }
  const std::int64_t end = smaller(begin + kBlocksOfPiece, step.seen.count);
  if (range.first <= begin * kKvTokens && range.end >= end * kKvTokens) {
    weigh_blocks<Kv, false>(frame, step, rows, r, begin, end);
  } else {
    weigh_blocks<Kv, true>(frame, step, rows, r, begin, end);
  }
}

/// When all weights of a step are there: sums, and rows whose reference turned out too small.
template <class Kv>
void finish_rows(const TileFrame& frame, const Step& step, StepRows& rows) {
  rows.corrected = false;
  for (std::int64_t r = 0; r < step.count; ++r) {
    float& reference = frame.reference[step.first + r];
    float& sum = frame.sum[step.first + r];
    float added = Simd::sum(Simd::load(rows.sums[r]));
    rows.correction[r] = 1;
    if (!(added <= kLargeSum)) {
      const std::int64_t length = step.seen.count * kKvTokens;
      rows.reference[r] = largest_in<Kv>(frame, step, rows, r, 0, length, rows.reference[r]);
      weigh_blocks<Kv, true>(frame, step, rows, r, 0, step.seen.count);
      added = Simd::sum(Simd::load(rows.sums[r]));
      rows.correction[r] = _mm512_cvtss_f32(exp2(Simd::set(reference - rows.reference[r])));
      rows.corrected = true;
    }
    reference = rows.reference[r];
    sum = sum * rows.correction[r] + added;
  }
}

/// Hands out the pieces of a step's rows to the gaps between the tiles' work: all of them by the last of `turns`.
template <class Work>
struct PieceByPiece {
  const Work& work;  // of a row, from a block on
  std::int64_t rows, blocks, turns;
  std::int64_t row = 0, begin = 0, due = 0;

  VITRINE_INLINE void one() {
    work(row, begin);
    begin += kBlocksOfPiece;
    if (begin < blocks) return;
    begin = 0;
    ++row;
  }
  VITRINE_INLINE void some() {
    const std::int64_t pieces = rows * ((blocks + kBlocksOfPiece - 1) / kBlocksOfPiece);
    for (due += pieces; due >= turns && row < rows; due -= turns) one();
  }
  VITRINE_INLINE void rest() {
    while (row < rows) one();
  }
};

// ---- What the tiles do ----

template <int Blocks>
VITRINE_INLINE void zero_sums() {
  zero_tile<0>();
  zero_tile<1>();
  if constexpr (Blocks == 2) {
    zero_tile<2>();
    zero_tile<3>();
  }
}

/// q k^T of `Blocks` blocks of rows with the tokens of all blocks seen. The first rows bring the span's values to the
/// second cache while they are at it.
template <class Kv, int Blocks, class Between>
VITRINE_INLINE void score(const TileFrame& frame, const Step& step, float* scores, Between& between) {
  const std::int64_t steps = frame.places.key_steps;
  const unsigned char* q0 = frame.queries + step.first / kTileRows * steps * kTileBytes;
  const unsigned char* q1 = q0 + steps * kTileBytes;
  for (std::int64_t b = 0; b < step.seen.count; ++b, scores += kKvTokens) {
    const unsigned char* panel = step.seen.block[b];
    const unsigned char* values = step.begins_span ? panel + frame.places.values : nullptr;
    zero_sums<Blocks>();
    for (std::int64_t k = 0; k < steps; ++k, panel += 2 * kTileBytes) {
      load_tile<6>(panel, kLine);
      load_tile<4>(q0 + k * kTileBytes, kLine);
      Kv::template add_products<0, 4, 6>();
      load_tile<7>(panel + kTileBytes, kLine);
      Kv::template add_products<1, 4, 7>();
      if constexpr (Blocks == 2) {
        load_tile<5>(q1 + k * kTileBytes, kLine);
        Kv::template add_products<2, 5, 6>();
        Kv::template add_products<3, 5, 7>();
      }
      if (values != nullptr) fetch_lines<32>(values + k * 2 * kTileBytes);  // which take as much room as the keys
      between.some();
    }
    store_tile<0>(scores, kScoreStride * 4);
    store_tile<1>(scores + kTileRows, kScoreStride * 4);
    if constexpr (Blocks == 2) {
      store_tile<2>(scores + kTileRows * kScoreStride, kScoreStride * 4);
      store_tile<3>(scores + kTileRows * kScoreStride + kTileRows, kScoreStride * 4);
    }
  }
}

/// The sums of a step's rows times their corrections, where there are any.
void correct_sums(const TileFrame& frame, const Step& step, const StepRows& rows) {
  for (std::int64_t r = 0; r < step.count; ++r) {
    if (rows.correction[r] == 1.0f) continue;
    const std::int64_t row = step.first + r;
    float* out = frame.out + row / kTileRows * frame.places.value_tiles * kTileFloats + row % kTileRows * 16;
    for (std::int64_t tile = 0; tile < frame.places.value_tiles; ++tile, out += kTileFloats) {
      Simd::store(out, Simd::mul(Simd::load(out), Simd::set(rows.correction[r])));
    }
  }
}

/// Where the keys are that come next; null where there are none.
struct Ahead {
  const unsigned char* keys[kBlocksOfSpan];
};

/// The keys of a task from a position on.
Ahead keys_from(const AttentionTask& task, std::int64_t start) {
  Ahead ahead{};
  const std::int64_t end = visible(task, task.tokens - 1).end;
  for (std::int64_t b = 0; b < kBlocksOfSpan && start + b * kKvTokens < end; ++b) {
    ahead.keys[b] = block_of(task, start + b * kKvTokens);
  }
  return ahead;
}

/// After a step: those of the next span, which the first rows of a span fetch.
Ahead next_keys(const AttentionTask& task, const Step& step) {
  return step.begins_span ? keys_from(task, step.start + kSpanTokens) : Ahead{};
}

/// After the last step: those of the next task.
Ahead next_task_keys(const AttentionTask& task) {
  return task.next != nullptr ? keys_from(*task.next, visible(*task.next, 0).first) : Ahead{};
}

/// The weighted values of a step, two tiles of the head at a time, added to the rows' sums. A sum to which only zeros
/// are added stays as it is: tiles never leave one that is smaller than the smallest normal number.
template <class Kv, int Blocks, class Between>
VITRINE_INLINE void add_values(const TileFrame& frame, const Step& step, const StepRows& rows, const Ahead& ahead,
                               Between& between) {
  const std::int64_t tiles = frame.places.value_tiles;
  const std::int64_t pairs = (tiles + 1) / 2;
  const unsigned char* w0 = rows.weights;
  const unsigned char* w1 = rows.weights + kBlocksOfSpan * kTileBytes;
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    float* out0 = frame.out + (step.first / kTileRows * tiles + 2 * pair) * kTileFloats;
    float* out1 = out0 + tiles * kTileFloats;
    const bool both = 2 * pair + 1 < tiles;
    if (step.begins_rows) {
      zero_sums<Blocks>();
    } else {
      load_tile<0>(out0, kLine);
      if (both) load_tile<1>(out0 + kTileFloats, kLine);
      if constexpr (Blocks == 2) {
        load_tile<2>(out1, kLine);
        if (both) load_tile<3>(out1 + kTileFloats, kLine);
      }
    }
    for (std::int64_t b = 0; b < step.seen.count; ++b) {
      const unsigned char* values = Kv::values(frame, step.seen.block[b], step.place + b) + 2 * pair * kTileBytes;
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
      if (!Kv::kScaled && ahead.keys[b] != nullptr) fetch_lines<32>(ahead.keys[b] + pair * 2 * kTileBytes);
      between.some();
    }
    store_tile<0>(out0, kLine);
    if (both) store_tile<1>(out0 + kTileFloats, kLine);
    if constexpr (Blocks == 2) {
      store_tile<2>(out1, kLine);
      if (both) store_tile<3>(out1 + kTileFloats, kLine);
    }
  }
}

// ---- All of it ----

/// The step after `step`: the next rows, else the next span. False when there is none. Begins with count = 0.
bool advance(const AttentionTask& task, const TileFrame& frame, Step& step) {
  const std::int64_t end = visible(task, task.tokens - 1).end;
  const std::int64_t start_before = step.count > 0 ? step.start : -1;
  for (;;) {
    step.first += step.count;
    if (step.first >= frame.num_rows) {
      step.first = 0;
      step.start += kSpanTokens;
      if (step.start >= end) return false;
    }
    step.count = smaller(kRowsAtOnce, frame.num_rows - step.first);
    step.seen = seen_blocks(task, {step.first, step.count, nullptr}, step.start);
    step.place = (step.seen.start - step.start) / kKvTokens;
    step.begins_span = step.start != start_before;
    const std::int64_t first_seen = visible(task, step.first / task.heads).first;
    step.begins_rows = step.start <= first_seen;
    if (step.seen.count > 0) return true;
  }
}

template <class Kv, class Between>
VITRINE_INLINE void score_step(const TileFrame& frame, const Step& step, float* scores, Between& between) {
  if (step.count > kTileRows) {
    score<Kv, 2>(frame, step, scores, between);
  } else {
    score<Kv, 1>(frame, step, scores, between);
  }
}

/// The values of a span, for all rows of the task.
template <class Kv>
void unpack_span(const AttentionTask& task, const TileFrame& frame, const Step& step, const Ahead& ahead) {
  const Seen all = seen_blocks(task, {0, frame.num_rows, nullptr}, step.start);
  for (std::int64_t b = 0; b < all.count; ++b) {
    const std::int64_t place = (all.start - step.start) / kKvTokens + b;
    Kv::unpack_values(frame, all.block[b], place, ahead.keys[place]);
  }
}

template <class Kv, class Between>
VITRINE_INLINE void add_step(const AttentionTask& task, const TileFrame& frame, const Step& step, const StepRows& rows,
                             const Ahead& ahead, Between& between) {
  if constexpr (Kv::kScaled) {
    if (step.begins_span) unpack_span<Kv>(task, frame, step, ahead);
  }
  if (rows.corrected) correct_sums(frame, step, rows);
  if (step.count > kTileRows) {
    add_values<Kv, 2>(frame, step, rows, ahead, between);
  } else {
    add_values<Kv, 1>(frame, step, rows, ahead, between);
  }
}

template <class Kv>
void attend_all(const AttentionTask& task, const TileFrame& frame) {
  StepRows rows[2];
  for (int i = 0; i < 2; ++i) {
    rows[i].scores = frame.scores[i];
    rows[i].weights = frame.weights[i];
  }
  const auto nothing = [](std::int64_t, std::int64_t) {};
  PieceByPiece<decltype(nothing)> idle{nothing, 0, 0, 1};
  Step before{};
  Step now{};
  now.start = visible(task, 0).first / kSpanTokens * kSpanTokens;
  advance(task, frame, now);
  score_step<Kv>(frame, now, frame.scores[0], idle);
  for (int i = 0;; i ^= 1) {
    Step next = now;
    const bool more = advance(task, frame, next);
    begin_rows(task, frame, now, rows[i]);
    const auto weigh = [&](std::int64_t row, std::int64_t begin) __attribute__((always_inline)) {
      weigh_piece<Kv>(frame, now, rows[i], row, begin);
    };
    const std::int64_t turns = (more ? next.seen.count * frame.places.key_steps : 0) +
                               before.seen.count * ((frame.places.value_tiles + 1) / 2);
    PieceByPiece<decltype(weigh)> weighing{weigh, now.count, now.seen.count, turns};
    if (more) score_step<Kv>(frame, next, frame.scores[i ^ 1], weighing);
    if (before.count > 0) add_step<Kv>(task, frame, before, rows[i ^ 1], next_keys(task, next), weighing);
    weighing.rest();
    finish_rows<Kv>(frame, now, rows[i]);
    if (!more) return add_step<Kv>(task, frame, now, rows[i], next_task_keys(task), idle);
    before = now;
    now = next;
  }
}

/// A few rows alone, one token of a sequence, take less time in tiles of their height.
void configure_for(std::int64_t rows) {
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.rows[i] = static_cast<std::uint8_t>(i < 6 ? smaller(rows, kTileRows) : kTileRows);
    config.row_bytes[i] = kLine;
  }
  configure_tiles(config);
}

template <class Kv>
void attention_on_tiles(const AttentionTask& task) {
  const TileFrame frame = make_tile_frame(task, Kv::places(task.head_dim));
  for (std::int64_t row = 0; row < frame.num_rows; ++row) {
    Kv::store_query(task, frame, row,
                    frame.queries + row / kTileRows * frame.places.key_steps * kTileBytes + row % kTileRows * kLine);
  }
  configure_for(frame.num_rows);
  attend_all<Kv>(task, frame);
  release_tiles();
  for (std::int64_t row = 0; row < frame.num_rows; ++row) {
    float* out = task.out + row / task.heads * task.out_stride + row % task.heads * task.head_dim;
    const float* sums = frame.out + row / kTileRows * frame.places.value_tiles * kTileFloats + row % kTileRows * 16;
    const Simd::F inverse = Simd::set(1.0f / frame.sum[row]);
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
