// SPDX-License-Identifier: Apache-2.0
// What a request may ask for and what the engine makes of many, on a scripted model, where every token is known.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "support/errors.h"
#include "support/scripted_model.h"

namespace vitrine::test {
namespace {

std::vector<TokenId> ids(std::int64_t count, int seed = 0) {
  std::vector<TokenId> result;
  for (std::int64_t i = 0; i < count; ++i)
    result.push_back(static_cast<TokenId>((i * 7 + seed * 13 + i * i % 11) % 60));
  return result;
}

void run(Engine& engine) {
  while (engine.step()) {
  }
}

/// Submits it and keeps what comes of it.
std::shared_ptr<std::optional<Generation>> submit(Engine& engine, Request request) {
  auto result = std::make_shared<std::optional<Generation>>();
  request.on_event = [result](const Event& event) {
    if (event.finished) *result = *event.finished;
  };
  engine.submit(std::move(request));
  return result;
}

/// With and without a state that can't be rolled back.
class Requests : public testing::TestWithParam<bool> {
 protected:
  Engine engine(EngineOptions options = {}, Script script = unguessable) const {
    return scripted_engine(std::move(script), {.engine = options, .has_state = GetParam()});
  }
};

/// Nine tokens of ten as they stood seven before: something to guess from, and wrong guesses too.
TokenId often_repeats(std::span<const TokenId> text) {
  const TokenId any = unguessable(text);
  return text.size() < 7 || any % 10 == 0 ? any : text[text.size() - 7];
}

TEST_P(Requests, APrefixIsComputedOnce) {
  Engine e = engine({.threads = 1});
  auto prompt = ids(1000);
  const auto first = submit(e, greedy(prompt, 4));
  run(e);
  EXPECT_EQ((*first)->cached_tokens, 0);
  EXPECT_EQ((*first)->output_ids, continuation(unguessable, prompt, 4));
  const std::int64_t rows = e.stats().rows;

  const auto again = submit(e, greedy(prompt, 4));
  run(e);
  EXPECT_EQ((*again)->output_ids, continuation(unguessable, prompt, 4));
  // A state is kept where a chunk ended at the end of a block; keys and values of any token can be used.
  EXPECT_EQ((*again)->cached_tokens, GetParam() ? 992 : 999);
  EXPECT_EQ(e.stats().rows - rows, 1000 - (*again)->cached_tokens + 3) << "only what is not shared is computed";

  prompt.resize(990);  // ends within a block that is there
  prompt.push_back(61);
  const auto other = submit(e, greedy(prompt, 4));
  run(e);
  EXPECT_EQ((*other)->output_ids, continuation(unguessable, prompt, 4));
  EXPECT_EQ((*other)->cached_tokens, GetParam() ? 768 : 990) << "the last state that was kept, or token for token";
}

TEST_P(Requests, ATurnGoesOnWhereTheLastOneEnded) {
  Engine e = engine({.threads = 1});
  auto text = ids(100);
  std::int64_t cached = 0;
  for (int turn = 0; turn < 5; ++turn) {
    const auto answer = e.generate(greedy(text, 20)).output_ids;
    EXPECT_EQ(answer, continuation(unguessable, text, 20));
    text.insert(text.end(), answer.begin(), answer.end());
    const auto question = ids(10, turn);
    text.insert(text.end(), question.begin(), question.end());
    const auto result = e.generate(greedy(text, 1));
    EXPECT_EQ(result.output_ids, continuation(unguessable, text, 1));
    EXPECT_GT(result.cached_tokens, cached);
    // All but the answer's last token, which nobody computed, and the question.
    EXPECT_EQ(result.cached_tokens, std::ssize(text) - 11) << "the end of an answer is kept, state and all";
    cached = result.cached_tokens;
  }
}

TEST_P(Requests, PreemptionChangesNoText) {  // server.md 72
  for (const bool repeats : {false, true}) {
    const Script script = repeats ? Script(often_repeats) : Script(unguessable);
    Engine e = engine({.threads = 1, .cache_tokens = 512, .step_tokens = 64}, script);
    std::vector<std::shared_ptr<std::optional<Generation>>> results;
    for (int i = 0; i < 8; ++i) results.push_back(submit(e, greedy(ids(60 + i, i), 150)));
    run(e);
    for (int i = 0; i < 8; ++i) {
      ASSERT_TRUE(*results[static_cast<std::size_t>(i)]);
      const Generation& result = **results[static_cast<std::size_t>(i)];
      EXPECT_EQ(result.error, "");
      EXPECT_EQ(result.output_ids, continuation(script, ids(60 + i, i), 150)) << i;
    }
    EXPECT_GT(e.stats().preemptions, 0);
    EXPECT_EQ((*results[0])->preemptions, 0) << "the first one never gives way";
    EXPECT_EQ(e.stats().kv_blocks_live, 0);
  }
}

TEST_P(Requests, GuessesSaveStepsAndChangeNoText) {
  // A file of 300 tokens in the prompt; the answer is the file with every fortieth token changed.
  const auto file = ids(300, 5);
  const Script edit = [](std::span<const TokenId> text) -> TokenId {
    const auto done = text.size() - 305;  // the file, and five tokens that ask for it
    if (done == 300) return kScriptedEos;
    return done % 40 == 39 ? static_cast<TokenId>(60 + done % 3) : text[done];
  };
  auto prompt = file;
  for (const TokenId id : {61, 62, 61, 62, 60}) prompt.push_back(id);
  for (const bool sampled : {false, true}) {
    Engine e = engine({.threads = 1}, edit);
    Request request = greedy(prompt, 400);
    if (sampled) request.sampling = {.temperature = 0.05f, .seed = 3};
    const Generation result = e.generate(request);
    EXPECT_EQ(result.output_ids, continuation(edit, prompt, 400));
    EXPECT_EQ(result.output_ids.size(), 301u);
    const Speculation& s = result.speculation;
    EXPECT_GT(s.accepted, 0);
    if (!GetParam()) {  // a wrong guess costs a state one more step
      EXPECT_EQ(s.steps + s.accepted, 301);
    }
    EXPECT_GE(301.0 / static_cast<double>(s.steps), 1.8) << s.steps << " steps";

    request.speculation = false;
    const Generation plain = e.generate(request);
    EXPECT_EQ(plain.output_ids, result.output_ids);
    EXPECT_EQ(plain.speculation.drafted, 0);
    EXPECT_EQ(plain.speculation.steps, 301);
  }
}

TEST_P(Requests, GuessesNeverPassTheLimit) {
  const Script loop = [](std::span<const TokenId> text) { return static_cast<TokenId>(text.size() % 3); };
  Engine e = engine({.threads = 1}, loop);
  for (std::int64_t limit = 1; limit < 40; ++limit) {
    const Generation result = e.generate(greedy(ids(5), limit));
    EXPECT_EQ(result.output_ids, continuation(loop, ids(5), limit));
    EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  }
}

TEST_P(Requests, SamplesShareTheirPrompt) {
  Engine e = engine({.threads = 1});
  Request request = greedy(ids(500), 40);
  request.n = 5;
  const auto samples = e.generate_all(request);
  ASSERT_EQ(samples.size(), 5u);
  for (const Generation& sample : samples) {
    EXPECT_EQ(sample.output_ids, continuation(unguessable, ids(500), 40));
    EXPECT_EQ(sample.prompt_ids, ids(500));
  }
  // The prompt once, of each other sample what could not be shared of it, and the outputs but the last.
  const std::int64_t own = GetParam() ? 500 - 480 : 1;
  EXPECT_EQ(e.stats().rows, 500 + 4 * own + 5 * 39);
  EXPECT_LE(e.stats().kv_blocks_peak, 15 + 5 * 3);
  EXPECT_EQ(e.stats().kv_blocks_live, 0);
}

TEST_P(Requests, AForkGoesOnFromWhatIsThere) {
  Engine e = engine({.threads = 1});
  Request base = greedy(ids(200), 100);
  std::vector<std::shared_ptr<std::optional<Generation>>> forks;
  std::shared_ptr<std::optional<Generation>> first = std::make_shared<std::optional<Generation>>();
  std::vector<TokenId> so_far = ids(200);
  RequestId id = 0;
  base.on_event = [&](const Event& event) {
    if (event.token) so_far.push_back(*event.token);
    if (event.finished) *first = *event.finished;
    if (event.finished || so_far.size() != 250) return;
    for (const std::int64_t position : {250, 249, 224, 100, 1}) {
      Request fork = greedy({7, 8}, 10);
      const auto result = forks.emplace_back(std::make_shared<std::optional<Generation>>());
      fork.on_event = [result](const Event& e2) {
        if (e2.finished) *result = *e2.finished;
      };
      e.fork(id, position, std::move(fork));
    }
    Request other = greedy({}, 1);
    message_of([&] { e.fork(id, 251, other); }, ErrorCode::kInvalidArgument);
    message_of([&] { e.fork(id, 0, other); }, ErrorCode::kInvalidArgument);
    message_of([&] { e.fork(id + 1000, 1, other); }, ErrorCode::kNotFound);
  };
  id = e.submit(std::move(base));
  run(e);
  EXPECT_EQ((*first)->output_ids, continuation(unguessable, ids(200), 100)) << "forks change nothing";
  const std::int64_t positions[] = {250, 249, 224, 100, 1};
  ASSERT_EQ(forks.size(), 5u);
  for (std::size_t i = 0; i < 5; ++i) {
    std::vector<TokenId> prompt(so_far.begin(), so_far.begin() + positions[i]);
    prompt.push_back(7);
    prompt.push_back(8);
    EXPECT_EQ((*forks[i])->prompt_ids, prompt);
    EXPECT_EQ((*forks[i])->output_ids, continuation(unguessable, prompt, 10));
  }
  EXPECT_EQ(e.stats().kv_blocks_live, 0);
  message_of([&] { e.fork(id, 1, greedy({1}, 1)); }, ErrorCode::kNotFound);
}

TEST_P(Requests, SaltsAndSwitchesKeepCachesApart) {  // server.md 74
  Engine e = engine({.threads = 1});
  Request request = greedy(ids(100), 2);
  const auto cached = [&](const std::string& salt, bool use) {
    request.cache_salt = salt;
    request.prefix_cache = use;
    return e.generate(request).cached_tokens;
  };
  EXPECT_EQ(cached("", true), 0);
  EXPECT_GT(cached("", true), 0);
  EXPECT_EQ(cached("anna", true), 0);
  EXPECT_EQ(cached("anna", false), 0);
  EXPECT_GT(cached("anna", true), 0);
  EXPECT_EQ(cached("berta", false), 0);
  EXPECT_EQ(cached("berta", true), 0) << "what did not use the cache left nothing there";

  Engine none = engine({.threads = 1, .prefix_cache_bytes = 0});
  EXPECT_EQ(none.generate(request).cached_tokens, 0);
  EXPECT_EQ(none.generate(request).cached_tokens, 0);
  EXPECT_EQ(none.stats().kv_blocks_cached, 0);
}

TEST_P(Requests, WhatIsKeptStaysBelowItsBudget) {  // cases.md F20
  const std::int64_t block_bytes = engine().info().kv_bytes_per_token * 32;
  Engine e = engine({.threads = 1, .prefix_cache_bytes = 20 * block_bytes});
  for (int i = 0; i < 100; ++i) {
    Request request = greedy(ids(200, i), 2);
    EXPECT_EQ(e.generate(request).output_ids, continuation(unguessable, ids(200, i), 2));
    EXPECT_LE(e.stats().kv_blocks_cached, 20);
  }
  EXPECT_GE(e.stats().kv_blocks_cached, GetParam() ? 8 : 18);
  EXPECT_EQ(e.generate(greedy(ids(2000), 2)).output_ids, continuation(unguessable, ids(2000), 2));
  EXPECT_LE(e.stats().kv_blocks_cached, 20) << "a prompt beyond the budget";
  e.clear_prefix_cache();
  EXPECT_EQ(e.stats().kv_blocks_cached, 0);
  EXPECT_LE(e.stats().kv_blocks_peak, 2002 / 32 + 1);
}

TEST_P(Requests, CancelledAnywhereLeavesNothing) {  // server.md 69
  Engine e = engine({.threads = 1, .max_sequences = 2, .step_tokens = 16}, often_repeats);
  for (int steps = 0; steps < 12; ++steps) {  // queued, in its prompt, while it decodes and guesses
    std::vector<std::shared_ptr<std::optional<Generation>>> results;
    std::vector<RequestId> requests;
    for (int i = 0; i < 4; ++i) {
      Request request = greedy(ids(60, i), 100);
      request.n = i == 3 ? 3 : 1;
      const auto result = results.emplace_back(std::make_shared<std::optional<Generation>>());
      request.on_event = [result](const Event& event) {
        if (event.finished) *result = *event.finished;
      };
      requests.push_back(e.submit(std::move(request)));
    }
    for (int s = 0; s < steps; ++s) e.step();
    for (const RequestId id : requests) e.cancel(id);
    e.step();  // at the latest
    for (const auto& result : results) {
      ASSERT_TRUE(*result);
      EXPECT_EQ((*result)->finish_reason, FinishReason::kCancelled);
    }
    EXPECT_EQ(e.stats().kv_blocks_live, 0);
    EXPECT_EQ(e.stats().running + e.stats().waiting, 0);
  }
}

TEST_P(Requests, CancellingAQueuedOneTouchesNobody) {  // server.md 70
  Engine e = engine({.threads = 1, .max_sequences = 1});
  const auto running = submit(e, greedy(ids(40), 30));
  e.step();
  Request queued = greedy(ids(40), 30);  // the same prompt, whose blocks the other one holds
  std::optional<FinishReason> reason;
  queued.on_event = [&](const Event& event) { reason = event.finished->finish_reason; };
  const RequestId id = e.submit(std::move(queued));
  e.step();
  EXPECT_EQ(e.stats().waiting, 1);
  e.cancel(id);
  e.step();
  EXPECT_EQ(reason, FinishReason::kCancelled);
  run(e);
  EXPECT_EQ((*running)->output_ids, continuation(unguessable, ids(40), 30));
}

TEST_P(Requests, AFailedStepEndsItsRequestsAlone) {
  bool fail = false;
  Engine e = scripted_engine(
      unguessable,
      {.engine = {.threads = 1, .max_sequences = 1}, .has_state = GetParam(), .on_forward = [&](std::int64_t) {
         if (fail) throw std::runtime_error("no luck");
       }});
  const auto first = submit(e, greedy(ids(10), 5));
  const auto second = submit(e, greedy(ids(20), 5));
  e.step();
  fail = true;
  e.step();
  fail = false;
  run(e);
  EXPECT_EQ((*first)->finish_reason, FinishReason::kError);
  EXPECT_EQ((*first)->error, "the step failed: no luck");
  EXPECT_EQ((*second)->output_ids, continuation(unguessable, ids(20), 5));
  EXPECT_EQ(e.stats().kv_blocks_live, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, Requests, testing::Bool(),
                         [](const auto& instance) { return instance.param ? "State" : "KeysAndValues"; });

TEST(Scheduling, ALongPromptStarvesNobody) {  // cases.md F18
  Engine e = scripted_engine(unguessable, {.engine = {.threads = 1, .step_tokens = 64}, .context = 10000});
  bool long_done = false;
  Request slow = greedy(ids(8000), 1);
  slow.on_event = [&](const Event& event) { long_done |= event.finished != nullptr; };
  e.submit(std::move(slow));
  for (int i = 0; i < 10; ++i) e.step();
  int steps = 0;
  int first_token = 0;
  bool done = false;
  Request quick = greedy(ids(20, 3), 5);
  quick.on_event = [&](const Event& event) {
    if (first_token == 0) first_token = steps;
    done = event.finished != nullptr;
  };
  e.submit(std::move(quick));
  for (; !done; ++steps) ASSERT_TRUE(e.step());
  EXPECT_LE(first_token, 1) << "within two chunks";
  EXPECT_FALSE(long_done);
  run(e);
  EXPECT_TRUE(long_done);
}

TEST(Scheduling, PriorityGoesBeforeOrder) {
  Engine e = scripted_engine(unguessable, {.engine = {.threads = 1, .max_sequences = 1}});
  std::vector<std::pair<int, int>> order;  // priority, place in the queue
  int place = 0;
  for (const int priority : {0, 5, -1, 5}) {
    Request request = greedy(ids(10, place), 2);
    request.priority = priority;
    request.on_event = [&order, priority, mine = place++](const Event& event) {
      if (event.finished) order.emplace_back(priority, mine);
    };
    e.submit(std::move(request));
  }
  run(e);
  EXPECT_EQ(order, (std::vector<std::pair<int, int>>{{5, 1}, {5, 3}, {0, 0}, {-1, 2}}));
}

TEST(Scheduling, AnAlreadyPassedDeadlineEnds) {
  Engine e = scripted_engine(unguessable, {.engine = {.threads = 1}});
  Request request = greedy(ids(10), 1000);
  request.deadline_s = 0;
  const auto late = submit(e, request);
  request.deadline_s = 1e9;
  request.max_tokens = 3;
  const auto patient = submit(e, request);
  run(e);
  EXPECT_EQ((*late)->finish_reason, FinishReason::kDeadline);
  EXPECT_TRUE((*late)->output_ids.empty());
  EXPECT_EQ((*patient)->finish_reason, FinishReason::kLength);
  request.deadline_s = -1;
  message_of([&] { e.submit(request); }, ErrorCode::kInvalidArgument);
  request.deadline_s = NAN;
  message_of([&] { e.submit(request); }, ErrorCode::kInvalidArgument);
}

TEST(Scheduling, WhatCanNeverFitIsRefusedWithBothCounts) {
  Engine e = scripted_engine(unguessable, {.engine = {.threads = 1, .cache_tokens = 100}});
  EXPECT_EQ(e.info().cache_tokens, 128) << "whole blocks";
  const std::string message = message_of([&] { e.submit(greedy(ids(128), 1)); }, ErrorCode::kTooLarge);
  EXPECT_NE(message.find("128 tokens"), std::string::npos) << message;
  EXPECT_NE(message.find("room for 127"), std::string::npos) << message;
  const Generation full = e.generate(greedy(ids(100), -1));
  EXPECT_EQ(full.output_ids, continuation(unguessable, ids(100), 28)) << "to the end of the cache";
  EXPECT_EQ(full.finish_reason, FinishReason::kLength);
}

TEST(Scheduling, TheCacheIsAsLargeAsAsked) {  // cases.md F19
  const auto tokens = [](EngineOptions options, std::int64_t context) {
    return scripted_engine(unguessable, {.engine = options, .context = context}).info().cache_tokens;
  };
  EXPECT_EQ(tokens({.max_sequences = 1}, 40000), 40000);
  EXPECT_EQ(tokens({.max_sequences = 4}, 40000), 40000) << "one pool, however many share it";
  EXPECT_EQ(tokens({.cache_tokens = 8000}, 40000), 8000);
  EXPECT_EQ(tokens({}, 1000), 16384);
  const std::int64_t token_bytes = scripted_engine(unguessable).info().kv_bytes_per_token;
  EXPECT_EQ(tokens({.cache_bytes = 1000 * token_bytes}, 40000), 992) << "whole blocks, not above what was asked";
  message_of([&] { tokens({.cache_bytes = 1}, 100); }, ErrorCode::kInvalidArgument);
  message_of([&] { tokens({.cache_tokens = 64, .cache_bytes = 1 << 20}, 100); }, ErrorCode::kInvalidArgument);
  message_of([&] { tokens({.prefix_cache_bytes = -1}, 100); }, ErrorCode::kInvalidArgument);
}

TEST(Logprobs, OfTheModelAndOfWhatTheSamplerDrawsFrom) {
  Engine e = scripted_engine(unguessable);
  Request request = greedy(ids(10), 3);
  request.logprobs = 2;
  request.prompt_logprobs = 0;
  const Generation raw = e.generate(request);
  ASSERT_EQ(raw.logprobs.size(), 3u);
  const double sum = std::exp(8.0) + 63;  // one logit of 8, the others 0
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(raw.logprobs[i].token.id, raw.output_ids[i]);
    EXPECT_NEAR(raw.logprobs[i].token.logprob, 8 - std::log(sum), 1e-5);
    ASSERT_EQ(raw.logprobs[i].top.size(), 2u);
    EXPECT_EQ(raw.logprobs[i].top[0].id, raw.output_ids[i]);
    EXPECT_NEAR(raw.logprobs[i].top[1].logprob, -std::log(sum), 1e-5);
  }
  ASSERT_EQ(raw.prompt_logprobs.size(), 9u);
  for (std::size_t i = 0; i < 9; ++i) EXPECT_EQ(raw.prompt_logprobs[i].token.id, request.prompt_ids[i + 1]);
  EXPECT_TRUE(raw.prompt_logprobs[0].top.empty());

  request.sampling = {.temperature = 2, .top_k = 1, .seed = 1};
  request.processed_logprobs = true;
  const Generation processed = e.generate(request);
  EXPECT_EQ(processed.output_ids, raw.output_ids);
  EXPECT_EQ(processed.logprobs[0].token.logprob, 0) << "nothing else is left";
  EXPECT_EQ(processed.logprobs[0].top.size(), 1u);
}

TEST(Logprobs, EventsCarryThem) {
  Engine e = scripted_engine(unguessable);
  Request request = greedy(ids(10), 3);
  request.logprobs = 0;
  std::vector<float> seen;
  request.on_event = [&](const Event& event) {
    ASSERT_TRUE(event.logprobs);
    seen.push_back(event.logprobs->token.logprob);
  };
  const Generation result = e.generate(request);
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[2], result.logprobs[2].token.logprob);
}

TEST(Ends, StopIdsEndAndSayNothing) {
  Engine e = scripted_engine(unguessable);
  const auto expected = continuation(unguessable, ids(10), 20);
  Request request = greedy(ids(10), 20);
  request.stop_ids = {expected[4]};
  request.ignore_eos = true;
  const Generation result = e.generate(request);
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  const auto end = std::find(expected.begin(), expected.end(), expected[4]) + 1;
  EXPECT_EQ(result.output_ids, std::vector<TokenId>(expected.begin(), end));
  request.stop_ids = {64};
  message_of([&] { e.submit(request); }, ErrorCode::kInvalidArgument);
}

TEST(Timings, AreInOrder) {
  Engine e = scripted_engine(unguessable);
  const Generation result = e.generate(greedy(ids(10), 5));
  const Timings& t = result.timings;
  ASSERT_EQ(t.tokens_s.size(), 5u);
  EXPECT_GE(t.started_s, 0);
  EXPECT_GE(t.tokens_s[0], static_cast<float>(t.started_s));
  EXPECT_TRUE(std::is_sorted(t.tokens_s.begin(), t.tokens_s.end()));
  EXPECT_GE(static_cast<float>(t.finished_s), t.tokens_s[4]);
}

}  // namespace
}  // namespace vitrine::test
