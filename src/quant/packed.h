// SPDX-License-Identifier: Apache-2.0
// How weights lie in memory for the kernels of every instruction set: one layout, read as AMX tiles, as 16 rows of a
// vector register or as 8 of a shorter one. Packed once (pack.h), kept in the weight cache, mapped ever after.
#pragma once

#include <cstdint>

namespace vitrine {

/// A panel holds 32 output rows. Its weights are tiles of 16 rows by 64 bytes of k each, [k / 4 bytes][row][4 bytes],
/// the tile of rows 0-15 before that of rows 16-31, k ascending: one stream, and no sum across a register.
inline constexpr std::int64_t kPanelRows = 32;
inline constexpr std::int64_t kTileRows = 16;
inline constexpr std::int64_t kTileBytes = 1024;

/// Groups of int4 weights that share a multiplier; activations keep a sum for each such group.
inline constexpr std::int64_t kGroup = 32;
/// Activations that share a scale when they are rounded to int8.
inline constexpr std::int64_t kSegment = 512;

/// What the elements of a packed matrix are. Indexes the arrays of Kernels.
enum PackedType : std::uint8_t {
  kPackedF32,
  kPackedBF16,
  kPackedInt8,         // w = q * row scale, q a signed byte
  kPackedInt8Grouped,  // w = q * group scale (fp16), group 32 or 128
  kPackedInt4,         // w = (q - 8) * multiplier * row scale: q 4 bits; a 4-bit multiplier for each group of 32
  kPackedInt4Grouped,  // w = (q - zero) * group scale (fp16): q and zero 4 bits, group 64 or 128
  kNumPackedTypes
};

/// k of an operand is padded with zeros to a multiple of this, so that it serves every packed type.
inline constexpr std::int64_t kOperandPadding = 128;

/// A packed matrix as the kernels see it: plain numbers, since their files must not share inline functions.
struct PackedWeight {
  const unsigned char* panels;
  std::int64_t panel_bytes;
  std::int64_t steps;              // tiles of k
  std::int64_t group;              // weights of a row that share a scale; 0: no group scales
  std::int64_t scales_offset;      // in a panel: [groups][32] fp16
  std::int64_t nibbles_offset;     // [groups][16] bytes: row r in the low half of byte r, row r + 16 in the high half
  std::int64_t row_scales_offset;  // [32] float
};

/// Type and shape of a packed matrix, and where its parts are. A panel is its tiles, then its group scales, its zero
/// points or multipliers, and its row scales, as far as the type has them.
struct PackedFormat {
  PackedType type = kPackedBF16;
  std::int64_t n = 0, k = 0;
  std::int64_t group = 0;

  /// k positions a tile covers.
  std::int64_t tile_k() const { return type == kPackedF32 ? 16 : type == kPackedBF16 ? 32 : 64; }
  std::int64_t panels() const { return (n + kPanelRows - 1) / kPanelRows; }
  /// k in whole tiles and groups: what lies beyond k is zero.
  std::int64_t padded_k() const {
    const std::int64_t unit = group > tile_k() ? group : tile_k();
    return (k + unit - 1) / unit * unit;
  }
  std::int64_t steps() const { return padded_k() / tile_k(); }
  std::int64_t groups() const { return group == 0 ? 0 : padded_k() / group; }
  /// Two tiles a step; int4 has both in one, the first in the low halves of the bytes.
  std::int64_t step_bytes() const { return is_int4() ? kTileBytes : 2 * kTileBytes; }

  std::int64_t scales_offset() const { return steps() * step_bytes(); }
  std::int64_t nibbles_offset() const { return scales_offset() + (has_group_scales() ? groups() * kPanelRows * 2 : 0); }
  std::int64_t row_scales_offset() const {
    return nibbles_offset() + (is_int4() ? (groups() * kTileRows + 63) / 64 * 64 : 0);
  }
  std::int64_t panel_bytes() const { return row_scales_offset() + (has_row_scales() ? kPanelRows * 4 : 0); }
  std::int64_t bytes() const { return panels() * panel_bytes(); }

  bool is_int4() const { return type == kPackedInt4 || type == kPackedInt4Grouped; }
  bool has_group_scales() const { return type == kPackedInt8Grouped || type == kPackedInt4Grouped; }
  bool has_row_scales() const { return type == kPackedInt8 || type == kPackedInt4; }

  /// The matrix whose panels begin at `data`.
  PackedWeight at(const unsigned char* data) const {
    return {data, panel_bytes(), steps(), group, scales_offset(), nibbles_offset(), row_scales_offset()};
  }
};

}  // namespace vitrine
