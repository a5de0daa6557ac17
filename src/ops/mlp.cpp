// SPDX-License-Identifier: Apache-2.0
#include "ops/mlp.h"

#include <algorithm>

#include "base/check.h"

namespace vitrine {
namespace {

/// Rows of which some columns are computed in one go, so that they stay in the second cache until they are rounded.
constexpr std::int64_t kRowsAtOnce = 8 * kTileRows;
constexpr std::int64_t kColumnsAtOnce = 4 * kPanelRows;

}  // namespace

void gate_up_silu(const Context& context, const PackedRows& x, const Linear& gate, const Linear& up,
                  const PackedRows& out) {
  VITRINE_CHECK(out.k == gate.out_features() && out.rows() == x.rows());
  const Kernels& kernels = context.kernels;
  const WorkspaceScope scope(context.workspace);
  const int threads = context.pool.size();
  const auto scratch = take_matmul_scratch(context, x);
  // Weights are what takes the time of a few rows: shared out in small pieces, and rounded afterwards.
  if (x.rows() <= kTileRows) {
    const auto gates = context.workspace.matrix<float>(x.rows(), out.k);
    const auto ups = context.workspace.matrix<float>(x.rows(), out.k);
    context.pool.parallel_for(out.k, gate.grain(x.rows(), threads),
                              [&](std::int64_t begin, std::int64_t end, int thread) {
                                const MatrixView<float> g{gates.data + begin, x.rows(), end - begin, gates.stride};
                                const MatrixView<float> u{ups.data + begin, x.rows(), end - begin, ups.stride};
                                gate.columns(kernels, x, begin, end, g, scratch.row(thread));
                                up.columns(kernels, x, begin, end, u, scratch.row(thread));
                                for (std::int64_t r = 0; r < x.rows(); ++r)
                                  kernels.silu_mul(g.row(r), u.row(r), end - begin, g.row(r));
                              });
    store_rows(context, gates, out);
    return;
  }

  const std::int64_t at_once = std::min(x.rows(), kRowsAtOnce);
  const auto halves = context.workspace.matrix<float>(threads, 2 * at_once * kColumnsAtOnce);
  const std::int64_t width = std::max(out.columns_at_once(), kColumnsAtOnce);
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
      const PackedRows some_x = x.slice(first, some.rows);
      // A few panels of each at a time: both are in the second cache when they meet.
      for (std::int64_t at = 0; at < some.cols; at += kColumnsAtOnce) {
        const std::int64_t count = std::min(kColumnsAtOnce, some.cols - at);
        const MatrixView<float> g{halves.row(thread), some.rows, count, kColumnsAtOnce};
        const MatrixView<float> u{g.data + at_once * kColumnsAtOnce, some.rows, count, kColumnsAtOnce};
        gate.columns(kernels, some_x, begin + at, begin + at + count, g, scratch.row(thread));
        up.columns(kernels, some_x, begin + at, begin + at + count, u, scratch.row(thread));
        for (std::int64_t r = 0; r < g.rows; ++r) kernels.silu_mul(g.row(r), u.row(r), count, some.row(r) + at);
      }
      for (std::int64_t r = 0; r < some.rows; ++r) {
        store_row(kernels, out, first + r, some.row(r), begin, end - begin);
      }
    }
  });
}

std::int64_t gate_up_workspace_bytes(std::int64_t rows, std::int64_t k, std::int64_t n, int threads) {
  const std::int64_t at_once = std::min(rows, kRowsAtOnce);
  const std::int64_t few = 2 * Workspace::padded_bytes<float>(std::min(rows, kTileRows), n);
  const std::int64_t many = Workspace::padded_bytes<float>(threads, 2 * at_once * kColumnsAtOnce) +
                            Workspace::padded_bytes<float>(threads, at_once * kSegment);
  return linear_workspace_bytes(rows, k, threads) + std::max(few, many);
}

}  // namespace vitrine
