// SPDX-License-Identifier: Apache-2.0
// Every form of weights and cache, on every table: how far it may be from float32, and that its bits are the same in any
// company. Quality by the demo model, which is easy to quantise: the bounds hold for it, not for models at large.
#include <gtest/gtest.h>
#include <vitrine/engine.h>

#include <cstring>

#include "base/mapped_file.h"
#include "support/divergence.h"
#include "support/test_files.h"

namespace vitrine::test {
namespace {

constexpr WeightType kWeights[] = {WeightType::kBF16,         WeightType::kInt8, WeightType::kInt8Group32,
                                   WeightType::kInt8Group128, WeightType::kInt4, WeightType::kInt4Group64,
                                   WeightType::kInt4Group128};

std::vector<TokenId> held_out(std::size_t count) {
  auto ids = Tokenizer::load(demo_model())->encode(read_text_file(data_path("demo-model") / "heldout.txt", 1 << 30));
  ids.resize(count);
  return ids;
}

TEST(Forms, StayNearFloat32) {
  const auto ids = held_out(2 * kWindow);
  const auto log_probabilities_of = [&](const ModelRunner::Options& options) {
    ModelRunner runner(demo_model(), options);
    return log_probabilities(runner, ids);
  };
  const auto reference = log_probabilities_of({.isa = runnable_isas().back()});
  const auto bound = [](WeightType type) {
    if (type == WeightType::kBF16) return 2e-5;
    const bool int8 =
        type == WeightType::kInt8 || type == WeightType::kInt8Group32 || type == WeightType::kInt8Group128;
    return int8 ? 1e-4 : 5e-4;
  };
  constexpr double kInt8CacheAdds = 5e-5;
  for (const WeightType type : kWeights) {
    const auto kl_with = [&](KvStorage kv) {
      return compare(ids, reference,
                     log_probabilities_of({.kv = kv, .exact = false, .weights = type, .isa = runnable_isas().back()}))
          .mean_kl;
    };
    const double kl = kl_with(kKvBF16);
    EXPECT_LE(kl, bound(type)) << to_string(type);
    EXPECT_LE(kl_with(kKvInt8), kl + kInt8CacheAdds) << to_string(type);
  }
}

class FormsOfTable : public testing::TestWithParam<std::string> {};

TEST_P(FormsOfTable, SameBitsHoweverItIsCutAndOnAnyThreads) {
  const auto ids = held_out(GetParam() == "generic" ? 4 : 90);
  const std::int64_t at_once[] = {1 << 20}, one_by_one[] = {1}, uneven[] = {3, 1, 17, 2, 33, 5};
  for (const WeightType type : kWeights) {
    for (const KvStorage kv : {kKvBF16, kKvInt8}) {
      ModelRunner alone(demo_model(), {.kv = kv, .exact = false, .weights = type, .isa = GetParam()});
      const auto bits = alone.hidden(ids, at_once);
      const auto logit_bits = alone.logits(bits);
      for (const int threads : {1, 3}) {
        ModelRunner runner(demo_model(),
                           {.kv = kv, .exact = false, .weights = type, .threads = threads, .isa = GetParam()});
        for (const std::span<const std::int64_t> chunks :
             {std::span<const std::int64_t>(one_by_one), std::span<const std::int64_t>(uneven)}) {
          const auto other = runner.hidden(ids, chunks);
          ASSERT_EQ(std::memcmp(other.data(), bits.data(), bits.size() * sizeof(float)), 0)
              << to_string(type) << ", " << threads << " threads, chunks of " << chunks[0];
          const auto other_logits = runner.logits(other);
          ASSERT_EQ(std::memcmp(other_logits.data(), logit_bits.data(), logit_bits.size() * sizeof(float)), 0);
        }
      }
    }
  }
}

/// More rows than operations take at once, cut where neither blocks of the cache nor tiles end.
TEST_P(FormsOfTable, SameBitsInLongSteps) {
  if (GetParam() == "generic") GTEST_SKIP() << "takes too long; the short steps run on it";
  std::vector<TokenId> ids;
  for (TokenId i = 0; i < 500; ++i) ids.push_back((i * 37 + 11) % 3000);
  const std::int64_t at_once[] = {500};
  const std::int64_t uneven[] = {37, 290, 141, 32};
  const std::pair<WeightType, KvStorage> forms[] = {
      {WeightType::kBF16, kKvBF16}, {WeightType::kInt8, kKvInt8}, {WeightType::kInt4, kKvBF16}};
  for (const auto& [type, kv] : forms) {
    const ModelRunner::Options one{.kv = kv, .exact = false, .weights = type, .isa = GetParam()};
    ModelRunner::Options three = one;
    three.threads = 3;
    const auto bits = ModelRunner(demo_model(), one).hidden(ids, uneven);
    const auto other = ModelRunner(demo_model(), three).hidden(ids, at_once);
    ASSERT_EQ(std::memcmp(other.data(), bits.data(), bits.size() * sizeof(float)), 0) << to_string(type);
  }
}

TEST_P(FormsOfTable, SameTokensAndLogitsInCompany) {
  if (GetParam() == "generic") GTEST_SKIP() << "the other tables show it sooner";
  for (const WeightType type : kWeights) {
    for (const KvType kv : {KvType::kBF16, KvType::kInt8}) {
      Engine engine =
          Engine::load(demo_model().string(), {.cache_tokens = 4096, .weights = type, .kv = kv, .isa = GetParam()});
      const auto request = [&](std::int64_t length) {
        Request r;
        for (std::int64_t i = 0; i < length; ++i)
          r.prompt_ids.push_back(static_cast<TokenId>((i * 37 + length) % 3000));
        r.sampling.greedy = true;
        r.ignore_eos = true;
        r.max_tokens = 12;
        r.top = 3;
        return r;
      };
      const std::int64_t lengths[] = {1, 5, 16, 17, 40, 70};
      std::vector<Generation> alone;
      for (const std::int64_t length : lengths) alone.push_back(engine.generate(request(length)));
      std::vector<Generation> together(alone.size());
      for (std::size_t i = 0; i < alone.size(); ++i) {
        Request r = request(lengths[i]);
        r.on_event = [&together, i](const Event& event) {
          if (event.finished != nullptr) together[i] = *event.finished;
        };
        engine.submit(std::move(r));
      }
      while (engine.step()) {
      }
      for (std::size_t i = 0; i < alone.size(); ++i) {
        EXPECT_EQ(together[i].output_ids, alone[i].output_ids) << to_string(type) << " " << lengths[i];
        ASSERT_EQ(together[i].top.size(), alone[i].top.size());
        for (std::size_t t = 0; t < alone[i].top.size(); ++t)
          EXPECT_EQ(together[i].top[t].logit, alone[i].top[t].logit);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, FormsOfTable, testing::ValuesIn(runnable_isas()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace vitrine::test
