// SPDX-License-Identifier: Apache-2.0
#include "ops/operand.h"

#include <algorithm>

#include "base/check.h"

namespace vitrine {
namespace {

std::int64_t element_bytes(OperandType type) { return type == kOperandF32 ? 4 : type == kOperandBF16 ? 2 : 1; }

std::int64_t padded(std::int64_t k) { return (k + kOperandPadding - 1) / kOperandPadding * kOperandPadding; }

}  // namespace

PackedRows take_packed_rows(Workspace& workspace, OperandType type, std::int64_t rows, std::int64_t k) {
  PackedRows packed{.type = type, .k = k};
  Operand& view = packed.view;
  view.rows = rows;
  view.steps = padded(k) * element_bytes(type) / 64;
  view.tiles = workspace.matrix<unsigned char>(rows, view.steps * 64).data;
  if (type != kOperandInt8) return packed;
  view.segments = (padded(k) + kSegment - 1) / kSegment;
  view.groups = padded(k) / kGroup;
  view.scales = workspace.matrix<float>(1, rows * view.segments).data;
  view.segment_sums = workspace.matrix<std::int32_t>(1, rows * view.segments).data;
  view.group_sums = workspace.matrix<std::int32_t>(1, rows * view.groups).data;
  return packed;
}

std::int64_t packed_rows_bytes(std::int64_t rows, std::int64_t k) {
  return Workspace::padded_bytes<float>(rows, padded(k)) + 64;  // F32; int8 with its sums is less
}

PackedRows PackedRows::slice(std::int64_t first, std::int64_t count) const noexcept {
  PackedRows some = *this;
  some.view.rows = count;
  some.view.tiles += first * view.steps * 64;
  if (type != kOperandInt8) return some;
  some.view.scales += first * view.segments;
  some.view.segment_sums += first * view.segments;
  some.view.group_sums += first * view.groups;
  return some;
}

std::int64_t PackedRows::columns_at_once() const noexcept {
  return type == kOperandInt8 ? kSegment : 64 / element_bytes(type);
}

OperandRow PackedRows::row(std::int64_t r, std::int64_t begin, std::int64_t count) const noexcept {
  const std::int64_t block = r / kTileRows * kTileRows;
  const std::int64_t step_bytes = 64 * std::min(kTileRows, view.rows - block);
  const std::int64_t bytes = element_bytes(type);
  const std::int64_t first = begin * bytes / 64;
  const std::int64_t end = begin + count == k ? view.steps : (begin + count) * bytes / 64;
  OperandRow row{
      .tile = view.tiles + block * view.steps * 64 + r % kTileRows * 64 + first * step_bytes,
      .step_bytes = step_bytes,
      .steps = end - first,
      .scales = nullptr,
      .segment_sums = nullptr,
      .group_sums = nullptr,
  };
  if (type != kOperandInt8) return row;
  row.scales = view.scales + r * view.segments + begin / kSegment;
  row.segment_sums = view.segment_sums + r * view.segments + begin / kSegment;
  row.group_sums = view.group_sums + r * view.groups + begin / kGroup;
  return row;
}

void store_row(const Kernels& kernels, const PackedRows& packed, std::int64_t r, const float* x, std::int64_t begin,
               std::int64_t count) {
  kernels.store_operand[packed.type](x, count, packed.row(r, begin, count));
}

void store_rows(const Context& context, MatrixView<const float> x, const PackedRows& packed) {
  const std::int64_t at_once = context.rows_at_once(x.rows);
  VITRINE_CHECK(x.cols == packed.k && x.rows == packed.rows());
  context.pool.parallel_for(x.rows, at_once, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) store_row(context.kernels, packed, r, x.row(r), 0, x.cols);
  });
}

}  // namespace vitrine
