// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ops/operand.h"

namespace vitrine {

/// RMSNorm (Zhang & Sennrich 2019): y = weight * x / sqrt(mean(x^2) + eps).
struct RmsNorm {
  std::vector<float> weight;
  float eps = 0;

  RmsNorm() = default;
  RmsNorm(const Tensor& stored, float epsilon);
};

/// y = norm(x), row by row; y may be x.
void rms_norm(const Context& context, MatrixView<const float> x, const RmsNorm& norm, MatrixView<float> y);
/// The same, packed for the product that follows.
void rms_norm(const Context& context, MatrixView<const float> x, const RmsNorm& norm, const PackedRows& y);

/// Upper bound of what the packed one takes from the workspace.
std::int64_t norm_workspace_bytes(std::int64_t k, int threads);

}  // namespace vitrine
