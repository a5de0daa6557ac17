// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/probe.h>

#include <cstddef>
#include <span>
#include <vector>

#include "insight/vectors.h"

namespace vitrine {

/// Keeps the residual stream of the last row: each step overwrites what the one before left, so that of a
/// prompt in several chunks the last chunk's last row stays.
class StreamRecorder final : public Probe {
 public:
  explicit StreamRecorder(std::int64_t num_layers)
      : after_attention_(static_cast<std::size_t>(num_layers)), after_block_(static_cast<std::size_t>(num_layers)) {}

  bool wants(ProbePoint point, int) const noexcept override {
    return point == ProbePoint::kEmbedding || point == ProbePoint::kAttentionOutput || point == ProbePoint::kResidual;
  }

  void record(ProbePoint point, int layer, ProbeMatrix values) override {
    const auto row = [&](std::int64_t r) { return std::span(values.row(r), static_cast<std::size_t>(values.cols)); };
    if (point == ProbePoint::kEmbedding) {
      for (std::int64_t r = 0; r < values.rows; ++r) embedding_norms_.push_back(l2_norm(row(r)));
    }
    const auto last = row(values.rows - 1);
    place(point, layer).assign(last.begin(), last.end());
  }

  /// One per row of all steps.
  const std::vector<double>& embedding_norms() const noexcept { return embedding_norms_; }
  /// [hidden_size], empty if no step came.
  std::span<const float> embedding() const noexcept { return embedding_; }
  std::span<const float> after_attention(std::size_t layer) const { return after_attention_.at(layer); }
  std::span<const float> after_block(std::size_t layer) const { return after_block_.at(layer); }

 private:
  std::vector<float>& place(ProbePoint point, int layer) {
    if (point == ProbePoint::kEmbedding) return embedding_;
    auto& layers = point == ProbePoint::kAttentionOutput ? after_attention_ : after_block_;
    return layers.at(static_cast<std::size_t>(layer));
  }

  std::vector<double> embedding_norms_;
  std::vector<float> embedding_;
  std::vector<std::vector<float>> after_attention_, after_block_;
};

}  // namespace vitrine
