// SPDX-License-Identifier: Apache-2.0
// Products of int8 operands with packed int8 and int4 weights, written once in the words of Simd and Dot. Included by an
// instruction set's file after its simd_*.h and after it defined
//   struct Dot: products of bytes. Weights, load(p) of signed bytes, add(sum, weights, activations): sum += four
//               neighbouring products in each 32-bit lane; add_small, the same for bare bytes below 16; kOffset, what the
//               weights are too high by in such sums; load_raised(p) of bytes that are too high by it already; kSums,
//               how many accumulators leave registers for the rest.
#pragma once

#include <cstdint>

#include "kernels/product_rows_body.h"

namespace vitrine {
namespace {

constexpr int kInt8Rows = kVecs == 1 ? 8 : 4;
constexpr int kGroupedRows = kVecs == 1 ? 4 : 2;
constexpr std::int64_t kManyRows = 16;  // that a panel is worth changing for
constexpr int kInt4Rows = kVecs == 1 ? 4 : 1;

template <int MR, int NV>
VITRINE_INLINE void start_sums(Simd::I (&acc)[MR][NV], const std::int32_t* sums, std::int64_t stride) {
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) acc[m][v] = Simd::set_int(-Dot::kOffset * sums[m * stride]);
  }
}

/// sum += a b with one rounding; the first product begins the sum.
VITRINE_INLINE void add_product(Simd::F& sum, Simd::F a, Simd::F b, bool first) {
  if (first) {
    sum = Simd::mul(a, b);
  } else {
    Simd::fma(sum, a, b);
  }
}

template <int MR, int NV>
VITRINE_INLINE void write_scaled(const MatmulTask& task, const BlockRows& block, std::int64_t column,
                                 const Simd::F (&total)[MR][NV], const float* row_scales) {
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      write(task, block.row + m, column + v * Simd::kLanes,
            Simd::mul(total[m][v], Simd::load(row_scales + v * Simd::kLanes)));
    }
  }
}

/// acc += the products of quads of k: [first, first + count) of a step of 64 bytes.
template <bool Raised, int MR, int NV>
VITRINE_INLINE void add_quads(Simd::I (&acc)[MR][NV], const unsigned char* tiles, const unsigned char* x, int first,
                              int count) {
#pragma GCC unroll 1
  for (int q = first; q < first + count; ++q) {
    Dot::Weights w[NV];
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) {
      const unsigned char* at = tiles + v / kVecs * kTileBytes + q * kLine + v % kVecs * 4 * Simd::kLanes;
      w[v] = Raised ? Dot::load_raised(at) : Dot::load(at);
    }
#pragma GCC unroll 16
    for (int m = 0; m < MR; ++m) {
      std::int32_t four;
      __builtin_memcpy(&four, x + m * kLine + 4 * q, sizeof(four));
      const Simd::I xs = Simd::set_int(four);
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) Dot::add(acc[m][v], w[v], xs);
    }
  }
}

template <bool Raised, int MR, int NV>
void int8_tile(const MatmulTask& task, const unsigned char* panel, const float* row_scales, std::int64_t column,
               const BlockRows& block) {
  const Operand& x = task.x;
  Simd::F total[MR][NV];
  const unsigned char* tile = block.tile;
  for (std::int64_t segment = 0, step = 0; step < task.weight.steps; ++segment) {
    const std::int64_t at = block.row * x.segments + segment;
    Simd::I acc[MR][NV];
    start_sums(acc, x.segment_sums + at, x.segments);
    const std::int64_t end = step + kSegment / 64 < task.weight.steps ? step + kSegment / 64 : task.weight.steps;
    for (; step < end; ++step, panel += 2 * kTileBytes, tile += block.step_bytes) {
      if (block.row == 0) {
        for (int line = 0; line < 32; ++line) prefetch(panel + line * kLine);
      }
      add_quads<Raised>(acc, panel, tile, 0, 16);
    }
#pragma GCC unroll 16
    for (int m = 0; m < MR; ++m) {
      const Simd::F scale = Simd::set(x.scales[at + m * x.segments]);
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        add_product(total[m][v], Simd::to_float(acc[m][v]), scale, segment == 0);
      }
    }
  }
  write_scaled(task, block, column, total, row_scales);
}

