// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding.h"

#include "ops/linear.h"

namespace vitrine {

void embed(const Context& context, const Tensor& table, std::span<const std::int32_t> ids, MatrixView<float> x) {
  const std::int64_t row_bytes = table.shape[1] * size_of(table.dtype);
  const auto load = context.kernels.load[storage_of(table.dtype)];
  for (std::int64_t r = 0; r < x.rows; ++r) {
    load(table.data + ids[static_cast<std::size_t>(r)] * row_bytes, x.row(r), x.cols);
  }
}

}  // namespace vitrine
