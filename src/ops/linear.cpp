// SPDX-License-Identifier: Apache-2.0
#include "ops/linear.h"

#include <algorithm>

#include "base/check.h"

namespace vitrine {

StorageType storage_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return kStoreF32;
    case DType::kF16:
      return kStoreF16;
    case DType::kBF16:
      return kStoreBF16;
    default:
      VITRINE_CHECK(!"a weight of this type");
      return kStoreF32;
  }
}

Linear::Linear(const Tensor& weight, const std::optional<Tensor>& bias)
    : weight_(weight.data),
      storage_(storage_of(weight.dtype)),
      in_(weight.shape[1]),
      out_(weight.shape[0]),
      row_bytes_(in_ * size_of(weight.dtype)) {
  if (!bias) return;
  bias_.resize(static_cast<std::size_t>(out_));
  generic_kernels().load[storage_of(bias->dtype)](bias->data, bias_.data(), out_);
}

void Linear::columns(const Kernels& kernels, MatrixView<const float> x, std::int64_t begin, std::int64_t end,
                     MatrixView<float> y, bool accumulate) const {
  kernels.matmul[storage_]({.weight = weight_ + begin * row_bytes_,
                            .x = x.data,
                            .y = y.data,
                            .m = x.rows,
                            .n = end - begin,
                            .k = in_,
                            .x_stride = x.stride,
                            .y_stride = y.stride,
                            .accumulate = accumulate});
  if (bias_.empty()) return;
  for (std::int64_t r = 0; r < x.rows; ++r) {
    float* row = y.row(r);
    for (std::int64_t n = begin; n < end; ++n) row[n - begin] += bias_[static_cast<std::size_t>(n)];
  }
}

std::int64_t Linear::grain(std::int64_t rows) const noexcept {
  // About 128 KB of weights for one row, less when each is used more often: big enough to be worth handing out, small
  // enough to balance. A multiple of 24 fits the tiles of every kernel table.
  constexpr std::int64_t kTargetBytes = 128 * 1024;
  constexpr std::int64_t kTile = 24;
  const std::int64_t columns = kTargetBytes / (row_bytes_ * std::max<std::int64_t>(1, rows / 8));
  return std::max(kTile, columns / kTile * kTile);
}

void linear(const Context& context, MatrixView<const float> x, std::initializer_list<Projection> projections) {
  const auto chunks_of = [&](const Projection& p) {
    const std::int64_t grain = p.weight.grain(x.rows);
    return (p.weight.out_features() + grain - 1) / grain;
  };
  std::int64_t total = 0;
  for (const Projection& p : projections) total += chunks_of(p);
  context.pool.parallel_for(total, 1, [&](std::int64_t chunk, std::int64_t, int) {
    // The chunks of all projections are counted through; find whose this one is.
    const Projection* p = projections.begin();
    for (std::int64_t chunks = chunks_of(*p); chunk >= chunks; chunks = chunks_of(*p)) {
      chunk -= chunks;
      ++p;
    }
    const std::int64_t grain = p->weight.grain(x.rows);
    const std::int64_t begin = chunk * grain;
    const std::int64_t end = std::min(begin + grain, p->weight.out_features());
    p->weight.columns(context.kernels, x, begin, end, {p->out.data + begin, x.rows, end - begin, p->out.stride});
  });
}

void linear_add(const Context& context, MatrixView<const float> x, const Linear& weight, MatrixView<float> residual) {
  const std::int64_t grain = weight.grain(x.rows);
  context.pool.parallel_for(weight.out_features(), grain, [&](std::int64_t begin, std::int64_t end, int) {
    weight.columns(context.kernels, x, begin, end, {residual.data + begin, x.rows, end - begin, residual.stride},
                   /*accumulate=*/true);
  });
}

}  // namespace vitrine