/// The same with a scale for each `group` weights of a row, scales [groups][32] fp16.
template <bool Raised, int MR, int NV>
void int8_grouped_tile(const MatmulTask& task, const unsigned char* panel, const unsigned char* scales,
                       std::int64_t column, const BlockRows& block) {
  const Operand& x = task.x;
  const std::int64_t quads = task.weight.group / 4;
  const std::int64_t all_quads = task.weight.steps * 16;
  Simd::F total[MR][NV];
  std::int64_t quad = 0;
  for (std::int64_t segment = 0; quad < all_quads; ++segment) {
    Simd::F inner[MR][NV];
    const std::int64_t end = quad + kSegment / 4 < all_quads ? quad + kSegment / 4 : all_quads;
    for (bool begun = false; quad < end; begun = true, scales += kPanelRows * 2) {
      Simd::I acc[MR][NV];
#pragma GCC unroll 16
      for (int m = 0; m < MR; ++m) {
        std::int32_t sum = 0;
        const std::int32_t* sums = x.group_sums + (block.row + m) * x.groups + quad * 4 / kGroup;
        for (std::int64_t g = 0; g < task.weight.group / kGroup; ++g) sum += sums[g];
#pragma GCC unroll 4
        for (int v = 0; v < NV; ++v) acc[m][v] = Simd::set_int(-Dot::kOffset * sum);
      }
      for (const std::int64_t group_end = quad + quads; quad < group_end; quad += 8) {
        const unsigned char* tiles = panel + quad / 16 * 2 * kTileBytes;
        if (block.row == 0) {
          for (int line = 0; line < 16; ++line) prefetch(tiles + (quad % 16 * 2 + line) * kLine);
        }
        add_quads<Raised>(acc, tiles, block.tile + quad / 16 * block.step_bytes, static_cast<int>(quad % 16), 8);
      }
      Simd::F ws[NV];
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) ws[v] = Simd::load_f16(scales + 2 * v * Simd::kLanes);
#pragma GCC unroll 16
      for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 4
        for (int v = 0; v < NV; ++v) {
          add_product(inner[m][v], Simd::to_float(acc[m][v]), ws[v], !begun);
        }
      }
    }
#pragma GCC unroll 16
    for (int m = 0; m < MR; ++m) {
      const Simd::F scale = Simd::set(x.scales[(block.row + m) * x.segments + segment]);
#pragma GCC unroll 4
      for (int v = 0; v < NV; ++v) {
        add_product(total[m][v], inner[m][v], scale, segment == 0);
      }
    }
  }
#pragma GCC unroll 16
  for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < NV; ++v) write(task, block.row + m, column + v * Simd::kLanes, total[m][v]);
  }
}

