// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "ops/context.h"

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

}  // namespace vitrine
