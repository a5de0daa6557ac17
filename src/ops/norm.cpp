// SPDX-License-Identifier: Apache-2.0
#include "ops/norm.h"

#include "ops/linear.h"

namespace vitrine {

RmsNorm::RmsNorm(const Tensor& stored, float epsilon)
    : weight(static_cast<std::size_t>(stored.num_elements())), eps(epsilon) {
  generic_kernels().load[storage_of(stored.dtype)](stored.data, weight.data(), stored.num_elements());
}

void rms_norm(const Context& context, MatrixView<const float> x, const RmsNorm& norm, MatrixView<float> y) {
  constexpr std::int64_t kRowsPerChunk = 8;
  context.pool.parallel_for(x.rows, kRowsPerChunk, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      context.kernels.rms_norm(x.row(r), norm.weight.data(), x.cols, norm.eps, y.row(r));
    }
  });
}

}  // namespace vitrine
