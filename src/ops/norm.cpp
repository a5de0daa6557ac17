// SPDX-License-Identifier: Apache-2.0
#include "ops/norm.h"

namespace vitrine {

RmsNorm::RmsNorm(const Tensor& stored, float epsilon)
    : weight(static_cast<std::size_t>(stored.num_elements())), eps(epsilon) {
  load_floats(stored, 0, weight);
}

void rms_norm(const Context& context, MatrixView<const float> x, const RmsNorm& norm, MatrixView<float> y) {
  const std::int64_t at_once = context.rows_at_once(x.rows);
  context.pool.parallel_for(x.rows, at_once, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      context.kernels.rms_norm(x.row(r), norm.weight.data(), x.cols, norm.eps, y.row(r));
    }
  });
}

void rms_norm(const Context& context, MatrixView<const float> x, const RmsNorm& norm, const PackedRows& y) {
  const std::int64_t at_once = context.rows_at_once(x.rows);
  const WorkspaceScope scope(context.workspace);
  const auto normed = context.workspace.matrix<float>(context.pool.size(), x.cols);
  context.pool.parallel_for(x.rows, at_once, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t r = begin; r < end; ++r) {
      context.kernels.rms_norm(x.row(r), norm.weight.data(), x.cols, norm.eps, normed.row(thread));
      store_row(context.kernels, y, r, normed.row(thread), 0, x.cols);
    }
  });
}

std::int64_t norm_workspace_bytes(std::int64_t k, int threads) { return Workspace::padded_bytes<float>(threads, k); }

}  // namespace vitrine