/// int4 with multipliers, straight from the nibbles: each group's sum fits 16 bits, so that the multiplier is one more
/// integer product. The same integers as from the panel unpacked.
template <int MR>
void int4_tile(const MatmulTask& task, const unsigned char* panel, std::int64_t column, const BlockRows& block) {
  const Operand& x = task.x;
  const Simd::I low = Simd::set_bytes(15);
  const Simd::I one_nibble = Simd::set_int(15);
  const unsigned char* multipliers = panel + task.weight.nibbles_offset;
  const auto* row_scales = reinterpret_cast<const float*>(panel + task.weight.row_scales_offset);
  Simd::F total[MR][kWidth];
  const unsigned char* tile = block.tile;
  // With two passes each fetches half of the next panel, so that memory is never idle.
  const bool two_passes = task.x.rows > kInt4Rows;
  const int lines = two_passes ? 4 : 8;  // of half a step
  const unsigned char* ahead = panel + kAhead;
  if (two_passes) {
    ahead = panel + task.weight.panel_bytes + (block.row == 0 ? 0 : task.weight.steps * kTileBytes / 2);
  }
  for (std::int64_t segment = 0, step = 0; step < task.weight.steps; ++segment) {
    Simd::I acc[MR][kWidth];
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
#pragma GCC unroll 4
      for (int v = 0; v < kWidth; ++v) acc[m][v] = Simd::zero_int();
    }
    const std::int64_t end = step + kSegment / 64 < task.weight.steps ? step + kSegment / 64 : task.weight.steps;
    for (; step < end; ++step, panel += kTileBytes, tile += block.step_bytes) {
      for (int half = 0; half < 2; ++half, multipliers += kTileRows) {
        for (int line = 0; line < lines; ++line, ahead += kLine) fetch(ahead);
        Simd::I sum[MR][kWidth];
#pragma GCC unroll 8
        for (int m = 0; m < MR; ++m) {
          const std::int32_t sums = x.group_sums[(block.row + m) * x.groups + step * 2 + half];
#pragma GCC unroll 4
          for (int v = 0; v < kWidth; ++v) sum[m][v] = Simd::set_int(-8 * sums);
        }
#pragma GCC unroll 8
        for (int q = 0; q < 8; ++q) {
#pragma GCC unroll 2
          for (int v = 0; v < kVecs; ++v) {
            const Simd::I bytes = Simd::load_bits(panel + (half * 8 + q) * kLine + v * 4 * Simd::kLanes);
            const Simd::I first = Simd::and_int(bytes, low);
            const Simd::I second = Simd::and_int(Simd::shift_right<4>(bytes), low);
#pragma GCC unroll 8
            for (int m = 0; m < MR; ++m) {
              std::int32_t four;
              __builtin_memcpy(&four, tile + m * kLine + 4 * (half * 8 + q), sizeof(four));
              const Simd::I xs = Simd::set_int(four);
              Dot::add_small(sum[m][v], first, xs);
              Dot::add_small(sum[m][kVecs + v], second, xs);
            }
          }
        }
#pragma GCC unroll 2
        for (int v = 0; v < kVecs; ++v) {
          const Simd::I both = Simd::load_bytes(multipliers + v * Simd::kLanes);
          const Simd::I first = Simd::and_int(both, one_nibble);
          const Simd::I second = Simd::shift_right<4>(both);
#pragma GCC unroll 8
          for (int m = 0; m < MR; ++m) {
            acc[m][v] = Simd::add_product(acc[m][v], sum[m][v], first);
            acc[m][kVecs + v] = Simd::add_product(acc[m][kVecs + v], sum[m][kVecs + v], second);
          }
        }
      }
    }
#pragma GCC unroll 8
    for (int m = 0; m < MR; ++m) {
      const Simd::F scale = Simd::set(x.scales[(block.row + m) * x.segments + segment]);
#pragma GCC unroll 4
      for (int v = 0; v < kWidth; ++v) {
        add_product(total[m][v], Simd::to_float(acc[m][v]), scale, segment == 0);
      }
    }
  }
  write_scaled(task, block, column, total, row_scales);
}

/// Bytes q * multiplier + addend, all modulo 256.
VITRINE_INLINE Simd::I scaled(Simd::I q, Simd::I multiplier, Simd::I addend) {
  const Simd::I even = Simd::mul_words(Simd::and_int(q, Simd::set_int(0x00FF00FF)), multiplier);
  const Simd::I odd = Simd::mul_words(Simd::words_right(q), multiplier);
  return Simd::add_bytes(Simd::or_int(even, Simd::words_left(odd)), addend);
}

