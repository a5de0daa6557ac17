// SPDX-License-Identifier: Apache-2.0
#include "engine/sampler.h"

#include <gtest/gtest.h>
#include <vitrine/error.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "support/errors.h"
#include "support/test_files.h"

namespace vitrine {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr std::int64_t kQwenVocab = 151936;

using Floats = std::vector<float>;
using Ids = std::vector<TokenId>;

struct Settings {
  float temperature = 1;
  std::int64_t top_k = 0;
  float top_p = 1;
  float min_p = 0;
  std::uint64_t seed = 1;
};

SamplingParams with(const Settings& settings) {
  SamplingParams params;
  params.temperature = settings.temperature;
  params.top_k = settings.top_k;
  params.top_p = settings.top_p;
  params.min_p = settings.min_p;
  params.seed = settings.seed;
  return params;
}

std::int64_t size_of(const Floats& logits) { return static_cast<std::int64_t>(logits.size()); }

/// A new request's first token.
TokenId first_token(const SamplingParams& params, Floats logits) {
  return Sampler(params, size_of(logits), {}).sample(logits);
}

/// `count` tokens of one request that sees the same logits at every step.
Ids tokens(const SamplingParams& params, const Floats& logits, int count) {
  Sampler sampler(params, size_of(logits), {});
  Ids ids;
  for (int i = 0; i < count; ++i) {
    Floats row = logits;
    ids.push_back(sampler.sample(row));
  }
  return ids;
}

std::vector<Sampler::Candidate> distribution(const SamplingParams& params, Floats logits, const Ids& prompt = {}) {
  Sampler sampler(params, size_of(logits), prompt);
  const auto candidates = sampler.distribution(logits);
  return {candidates.begin(), candidates.end()};
}

/// The number the documentation of Sampler states for output token n.
double documented_uniform(std::uint64_t seed, std::uint64_t n) {
  const auto mix = [](std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  };
  return static_cast<double>(mix(mix(seed) + (n + 1) * 0x9E3779B97F4A7C15u) >> 11) * 0x1p-53;
}

/// The same rules by sorting the whole row.
std::vector<Sampler::Candidate> sorted_reference(const SamplingParams& params, Floats values) {
  for (float& x : values) x /= params.temperature;
  Ids order;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] > -kInf) order.push_back(static_cast<TokenId>(i));
  }
  const auto value = [&](TokenId id) { return values[static_cast<std::size_t>(id)]; };
  std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) { return value(a) > value(b); });
  if (params.top_k > 0 && params.top_k < std::ssize(order)) {
    auto end = static_cast<std::size_t>(params.top_k);
    while (end < order.size() && value(order[end]) == value(order[end - 1])) ++end;
    order.resize(end);
  }
  const double top = value(order[0]);
  const auto weight = [&](TokenId id) { return std::exp(value(id) - top); };
  const auto total = [&] {
    return std::accumulate(order.begin(), order.end(), 0.0, [&](double sum, TokenId id) { return sum + weight(id); });
  };
  if (params.top_p < 1) {
    const double target = double{params.top_p} * total();
    double before = 0;
    std::size_t kept = 0;
    while (kept < order.size() && before < target) before += weight(order[kept++]);
    order.resize(kept);
  }
  std::erase_if(order, [&](TokenId id) { return weight(id) < double{params.min_p}; });
  const double sum = total();
  std::vector<Sampler::Candidate> result;
  for (const TokenId id : order) result.push_back({id, weight(id) / sum});
  return result;
}

TokenId walk(const std::vector<Sampler::Candidate>& candidates, double u) {
  double sum = 0;
  for (const auto& candidate : candidates) {
    sum += candidate.probability;
    if (sum >= u) return candidate.id;
  }
  return candidates.back().id;
}

// ---- what transformers keeps ----

