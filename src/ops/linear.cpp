// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

#include <algorithm>

#include "base/check.h"

namespace vitrine {
namespace {

void product(const Context& context, const PackedRows& x, const Linear& weight, MatrixView<float> y, bool accumulate) {
  VITRINE_CHECK(x.k == weight.in_features() && x.type == weight.operand(context.kernels));
  const WorkspaceScope scope(context.workspace);
  const auto scratch = take_matmul_scratch(context, x);
  const std::int64_t grain = weight.grain(x.rows(), context.pool.size());
  context.pool.parallel_for(weight.out_features(), grain, [&](std::int64_t begin, std::int64_t end, int thread) {
    weight.columns(context.kernels, x, begin, end, {y.data + begin, x.rows(), end - begin, y.stride},
                   scratch.row(thread), accumulate);
  });
}

}  // namespace

MatrixView<std::byte> take_matmul_scratch(const Context& context, const PackedRows& x) {
  return context.workspace.matrix<std::byte>(context.pool.size(), matmul_scratch_bytes(x.rows(), x.k));
}

void Linear::columns(const Kernels& kernels, const PackedRows& x, std::int64_t begin, std::int64_t end,
                     MatrixView<float> y, std::byte* scratch, bool accumulate) const {
  const auto* data = reinterpret_cast<const unsigned char*>(weight_.data);
  kernels.matmul[weight_.format.type]({
      .weight = weight_.format.at(data + begin / kPanelRows * weight_.format.panel_bytes()),
      .x = x.view,
      .y = y.data,
      .y_stride = y.stride,
      .n = end - begin,
      .accumulate = accumulate,
      .scratch = reinterpret_cast<unsigned char*>(scratch),
  });
  if (bias_.empty()) return;
  for (std::int64_t r = 0; r < x.rows(); ++r) {
    float* row = y.row(r);
    for (std::int64_t n = begin; n < end; ++n) row[n - begin] += bias_[static_cast<std::size_t>(n)];
  }
}

std::int64_t Linear::grain(std::int64_t rows, int threads) const noexcept {
  // Big enough to be worth handing out: about 128 KB of weights for few rows; for many, which stay in the cache from
  // panel to panel, more. Small enough to balance: at least four pieces a thread, where there are so many panels.
  constexpr std::int64_t kFewRowsBytes = 128 * 1024;
  constexpr std::int64_t kManyRowsPanels = 8;
  const std::int64_t largest = rows <= kTileRows ? kFewRowsBytes / weight_.format.panel_bytes() : kManyRowsPanels;
  const std::int64_t fair = weight_.format.panels() / (4 * threads);
  return std::max<std::int64_t>(1, std::min(largest, fair)) * kPanelRows;
}

void linear(const Context& context, const PackedRows& x, const Linear& weight, MatrixView<float> out) {
  product(context, x, weight, out, /*accumulate=*/false);
}

void linear_add(const Context& context, const PackedRows& x, const Linear& weight, MatrixView<float> residual) {
  product(context, x, weight, residual, /*accumulate=*/true);
}

std::int64_t linear_workspace_bytes(std::int64_t rows, std::int64_t k, int threads) {
  return Workspace::padded_bytes<std::byte>(threads, matmul_scratch_bytes(rows, k));
}

}  // namespace vitrine