/// A panel of int4 as an int8 panel, raised by Offset: (q - 8) * multiplier, or q - zero where Zeros.
template <bool Zeros, std::int32_t Offset>
void unpack_int4(const PackedWeight& weight, const unsigned char* panel, unsigned char* out) {
  const Simd::I low = Simd::set_bytes(15);
  const Simd::I one_nibble = Simd::set_int(15);
  const Simd::I high = Simd::set_bytes(static_cast<char>(Offset));
  const unsigned char* nibbles = panel + weight.nibbles_offset;
  for (std::int64_t quad = 0; quad < weight.steps * 16; quad += 8, out += 8 * kLine) {
    if (quad > 0 && quad % 16 == 0) out += kTileBytes;  // the second tile of the step before
    for (int line = 0; line < 8; ++line) prefetch(panel + (quad + line) * kLine);
    const unsigned char* group = nibbles + quad * 4 / weight.group * kTileRows;
    for (int v = 0; v < kVecs; ++v) {
      const Simd::I both = Simd::load_bytes(group + v * Simd::kLanes);
      const Simd::I first = Simd::repeat_low_byte(Simd::and_int(both, one_nibble));
      const Simd::I second = Simd::repeat_low_byte(Simd::shift_right<4>(both));
      // (q - 8) m + offset = q m + (offset - 8 m), modulo 256; as words, m stands in the low byte alone.
      const Simd::I eight = Simd::set_int(0x00080008);
      const Simd::I byte = Simd::set_int(0x00FF00FF);
      const Simd::I first_word = Simd::and_int(first, byte);
      const Simd::I second_word = Simd::and_int(second, byte);
      const Simd::I zero = Simd::zero_int();
      const Simd::I first_add = Simd::sub_bytes(high, Zeros ? first : scaled(first, eight, zero));
      const Simd::I second_add = Simd::sub_bytes(high, Zeros ? second : scaled(second, eight, zero));
      for (int q = 0; q < 8; ++q) {
        const std::int64_t at = q * kLine + v * 4 * Simd::kLanes;
        const Simd::I bytes = Simd::load_bits(panel + quad * kLine + at);
        const Simd::I q0 = Simd::and_int(bytes, low);
        const Simd::I q1 = Simd::and_int(Simd::shift_right<4>(bytes), low);
        Simd::store_bits(out + at, Zeros ? Simd::add_bytes(q0, first_add) : scaled(q0, first_word, first_add));
        Simd::store_bits(out + kTileBytes + at,
                         Zeros ? Simd::add_bytes(q1, second_add) : scaled(q1, second_word, second_add));
      }
    }
  }
}

template <bool Raised>
struct Int8Rows {
  const unsigned char* panel;
  const float* row_scales;
  template <int MR>
  void run(const MatmulTask& task, std::int64_t column, const BlockRows& block) const {
    if constexpr (MR * kWidth <= Dot::kSums) {
      int8_tile<Raised, MR, kWidth>(task, panel, row_scales, column, block);
    } else {
      int8_tile<Raised, MR, kVecs>(task, panel, row_scales, column, block);
      int8_tile<Raised, MR, kVecs>(task, panel + kTileBytes, row_scales + kTileRows, column + kTileRows, block);
    }
  }
};

template <bool Raised>
void int8_panel(const MatmulTask& task, const unsigned char* panel, const unsigned char* row_scales,
                std::int64_t column) {
  for (std::int64_t first = 0; first < task.x.rows; first += kTileRows) {
    for_block<kInt8Rows>(task, Int8Rows<Raised>{panel, reinterpret_cast<const float*>(row_scales)}, column, first);
  }
}

/// The panel as Dot::load_raised wants it: itself, or a copy in the scratch.
const unsigned char* raised(const MatmulTask& task, const unsigned char* panel) {
  if constexpr (Dot::kOffset == 0) return panel;
  const Simd::I offset = Simd::set_bytes(static_cast<char>(Dot::kOffset));
  for (std::int64_t at = 0; at < task.weight.steps * 2 * kTileBytes; at += 4 * Simd::kLanes) {
    Simd::store_bits(task.scratch + at, Simd::add_bytes(Simd::load_bits(panel + at), offset));
  }
  return task.scratch;
}

