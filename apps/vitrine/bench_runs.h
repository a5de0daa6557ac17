// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/engine.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bench_numbers.h"

namespace vitrine::app {

/// One line of the result: what is measured, and tokens/s, a figure a round.
struct BenchItem {
  BenchKind kind;
  std::int64_t size;
  std::string skipped{};  // why it is not measured; empty: it is
  std::vector<double> ours{}, peers{};

  /// "decode at 2,048"
  std::string name() const;
  /// How the peer is asked for it.
  std::string command(std::int64_t tokens) const;
};

/// Where the time of some steps went.
struct BenchProfile {
  Profile parts;
  double seconds = 0;
  std::int64_t steps = 0;
};

/// Runs measurements on an engine, and nothing else meanwhile. The ids are the same each time.
class BenchRuns {
 public:
  /// `tokens` are decoded in a measurement.
  BenchRuns(Engine& engine, std::int64_t tokens) : engine_(engine), tokens_(tokens) {}

  /// Makes room for all of the items: rows and sequences of a step, tokens of the cache where nobody said how many.
  static void make_room(EngineOptions& options, const std::vector<BenchItem>& items, std::int64_t tokens);

  /// Why the engine's context is too short for that item, or its cache too small; empty when they are not.
  std::string too_long(const BenchItem& item) const;
  /// Tokens/s, once. Throws Error(kNumeric) when the model gives no numbers.
  double measure(const BenchItem& item);
  /// The parts of a prefill, or of decoding.
  BenchProfile profile(const BenchItem& item);

 private:
  struct Watch;
  double prefill(std::int64_t tokens);
  double decode(std::int64_t depth, Profile* profile = nullptr);
  double batch(std::int64_t sequences);
  RequestId submit(std::int64_t prompt, std::int64_t output, std::int64_t seed, bool cached, Watch& watch);

  Engine& engine_;
  std::int64_t tokens_;
};

}  // namespace vitrine::app
