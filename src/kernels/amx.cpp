// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX-512 F, BW, VL and DQ; run only where there are AMX tiles, and VNNI, too.
#include "kernels/amx_tiles.h"
#include "kernels/dot_avx512_vnni.h"
//
#include "kernels/int_product_body.h"

namespace vitrine {
namespace {

// Tiles 0 to 3 are the sums of 32 rows by the 32 columns of a panel, 4 and 5 the rows, 6 and 7 the panel.
constexpr std::int64_t kSumBytes = 4 * kTileBytes;
/// Steps of a panel, 2 KB each, that stay in the first cache while all rows pass by.
constexpr std::int64_t kBlockSteps = 8;
/// Rows of finished sums that are dealt with during a step.
constexpr std::int64_t kRowsOfStep = 2 * kTileRows / kBlockSteps;
/// Above so many rows integers go through the tiles: the same integers either way. int4 has to be unpacked for them.
constexpr std::int64_t kFewInt8Rows = 4;
constexpr std::int64_t kFewInt4Rows = 8;

/// Two blocks of the operand, the second perhaps missing (0 rows).
struct RowPair {
  const unsigned char* tiles[2];
  std::int64_t rows[2];
  std::int64_t first;  // row
};

RowPair pair_at(const Operand& x, std::int64_t first) {
  RowPair pair{};
  pair.first = first;
  for (int i = 0; i < 2; ++i) {
    const std::int64_t begin = first + i * kTileRows;
    const std::int64_t left = x.rows - begin;
    pair.rows[i] = left < 0 ? 0 : left < kTileRows ? left : kTileRows;
    pair.tiles[i] = x.tiles + begin * x.steps * kLine;
  }
  return pair;
}

/// Keeps the tiles configured for the rows at hand, and gives them back at the end.
class Tiles {
 public:
  Tiles() = default;
  ~Tiles() { release_tiles(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;

  VITRINE_INLINE void fit(const RowPair& pair) {
    if (rows_[0] == pair.rows[0] && rows_[1] == pair.rows[1]) return;
    rows_[0] = pair.rows[0];
    rows_[1] = pair.rows[1];
    TileConfig config;
    const auto second = static_cast<std::uint8_t>(pair.rows[1] > 0 ? pair.rows[1] : 1);
    const auto first = static_cast<std::uint8_t>(pair.rows[0]);
    const std::uint8_t rows[8] = {first, first, second, second, first, second, 16, 16};
    for (int i = 0; i < 8; ++i) {
      config.rows[i] = rows[i];
      config.row_bytes[i] = 64;
    }
    configure_tiles(config);
  }

 private:
  std::int64_t rows_[2] = {0, 0};
};

struct BF16Products {
  template <int Sum, int A, int B>
  static VITRINE_INLINE void add() {
    add_bf16_products<Sum, A, B>();
  }
};
struct ByteProducts {
  template <int Sum, int A, int B>
  static VITRINE_INLINE void add() {
    add_byte_products<Sum, A, B>();
  }
};

/// Fetches what comes from memory next while a panel meets all its row pairs: a few lines a step.
class Prefetcher {
 public:
  Prefetcher(const unsigned char* next, std::int64_t pairs) : next_(next), lines_((32 + pairs - 1) / pairs) {}
  VITRINE_INLINE void step() {
    for (std::int64_t line = 0; line < lines_; ++line, next_ += kLine) {
      fetch(next_);
    }
  }

 private:
  const unsigned char* next_;
  std::int64_t lines_;
};

/// sums += steps [from, to) of the pair's rows times those of the panel. Between the steps the vectors go on with
/// `results`, those of the sums before: tiles and vectors are different units of a core.
template <class Products, class Results>
VITRINE_INLINE void add_steps(const RowPair& pair, const unsigned char* panel, std::int64_t from, std::int64_t to,
                              Prefetcher& fetch, Results& results) {
  const std::int64_t stride0 = pair.rows[0] * kLine;
  const unsigned char* a0 = pair.tiles[0] + from * stride0;
  panel += from * 2 * kTileBytes;
  if (pair.rows[1] > 0) {
    const std::int64_t stride1 = pair.rows[1] * kLine;
    const unsigned char* a1 = pair.tiles[1] + from * stride1;
    for (std::int64_t step = from; step < to; ++step, a0 += stride0, a1 += stride1, panel += 2 * kTileBytes) {
      load_tile<4>(a0, kLine);
      load_tile<6>(panel, kLine);
      Products::template add<0, 4, 6>();
      load_tile<7>(panel + kTileBytes, kLine);
      Products::template add<1, 4, 7>();
      load_tile<5>(a1, kLine);
      Products::template add<2, 5, 6>();
      Products::template add<3, 5, 7>();
      fetch.step();
      results.advance(kRowsOfStep);
    }
  } else {
    for (std::int64_t step = from; step < to; ++step, a0 += stride0, panel += 2 * kTileBytes) {
      load_tile<4>(a0, kLine);
      load_tile<6>(panel, kLine);
      Products::template add<0, 4, 6>();
      load_tile<7>(panel + kTileBytes, kLine);
      Products::template add<1, 4, 7>();
      fetch.step();
      results.advance(kRowsOfStep);
    }
  }
  results.advance(2 * kTileRows);
}

VITRINE_INLINE void zero_sums() {
  zero_tile<0>();
  zero_tile<1>();
  zero_tile<2>();
  zero_tile<3>();
}

/// Sums as 4 tiles one after another: rows 0-15 with columns 0-15, then 16-31, then rows 16-31 likewise.
VITRINE_INLINE void store_sums(const RowPair& pair, unsigned char* to) {
  store_tile<0>(to, kLine);
  store_tile<1>(to + kTileBytes, kLine);
  if (pair.rows[1] == 0) return;
  store_tile<2>(to + 2 * kTileBytes, kLine);
  store_tile<3>(to + 3 * kTileBytes, kLine);
}
VITRINE_INLINE void load_sums(const RowPair& pair, const unsigned char* from) {
  load_tile<0>(from, kLine);
  load_tile<1>(from + kTileBytes, kLine);
  if (pair.rows[1] == 0) return;
  load_tile<2>(from + 2 * kTileBytes, kLine);
  load_tile<3>(from + 3 * kTileBytes, kLine);
}
/// What to fetch during a panel: the one after it. With one pair the panel itself is what memory delivers.
const unsigned char* after(const MatmulTask& task, const unsigned char* panel, std::int64_t pairs) {
  return panel + (pairs == 1 ? kAhead : task.weight.panel_bytes);
}

std::int64_t pairs_of(std::int64_t rows) { return (rows + 2 * kTileRows - 1) / (2 * kTileRows); }

/// Sums of 32 rows by 32 columns that the tiles have stored, on their way to where they belong, a few rows at a time.
/// Each: each(row of the pair, its sums of columns 0-15, those of columns 16-31).
class StoredSums {
 public:
  void start(const RowPair& pair, const unsigned char* sums) {
    sums_ = sums;
    next_ = 0;
    end_ = pair.rows[0] + pair.rows[1];
  }
  template <class Each>
  VITRINE_INLINE void advance(std::int64_t count, Each each) {
    const std::int64_t end = next_ + count < end_ ? next_ + count : end_;
    for (; next_ < end; ++next_) {
      const unsigned char* row = sums_ + next_ / kTileRows * 2 * kTileBytes + next_ % kTileRows * kLine;
      each(next_, row, row + kTileBytes);
    }
  }
  bool pending() const { return next_ < end_; }

 private:
  const unsigned char* sums_ = nullptr;
  std::int64_t next_ = 0, end_ = 0;
};

/// One row's results of a panel.
VITRINE_INLINE void write_row(const MatmulTask& task, std::int64_t row, std::int64_t column, Simd::F left,
                              Simd::F right) {
  if (task.n - column < kPanelRows) {
    write(task, row, column, left);
    write(task, row, column + kTileRows, right);
    return;
  }
  float* y = task.y + row * task.y_stride + column;
  if (task.accumulate) {
    left = Simd::add(Simd::load(y), left);
    right = Simd::add(Simd::load(y + kTileRows), right);
  }
  Simd::store(y, left);
  Simd::store(y + kTileRows, right);
}

/// So many rows that they fill about half of the second cache: what is left is for weights and results.
std::int64_t rows_at_once(const Operand& x) {
  constexpr std::int64_t kBytes = 1 << 20;
  const std::int64_t rows = kBytes / (x.steps * kLine) / (2 * kTileRows) * (2 * kTileRows);
  return rows < 4 * kTileRows ? 4 * kTileRows : rows;
}

// ---- bf16 ----

/// Finished sums on their way to y.
class FloatResults {
 public:
  explicit FloatResults(const MatmulTask& task) : task_(task) {}

  void start(const RowPair& pair, const unsigned char* sums, std::int64_t column) {
    first_ = pair.first;
    column_ = column;
    sums_.start(pair, sums);
  }
  VITRINE_INLINE void advance(std::int64_t rows) {
    sums_.advance(
        rows, [this](std::int64_t row, const unsigned char* left, const unsigned char* right)
                  __attribute__((always_inline)) {
                    write_row(task_, first_ + row, column_, Simd::load(reinterpret_cast<const float*>(left)),
                              Simd::load(reinterpret_cast<const float*>(right)));
                  });
  }

 private:
  const MatmulTask& task_;
  StoredSums sums_;
  std::int64_t first_ = 0, column_ = 0;
};

/// Rows [begin, end) and one panel. sums: room for those of every pair.
void bf16_panel(const MatmulTask& task, Tiles& tiles, const unsigned char* panel, std::int64_t column,
                std::int64_t begin, std::int64_t end, unsigned char* sums, FloatResults& results) {
  const std::int64_t steps = task.weight.steps;
  const std::int64_t pairs = pairs_of(end - begin);
  Prefetcher fetch(after(task, panel, pairs), pairs);
  for (std::int64_t from = 0; from < steps; from += kBlockSteps) {
    const std::int64_t to = from + kBlockSteps < steps ? from + kBlockSteps : steps;
    unsigned char* pair_sums = sums;
    for (std::int64_t first = begin; first < end; first += 2 * kTileRows, pair_sums += kSumBytes) {
      const RowPair pair = pair_at(task.x, first);
      tiles.fit(pair);
      if (from == 0) {
        zero_sums();
      } else {
        load_sums(pair, pair_sums);
      }
      add_steps<BF16Products>(pair, panel, from, to, fetch, results);
      store_sums(pair, pair_sums);
      if (to == steps) results.start(pair, pair_sums, column);
    }
  }
}

void matmul_bf16(const MatmulTask& task) {
  Tiles tiles;
  FloatResults results(task);
  const std::int64_t rows = rows_at_once(task.x);
  for (std::int64_t begin = 0; begin < task.x.rows; begin += rows) {
    const std::int64_t end = begin + rows < task.x.rows ? begin + rows : task.x.rows;
    const unsigned char* panel = task.weight.panels;
    for (std::int64_t column = 0; column < task.n; column += kPanelRows, panel += task.weight.panel_bytes) {
      bf16_panel(task, tiles, panel, column, begin, end, task.scratch, results);
    }
  }
  results.advance(2 * kTileRows);
}

// ---- int8 ----

/// The sums of a segment on their way to the totals of their rows, and with the last segment to y.
class SegmentResults {
 public:
  explicit SegmentResults(const MatmulTask& task) : task_(task) {}

  /// Room for the sums of the next segment; those of the one before are still in use.
  unsigned char* other_sums() {
    turn_ = !turn_;
    return room_[turn_ ? 1 : 0];
  }
  /// totals: [rows of the pair, 32]. row_scales: with the last segment.
  void start(const RowPair& pair, std::int64_t segment, const unsigned char* sums, float* totals, std::int64_t column,
             const float* row_scales) {
    first_ = pair.first;
    scales_ = task_.x.scales + pair.first * task_.x.segments + segment;
    first_segment_ = segment == 0;
    totals_ = totals;
    column_ = column;
    row_scales_ = row_scales;
    sums_.start(pair, sums);
  }
  VITRINE_INLINE void advance(std::int64_t rows) {
    if (!sums_.pending()) return;
    if (row_scales_ != nullptr) {
      first_segment_ ? advance<true, true>(rows) : advance<false, true>(rows);
    } else {
      first_segment_ ? advance<true, false>(rows) : advance<false, false>(rows);
    }
  }

 private:
  template <bool First, bool Last>
  VITRINE_INLINE void advance(std::int64_t rows) {
    sums_.advance(
        rows, [this](std::int64_t row, const unsigned char* left_sums,
                     const unsigned char* right_sums) __attribute__((always_inline)) {
          const Simd::F scale = Simd::set(scales_[row * task_.x.segments]);
          float* total = totals_ + row * kPanelRows;
          const auto add = [scale](const unsigned char* sums, const float* before) __attribute__((always_inline)) {
            const Simd::F sum = Simd::to_float(Simd::load_bits(sums));
            if (First) return Simd::mul(sum, scale);
            Simd::F all = Simd::load(before);
            Simd::fma(all, sum, scale);
            return all;
          };
          const Simd::F left = add(left_sums, total);
          const Simd::F right = add(right_sums, total + kTileRows);
          if (Last) {
            write_row(task_, first_ + row, column_, Simd::mul(left, Simd::load(row_scales_)),
                      Simd::mul(right, Simd::load(row_scales_ + kTileRows)));
          } else {
            Simd::store(total, left);
            Simd::store(total + kTileRows, right);
          }
        });
  }

  const MatmulTask& task_;
  alignas(64) unsigned char room_[2][kSumBytes];
  bool turn_ = false;
  bool first_segment_ = false;
  StoredSums sums_;
  std::int64_t first_ = 0, column_ = 0;
  const float* scales_ = nullptr;
  float* totals_ = nullptr;
  const float* row_scales_ = nullptr;
};

/// Rows [begin, end) and one panel of bytes. totals: room for [end - begin, 32]. next: what to fetch meanwhile.
void int8_panel_on_tiles(const MatmulTask& task, Tiles& tiles, const unsigned char* panel, const unsigned char* next,
                         const unsigned char* row_scales, std::int64_t column, std::int64_t begin, std::int64_t end,
                         float* totals, SegmentResults& results) {
  constexpr std::int64_t kSegmentSteps = kSegment / 64;
  const std::int64_t steps = task.weight.steps;
  Prefetcher fetch(next, pairs_of(end - begin));
  for (std::int64_t from = 0; from < steps; from += kBlockSteps) {
    const std::int64_t block_end = from + kBlockSteps < steps ? from + kBlockSteps : steps;
    for (std::int64_t first = begin; first < end; first += 2 * kTileRows) {
      const RowPair pair = pair_at(task.x, first);
      tiles.fit(pair);
      for (std::int64_t step = from; step < block_end; step += kSegmentSteps) {
        const std::int64_t to = step + kSegmentSteps < block_end ? step + kSegmentSteps : block_end;
        zero_sums();
        add_steps<ByteProducts>(pair, panel, step, to, fetch, results);
        unsigned char* sums = results.other_sums();
        store_sums(pair, sums);
        results.start(pair, step / kSegmentSteps, sums, totals + (first - begin) * kPanelRows, column,
                      to == steps ? reinterpret_cast<const float*>(row_scales) : nullptr);
      }
    }
  }
}

void matmul_int8_on_tiles(const MatmulTask& task) {
  if (task.x.rows <= kFewInt8Rows) return matmul_int8(task);
  Tiles tiles;
  SegmentResults results(task);
  const std::int64_t rows = rows_at_once(task.x);
  for (std::int64_t begin = 0; begin < task.x.rows; begin += rows) {
    const std::int64_t end = begin + rows < task.x.rows ? begin + rows : task.x.rows;
    const unsigned char* panel = task.weight.panels;
    for (std::int64_t column = 0; column < task.n; column += kPanelRows, panel += task.weight.panel_bytes) {
      int8_panel_on_tiles(task, tiles, panel, after(task, panel, pairs_of(end - begin)),
                          panel + task.weight.row_scales_offset, column, begin, end,
                          reinterpret_cast<float*>(task.scratch), results);
    }
  }
  results.advance(2 * kTileRows);
}

void matmul_int4_on_tiles(const MatmulTask& task) {
  if (task.x.rows <= kFewInt4Rows) return matmul_int4(task);
  Tiles tiles;
  SegmentResults results(task);
  const unsigned char* panel = task.weight.panels;
  auto* totals = reinterpret_cast<float*>(task.scratch + task.weight.steps * 2 * kTileBytes);
  for (std::int64_t column = 0; column < task.n; column += kPanelRows, panel += task.weight.panel_bytes) {
    unpack_int4<false, 0>(task.weight, panel, task.scratch);
    int8_panel_on_tiles(task, tiles, task.scratch, panel + task.weight.panel_bytes,
                        panel + task.weight.row_scales_offset, column, 0, task.x.rows, totals, results);
  }
  results.advance(2 * kTileRows);
}

}  // namespace

void override_amx(Kernels& kernels) {
  override_integer_products(kernels);
  kernels.matmul[kPackedInt8] = matmul_int8_on_tiles;
  kernels.matmul[kPackedInt4] = matmul_int4_on_tiles;
}

void override_amx_bf16(Kernels& kernels) {
  kernels.matmul[kPackedBF16] = matmul_bf16;
  kernels.operand[kPackedBF16] = kOperandBF16;
}

}  // namespace vitrine
