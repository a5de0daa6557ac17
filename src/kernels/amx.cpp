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
constexpr std::int64_t kBlockSteps = 16;
/// From so many rows on integers go through the tiles. The same integers either way.
constexpr std::int64_t kFewRows = 8;

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

/// sums += steps [from, to) of the pair's rows times those of the panel.
template <class Products>
VITRINE_INLINE void add_steps(const RowPair& pair, const unsigned char* panel, std::int64_t from, std::int64_t to) {
  const std::int64_t stride0 = pair.rows[0] * kLine;
  const unsigned char* a0 = pair.tiles[0] + from * stride0;
  panel += from * 2 * kTileBytes;
  if (pair.rows[1] > 0) {
    const std::int64_t stride1 = pair.rows[1] * kLine;
    const unsigned char* a1 = pair.tiles[1] + from * stride1;
    for (std::int64_t step = from; step < to; ++step, a0 += stride0, a1 += stride1, panel += 2 * kTileBytes) {
      load_tile<6>(panel, kLine);
      load_tile<4>(a0, kLine);
      Products::template add<0, 4, 6>();
      load_tile<7>(panel + kTileBytes, kLine);
      Products::template add<1, 4, 7>();
      load_tile<5>(a1, kLine);
      Products::template add<2, 5, 6>();
      Products::template add<3, 5, 7>();
    }
  } else {  // 16 rows or fewer: the panel passes by once, from memory
    for (std::int64_t step = from; step < to; ++step, a0 += stride0, panel += 2 * kTileBytes) {
      for (int line = 0; line < 32; ++line) prefetch(panel + line * kLine);
      load_tile<6>(panel, kLine);
      load_tile<4>(a0, kLine);
      Products::template add<0, 4, 6>();
      load_tile<7>(panel + kTileBytes, kLine);
      Products::template add<1, 4, 7>();
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
VITRINE_INLINE const unsigned char* sum_row(const unsigned char* sums, std::int64_t row, int half) {
  return sums + (row / kTileRows * 2 + half) * kTileBytes + row % kTileRows * kLine;
}

void matmul_bf16(const MatmulTask& task) {
  Tiles tiles;
  const std::int64_t steps = task.weight.steps;
  const unsigned char* panel = task.weight.panels;
  for (std::int64_t column = 0; column < task.n; column += kPanelRows, panel += task.weight.panel_bytes) {
    for (std::int64_t from = 0; from < steps; from += kBlockSteps) {
      const std::int64_t to = from + kBlockSteps < steps ? from + kBlockSteps : steps;
      for (std::int64_t first = 0; first < task.x.rows; first += 2 * kTileRows) {
        const RowPair pair = pair_at(task.x, first);
        tiles.fit(pair);
        unsigned char* sums = task.scratch + first / (2 * kTileRows) * kSumBytes;
        if (from == 0) {
          zero_sums();
        } else {
          load_sums(pair, sums);
        }
        add_steps<BF16Products>(pair, panel, from, to);
        store_sums(pair, sums);
        if (to < steps) continue;
        for (std::int64_t row = 0; row < pair.rows[0] + pair.rows[1]; ++row) {
          for (int half = 0; half < 2; ++half) {
            write(task, first + row, column + half * kTileRows,
                  Simd::load(reinterpret_cast<const float*>(sum_row(sums, row, half))));
          }
        }
      }
    }
  }
}

/// Adds a segment's sums, less what the weights are too high by, times the rows' scales to the totals of the pair.
VITRINE_INLINE void add_segment(const Operand& x, const RowPair& pair, std::int64_t segment, const unsigned char* sums,
                                float* totals) {
  for (std::int64_t row = 0; row < pair.rows[0] + pair.rows[1]; ++row, totals += kPanelRows) {
    const std::int64_t at = (pair.first + row) * x.segments + segment;
    const Simd::I offset = Simd::set_int(-Dot::kOffset * x.segment_sums[at]);
    const Simd::F scale = Simd::set(x.scales[at]);
    for (int half = 0; half < 2; ++half) {
      const Simd::I sum = Simd::add_int(Simd::load_bits(sum_row(sums, row, half)), offset);
      const Simd::F part = Simd::mul(Simd::to_float(sum), scale);
      float* total = totals + half * kTileRows;
      Simd::store(total, segment == 0 ? part : Simd::add(Simd::load(total), part));
    }
  }
}

/// One int8 panel and all rows. totals: scratch for [rows, 32] floats.
void int8_panel_on_tiles(const MatmulTask& task, Tiles& tiles, const unsigned char* panel,
                         const unsigned char* row_scales, std::int64_t column, float* totals) {
  constexpr std::int64_t kSegmentSteps = kSegment / 64;
  alignas(64) unsigned char sums[kSumBytes];
  const std::int64_t steps = task.weight.steps;
  const auto* scales = reinterpret_cast<const float*>(row_scales);
  for (std::int64_t from = 0; from < steps; from += kBlockSteps) {
    const std::int64_t to = from + kBlockSteps < steps ? from + kBlockSteps : steps;
    for (std::int64_t first = 0; first < task.x.rows; first += 2 * kTileRows) {
      const RowPair pair = pair_at(task.x, first);
      tiles.fit(pair);
      for (std::int64_t step = from; step < to; step += kSegmentSteps) {
        zero_sums();
        add_steps<ByteProducts>(pair, panel, step, step + kSegmentSteps < to ? step + kSegmentSteps : to);
        store_sums(pair, sums);
        add_segment(task.x, pair, step / kSegmentSteps, sums, totals + first * kPanelRows);
      }
      if (to < steps) continue;
      for (std::int64_t row = first; row < first + pair.rows[0] + pair.rows[1]; ++row) {
        for (int half = 0; half < 2; ++half) {
          const Simd::F total = Simd::load(totals + row * kPanelRows + half * kTileRows);
          write(task, row, column + half * kTileRows, Simd::mul(total, Simd::load(scales + half * kTileRows)));
        }
      }
    }
  }
}

void matmul_int8_on_tiles(const MatmulTask& task) {
  if (task.x.rows <= kFewRows) return matmul_int8(task);
  Tiles tiles;
  const unsigned char* panel = task.weight.panels;
  for (std::int64_t column = 0; column < task.n; column += kPanelRows, panel += task.weight.panel_bytes) {
    int8_panel_on_tiles(task, tiles, panel, panel + task.weight.row_scales_offset, column,
                        reinterpret_cast<float*>(task.scratch));
  }
}

void matmul_int4_on_tiles(const MatmulTask& task) {
  if (task.x.rows <= kFewRows) return matmul_int4(task);
  Tiles tiles;
  const unsigned char* panel = task.weight.panels;
  unsigned char* unpacked = task.scratch;
  auto* totals = reinterpret_cast<float*>(task.scratch + task.weight.steps * 2 * kTileBytes);
  for (std::int64_t column = 0; column < task.n; column += kPanelRows, panel += task.weight.panel_bytes) {
    unpack_int4<false>(task.weight, panel, unpacked);
    int8_panel_on_tiles(task, tiles, unpacked, panel + task.weight.row_scales_offset, column, totals);
  }
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
