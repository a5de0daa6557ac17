// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace vitrine {

/// A read-only, row-major matrix of activations. Valid only during the call that passes it.
struct ProbeMatrix {
  const float* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;  ///< floats from one row to the next

  const float* row(std::int64_t r) const noexcept { return data + r * stride; }
};

/// The places in a forward pass that can be watched. Shapes: T rows of the step, H hidden size, R output rows.
enum class ProbePoint {
  kEmbedding,         ///< [T, H] the residual stream before layer 0; layer is -1
  kAttentionWeights,  ///< [query heads, context] softmax of one output row; called once per output row
  kAttentionOutput,   ///< [T, H] the residual stream after the attention block of `layer`
  kResidual,          ///< [T, H] the residual stream after `layer`, the last one before the final norm
  kFinalNorm,         ///< [R, H] the output rows after the final norm: what the head reads; layer is -1
};

/// Watches a forward pass from inside. A null probe costs one branch per point.
/// Calls come from the thread that runs Engine::step, between the operations of the model.
class Probe {
 public:
  virtual ~Probe() = default;
  virtual bool wants(ProbePoint point, int layer) const noexcept = 0;
  virtual void record(ProbePoint point, int layer, ProbeMatrix values) = 0;
};

}  // namespace vitrine
