// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ops/operand.h"

namespace vitrine {

/// A weight matrix [n, k] in packed panels; the bytes belong to someone who outlives it.
struct PackedMatrix {
  PackedFormat format;
  const std::byte* data = nullptr;
};

/// y = x W^T + b, with W [out, in].
class Linear {
 public:
  Linear() = default;
  explicit Linear(const PackedMatrix& weight, std::vector<float> bias = {}) : weight_(weight), bias_(std::move(bias)) {}

  std::int64_t in_features() const noexcept { return weight_.format.k; }
  std::int64_t out_features() const noexcept { return weight_.format.n; }
  const PackedMatrix& weight() const noexcept { return weight_; }
  /// What x must be packed as.
  OperandType operand(const Kernels& kernels) const noexcept { return kernels.operand[weight_.format.type]; }
  /// How many output columns one of `threads` takes at a time when x has `rows` rows: whole panels.
  std::int64_t grain(std::int64_t rows, int threads) const noexcept;
  /// Bytes a step reads of it: weights, scales.
  std::int64_t bytes() const noexcept { return weight_.format.bytes(); }

  /// Output columns [begin, end) for every row of x, on the calling thread: the piece that operations share out.
  /// `begin` is the first of a panel; y points at column `begin`. scratch: matmul_scratch_bytes(x.rows(), x.k).
  void columns(const Kernels& kernels, const PackedRows& x, std::int64_t begin, std::int64_t end, MatrixView<float> y,
               std::byte* scratch, bool accumulate = false) const;

 private:
  PackedMatrix weight_;
  std::vector<float> bias_;  // empty: none
};

/// Scratch of Linear::columns for every thread: a row each.
MatrixView<std::byte> take_matmul_scratch(const Context& context, const PackedRows& x);

/// out = x W^T + b
void linear(const Context& context, const PackedRows& x, const Linear& weight, MatrixView<float> out);

/// residual += x W^T + b
void linear_add(const Context& context, const PackedRows& x, const Linear& weight, MatrixView<float> residual);

/// Upper bound of what a product with `rows` rows of `k` takes from the workspace.
std::int64_t linear_workspace_bytes(std::int64_t rows, std::int64_t k, int threads);

}  // namespace vitrine
