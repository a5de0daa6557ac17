// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/context.h"

namespace vitrine {

/// Activations written down as the left side of products: rounded and laid out as the weights' kernels take them.
struct PackedRows {
  OperandType type = kOperandF32;
  std::int64_t k = 0;
  Operand view{};

  std::int64_t rows() const noexcept { return view.rows; }
  /// Rows [first, first + count): first a multiple of kTileRows, and so is count unless they are the last.
  PackedRows slice(std::int64_t first, std::int64_t count) const noexcept;
  /// Columns that can be stored by themselves: those that share a scale, or a step.
  std::int64_t columns_at_once() const noexcept;
  /// Row r from element `begin` on, `count` elements and what pads them: begin a multiple of columns_at_once(), and so is
  /// count unless it ends the row.
  OperandRow row(std::int64_t r, std::int64_t begin, std::int64_t count) const noexcept;
};

/// Room for [rows, k] from the workspace.
PackedRows take_packed_rows(Workspace& workspace, OperandType type, std::int64_t rows, std::int64_t k);
/// Upper bound of what that takes, for any type.
std::int64_t packed_rows_bytes(std::int64_t rows, std::int64_t k);

/// Columns [begin, begin + count) of row r. The last columns of a row bring its padding with them.
void store_row(const Kernels& kernels, const PackedRows& packed, std::int64_t r, const float* x, std::int64_t begin,
               std::int64_t count);
/// All of x.
void store_rows(const Context& context, MatrixView<const float> x, const PackedRows& packed);

}  // namespace vitrine
