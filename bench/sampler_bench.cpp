// SPDX-License-Identifier: Apache-2.0
// One token's choice at Qwen3's vocabulary. Budget: 0.8 ms a token (a sampled decode keeps >= 95% of the
// greedy speed of a small model). Each iteration first copies a row of 608 KB, as sample() changes it:
// BM_CopyRow is that part.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "engine/sampler.h"

namespace {

using vitrine::Sampler;
using vitrine::SamplingParams;
using vitrine::TokenId;

constexpr std::size_t kVocab = 151936;

/// Rows shaped like a language model's: a bell of deviation 2.5 around 0 and a head that falls off with the
/// logarithm of the rank, so that the likeliest token has about half of the probability at temperature 1.
const std::vector<std::vector<float>>& peaked_rows() {
  static const auto rows = [] {
    std::vector<std::vector<float>> made(8, std::vector<float>(kVocab));
    std::mt19937_64 random(7);
    std::normal_distribution<float> bell(0, 2.5F);
    for (auto& row : made) {
      for (float& x : row) x = bell(random);
      for (int rank = 0; rank < 2000; ++rank) {
        row[random() % kVocab] = 20 - 1.8F * std::log1p(static_cast<float>(rank)) + 0.1F * bell(random);
      }
    }
    return made;
  }();
  return rows;
}

void run(benchmark::State& state, const SamplingParams& params) {
  const auto& rows = peaked_rows();
  const std::vector<TokenId> prompt{1, 2, 3};
  Sampler sampler(params, kVocab, prompt);
  std::vector<float> logits(kVocab);
  std::size_t next = 0;
  for (auto _ : state) {
    std::copy(rows[next].begin(), rows[next].end(), logits.begin());
    next = (next + 1) % rows.size();
    benchmark::DoNotOptimize(sampler.sample(logits));
  }
  state.SetItemsProcessed(state.iterations());
}

void BM_CopyRow(benchmark::State& state) {
  const auto& rows = peaked_rows();
  std::vector<float> logits(kVocab);
  std::size_t next = 0;
  for (auto _ : state) {
    std::copy(rows[next].begin(), rows[next].end(), logits.begin());
    next = (next + 1) % rows.size();
    benchmark::DoNotOptimize(logits.data());
    benchmark::ClobberMemory();
  }
}
BENCHMARK(BM_CopyRow)->Unit(benchmark::kMillisecond);

struct Truncation {
  float temperature = 0.7F;
  std::int64_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
};

SamplingParams with(const Truncation& truncation) {
  SamplingParams params;
  params.temperature = truncation.temperature;
  params.top_k = truncation.top_k;
  params.top_p = truncation.top_p;
  params.min_p = truncation.min_p;
  params.seed = 1;
  return params;
}

SamplingParams greedy() {
  SamplingParams params;
  params.greedy = true;
  return params;
}

SamplingParams with_penalties() {
  SamplingParams params = with({.top_k = 20, .top_p = 0.8F});
  params.repetition_penalty = 1.05F;
  params.presence_penalty = 1.5F;
  return params;
}

BENCHMARK_CAPTURE(run, argmax, greedy())->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run, top_p_09, with({.top_p = 0.9F}))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run, top_k_20_top_p_09, with({.top_k = 20, .top_p = 0.9F}))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run, top_k_40_top_p_09, with({.top_k = 40, .top_p = 0.9F}))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run, top_k_5000, with({.top_k = 5000}))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run, min_p_005, with({.min_p = 0.05F}))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run, temperature_only, with({}))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run, hot_top_p_095, with({.temperature = 3, .top_p = 0.95F}))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(run, penalties, with_penalties())->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