TEST(Sampler, KeepsWhatTransformersKeeps) {
  const auto cases = test::read_json(test::data_path("sampling/hf.json"))["cases"];
  ASSERT_EQ(cases.size(), 63u);
  for (std::size_t n = 0; n < cases.size(); ++n) {
    const auto& c = cases[n];
    SCOPED_TRACE("case " + std::to_string(n) + " " + c["params"].dump());
    Floats logits;
    for (const auto& x : c["logits"]) logits.push_back(x.is_null() ? -kInf : x.get<float>());
    SamplingParams params =
        with({c["params"]["temperature"], c["params"]["top_k"], c["params"]["top_p"], c["params"]["min_p"]});
    params.repetition_penalty = c["params"]["repetition_penalty"];
    const auto got = distribution(params, logits, c["prompt"].get<Ids>());
    const Ids kept = c["kept"];
    const std::vector<double> probs = c["probs"];
    ASSERT_EQ(got.size(), kept.size());
    double sum = 0;
    for (const auto& candidate : got) sum += candidate.probability;
    EXPECT_NEAR(sum, 1, 1e-12);
    if (c["cut_through_ties"].get<bool>()) continue;  // which of the equal ones stay depends on the sort
    for (const auto& candidate : got) {
      const auto at = std::find(kept.begin(), kept.end(), candidate.id);
      ASSERT_NE(at, kept.end()) << candidate.id;
      EXPECT_NEAR(candidate.probability, probs[static_cast<std::size_t>(at - kept.begin())], 2e-6);
    }
  }
}

// ---- cases from the field ----

TEST(Sampler, TemperatureZeroOrTinyIsArgMax) {  // D01
  for (const double temperature : {0.0, 1e-8, 1e-300, 1e-44}) {
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
      EXPECT_EQ(first_token(with({.temperature = static_cast<float>(temperature), .seed = seed}), {3, 2, 1}), 0);
    }
  }
  EXPECT_EQ(first_token(with({.temperature = 1e-44F}), {-3, -2, -1}), 2) << "the division overflows downwards";
}

TEST(Sampler, SoftmaxDoesNotOverflow) {  // D01
  const auto got = distribution(with({}), {1e4F, 9999, -1e4F});
  ASSERT_EQ(got.size(), 3u);
  EXPECT_NEAR(got[0].probability, 0.7310585786300049, 1e-12);
  EXPECT_NEAR(got[1].probability, 0.2689414213699951, 1e-12);
  EXPECT_EQ(got[2].probability, 0);
  const float largest = std::numeric_limits<float>::max();
  const auto extreme = distribution(with({}), {largest, -largest, 0});
  EXPECT_EQ(extreme[0].id, 0);
  EXPECT_EQ(extreme[0].probability, 1);
}

TEST(Sampler, TopKOutsideTheVocabularyIsOff) {  // D03
  std::mt19937 random(3);
  std::normal_distribution<float> bell(0, 2);
  Floats logits(1000);
  for (float& x : logits) x = bell(random);
  const Ids expected = tokens(with({}), logits, 200);
  for (const std::int64_t k : {-1LL, 1000LL, 200000LL, 2147483647LL, std::numeric_limits<long long>::min()}) {
    EXPECT_EQ(tokens(with({.top_k = k}), logits, 200), expected) << k;
  }
}

TEST(Sampler, TopKOneIsGreedy) {  // D03
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    EXPECT_EQ(first_token(with({.top_k = 1, .seed = seed}), {1, 4, 4, 2}), 1) << "the lowest id of several best ones";
  }
}

TEST(Sampler,
     TopPStopsWhereItIsReachedExactly) {  // transformers drops while the sum from below is <= 1 - top_p
  EXPECT_EQ(distribution(with({.top_p = 0.5F}), {1, 1}).size(), 1u);
  EXPECT_EQ(distribution(with({.top_k = 4, .top_p = 0.75F}), {1, 1, 0, 1, 1}).size(), 3u);
}

TEST(Sampler, DefaultsSample) {  // D04
  std::map<TokenId, int> count;
  SamplingParams params;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    params.seed = seed;
    ++count[first_token(params, {1, 1, 1, 1})];
  }
  for (TokenId id = 0; id < 4; ++id) EXPECT_NEAR(count[id], 50, 25) << id;
}

