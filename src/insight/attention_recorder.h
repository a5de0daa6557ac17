// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/explain.h>
#include <vitrine/probe.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace vitrine {

/// Sums up where the last output row of each layer looks, one HeadGroup for each KV head; the weights are not
/// kept.
class AttentionRecorder final : public Probe {
 public:
  /// `positions`: how many of the strongest ones to name.
  AttentionRecorder(std::int64_t num_layers, std::int64_t kv_heads, int positions)
      : kv_heads_(kv_heads), positions_(positions), layers_(static_cast<std::size_t>(num_layers)) {}

  bool wants(ProbePoint point, int) const noexcept override { return point == ProbePoint::kAttentionWeights; }
  void record(ProbePoint point, int layer, ProbeMatrix weights) override;

  const std::vector<HeadGroup>& groups(std::size_t layer) const { return layers_.at(layer); }

 private:
  std::int64_t kv_heads_;
  int positions_;
  std::vector<std::vector<HeadGroup>> layers_;
};

}  // namespace vitrine
