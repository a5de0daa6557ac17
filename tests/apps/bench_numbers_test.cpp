// SPDX-License-Identifier: Apache-2.0
// The arithmetic of `vitrine bench`, compiled in from the program.
#include "bench_numbers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace vitrine::app {
namespace {

using Sizes = std::vector<std::int64_t>;

TEST(BenchSizes, Lists) {
  EXPECT_EQ(parse_sizes("--depth", "", 0, 100), Sizes{});
  EXPECT_EQ(parse_sizes("--depth", "0", 0, 100), Sizes{0});
  EXPECT_EQ(parse_sizes("--depth", "100,0,7", 0, 100), (Sizes{100, 0, 7}));
}

TEST(BenchSizes, SaysWhatIsWrong) {
  const auto message = [](const char* text) -> std::string {
    try {
      parse_sizes("--depth", text, 1, 100);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "";
  };
  for (const char* part : {"0", "101", "-1", "x", "1.5", " 1", "1 ", "99999999999999999999", "+1"}) {
    EXPECT_EQ(message(part),
              std::string("--depth: expected numbers from 1 to 100 with commas between, found \"") + part + "\"");
  }
  for (const char* text : {",", "1,", ",1", "1,,2"}) {
    EXPECT_NE(message(text).find("found \"\""), std::string::npos) << text;
  }
  EXPECT_EQ(message("5,6,5"), "--depth: 5 is there twice");
}

TEST(BenchFigure, MedianAndRange) {
  EXPECT_EQ(figure_of({}).count, 0);
  EXPECT_EQ(figure_of({}).spread(), 0);
  EXPECT_EQ(figure_of({3}).median, 3);
  const Figure odd = figure_of({9, 1, 5});
  EXPECT_EQ(odd.median, 5);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.max, 9);
  EXPECT_EQ(odd.count, 3);
  EXPECT_DOUBLE_EQ(odd.spread(), 0.8);
  EXPECT_EQ(figure_of({4, 1, 2, 100}).median, 3);
}

TEST(BenchPercentiles, BetweenTwoSamples) {
  EXPECT_EQ(percentiles_of({}).count, 0);
  const Percentiles one = percentiles_of({7});
  EXPECT_EQ(one.p50, 7);
  EXPECT_EQ(one.p99, 7);
  std::vector<double> samples;
  for (int i = 100; i >= 0; --i) samples.push_back(i);
  const Percentiles many = percentiles_of(samples);
  EXPECT_DOUBLE_EQ(many.p50, 50);
  EXPECT_DOUBLE_EQ(many.p90, 90);
  EXPECT_DOUBLE_EQ(many.p99, 99);
  EXPECT_EQ(many.count, 101);
  EXPECT_DOUBLE_EQ(percentiles_of({10, 20}).p50, 15);
  EXPECT_DOUBLE_EQ(percentiles_of({10, 20}).p90, 19);
}

TEST(BenchRequests, IdsOfARequestAreItsOwn) {
  const std::vector<TokenId> ids = some_ids(1000, 50, 3);
  EXPECT_EQ(ids, some_ids(1000, 50, 3));
  EXPECT_NE(ids, some_ids(1000, 50, 4));
  EXPECT_TRUE(std::all_of(ids.begin(), ids.end(), [](TokenId id) { return id >= 0 && id < 50; }));
}

TEST(BenchRequests, ArriveAtTheirRate) {
  const std::vector<double> times = arrival_times(10000, 4);
  EXPECT_EQ(times, arrival_times(10000, 4));
  EXPECT_EQ(times.front(), 0);
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
  EXPECT_NEAR(times.back() / 9999, 1.0 / 4, 0.01);
  const auto short_gaps = [&] {
    std::int64_t count = 0;
    for (std::size_t i = 1; i < times.size(); ++i) count += times[i] - times[i - 1] < 0.25 ? 1 : 0;
    return static_cast<double>(count) / 9999;
  };
  EXPECT_NEAR(short_gaps(), 1 - std::exp(-1.0), 0.02);  // exponential: most gaps are shorter than the mean
}

/// Qwen3-0.6B in bf16.
EngineInfo qwen3() {
  EngineInfo info;
  info.parts = {{"embedding", 155'582'464, 311'164'928},
                {"attention", 176'160'768, 352'321'536},
                {"feed-forward", 264'241'152, 528'482'304},
                {"norms", 65'536, 131'072}};
  info.vocab_size = 151'936;
  info.hidden_size = 1024;
  info.intermediate_size = 3072;
  info.num_layers = 28;
  info.query_heads = 16;
  info.kv_heads = 8;
  info.head_dim = 128;
  info.layer_windows.assign(28, 0);
  info.kv_bytes_per_token = 114'688;
  return info;
}

double& of(PartNumbers& numbers, StepPart part) { return numbers[static_cast<std::size_t>(part)]; }

TEST(BenchWork, ATiedTableIsReadOnceByTheHead) {
  EngineInfo info = qwen3();
  EXPECT_EQ(weight_bytes_per_step(info), 1'192'099'840);
  info.parts.push_back({"head", 155'582'464, 311'164'928});
  EXPECT_EQ(weight_bytes_per_step(info), 1'192'099'840 + 2048);  // and one row of the embedding
}

TEST(BenchWork, PartsOfAStepAddUp) {
  const EngineInfo info = qwen3();
  const double norms = 131'072;
  EXPECT_DOUBLE_EQ(sum_of(bytes_of_step(info, 1, 0)) + norms, weight_bytes_per_step(info));
  EXPECT_DOUBLE_EQ(sum_of(bytes_of_step(info, 8, 144)) + norms, weight_bytes_per_step(info) + 8 * 144 * 114'688.0);
  const PartNumbers bytes = bytes_of_step(info, 1, 0);
  EXPECT_DOUBLE_EQ(bytes[static_cast<std::size_t>(StepPart::kQkv)], 28 * 2 * 1024 * 4096.0);
  EXPECT_DOUBLE_EQ(bytes[static_cast<std::size_t>(StepPart::kOProj)], 28 * 2 * 1024 * 2048.0);
}

TEST(BenchWork, OperationsOfAPrompt) {
  const EngineInfo info = qwen3();
  PartNumbers operations = operations_of_prefill(info, 512);
  double& attention = of(operations, StepPart::kAttention);
  EXPECT_DOUBLE_EQ(attention, 28 * 16 * 4 * 128 * (512 * 513 / 2.0));
  attention = 0;
  double& head = of(operations, StepPart::kHead);
  EXPECT_DOUBLE_EQ(head, 2 * 155'582'464.0);  // the last token alone
  head = 0;
  EXPECT_DOUBLE_EQ(sum_of(operations), 512 * 2 * 440'401'920.0);  // the weights of the layers
}

TEST(BenchWork, OperationsOfAStep) {
  const EngineInfo info = qwen3();
  const double weights = 440'401'920 + 155'582'464;
  EXPECT_DOUBLE_EQ(sum_of(operations_of_step(info, 1, 0)), 2 * weights);
  EXPECT_DOUBLE_EQ(sum_of(operations_of_step(info, 8, 100)), 8 * (2 * weights + 28 * 16 * 4 * 128 * 100.0));
  // Two bytes a weight and two operations: as many as bytes.
  const PartNumbers operations = operations_of_step(info, 1, 0);
  const PartNumbers bytes = bytes_of_step(info, 1, 0);
  for (std::size_t i = 0; i < kNumStepParts; ++i) EXPECT_DOUBLE_EQ(operations[i], bytes[i]) << i;
}

TEST(BenchWork, APromptReadsTheLayersOnceAStep) {
  const EngineInfo info = qwen3();
  const PartNumbers step = bytes_of_step(info, 1, 0);
  PartNumbers bytes = bytes_of_prefill(info, 600, 256);
  for (const StepPart part : {StepPart::kQkv, StepPart::kOProj, StepPart::kGateUp, StepPart::kDownProj}) {
    EXPECT_DOUBLE_EQ(of(bytes, part), 3 * step[static_cast<std::size_t>(part)]) << to_string(part);
  }
  EXPECT_DOUBLE_EQ(of(bytes, StepPart::kHead), step[static_cast<std::size_t>(StepPart::kHead)]);
  EXPECT_DOUBLE_EQ(of(bytes, StepPart::kAttention), (256 + 512 + 600) * 114'688.0);
}

TEST(BenchWork, WindowsBoundWhatIsSeen) {
  EngineInfo info = qwen3();
  EXPECT_DOUBLE_EQ(kv_bytes_at(info, 2048), 2048 * 114'688.0);
  for (std::size_t i = 0; i < 14; ++i) info.layer_windows[i] = 512;
  EXPECT_DOUBLE_EQ(kv_bytes_at(info, 2048), (2048 + 512) / 2 * 114'688.0);
  EXPECT_DOUBLE_EQ(kv_bytes_at(info, 100), 100 * 114'688.0);
  const double half = operations_of_prefill(info, 1024)[static_cast<std::size_t>(StepPart::kAttention)];
  // Full layers: 1024 * 1025 / 2 keys; the others grow to 512 and stay there.
  EXPECT_DOUBLE_EQ(half, 14 * 16 * 4 * 128 * (1024 * 1025 / 2.0 + 512 * 513 / 2.0 + 512 * 512.0));
  // Reading: the second step's first row sees 511 keys of the first step and itself.
  PartNumbers bytes = bytes_of_prefill(info, 1024, 600);
  EXPECT_DOUBLE_EQ(of(bytes, StepPart::kAttention), (600 + 1024 + 600 + 511 + 424) / 2.0 * 114'688.0);
}

}  // namespace
}  // namespace vitrine::app