TEST(Sampler, SeedDecidesTheText) {  // D09
  Floats logits(64);
  std::iota(logits.begin(), logits.end(), 0.0F);
  for (float& x : logits) x *= 0.02F;
  const Ids expected = tokens(with({.seed = 42}), logits, 50);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(tokens(with({.seed = 42}), logits, 50), expected);
  EXPECT_NE(tokens(with({.seed = 7}), logits, 50), expected);
}

TEST(Sampler, RandomSeedCanBeReadAndUsedAgain) {  // D11
  Floats logits(64, 0.0F);
  const SamplingParams params;
  Sampler first(params, 64, {});
  Sampler second(params, 64, {});
  EXPECT_NE(first.seed(), second.seed());
  Ids ids;
  for (int i = 0; i < 50; ++i) ids.push_back(first.sample(logits));
  EXPECT_EQ(tokens(with({.seed = first.seed()}), logits, 50), ids);
}

TEST(Sampler, RandomNumbersAreTheDocumentedOnes) {
  // SplitMix64 from state 0 begins with 0xE220A8397B1DCDAF; mix(0) is 0, so seed 0 is that stream.
  EXPECT_EQ(documented_uniform(0, 0), static_cast<double>(0xE220A8397B1DCDAFu >> 11) * 0x1p-53);
  const Floats logits(1000, 0.0F);
  for (const std::uint64_t seed : {0ULL, 1ULL, 42ULL, ~0ULL}) {
    const Ids ids = tokens(with({.seed = seed}), logits, 20);
    for (std::uint64_t n = 0; n < 20; ++n) {
      EXPECT_EQ(ids[n], static_cast<TokenId>(documented_uniform(seed, n) * 1000));
    }
  }
}

TEST(Sampler, AcceptedTokensAdvanceTheStream) {
  Floats logits(1000, 0.0F);
  const Ids expected = tokens(with({}), logits, 10);
  Sampler sampler(with({}), 1000, {});
  for (int i = 0; i < 9; ++i) sampler.accept(expected[static_cast<std::size_t>(i)]);
  sampler.distribution(logits);  // showing the distribution draws nothing
  EXPECT_EQ(sampler.sample(logits), expected[9]);
}

// ---- penalties and bias ----

/// The logits after the penalties, seen as ratios of probabilities.
TEST(Sampler, RepetitionPenaltyLowersNegativeLogitsToo) {  // D07
  SamplingParams params;
  params.repetition_penalty = 1.5F;
  const auto got = distribution(params, {2, -2, 0}, {0, 1, 0});  // +2 -> 1.3333333, -2 -> -3, once each
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got[1].id, 2);
  EXPECT_NEAR(std::log(got[0].probability / got[1].probability), 1.3333333, 1e-6);
  EXPECT_NEAR(std::log(got[2].probability / got[1].probability), -3, 1e-6);
}

TEST(Sampler, PenaltiesByHand) {
  SamplingParams params;
  params.repetition_penalty = 2;
  params.frequency_penalty = 0.5F;
  params.presence_penalty = 0.25F;
  params.logit_bias = {{3, 1.0F}, {3, 0.5F}};
  const Ids prompt{0, 2};
  Sampler sampler(params, 5, prompt);
  for (const TokenId id : {1, 1, 1, 2}) sampler.accept(id);
  Floats logits{4, 4, -1, 0, 0};
  sampler.distribution(logits);
  // 0: only in the prompt, 4/2. 1: 4/2 - 3*0.5 - 0.25. 2: -1*2 - 0.5 - 0.25. 3: bias alone.
  EXPECT_EQ(logits, (Floats{2, 0.25F, -2.75F, 1.5F, 0}));
}

TEST(Sampler, PresenceAndFrequencyIgnoreThePrompt) {
  SamplingParams params;
  params.presence_penalty = 2;
  params.frequency_penalty = -2;
  const Ids prompt{0};
  Sampler sampler(params, 2, prompt);
  Floats logits{1, 1};
  sampler.distribution(logits);
  EXPECT_EQ(logits, (Floats{1, 1}));
}

