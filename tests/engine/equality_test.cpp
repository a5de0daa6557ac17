// SPDX-License-Identifier: Apache-2.0
// The promise of docs/numerics.md at the level of requests: the same bits whatever the company, the chunks, the cache's
// memory, the guesses, the threads. What is compared are log-probabilities, which hang on every logit, bit for bit.
#include <gtest/gtest.h>
#include <vitrine/engine.h>

#include <bit>
#include <functional>
#include <random>

#include "support/model_runner.h"
#include "support/test_files.h"

namespace vitrine::test {
namespace {

/// A model on a kernel table.
struct Case {
  std::string model;  // of tests/data/models; "demo"
  std::string isa;
};

struct Form {
  WeightType weights = WeightType::kBF16;
  KvType kv = KvType::kBF16;
};

/// The sanitizers look for other faults, and take ten times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

constexpr Form kForms[] = {{WeightType::kBF16, KvType::kBF16}, {WeightType::kInt8, KvType::kBF16},
                           {WeightType::kInt4, KvType::kBF16}, {WeightType::kBF16, KvType::kInt8},
                           {WeightType::kInt8, KvType::kInt8}, {WeightType::kInt4, KvType::kInt8}};

void expect_same(const std::vector<PositionLogprobs>& a, const std::vector<PositionLogprobs>& b) {
  ASSERT_EQ(a.size(), b.size());
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].token.id, b[i].token.id) << "at " << i;
    ASSERT_EQ(bits(a[i].token.logprob), bits(b[i].token.logprob)) << "at " << i;
    ASSERT_EQ(a[i].top.size(), b[i].top.size());
    for (std::size_t t = 0; t < a[i].top.size(); ++t) {
      ASSERT_EQ(a[i].top[t].id, b[i].top[t].id) << "at " << i;
      ASSERT_EQ(bits(a[i].top[t].logprob), bits(b[i].top[t].logprob)) << "at " << i;
    }
  }
}

void expect_same(const Generation& a, const Generation& b) {
  ASSERT_EQ(a.error, "");
  ASSERT_EQ(b.error, "");
  ASSERT_EQ(a.output_ids, b.output_ids);
  ASSERT_EQ(a.finish_reason, b.finish_reason);
  ASSERT_EQ(a.text, b.text);
  expect_same(a.logprobs, b.logprobs);
  if (!a.prompt_logprobs.empty() && !b.prompt_logprobs.empty()) expect_same(a.prompt_logprobs, b.prompt_logprobs);
}

/// Submits all at once and runs them to their ends.
std::vector<Generation> together(Engine& engine, const std::vector<Request>& requests) {
  std::vector<Generation> results(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Request request = requests[i];
    request.on_event = [&results, i](const Event& event) {
      if (event.finished) results[i] = *event.finished;
    };
    engine.submit(std::move(request));
  }
  while (engine.step()) {
  }
  EXPECT_EQ(engine.stats().kv_blocks_live, 0);
  return results;
}

class SameBits : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const bool chosen = GetParam().model == "qwen3-tiny" || GetParam().model == "qwen3-sliding";
    if (kSanitized && !(chosen && GetParam().isa == runnable_isas().back())) {
      GTEST_SKIP() << "under a sanitizer two models on the best table are enough; the plain run has all";
    }
  }

  Engine load(const Form& form, EngineOptions options = {}) const {
    options.weights = form.weights;
    options.kv = form.kv;
    options.isa = GetParam().isa;
    if (options.threads == 0) options.threads = 1;
    const bool demo = GetParam().model == "demo";
    return Engine::load((demo ? demo_model() : data_path("models/" + GetParam().model)).string(), options);
  }

  /// The scalar table takes hundredths of a second for a token of the demo model.
  bool slow() const { return GetParam().model == "demo" && is_scalar(); }
  bool is_scalar() const { return GetParam().isa == "generic"; }

  std::vector<TokenId> ids(std::int64_t count, unsigned seed) const {
    std::mt19937 random(seed);
    std::vector<TokenId> result;
    for (std::int64_t i = 0; i < count; ++i) result.push_back(static_cast<TokenId>(random() % 250));
    return result;
  }

  /// Greedy or sampled, with everything that shows the bits; alone it neither guesses nor uses the cache.
  Request request(std::vector<TokenId> prompt, std::int64_t max_tokens, std::uint64_t seed = 0) const {
    Request r;
    r.prompt_ids = std::move(prompt);
    r.sampling = seed == 0 ? SamplingParams{.greedy = true} : SamplingParams{.temperature = 0.8f, .seed = seed};
    r.max_tokens = max_tokens;
    r.ignore_eos = true;
    r.logprobs = 4;
    return r;
  }
  Request cold(Request r) const {
    r.prefix_cache = r.speculation = false;
    return r;
  }

  /// All forms on the fast tables; on the scalar one as many as show each type of weights and of cache.
  void for_each_form(const std::function<void(const Form&)>& check) const {
    for (const Form& form : kForms) {
      const bool mixed = (form.weights == WeightType::kBF16) != (form.kv == KvType::kBF16);
      if (is_scalar() && mixed) continue;
      SCOPED_TRACE(std::string(to_string(form.weights)) + " weights, " + to_string(form.kv) + " cache");
      check(form);
      if (HasFatalFailure()) return;
    }
  }
};

