// SPDX-License-Identifier: Apache-2.0
// Exact mode against Hugging Face transformers in float32, and against itself: DESIGN's "same bits whatever the company".
#include <gtest/gtest.h>
#include <vitrine/engine.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "support/model_runner.h"
#include "support/stored_tensors.h"
#include "support/test_files.h"

namespace vitrine::test {
namespace {

constexpr float kTolerance = 2e-4f;  // tests/data/README.md: five times the reference's own rounding noise

const char* const kFixtures[] = {"qwen3-tiny", "qwen3-untied-sharded", "qwen3-f16", "qwen3-f32",
                                 "qwen3-yarn", "qwen3-sliding",        "qwen3-bias"};

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float difference = std::fabs(a[i] - b[i]);
    if (!(difference <= largest)) largest = difference;  // NaN counts as large
  }
  return largest;
}

/// Collects the residual stream after every layer.
class ResidualProbe final : public Probe {
 public:
  std::vector<std::vector<float>> layers;
  bool wants(ProbePoint point, int) const noexcept override { return point == ProbePoint::kResidual; }
  void record(ProbePoint, int layer, ProbeMatrix values) override {
    layers.resize(std::max(layers.size(), static_cast<std::size_t>(layer) + 1));
    for (std::int64_t r = 0; r < values.rows; ++r) {
      layers[static_cast<std::size_t>(layer)].insert(layers[static_cast<std::size_t>(layer)].end(), values.row(r),
                                                     values.row(r) + values.cols);
    }
  }
};

class Qwen3Parity : public testing::TestWithParam<std::tuple<const char*, std::string>> {
 protected:
  std::filesystem::path folder() const { return data_path("models") / std::get<0>(GetParam()); }
  std::string isa() const { return std::get<1>(GetParam()); }
  StoredTensors expected() const { return StoredTensors(folder() / "expected.safetensors"); }
};

constexpr std::int64_t kAtOnce[] = {1 << 20};
constexpr std::int64_t kOneByOne[] = {1};
constexpr std::int64_t kUneven[] = {3, 1, 17, 2, 33, 5};

TEST_P(Qwen3Parity, LogitsAtEveryPosition) {
  const StoredTensors reference = expected();
  ModelRunner runner(folder(), {.isa = isa()});
  for (int n = 0; reference.has("ids." + std::to_string(n)); ++n) {
    const auto ids = reference.ids("ids." + std::to_string(n));
    const auto logits = runner.logits(runner.hidden(ids, kAtOnce));
    EXPECT_LE(largest_difference(logits, reference.floats("logits." + std::to_string(n))), kTolerance)
        << "prompt " << n;
  }
}

TEST_P(Qwen3Parity, HiddenStatesOfEveryLayer) {
  const StoredTensors reference = expected();
  ModelRunner runner(folder(), {.isa = isa()});
  ResidualProbe probe;
  const auto normed = runner.hidden(reference.ids("ids.0"), kAtOnce, &probe);
  EXPECT_LE(largest_difference(normed, reference.floats("normed.0")), kTolerance);
  ASSERT_FALSE(probe.layers.empty());
  for (std::size_t layer = 0; layer < probe.layers.size(); ++layer) {
    const auto stored = reference.floats("hidden.0." + std::to_string(layer));
    EXPECT_LE(largest_difference(probe.layers[layer], stored), kTolerance) << "layer " << layer;
  }
}

TEST_P(Qwen3Parity, GreedyTokensAndTheirLogits) {
  const StoredTensors reference = expected();
  Engine engine = Engine::load(folder().string(), {.threads = 2, .precision = Precision::kExact, .isa = isa()});
  for (int n = 0; reference.has("ids." + std::to_string(n)); ++n) {
    Request request;
    request.prompt_ids = reference.ids("ids." + std::to_string(n));
    request.sampling.greedy = true;
    request.max_tokens = 24;
    EXPECT_EQ(engine.generate(request).output_ids, reference.ids("greedy." + std::to_string(n))) << "prompt " << n;
  }
  // The cached decoding steps of prompt 0, fed with the reference's own tokens.
  auto ids = reference.ids("ids.0");
  const std::size_t num_prompt = ids.size();
  const auto greedy = reference.ids("greedy.0");
  ids.insert(ids.end(), greedy.begin(), greedy.end() - 1);
  ModelRunner runner(folder(), {.isa = isa()});
  const std::int64_t chunks[] = {static_cast<std::int64_t>(num_prompt), 1};
  const auto logits = runner.logits(runner.hidden(ids, chunks));
  const auto step_logits = reference.floats("step_logits.0");
  EXPECT_LE(
      largest_difference({logits.end() - static_cast<std::ptrdiff_t>(step_logits.size()), logits.end()}, step_logits),
      kTolerance);
}

TEST_P(Qwen3Parity, SameBitsHoweverItIsCutAndOnAnyThreads) {
  const StoredTensors reference = expected();
  for (const KvStorage kv : {kKvF32, kKvBF16, kKvInt8}) {
    for (int n = 0; reference.has("ids." + std::to_string(n)); ++n) {
      const auto ids = reference.ids("ids." + std::to_string(n));
      ModelRunner alone(folder(), {.kv = kv, .threads = 1, .isa = isa()});
      const auto bits = alone.hidden(ids, kAtOnce);
      const auto logit_bits = alone.logits(bits);
      for (const int threads : {1, 2, 3}) {
        ModelRunner runner(folder(), {.kv = kv, .threads = threads, .isa = isa()});
        for (const std::span<const std::int64_t> chunks :
             {std::span<const std::int64_t>(kAtOnce), std::span<const std::int64_t>(kOneByOne),
              std::span<const std::int64_t>(kUneven)}) {
          const auto other = runner.hidden(ids, chunks);
          ASSERT_EQ(std::memcmp(other.data(), bits.data(), bits.size() * sizeof(float)), 0)
              << threads << " threads, chunks of " << chunks[0];
          const auto other_logits = runner.logits(other);
          ASSERT_EQ(std::memcmp(other_logits.data(), logit_bits.data(), logit_bits.size() * sizeof(float)), 0);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Qwen3Parity,
                         testing::Combine(testing::ValuesIn(kFixtures), testing::ValuesIn(runnable_isas())),
                         [](const auto& param) {
                           std::string name = std::string(std::get<0>(param.param)) + "_" + std::get<1>(param.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace vitrine::test