TEST(Sampler, SampledTokensCount) {
  SamplingParams params;
  params.greedy = true;
  params.presence_penalty = 1;
  Sampler sampler(params, 3, {});
  Ids ids;
  for (int i = 0; i < 4; ++i) {
    Floats logits{1.0F, 0.5F, 0.25F};
    ids.push_back(sampler.sample(logits));
  }
  EXPECT_EQ(ids, (Ids{0, 1, 2, 0}));
}

TEST(Sampler, BiasChangesWhatGreedyChooses) {
  SamplingParams params;
  params.greedy = true;
  params.logit_bias = {{2, 100.0F}, {0, -100.0F}, {7, 100.0F}};  // 7 is a padding row here
  EXPECT_EQ(first_token(params, {3, 2, 1}), 2);
  params.logit_bias = {{1, std::numeric_limits<float>::max()}};
  EXPECT_EQ(first_token(params, {3, std::numeric_limits<float>::max()}), 1) << "saturates, does not overflow";
  EXPECT_EQ(first_token(params, {3, -kInf}), 0) << "a masked id stays masked";
}

// ---- padding rows, numeric trouble, arg-max ----

TEST(Sampler, PaddingRowsAreNeverChosen) {  // A15
  for (const Settings& settings : {Settings{}, Settings{.top_k = 2}, Settings{.top_p = 0.9F}, Settings{.min_p = 0.1F},
                                   Settings{.temperature = 0}}) {
    const Ids prompt{9, -1, 1'000'000};  // an id of a padding row is a legal part of a prompt
    SamplingParams params = with(settings);
    params.repetition_penalty = 1.1F;
    Sampler sampler(params, 4, prompt);
    for (int i = 0; i < 100; ++i) {
      Floats logits{1, 2, 3, 2, 50, 60, kInf, kNaN};
      EXPECT_LT(sampler.sample(logits), 4);
    }
  }
}

TEST(Sampler, MaskedTokensAreNeverChosen) {
  for (const Settings& settings : {Settings{}, Settings{.top_k = 3}, Settings{.top_p = 0.99F},
                                   Settings{.min_p = 1e-30F}, Settings{.temperature = 100}}) {
    std::set<TokenId> seen;
    for (const TokenId id : tokens(with(settings), {-kInf, 1, -kInf, 1, -kInf}, 200)) seen.insert(id);
    EXPECT_EQ(seen, (std::set<TokenId>{1, 3}));
  }
}

TEST(Sampler, RefusesWhatIsNotANumber) {
  const auto attempt = [](const Settings& settings, const Floats& logits) {
    return test::message_of([&] { first_token(with(settings), logits); }, ErrorCode::kNumeric);
  };
  const float minus_nan = -kNaN;
  for (const Settings& settings : {Settings{}, Settings{.temperature = 0}, Settings{.top_k = 5, .top_p = 0.5F}}) {
    Floats logits(40, 1.0F);
    logits[17] = kNaN;
    EXPECT_EQ(attempt(settings, logits), "logits: expected finite numbers or -infinity, found NaN for token 17");
    logits[17] = minus_nan;
    EXPECT_NE(attempt(settings, logits).find("NaN for token 17"), std::string::npos);
    logits[17] = 1;
    logits[39] = kInf;
    EXPECT_EQ(attempt(settings, logits), "logits: expected finite numbers or -infinity, found infinity for token 39");
    EXPECT_EQ(attempt(settings, {-kInf, -kInf, -kInf}),
              "logits: expected at least one finite number, found -infinity for all 3 tokens");
  }
}

TEST(Sampler, ArgMaxTakesTheLowestIdOfEqualOnes) {
  SamplingParams params;
  params.greedy = true;
  EXPECT_EQ(first_token(params, {1, 5, 5, 2}), 1);
  EXPECT_EQ(first_token(params, {-1, -0.0F, 0.0F, -2}), 1) << "-0 equals +0";
  EXPECT_EQ(first_token(params, {-kInf, -3e38F}), 1);
  for (std::size_t size = 1; size < 70; ++size) {
    Floats logits(size, -5.0F);
    logits[size - 1] = -4;
    EXPECT_EQ(first_token(params, logits), static_cast<TokenId>(size - 1));
  }
}