TEST_P(SameBits, AloneAndInCompanyOfFifteenOnAnyThreads) {
  for_each_form([&](const Form& form) {
    Engine alone = load(form);
    std::vector<Request> requests;
    std::vector<Generation> expected;
    for (unsigned i = 0; i < 16; ++i) {
      const std::int64_t length = slow() ? 1 + i % 5 : 1 + (i * 29) % 75;
      Request r = request(ids(length, i), slow() ? 2 : 5 + i % 4, i % 3);  // a third greedy
      if (i % 5 == 0) r.prompt_logprobs = 2;
      requests.push_back(r);
      expected.push_back(alone.generate(cold(r)));
    }
    for (const int threads : {1, 2, 3}) {
      Engine engine = load(form, {.threads = threads, .cache_tokens = 4096, .step_tokens = threads == 2 ? 1024 : 48});
      const auto results = together(engine, requests);
      if (threads == 2) {
        EXPECT_EQ(engine.stats().max_batch, 16) << "all of them at once";
      }
      for (std::size_t i = 0; i < results.size(); ++i) expect_same(results[i], expected[i]);
    }
  });
}

TEST_P(SameBits, InOnePrefillAndInChunksOfEverySize) {
  for_each_form([&](const Form& form) {
    Request r = request(ids(slow() ? 9 : 75, 3), 2);
    r.prompt_logprobs = 2;
    const Generation expected = load(form).generate(r);
    ASSERT_EQ(expected.prompt_logprobs.size(), r.prompt_ids.size() - 1);
    for (std::int64_t chunk = 1; chunk <= 40; ++chunk) {
      if (slow() && chunk > 9) break;
      SCOPED_TRACE("chunks of " + std::to_string(chunk));
      expect_same(load(form, {.step_tokens = chunk}).generate(r), expected);
      if (HasFatalFailure()) return;
    }
  });
}

TEST_P(SameBits, ColdAndFromThePrefixCache) {  // cases.md C09
  for_each_form([&](const Form& form) {
    const std::int64_t length = slow() ? 36 : 100;
    const auto common = ids(length, 1);
    const auto with = [&](std::int64_t kept, std::int64_t more, unsigned seed) {
      std::vector<TokenId> prompt(common.begin(), common.begin() + kept);
      const auto tail = ids(more, seed);
      prompt.insert(prompt.end(), tail.begin(), tail.end());
      return request(prompt, slow() ? 2 : 6, seed % 2);
    };
    // The same again, a longer and a shorter end, cut within a block and at its end, the beginning alone, other company.
    const Request requests[] = {with(length, 0, 2),  with(length, 0, 2),  with(length, 9, 3), with(length - 3, 2, 4),
                                with(33, 5, 5),      with(32, 4, 6),      with(32, 0, 7),     with(20, 3, 8),
                                with(0, length, 11), with(length, 0, 12), with(1, 0, 13)};
    Engine reference = load(form);
    std::vector<Generation> expected;
    for (const Request& r : requests) {
      if (slow() && expected.size() == 5) break;
      expected.push_back(reference.generate(cold(r)));
    }
    EXPECT_EQ(reference.stats().cached_tokens, 0);
    // A cache so small that each third prompt pushes another one's blocks out, and one that keeps everything.
    for (const std::int64_t tokens : {std::int64_t{160}, std::int64_t{4096}}) {
      Engine engine = load(form, {.cache_tokens = tokens});
      for (int round = 0; round < (slow() ? 1 : 2); ++round) {
        for (std::size_t i = 0; i < expected.size(); ++i) expect_same(engine.generate(requests[i]), expected[i]);
        if (HasFatalFailure()) return;
      }
      EXPECT_GT(engine.stats().cached_tokens, 0);
      engine.generate(requests[0]);
      EXPECT_EQ(engine.generate(requests[0]).cached_tokens, length - 1);
      engine.clear_prefix_cache();
      EXPECT_EQ(engine.stats().kv_blocks_cached, 0);
      EXPECT_EQ(engine.generate(requests[0]).cached_tokens, 0);
    }
  });
}

