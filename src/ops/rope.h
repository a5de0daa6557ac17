// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/context.h"

namespace vitrine {

/// Rotary position embedding (Su et al. 2021): pair i of a head turns by position * inverse_frequencies[i].
struct Rope {
  std::vector<float> inverse_frequencies;  // [head_dim / 2]
  float attention_factor = 1;              // multiplies cosine and sine (YaRN)
};

/// Plain frequencies, all divided by `factor` (1: "default"; else "linear").
Rope linear_rope(std::int64_t head_dim, double theta, double factor);

/// YaRN (Peng et al. 2023), as transformers computes it: fast pairs keep their frequency, slow ones are divided by
/// `factor`, those between are blended.
struct YarnParams {
  double factor;
  std::int64_t original_context;
  double beta_fast, beta_slow;
  bool truncate;
  float attention_factor;
};
Rope yarn_rope(std::int64_t head_dim, double theta, const YarnParams& params);

/// Cosines and sines of one step's rows.
struct RopeTable {
  MatrixView<float> cosines, sines;  // [rows, head_dim / 2]
};
/// In float32, as the reference: the angle is one rounded product. From the context's workspace.
RopeTable rope_table(const Context& context, const Rope& rope, std::span<const std::int32_t> positions);

}  // namespace vitrine
