// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "bench_engine.h"
#include "bench_report.h"
#include "json_output.h"
#include "terminal.h"

namespace vitrine::app {
namespace {

double output_rate(const BenchEngineCommand& o, const EngineBenchResult& result) {
  return static_cast<double>(o.requests * o.output_tokens) / result.seconds;
}
double total_rate(const BenchEngineCommand& o, const EngineBenchResult& result) {
  return static_cast<double>(o.requests * (o.prompt_tokens + o.output_tokens)) / result.seconds;
}

Json json_of(const Percentiles& p) {
  return p.count > 0 ? Json({{"p50", p.p50}, {"p90", p.p90}, {"p99", p.p99}}) : Json();
}

void print_times(const char* name, const Percentiles& p) {
  if (p.count == 0) return;
  write_out(fmt::format("{}{:>12.2f}{:>12.2f}{:>12.2f}\n", fit(name, 24), p.p50, p.p90, p.p99));
}

/// "64 requests of 128 + 128 tokens, 16 at once, in 3.2 s"
void print_task(const BenchEngineCommand& o, const EngineBenchResult& result) {
  const std::string shared =
      o.shared_prefix > 0 ? fmt::format(" ({} of them the same in all)", with_commas(o.shared_prefix)) : "";
  const std::string how = o.rate > 0 ? fmt::format("{:g} a second, {} at once at most", o.rate, result.concurrency)
                                     : fmt::format("{} at once", result.concurrency);
  write_out(fmt::format("{} request{} of {}{} + {} tokens, {}: {:.2f} s\n", with_commas(o.requests),
                        o.requests == 1 ? "" : "s", with_commas(o.prompt_tokens), shared, with_commas(o.output_tokens),
                        how, result.seconds));
}

}  // namespace

void print_engine_bench_text(const BenchEngineCommand& o, const EngineBenchResult& result) {
  const auto line = [](const char* name, const std::string& value) { write_out(fit(name, 24) + value + "\n"); };
  const EngineStats& end = result.end;
  print_model(o.model, result.info);
  print_task(o, result);
  write_out(fmt::format("\n{}{:>12}{:>12}{:>12}\n", fit("Milliseconds", 24), "median", "p90", "p99"));
  print_times("to the first token", result.ttft_ms);
  print_times("from token to token", result.itl_ms);
  write_out("\n");
  line("Throughput",
       fmt::format("{:.1f} tokens/s, {:.1f} with the prompts", output_rate(o, result), total_rate(o, result)));
  line("Batch", fmt::format("{:.1f} requests got a token in a step, {} at most; {} steps", result.batch_mean,
                            result.batch_max, with_commas(result.steps)));
  line("KV cache", fmt::format("{} blocks of {} in use at most, {} at the end; {} kept for later requests",
                               with_commas(end.kv_blocks_peak), with_commas(end.kv_blocks), end.kv_blocks_live,
                               with_commas(end.kv_blocks_cached)));
  line("Found there",
       fmt::format("{} of {} prompt tokens; {} preemption{}", with_commas(result.cached_tokens),
                   with_commas(o.requests * o.prompt_tokens), result.preemptions, result.preemptions == 1 ? "" : "s"));
  if (result.speculation.drafted > 0) {
    line("Guesses", fmt::format("{} of {} right", with_commas(result.speculation.accepted),
                                with_commas(result.speculation.drafted)));
  }
}

void print_engine_bench_json(const BenchEngineCommand& o, const EngineBenchResult& result) {
  const EngineInfo& info = result.info;
  Json out = {{"throughput_tokens_per_s", output_rate(o, result)},
              {"total_tokens_per_s", total_rate(o, result)},
              {"seconds", result.seconds},
              {"ttft_ms", json_of(result.ttft_ms)},
              {"itl_ms", json_of(result.itl_ms)},
              {"kv_blocks", result.end.kv_blocks},
              {"kv_blocks_peak", result.end.kv_blocks_peak},
              {"kv_blocks_end", result.end.kv_blocks_live},
              {"kv_blocks_cached", result.end.kv_blocks_cached},
              {"cached_tokens", result.cached_tokens},
              {"preemptions", result.preemptions},
              {"steps", result.steps},
              {"batch", {{"mean", result.batch_mean}, {"max", result.batch_max}}},
              {"requests", o.requests},
              {"concurrency", result.concurrency},
              {"prompt_tokens", o.prompt_tokens},
              {"output_tokens", o.output_tokens},
              {"shared_prefix", o.shared_prefix},
              {"rate", o.rate > 0 ? Json(o.rate) : Json()},
              {"isa", info.isa},
              {"threads", info.threads},
              {"weights", to_string(info.weights)},
              {"kv", kv_name(info)},
              {"model", o.model.name()}};
  if (o.speculation) out["speculation"] = speculation_json(result.speculation);
  write_json(out);
}

}  // namespace vitrine::app