TEST_P(SameBits, WithAndWithoutGuesses) {
  std::int64_t accepted = 0;
  for_each_form([&](const Form& form) {
    std::vector<Request> requests;
    std::vector<Generation> expected;
    Engine alone = load(form);
    for (unsigned i = 0; i < 4; ++i) {
      auto prompt = ids(4, i);  // four tokens over and over, so that there is something to guess from
      while (std::ssize(prompt) < (slow() ? 12 : 40)) prompt.push_back(prompt[prompt.size() - 4]);
      requests.push_back(request(prompt, slow() ? 8 : 40, i < 2 ? 0 : i));
      expected.push_back(alone.generate(cold(requests.back())));
    }
    Engine engine = load(form, {.threads = 2});
    const auto results = together(engine, requests);
    for (std::size_t i = 0; i < results.size(); ++i) expect_same(results[i], expected[i]);
    accepted += engine.stats().speculation.accepted;
  });
  if (!slow()) {
    EXPECT_GT(accepted, 0);
  }
}

TEST_P(SameBits, AfterPreemption) {  // server.md 72
  for_each_form([&](const Form& form) {
    std::vector<Request> requests;
    std::vector<Generation> expected;
    Engine alone = load(form);
    for (unsigned i = 0; i < 6; ++i) {
      Request r = request(ids(slow() ? 3 : 30 + i, i), slow() ? 32 : 60, i % 2);
      if (i == 5) r.prompt_logprobs = 1;
      requests.push_back(r);
      expected.push_back(alone.generate(cold(r)));
    }
    // Three begin, and do not fit any more when they have grown; guesses could let one end before.
    Engine engine = load(form, {.threads = 2, .cache_tokens = slow() ? 160 : 256, .speculation = false});
    const auto results = together(engine, requests);
    EXPECT_GT(engine.stats().preemptions, 0);
    for (std::size_t i = 0; i < results.size(); ++i) expect_same(results[i], expected[i]);
  });
}

TEST_P(SameBits, SamplesAndSeparateRuns) {
  for_each_form([&](const Form& form) {
    Engine engine = load(form, {.threads = 2});
    for (const std::int64_t length : {1, slow() ? 5 : 45, slow() ? 5 : 64}) {
      Request r = request(ids(length, 9), slow() ? 2 : 40, 100);
      r.n = 4;
      const auto samples = engine.generate_all(r);
      for (std::uint64_t i = 0; i < 4; ++i) {
        EXPECT_EQ(samples[i].seed, 100 + i);
        EXPECT_EQ(samples[i].sample, static_cast<int>(i));
        expect_same(samples[i], engine.generate(cold(request(r.prompt_ids, r.max_tokens, 100 + i))));
      }
    }
    EXPECT_EQ(engine.stats().kv_blocks_live, 0);
  });
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& isa : runnable_isas()) {
    for (const char* model : {"demo", "qwen3-tiny", "qwen3-bias", "qwen3-f16", "qwen3-f32", "qwen3-sliding",
                              "qwen3-untied-sharded", "qwen3-yarn"}) {
      all.push_back({model, isa});
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Models, SameBits, testing::ValuesIn(cases()), [](const auto& instance) {
  std::string name = instance.param.model + "_" + instance.param.isa;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace vitrine::test