TEST(Sampler, KnowsWhenItIsPlainArgMax) {
  const auto plain = [](const SamplingParams& params) { return Sampler(params, 10, {}).is_plain_argmax(); };
  SamplingParams params;
  EXPECT_FALSE(plain(params));
  params.greedy = true;
  EXPECT_TRUE(plain(params));
  params.logit_bias = {{3, 1.0F}};
  EXPECT_FALSE(plain(params));
  params.logit_bias.clear();
  for (float SamplingParams::*penalty :
       {&SamplingParams::repetition_penalty, &SamplingParams::presence_penalty, &SamplingParams::frequency_penalty}) {
    SamplingParams changed = params;
    changed.*penalty = 0.5F;
    EXPECT_FALSE(plain(changed));
  }
  EXPECT_TRUE(plain(with({.temperature = 0})));
  EXPECT_TRUE(plain(with({.top_k = 1})));
  EXPECT_FALSE(plain(with({.top_k = 2, .top_p = 0.1F})));
}

// ---- the draw ----

/// 10,000 draws against the stated distribution. The critical value is the 0.999 quantile of chi-square for
/// the degrees of freedom (candidates - 1); seeds are fixed, so the outcome is too.
TEST(Sampler, DrawsFollowTheDistribution) {
  const Floats logits{2.0F, 1.5F, 1.0F, 0.5F, 0.0F, -0.25F, -0.5F, -0.75F, -1.0F, -1.25F};
  struct Case {
    Settings settings;
    std::size_t candidates;
    double critical;
  };
  for (const Case& c : {Case{{.seed = 11}, 10, 27.877}, Case{{.temperature = 2, .seed = 12}, 10, 27.877},
                        Case{{.top_k = 5, .seed = 13}, 5, 18.467}, Case{{.top_p = 0.8F, .seed = 14}, 4, 16.266},
                        Case{{.temperature = 1.5F, .min_p = 0.2F, .seed = 15}, 6, 20.515}}) {
    const auto expected = distribution(with(c.settings), logits);
    ASSERT_EQ(expected.size(), c.candidates);
    constexpr int kDraws = 10000;
    std::map<TokenId, int> one_request, many_requests;
    for (const TokenId id : tokens(with(c.settings), logits, kDraws)) ++one_request[id];
    for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
      Settings settings = c.settings;
      settings.seed = seed;
      ++many_requests[first_token(with(settings), logits)];
    }
    for (auto* counts : {&one_request, &many_requests}) {
      double statistic = 0;
      for (const auto& [id, probability] : expected) {
        const double want = probability * kDraws;
        statistic += ((*counts)[id] - want) * ((*counts)[id] - want) / want;
      }
      EXPECT_LT(statistic, c.critical);
      EXPECT_EQ(counts->size(), c.candidates) << "nothing else is drawn";
    }
  }
}

struct Shape {
  const char* name;
  std::function<float(std::mt19937_64&)> value;
};

const std::vector<Shape>& shapes() {
  using Random = std::mt19937_64;
  static const auto normal = [](Random& random) { return std::normal_distribution<float>(0, 1)(random); };
  static const std::vector<Shape> all{
      {"bell", [](Random& random) { return 2.5F * normal(random); }},
      {"wide", [](Random& random) { return 40 * normal(random); }},
      {"narrow", [](Random& random) { return 7 + 1e-4F * normal(random); }},
      {"flat", [](Random&) { return 1.25F; }},
      {"steps", [](Random& random) { return std::round(normal(random)); }},
      {"masked", [](Random& random) { return random() % 3 == 0 ? -kInf : 3 * normal(random); }},
      {"heavy tail",
       [](Random& random) { return std::pow(10.0F, 6 * normal(random)) * (random() % 2 == 0 ? 1.0F : -1.0F); }},
      {"peaked", [](Random& random) { return 2 * normal(random) + (random() % 100 == 0 ? 12.0F : 0.0F); }},
  };
  return all;
}

