// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <optional>
#include <vector>

#include "ops/context.h"

namespace vitrine {

/// The storage type of a weight; a bug of ours for a type that WeightScope would have refused.
StorageType storage_of(DType dtype);

/// y = x W^T + b, with W [out, in] read where the checkpoint has it.
class Linear {
 public:
  Linear() = default;
  /// `weight` [out, in], `bias` [out]; the checkpoint must outlive this.
  explicit Linear(const Tensor& weight, const std::optional<Tensor>& bias = std::nullopt);

  std::int64_t in_features() const noexcept { return in_; }
  std::int64_t out_features() const noexcept { return out_; }
  /// How many output columns one thread takes at a time when x has `rows` rows.
  std::int64_t grain(std::int64_t rows) const noexcept;

  /// Output columns [begin, end) for every row of x, on the calling thread: the piece that operations share out.
  /// y points at column `begin`.
  void columns(const Kernels& kernels, MatrixView<const float> x, std::int64_t begin, std::int64_t end,
               MatrixView<float> y, bool accumulate = false) const;

 private:
  const std::byte* weight_ = nullptr;
  StorageType storage_ = kStoreBF16;
  std::int64_t in_ = 0;
  std::int64_t out_ = 0;
  std::int64_t row_bytes_ = 0;
  std::vector<float> bias_;  // empty: none
};

/// One product of linear().
struct Projection {
  const Linear& weight;
  MatrixView<float> out;  // [rows, weight.out_features()]
};

/// out = x W^T + b for each projection, all of them shared out at once.
void linear(const Context& context, MatrixView<const float> x, std::initializer_list<Projection> projections);

/// residual += x W^T + b
void linear_add(const Context& context, MatrixView<const float> x, const Linear& weight, MatrixView<float> residual);

}  // namespace vitrine
