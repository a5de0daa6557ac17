// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/probe.h>

#include <cmath>
#include <optional>
#include <string>

namespace vitrine {

/// Finds where a forward pass leaves the finite numbers: the first point that records a NaN or an infinity.
class FiniteProbe final : public Probe {
 public:
  bool wants(ProbePoint point, int) const noexcept override {
    return !where_ && point != ProbePoint::kAttentionWeights;
  }

  void record(ProbePoint point, int layer, ProbeMatrix values) override {
    if (where_) return;
    for (std::int64_t r = 0; r < values.rows; ++r) {
      for (std::int64_t c = 0; c < values.cols; ++c) {
        if (std::isfinite(values.row(r)[c])) continue;
        where_ = name(point, layer);
        return;
      }
    }
  }

  /// "layer 5, attention"; nothing when all was finite.
  const std::optional<std::string>& where() const noexcept { return where_; }

 private:
  static std::string name(ProbePoint point, int layer) {
    switch (point) {
      case ProbePoint::kEmbedding:
        return "the embedding";
      case ProbePoint::kAttentionOutput:
        return "layer " + std::to_string(layer) + ", attention";
      case ProbePoint::kResidual:
        return "layer " + std::to_string(layer) + ", feed-forward";
      default:
        return "the final norm";
    }
  }

  std::optional<std::string> where_;
};

}  // namespace vitrine