void expect_equal_to_sorting(const Shape& shape, std::int64_t vocab, Settings settings, int draws) {
  SCOPED_TRACE(std::string(shape.name) + " vocabulary " + std::to_string(vocab) + " T " +
               std::to_string(settings.temperature) + " k " + std::to_string(settings.top_k) + " p " +
               std::to_string(settings.top_p) + " min_p " + std::to_string(settings.min_p) + " seed " +
               std::to_string(settings.seed));
  std::mt19937_64 random(settings.seed);
  Floats logits(static_cast<std::size_t>(vocab));
  for (float& x : logits) x = shape.value(random);
  logits[random() % logits.size()] = 1;  // not all of them masked
  const auto expected = sorted_reference(with(settings), logits);
  const auto got = distribution(with(settings), logits);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(got[i].id, expected[i].id) << i;
    ASSERT_NEAR(got[i].probability, expected[i].probability, 1e-11) << i;
  }
  const Ids drawn = tokens(with(settings), logits, draws);
  for (int n = 0; n < draws; ++n) {
    ASSERT_EQ(drawn[static_cast<std::size_t>(n)],
              walk(expected, documented_uniform(settings.seed, static_cast<std::uint64_t>(n))));
  }
}

const std::vector<Settings>& truncations() {
  static const std::vector<Settings> all{
      {.temperature = 0.7F},
      {.temperature = 0.7F, .top_p = 0.9F},
      {.temperature = 0.7F, .top_k = 20, .top_p = 0.9F},
      {.temperature = 0.7F, .top_k = 40, .top_p = 0.9F},
      {.temperature = 3, .top_p = 0.95F},
      {.top_p = 0.01F},
      {.top_p = 0.9999F},
      {.top_k = 2},
      {.temperature = 1.5F, .top_k = 300, .min_p = 0.02F},
      {.top_k = 5000, .top_p = 0.99F},
      {.min_p = 0.05F},
      {.min_p = 1},
      {.temperature = 0.01F, .min_p = 1e-20F},
      {.temperature = 1.3F, .top_k = 50, .top_p = 0.9F, .min_p = 0.1F},
      {.temperature = 2, .top_p = 0.8F, .min_p = 0.3F},
  };
  return all;
}

