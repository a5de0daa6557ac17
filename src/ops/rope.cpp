// SPDX-License-Identifier: Apache-2.0
#include "ops/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace vitrine {
namespace {

/// theta^(2i/dim) rounded to float, as float32 tensors hold it.
float period(double theta, std::int64_t i, std::int64_t dim) {
  const float exponent = static_cast<float>(2 * i) / static_cast<float>(dim);
  return static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
}

}  // namespace

Rope linear_rope(std::int64_t head_dim, double theta, double factor) {
  Rope rope;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    rope.inverse_frequencies.push_back(1.0f / period(theta, i, head_dim) / static_cast<float>(factor));
  }
  return rope;
}

Rope yarn_rope(std::int64_t head_dim, double theta, const YarnParams& params) {
  // The pair that makes `rotations` turns within the original context.
  const auto pair_of = [&](double rotations) {
    const double turns = static_cast<double>(params.original_context) / (rotations * 2 * std::numbers::pi);
    return static_cast<double>(head_dim) * std::log(turns) / (2 * std::log(theta));
  };
  double low = pair_of(params.beta_fast);
  double high = pair_of(params.beta_slow);
  if (params.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(head_dim - 1));
  if (low == high) high += 0.001;

  Rope rope;
  rope.attention_factor = params.attention_factor;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    const float wave = period(theta, i, head_dim);
    const auto position = (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    const float slowed = std::clamp(position, 0.0f, 1.0f);
    const float kept = 1.0f / wave;
    const float divided = 1.0f / (static_cast<float>(params.factor) * wave);
    rope.inverse_frequencies.push_back(divided * slowed + kept * (1.0f - slowed));
  }
  return rope;
}

RopeTable rope_table(const Context& context, const Rope& rope, std::span<const std::int32_t> positions) {
  const auto rows = static_cast<std::int64_t>(positions.size());
  const auto half = static_cast<std::int64_t>(rope.inverse_frequencies.size());
  const RopeTable table{context.workspace.matrix<float>(rows, half), context.workspace.matrix<float>(rows, half)};
  context.pool.parallel_for(rows, 16, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      const auto position = static_cast<float>(positions[static_cast<std::size_t>(r)]);
      for (std::int64_t i = 0; i < half; ++i) {
        const float angle = position * rope.inverse_frequencies[static_cast<std::size_t>(i)];
        table.cosines.row(r)[i] = std::cos(angle) * rope.attention_factor;
        table.sines.row(r)[i] = std::sin(angle) * rope.attention_factor;
      }
    }
  });
  return table;
}

}  // namespace vitrine
