// SPDX-License-Identifier: Apache-2.0
#include "ops/mlp.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace vitrine {
namespace {

/// Rows of which some columns are computed in one go, so that they stay in the second cache until they are rounded.
constexpr std::int64_t kRowsAtOnce = 8 * kTileRows;

/// Columns that a thread computes before it rounds them: what shares a scale, or a few panels.
std::int64_t columns_at_once(OperandType type) { return type == kOperandInt8 ? kSegment : 4 * kPanelRows; }

}  // namespace

void gate_up_silu(const Context& context, const PackedRows& x, const Linear& gate, const Linear& up,
                  const PackedRows& out) {
  VITRINE_CHECK(out.k == gate.out_features() && out.rows() == x.rows());
  const Kernels& kernels = context.kernels;
  const WorkspaceScope scope(context.workspace);
  const int threads = context.pool.size();
  const auto scratch = take_matmul_scratch(context, x);
  const std::int64_t at_once = std::min(x.rows(), kRowsAtOnce);
  const auto panels = context.workspace.matrix<float>(threads, 2 * at_once * kPanelRows);

  // A panel of each at a time: both are in the first caches when they meet.
  const auto gated_columns = [&](const PackedRows& some, std::int64_t begin, MatrixView<float> to, int thread) {
    for (std::int64_t at = 0; at < to.cols; at += kPanelRows) {
      const std::int64_t count = std::min(kPanelRows, to.cols - at);
      const MatrixView<float> g{panels.row(thread), to.rows, count, kPanelRows};
      const MatrixView<float> u{g.data + at_once * kPanelRows, to.rows, count, kPanelRows};
      gate.columns(kernels, some, begin + at, begin + at + count, g, scratch.row(thread));
      up.columns(kernels, some, begin + at, begin + at + count, u, scratch.row(thread));
      if (count == kPanelRows) kernels.silu_mul(g.data, u.data, to.rows * kPanelRows, g.data);
      for (std::int64_t r = 0; r < to.rows; ++r) {
        if (count < kPanelRows) kernels.silu_mul(g.row(r), u.row(r), count, g.row(r));
        std::memcpy(to.row(r) + at, g.row(r), static_cast<std::size_t>(count) * sizeof(float));
      }
    }
  };

  if (x.rows() <= kTileRows) {  // weights are what takes the time: shared out in small pieces, rounded afterwards
    const auto gated = context.workspace.matrix<float>(x.rows(), out.k);
    context.pool.parallel_for(
        out.k, gate.grain(x.rows(), threads), [&](std::int64_t begin, std::int64_t end, int thread) {
          gated_columns(x, begin, {gated.data + begin, x.rows(), end - begin, gated.stride}, thread);
        });
    store_rows(context, gated, out);
    return;
  }
  const std::int64_t width = columns_at_once(out.type);
  const auto gated = context.workspace.matrix<float>(threads, at_once * width);
  const std::int64_t chunks = (x.rows() + at_once - 1) / at_once;
  const std::int64_t parts = (out.k + width - 1) / width;
  // All rows by some columns, so that weights come from memory once; rows are split where threads would be idle.
  const std::int64_t splits = std::min(chunks, (2 * threads + parts - 1) / parts);
  context.pool.parallel_for(parts * splits, 1, [&](std::int64_t item, std::int64_t, int thread) {
    const std::int64_t begin = item / splits * width;
    const std::int64_t end = std::min(begin + width, out.k);
    for (std::int64_t chunk = item % splits; chunk < chunks; chunk += splits) {
      const std::int64_t first = chunk * at_once;
      const MatrixView<float> some{gated.row(thread), std::min(at_once, x.rows() - first), end - begin, width};
      gated_columns(x.slice(first, some.rows), begin, some, thread);
      for (std::int64_t r = 0; r < some.rows; ++r) {
        store_row(kernels, out, first + r, some.row(r), begin, end - begin);
      }
    }
  });
}

std::int64_t gate_up_workspace_bytes(std::int64_t rows, std::int64_t k, std::int64_t n, int threads) {
  const std::int64_t at_once = std::min(rows, kRowsAtOnce);
  return linear_workspace_bytes(rows, k, threads) + Workspace::padded_bytes<float>(threads, 2 * at_once * kPanelRows) +
         std::max(Workspace::padded_bytes<float>(threads, at_once * kSegment),
                  Workspace::padded_bytes<float>(std::min(rows, kTileRows), n));
}

}  // namespace vitrine
