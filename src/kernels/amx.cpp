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
      _mm_prefetch(reinterpret_cast<const char*>(next_), _MM_HINT_T1);
    }
  }

 private:
  const unsigned char* next_;
  std::int64_t lines_;
};

/// sums += steps [from, to) of the pair's rows times those of the panel.
template <class Products>
VITRINE_INLINE void add_steps(const RowPair& pair, const unsigned char* panel, std::int64_t from, std::int64_t to,
                              Prefetcher& fetch) {
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
    }
  } else {
    for (std::int64_t step = from; step < to; ++step, a0 += stride0, panel += 2 * kTileBytes) {
      load_tile<4>(a0, kLine);
      load_tile<6>(panel, kLine);
      Products::template add<0, 4, 6>();
      load_tile<7>(panel + kTileBytes, kLine);
      Products::template add<1, 4, 7>();
      fetch.step();
    }
  }
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

/// The pair's rows of one panel go to y: value(block, row in it, half) for each 16 columns.
template <class Value>
VITRINE_INLINE void write_pair(const MatmulTask& task, const RowPair& pair, std::int64_t column, Value value) {
  const bool whole = task.n - column >= kPanelRows;
  const bool accumulate = task.accumulate;
  for (int block = 0; block < 2; ++block) {
    const std::int64_t rows = pair.rows[block];
    float* y = task.y + (pair.first + block * kTileRows) * task.y_stride + column;
    if (whole && accumulate) {
      for (std::int64_t row = 0; row < rows; ++row, y += task.y_stride) {
        Simd::store(y, Simd::add(Simd::load(y), value(block, row, 0)));
        Simd::store(y + kTileRows, Simd::add(Simd::load(y + kTileRows), value(block, row, 1)));
      }
    } else if (whole) {
      for (std::int64_t row = 0; row < rows; ++row, y += task.y_stride) {
        Simd::store(y, value(block, row, 0));
        Simd::store(y + kTileRows, value(block, row, 1));
      }
    } else {
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t at = pair.first + block * kTileRows + row;
        for (int half = 0; half < 2; ++half) write(task, at, column + half * kTileRows, value(block, row, half));
      }
    }
  }
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
    pair_ = pair;
    sums_ = sums;
    column_ = column;
    pending_ = true;
  }
  VITRINE_INLINE void finish() {
    if (!pending_) return;
    pending_ = false;
    const unsigned char* sums = sums_;
    write_pair(
        task_, pair_, column_, [sums](int block, std::int64_t row, int half) __attribute__((always_inline)) {
          return Simd::load(reinterpret_cast<const float*>(sums + (2 * block + half) * kTileBytes + row * kLine));
        });
  }

 private:
  const MatmulTask& task_;
  RowPair pair_{};
  std::int64_t column_ = 0;
  const unsigned char* sums_ = nullptr;
  bool pending_ = false;
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
      add_steps<BF16Products>(pair, panel, from, to, fetch);
      results.finish();  // of the pair before, while the tiles are busy
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
  results.finish();
}

// ---- int8 ----

/// The sums of a segment on their way to the totals of their rows, and with the last segment to y.
class SegmentResults {
 public:
  explicit SegmentResults(const MatmulTask& task) : task_(task) {}

  /// Room for the sums of the next segment; those of the one before are still in use.
  unsigned char* other_sums() {
    turn_ = !turn_;
    return sums_[turn_ ? 1 : 0];
  }
  void start(const RowPair& pair, std::int64_t segment, const unsigned char* sums, float* totals, std::int64_t column,
             const float* row_scales) {
    pair_ = pair;
    segment_ = segment;
    from_ = sums;
    totals_ = totals;
    column_ = column;
    row_scales_ = row_scales;
    pending_ = true;
  }
  VITRINE_INLINE void finish() {
    if (!pending_) return;
    pending_ = false;
    if (row_scales_ != nullptr) {
      if (segment_ == 0) {
        write_rows<true>();
      } else {
        write_rows<false>();
      }
    } else if (segment_ == 0) {
      add_rows<true>();
    } else {
      add_rows<false>();
    }
  }

 private:
  /// A row's sums of the segment times the row's scale.
  static VITRINE_INLINE Simd::F part(const unsigned char* sums, Simd::F scale) {
    return Simd::mul(Simd::to_float(Simd::load_bits(sums)), scale);
  }

  template <bool First>
  VITRINE_INLINE void add_rows() {
    const Operand& x = task_.x;
    const float* scale = x.scales + pair_.first * x.segments + segment_;
    float* total = totals_;
    for (int block = 0; block < 2; ++block) {
      const unsigned char* sums = from_ + block * 2 * kTileBytes;
      for (std::int64_t row = 0; row < pair_.rows[block]; ++row) {
        const Simd::F s = Simd::set(*scale);
        const Simd::F left = part(sums, s);
        const Simd::F right = part(sums + kTileBytes, s);
        Simd::store(total, First ? left : Simd::add(Simd::load(total), left));
        Simd::store(total + kTileRows, First ? right : Simd::add(Simd::load(total + kTileRows), right));
        scale += x.segments;
        sums += kLine;
        total += kPanelRows;
      }
    }
  }

  template <bool First>
  VITRINE_INLINE void write_rows() {
    const std::int64_t segments = task_.x.segments;
    const float* scales = task_.x.scales + pair_.first * segments + segment_;
    const unsigned char* sums = from_;
    const float* totals = totals_;
    const Simd::F left = Simd::load(row_scales_);
    const Simd::F right = Simd::load(row_scales_ + kTileRows);
    write_pair(
        task_, pair_, column_, [=](int block, std::int64_t row, int half) __attribute__((always_inline)) {
          const Simd::F scale = Simd::set(scales[(block * kTileRows + row) * segments]);
          Simd::F total = part(sums + (2 * block + half) * kTileBytes + row * kLine, scale);
          if (!First) {
            total = Simd::add(Simd::load(totals + (block * kTileRows + row) * kPanelRows + half * kTileRows), total);
          }
          return Simd::mul(total, half == 0 ? left : right);
        });
  }

  const MatmulTask& task_;
  alignas(64) unsigned char sums_[2][kSumBytes];
  bool turn_ = false;
  bool pending_ = false;
  RowPair pair_{};
  std::int64_t segment_ = 0, column_ = 0;
  const unsigned char* from_ = nullptr;
  float* totals_ = nullptr;
  const float* row_scales_ = nullptr;  // with the last segment
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
        add_steps<ByteProducts>(pair, panel, step, to, fetch);
        results.finish();  // of the segment before, while the tiles are busy
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
  results.finish();
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
  results.finish();
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