TEST(Sampler, PartialSelectionEqualsSorting) {  // G08
  for (const Shape& shape : shapes()) {
    for (Settings settings : truncations()) {
      for (const std::int64_t vocab : {1, 2, 7, 63, 300, 1000, 9001}) {
        for (settings.seed = 1; settings.seed <= 3; ++settings.seed) {
          if (settings.top_k >= vocab) continue;
          expect_equal_to_sorting(shape, vocab, settings, 10);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(Sampler, PartialSelectionEqualsSortingAtQwensVocabulary) {  // G08
  for (const Shape& shape : shapes()) {
    for (Settings settings : truncations()) {
      settings.seed = 77;
      expect_equal_to_sorting(shape, kQwenVocab, settings, 2);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Sampler, TopKCutsOnceForValuesInAscendingOrder) {
  Floats logits(static_cast<std::size_t>(kQwenVocab));
  std::iota(logits.begin(), logits.end(), 0.0F);  // every value is the best so far: the buffer's worst order
  const auto got = distribution(with({.temperature = 1e4F, .top_k = 20}), logits);
  ASSERT_EQ(got.size(), 20u);
  EXPECT_EQ(got[0].id, kQwenVocab - 1);
  EXPECT_EQ(got[19].id, kQwenVocab - 20);
}

// ---- validation ----

TEST(Sampler, ValidatesRanges) {
  constexpr const char* kFine = "no error";
  const auto check = [](const std::function<void(SamplingParams&)>& change) -> std::string {
    SamplingParams params;
    change(params);
    try {
      validate(params, 100);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return kFine;
  };
  using P = SamplingParams;
  struct Row {
    float P::*member;
    float value;
    const char* message;
  };
  for (const Row& row : {
           Row{&P::temperature, -1, "temperature: expected a number >= 0, found -1"},
           Row{&P::temperature, kNaN, "temperature: expected a number >= 0, found nan"},
           Row{&P::temperature, kInf, "temperature: expected a number >= 0, found inf"},
           Row{&P::temperature, 0, kFine},
           Row{&P::temperature, 999999, kFine},
           Row{&P::top_p, -1, "top_p: expected a number > 0 and <= 1, found -1"},
           Row{&P::top_p, 0, "top_p: expected a number > 0 and <= 1, found 0"},
           Row{&P::top_p, 2, "top_p: expected a number > 0 and <= 1, found 2"},
           Row{&P::top_p, kNaN, "top_p: expected a number > 0 and <= 1, found nan"},
           Row{&P::top_p, 1, kFine},
           Row{&P::min_p, 2, "min_p: expected a number from 0 to 1, found 2"},
           Row{&P::min_p, -0.1F, "min_p: expected a number from 0 to 1, found -0.1"},
           Row{&P::min_p, kNaN, "min_p: expected a number from 0 to 1, found nan"},
           Row{&P::min_p, 1, kFine},
           Row{&P::repetition_penalty, 0, "repetition_penalty: expected a number > 0, found 0"},
           Row{&P::repetition_penalty, -1.5F, "repetition_penalty: expected a number > 0, found -1.5"},
           Row{&P::repetition_penalty, kInf, "repetition_penalty: expected a number > 0, found inf"},
           Row{&P::repetition_penalty, kNaN, "repetition_penalty: expected a number > 0, found nan"},
           Row{&P::presence_penalty, 2.5F, "presence_penalty: expected a number from -2 to 2, found 2.5"},
           Row{&P::presence_penalty, kNaN, "presence_penalty: expected a number from -2 to 2, found nan"},
           Row{&P::presence_penalty, -2, kFine},
           Row{&P::frequency_penalty, -3, "frequency_penalty: expected a number from -2 to 2, found -3"},
           Row{&P::frequency_penalty, 2, kFine},
       }) {
    EXPECT_EQ(check([&](P& params) { params.*row.member = row.value; }), row.message);
  }
  const auto bias = [&](std::vector<std::pair<TokenId, float>> entries) {
    return check([&](P& params) { params.logit_bias = std::move(entries); });
  };
  EXPECT_EQ(bias({{0, 100.0F}, {99, -100.0F}}), kFine);
  EXPECT_EQ(bias({{100, 1.0F}}), "logit_bias: expected token ids from 0 to 99, found 100");
  EXPECT_EQ(bias({{-1, 1.0F}}), "logit_bias: expected token ids from 0 to 99, found -1");
  EXPECT_EQ(bias({{5, kInf}}), "logit_bias: expected finite numbers, found inf");
  EXPECT_EQ(bias({{5, kNaN}}), "logit_bias: expected finite numbers, found nan");
  EXPECT_EQ(bias(std::vector<std::pair<TokenId, float>>(1'000'000, {5, 1.0F})),
            "logit_bias: expected at most 65536 entries, found 1000000");
  for (const std::int64_t k : {-5LL, 0LL, 1LL, 1LL << 40}) {
    EXPECT_EQ(check([&](P& params) { params.top_k = k; }), kFine);
  }
}

TEST(Sampler, ConstructorValidates) {
  EXPECT_EQ(test::message_of([] { Sampler(with({.temperature = -1}), 10, {}); }, ErrorCode::kInvalidArgument),
            "temperature: expected a number >= 0, found -1");
  EXPECT_EQ(test::message_of([] { Sampler(with({}), 0, {}); }, ErrorCode::kInvalidArgument),
            "usable_vocab: expected a number from 1 to 2^31, found 0");
  Floats too_short{1, 2};
  Sampler sampler(with({}), 3, {});
  EXPECT_NE(test::message_of([&] { sampler.sample(too_short); }, ErrorCode::kInternal), "no error");
}

}  // namespace
}  // namespace vitrine