void matmul_int8(const MatmulTask& task) {
  const unsigned char* panel = task.weight.panels;
  for (std::int64_t column = 0; column < task.n; column += kPanelRows, panel += task.weight.panel_bytes) {
    if (task.x.rows < kManyRows) {
      int8_panel<false>(task, panel, panel + task.weight.row_scales_offset, column);
    } else {
      int8_panel<true>(task, raised(task, panel), panel + task.weight.row_scales_offset, column);
    }
  }
}

template <bool Raised>
struct Int8GroupedRows {
  const unsigned char* panel;
  const unsigned char* scales;
  template <int MR>
  void run(const MatmulTask& task, std::int64_t column, const BlockRows& block) const {
    if constexpr (MR * kWidth <= Dot::kSums / 2) {
      int8_grouped_tile<Raised, MR, kWidth>(task, panel, scales, column, block);
    } else {
      int8_grouped_tile<Raised, MR, kVecs>(task, panel, scales, column, block);
      int8_grouped_tile<Raised, MR, kVecs>(task, panel + kTileBytes, scales + 2 * kTileRows, column + kTileRows, block);
    }
  }
};

template <bool Raised>
void int8_grouped_panel(const MatmulTask& task, const unsigned char* panel, const unsigned char* scales,
                        std::int64_t column) {
  for (std::int64_t first = 0; first < task.x.rows; first += kTileRows) {
    for_block<kGroupedRows>(task, Int8GroupedRows<Raised>{panel, scales}, column, first);
  }
}

void matmul_int8_grouped(const MatmulTask& task) {
  const unsigned char* panel = task.weight.panels;
  for (std::int64_t column = 0; column < task.n; column += kPanelRows, panel += task.weight.panel_bytes) {
    if (task.x.rows < kManyRows) {
      int8_grouped_panel<false>(task, panel, panel + task.weight.scales_offset, column);
    } else {
      int8_grouped_panel<true>(task, raised(task, panel), panel + task.weight.scales_offset, column);
    }
  }
}

struct Int4Rows {
  const unsigned char* panel;
  template <int MR>
  void run(const MatmulTask& task, std::int64_t column, const BlockRows& block) const {
    int4_tile<MR>(task, panel, column, block);
  }
};

void matmul_int4(const MatmulTask& task) {
  const unsigned char* panel = task.weight.panels;
  for (std::int64_t column = 0; column < task.n; column += kPanelRows, panel += task.weight.panel_bytes) {
    if (task.x.rows <= 2 * kInt4Rows) {
      for_block<kInt4Rows>(task, Int4Rows{panel}, column, 0);
    } else {  // from so many rows on unpacking the panel once pays
      unpack_int4<false, Dot::kOffset>(task.weight, panel, task.scratch);
      int8_panel<true>(task, task.scratch, panel + task.weight.row_scales_offset, column);
    }
  }
}

void matmul_int4_grouped(const MatmulTask& task) {
  const unsigned char* panel = task.weight.panels;
  for (std::int64_t column = 0; column < task.n; column += kPanelRows, panel += task.weight.panel_bytes) {
    unpack_int4<true, Dot::kOffset>(task.weight, panel, task.scratch);
    int8_grouped_panel<true>(task, task.scratch, panel + task.weight.scales_offset, column);
  }
}

void override_integer_products(Kernels& kernels) {
  kernels.matmul[kPackedInt8] = matmul_int8;
  kernels.matmul[kPackedInt8Grouped] = matmul_int8_grouped;
  kernels.matmul[kPackedInt4] = matmul_int4;
  kernels.matmul[kPackedInt4Grouped] = matmul_int4_grouped;
}

}  // namespace
}  // namespace vitrine
