// SPDX-License-Identifier: Apache-2.0
#include "insight/attention_recorder.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "base/check.h"

namespace vitrine {
namespace {

std::vector<AttendedPosition> strongest_of(std::span<const double> weights, int count) {
  std::vector<std::int64_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto weight = [&](std::int64_t position) { return weights[static_cast<std::size_t>(position)]; };
  const auto kept = std::min(order.size(), static_cast<std::size_t>(count));
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
      [&](std::int64_t a, std::int64_t b) { return weight(a) > weight(b) || (weight(a) == weight(b) && a < b); });
  std::vector<AttendedPosition> strongest;
  for (std::size_t i = 0; i < kept && weight(order[i]) > 0; ++i) strongest.push_back({order[i], weight(order[i])});
  return strongest;
}

double entropy_bits(std::span<const double> weights) {
  double sum = 0;
  for (const double weight : weights) {
    if (weight > 0) sum -= weight * std::log2(weight);
  }
  return std::max(0.0, sum);  // weights add up to 1 only to within their rounding
}

}  // namespace

void AttentionRecorder::record(ProbePoint, int layer, ProbeMatrix weights) {
  VITRINE_CHECK(weights.rows % kv_heads_ == 0);
  const std::int64_t group_size = weights.rows / kv_heads_;
  std::vector<HeadGroup>& groups = layers_.at(static_cast<std::size_t>(layer));
  groups.clear();
  std::vector<double> mean(static_cast<std::size_t>(weights.cols));
  for (std::int64_t kv = 0; kv < kv_heads_; ++kv) {
    std::fill(mean.begin(), mean.end(), 0.0);
    for (std::int64_t h = kv * group_size; h < (kv + 1) * group_size; ++h) {
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += weights.row(h)[i];
    }
    for (double& weight : mean) weight /= static_cast<double>(group_size);
    groups.push_back({.strongest = strongest_of(mean, positions_),
                      .first_token_share = mean.front(),
                      .entropy_bits = entropy_bits(mean)});
  }
}

}  // namespace vitrine
