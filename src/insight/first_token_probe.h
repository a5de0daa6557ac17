// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/probe.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace vitrine {

/// Hands a request's steps on to several recorders, up to the one that leads to its first new token: of the
/// chunks of a prompt only the last has an output row. After that it wants nothing, so the rest of a
/// generation runs unwatched.
class FirstTokenProbe final : public Probe {
 public:
  explicit FirstTokenProbe(std::vector<Probe*> recorders) : recorders_(std::move(recorders)) {}

  bool wants(ProbePoint point, int layer) const noexcept override {
    if (complete_) return false;
    return point == ProbePoint::kFinalNorm ||
           std::any_of(recorders_.begin(), recorders_.end(), [&](Probe* r) { return r->wants(point, layer); });
  }

  void record(ProbePoint point, int layer, ProbeMatrix values) override {
    for (Probe* recorder : recorders_) {
      if (recorder->wants(point, layer)) recorder->record(point, layer, values);
    }
    // The final norm is the end of a step, and its rows are the output rows.
    if (point == ProbePoint::kFinalNorm && values.rows > 0) complete_ = true;
  }

 private:
  std::vector<Probe*> recorders_;
  bool complete_ = false;
};

}  // namespace vitrine
