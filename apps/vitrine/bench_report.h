// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/engine.h>

#include <optional>
#include <string>
#include <vector>

#include "bench_numbers.h"
#include "bench_runs.h"
#include "bench_stream.h"
#include "commands.h"

namespace vitrine::app {

/// Everything that `vitrine bench` found out.
struct BenchResult {
  struct Profiled {
    BenchItem item;
    BenchProfile profile;
  };

  EngineInfo info;
  std::vector<BenchItem> items;  // in the order of the options
  int rounds = 0;                // figures of each item
  std::int64_t step_tokens = 0;  // most tokens of a step
  Figure load_s;
  std::int64_t peak_bytes = 0;
  std::optional<StreamResult> stream;  // absent where nothing decodes
  PeakRates peaks;
  std::vector<Profiled> profiles;
  std::string peer_name, peer_error;  // empty: no peer; it did what it was asked
  double peer_load_s = 0;
};

/// "bf16", "int8", or "f32" where the numbers are exact.
std::string kv_name(const EngineInfo& info);
/// What runs here and how, on a line: the first one of every report.
void print_model(const ModelOptions& o, const EngineInfo& info);

void print_bench_text(const BenchCommand& o, const BenchResult& result);
void print_bench_json(const BenchCommand& o, const BenchResult& result);

}  // namespace vitrine::app
