// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/engine.h>

#include <cstdint>

#include "bench_numbers.h"
#include "commands.h"

namespace vitrine::app {

/// What `vitrine bench engine` found out.
struct EngineBenchResult {
  EngineInfo info;
  std::int64_t concurrency = 0;
  double seconds = 0;           // from the first request to the last token
  Percentiles ttft_ms, itl_ms;  // to the first token; from one token to the next
  std::int64_t cached_tokens = 0, preemptions = 0, steps = 0;
  double batch_mean = 0;  // samples that got a token in a step
  std::int64_t batch_max = 0;
  Speculation speculation;
  EngineStats end;  // once all are done
};

void print_engine_bench_text(const BenchEngineCommand& o, const EngineBenchResult& result);
void print_engine_bench_json(const BenchEngineCommand& o, const EngineBenchResult& result);

}  // namespace vitrine::app
