// SPDX-License-Identifier: Apache-2.0
#include "ops/mlp.h"

#include <algorithm>

#include "base/check.h"

namespace vitrine {

void gate_up_silu(const Context& context, const PackedRows& x, const Linear& gate, const Linear& up,
                  const PackedRows& out) {
  VITRINE_CHECK(out.k == gate.out_features() && out.rows() == x.rows());
  const std::int64_t rows = x.rows();
  const WorkspaceScope scope(context.workspace);
  const int threads = context.pool.size();
  const auto scratch = context.workspace.matrix<std::byte>(threads, matmul_scratch_bytes(rows, x.k));
  const auto panels = context.workspace.matrix<float>(threads, 2 * rows * kPanelRows);
  const auto gated = context.workspace.matrix<float>(threads, rows * kSegment);

  // A segment of columns at a time: its activations can be rounded as soon as they are there, still in the cache.
  context.pool.parallel_for(out.k, kSegment, [&](std::int64_t begin, std::int64_t end, int thread) {
    const MatrixView<float> segment{gated.row(thread), rows, end - begin, kSegment};
    for (std::int64_t n = begin; n < end; n += kPanelRows) {
      const std::int64_t count = std::min(kPanelRows, end - n);
      const MatrixView<float> g{panels.row(thread), rows, count, kPanelRows};
      const MatrixView<float> u{g.data + rows * kPanelRows, rows, count, kPanelRows};
      gate.columns(context.kernels, x, n, n + count, g, scratch.row(thread));
      up.columns(context.kernels, x, n, n + count, u, scratch.row(thread));
      for (std::int64_t r = 0; r < rows; ++r) {
        context.kernels.silu_mul(g.row(r), u.row(r), count, segment.row(r) + (n - begin));
      }
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      store_row(context.kernels, out, r, segment.row(r), begin, end - begin);
    }
  });
}

std::int64_t gate_up_workspace_bytes(std::int64_t rows, std::int64_t k, int threads) {
  return linear_workspace_bytes(rows, k, threads) + Workspace::padded_bytes<float>(threads, 2 * rows * kPanelRows) +
         Workspace::padded_bytes<float>(threads, rows * kSegment);
}

}  // namespace vitrine
