// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "support/fake_store.h"

namespace vitrine {
namespace {

using test::FakeStore;
/// Rows of each request in a step.
using Rows = std::map<RequestId, std::int64_t>;

struct Watcher final : Probe {
  bool wants(ProbePoint, int) const noexcept override { return false; }
  void record(ProbePoint, int, ProbeMatrix) override {}
};

/// A scheduler whose sequences go on for ever with tokens of their own, until they are removed.
class Engine {
 public:
  struct Options {
    std::int64_t num_blocks = 64;
    std::int64_t step_tokens = 16;
    std::int64_t max_sequences = 8;
    bool has_states = false;
  };

  explicit Engine(const Options& options)
      : cache_options{.num_blocks = options.num_blocks,
                      .max_idle_blocks = options.num_blocks,
                      .has_states = options.has_states,
                      .max_sequences = options.max_sequences,
                      .max_snapshots = options.has_states ? 4 : 0},
        store(options.num_blocks, CacheManager::num_state_slots(cache_options)),
        cache(store, cache_options),
        scheduler(cache, {.step_tokens = options.step_tokens, .max_sequences = options.max_sequences}) {}

  /// Its prompt is like no other's, unless the request has one.
  Sequence& add(std::int64_t num_prompt, Request request = {}) {
    const RequestId id = next_id_++;
    for (auto i = std::ssize(request.prompt_ids); i < num_prompt; ++i) {
      request.prompt_ids.push_back(static_cast<TokenId>(1000 * id + i));
    }
    request.sampling = {.greedy = true, .seed = 0};
    auto accepted = std::make_shared<AcceptedRequest>();
    accepted->id = id;
    accepted->request = std::move(request);
    auto sequence = std::make_unique<Sequence>(accepted, 0, Sampler(accepted->request.sampling, 8, {}));
    Sequence& result = *sequence;
    scheduler.add(std::move(sequence));
    return result;
  }

  Sequence& fork(const Sequence& source, std::int64_t position, Request request = {}) {
    request.prompt_ids.assign(source.tokens.begin(), source.tokens.begin() + position);
    Sequence& sequence = add(position + 5, std::move(request));
    sequence.fork_of = source.id();
    sequence.fork_position = position;
    return sequence;
  }

  const StepPlan& plan(std::int64_t prompt_rows = 1000) {
    scheduler.admit();
    return scheduler.plan(
        [prompt_rows](std::int64_t room, std::int64_t, std::int64_t) { return std::min(room, prompt_rows); });
  }

  /// A step; whoever has its last row in it gets a token. All guesses are wrong.
  Rows step(std::int64_t prompt_rows = 1000) {
    Rows rows;
    for (const StepPlan::Entry& entry : plan(prompt_rows).entries) {
      Sequence& sequence = *entry.sequence;
      rows[sequence.id()] = entry.num_rows;
      if (entry.samples) sequence.tokens.push_back(static_cast<TokenId>(-sequence.id()));
      cache.advance(sequence.lease, sequence.tokens, sequence.lease.computed + entry.num_rows - entry.num_guesses);
      sequence.guesses.clear();
    }
    return rows;
  }

  std::vector<RequestId> running() const {
    std::vector<RequestId> ids;
    for (const auto& sequence : scheduler.running()) ids.push_back(sequence->id());
    return ids;
  }

  CacheManager::Options cache_options;
  FakeStore store;
  CacheManager cache;
  Scheduler scheduler;

 private:
  RequestId next_id_ = 1;
};

using Ids = std::vector<RequestId>;

// ---- Who runs --------------------------------------------------------------------------------------------------------

TEST(Scheduler, ByPriorityThenFirstComeFirstServed) {
  Engine engine({.max_sequences = 2});
  for (const int priority : {0, 1, 0, 1, -1}) engine.add(2, {.priority = priority});
  Ids order;
  for (int i = 0; i < 5; ++i) {
    engine.step();
    order.push_back(engine.scheduler.running().front()->id());
    engine.scheduler.remove(engine.scheduler.running().front().get(), /*keep=*/false);
  }
  EXPECT_EQ(order, (Ids{2, 4, 1, 3, 5}));
  EXPECT_TRUE(engine.scheduler.idle());
}

TEST(Scheduler, NoMoreRunThanMay) {
  Engine engine({.max_sequences = 2});
  for (int i = 0; i < 4; ++i) engine.add(2);
  engine.step();
  EXPECT_EQ(engine.running(), (Ids{1, 2}));
  EXPECT_EQ(engine.scheduler.num_waiting(), 2);
  EXPECT_THROW(Scheduler(engine.cache, {.step_tokens = 2, .max_sequences = 3}), Error) << "not a row for each";
}

TEST(Scheduler, AHigherPriorityDoesNotStopWhoRuns) {
  Engine engine({.max_sequences = 1});
  engine.add(2);
  engine.step();
  engine.add(2, {.priority = 5});
  EXPECT_EQ(engine.step(), (Rows{{1, 1}}));
}

TEST(Scheduler, BeginsOnlyWhereThereIsRoomToGoOn) {
  Engine engine({.num_blocks = 4, .step_tokens = 128});
  engine.add(33);
  engine.add(33);
  engine.step();
  EXPECT_EQ(engine.running(), (Ids{1})) << "two blocks are free, but the first needs one to grow";
  engine.scheduler.remove(engine.scheduler.find(1, 0), /*keep=*/true);
  engine.step();
  EXPECT_EQ(engine.running(), (Ids{2}));
}

TEST(Scheduler, ACopyOfAPartNeedsABlockToo) {
  for (const std::int64_t blocks : {3, 4}) {
    Engine engine({.num_blocks = blocks, .step_tokens = 64});
    Sequence& first = engine.add(32);
    engine.step();
    auto tokens = first.tokens;
    engine.scheduler.remove(&first, /*keep=*/true);
    engine.add(10);
    engine.step();
    tokens.resize(20);
    engine.add(25, {.prompt_ids = tokens});
    engine.scheduler.admit();
    EXPECT_EQ(engine.running(), blocks == 3 ? (Ids{2}) : (Ids{2, 3}));
  }
}

TEST(Scheduler, OneAloneAlwaysBegins) {
  Engine engine({.num_blocks = 2, .step_tokens = 64, .max_sequences = 4});
  engine.add(63);
  EXPECT_EQ(engine.step(), (Rows{{1, 63}}));
  EXPECT_EQ(engine.step(), (Rows{{1, 1}}));
}

TEST(Scheduler, NobodyOvertakesWhoWaitsForRoom) {
  Engine engine({.num_blocks = 6, .step_tokens = 128});
  engine.add(90);
  engine.step();
  engine.add(100);
  engine.add(1);
  engine.step();
  EXPECT_EQ(engine.running(), (Ids{1}));
}

TEST(Scheduler, WhatTheCacheHasIsNotComputedAgain) {
  Engine engine({.step_tokens = 128});
  Sequence& first = engine.add(100);
  engine.step();
  engine.step();
  const auto tokens = first.request().prompt_ids;
  Sequence& second = engine.add(100, {.prompt_ids = tokens});
  EXPECT_EQ(engine.step(), (Rows{{1, 1}, {2, 4}}));
  EXPECT_EQ(second.result.cached_tokens, 96);
  Sequence& looks = engine.add(100, {.prompt_ids = tokens, .prompt_logprobs = 0});
  EXPECT_EQ(engine.step().at(3), 100);
  EXPECT_EQ(looks.result.cached_tokens, 0) << "each row is to be looked at";
}

// ---- Which rows ------------------------------------------------------------------------------------------------------

TEST(Scheduler, WhoDecodesComesFirst) {
  Engine engine({.step_tokens = 8});
  engine.add(2);
  engine.add(3);
  engine.step();
  engine.add(100, {.priority = 1});
  EXPECT_EQ(engine.step(), (Rows{{1, 1}, {2, 1}, {3, 6}}));
  EXPECT_EQ(engine.step(/*prompt_rows=*/2), (Rows{{1, 1}, {2, 1}, {3, 2}})) << "at most so many beside";
}

TEST(Scheduler, APromptAloneHasTheWholeStep) {
  Engine engine({.step_tokens = 16});
  engine.add(40);
  EXPECT_EQ(engine.step(/*prompt_rows=*/2), (Rows{{1, 16}}));
  EXPECT_EQ(engine.step(), (Rows{{1, 16}}));
  EXPECT_EQ(engine.step(), (Rows{{1, 8}}));
}

TEST(Scheduler, TheFirstPromptGetsHalfTheShortestTheRest) {
  Engine engine({.step_tokens = 17});
  for (const int length : {100, 50, 5, 2}) engine.add(length);
  EXPECT_EQ(engine.step(), (Rows{{1, 9}, {2, 1}, {3, 5}, {4, 2}}));
}

TEST(Scheduler, WhatTheShortOnesLeaveIsTheFirsts) {
  Engine engine({.step_tokens = 16});
  engine.add(100);
  engine.add(2);
  EXPECT_EQ(engine.step(), (Rows{{1, 14}, {2, 2}}));
}

TEST(Scheduler, AShortFirstLeavesMoreToOthers) {
  Engine engine({.step_tokens = 16});
  engine.add(2);
  engine.add(100);
  EXPECT_EQ(engine.step(), (Rows{{1, 2}, {2, 14}}));
}

TEST(Scheduler, ALongPromptStarvesNoShortOne) {
  Engine engine({.step_tokens = 8});
  engine.add(1000);
  engine.step();
  Sequence& late = engine.add(20);
  int steps = 0;
  while (late.num_output() == 0) {
    engine.step();
    ++steps;
  }
  EXPECT_EQ(steps, 5) << "four rows of eight are its";
}

TEST(Scheduler, GuessesTakeTheRoomThatIsLeft) {
  Engine engine({.step_tokens = 8});
  Sequence& a = engine.add(2);
  Sequence& b = engine.add(2);
  engine.step();
  a.guesses = b.guesses = {1, 2, 3, 4, 5};
  const StepPlan& plan = engine.plan();
  ASSERT_EQ(plan.entries.size(), 2u);
  EXPECT_EQ(plan.entries[0].num_guesses, 5);
  EXPECT_EQ(plan.entries[1].num_guesses, 1);
  EXPECT_EQ(plan.entries[1].num_outputs, 2) << "what follows the token, and what follows the guess";
  EXPECT_EQ(plan.token_ids.size(), 8u);
  EXPECT_EQ(plan.output_rows.size(), 8u);
  engine.step();
  a.guesses = b.guesses = {1, 2, 3, 4, 5};
  engine.add(100);
  EXPECT_EQ(engine.step(), (Rows{{1, 4}, {2, 1}, {3, 3}})) << "half of it beside prompts";
}

TEST(Scheduler, AWatchedOneRunsAlone) {
  Watcher watcher;
  Engine engine({.step_tokens = 16});
  engine.add(3);
  engine.step();
  Sequence& watched = engine.add(20, {.probe = &watcher});
  EXPECT_EQ(engine.step(), (Rows{{2, 16}}));
  EXPECT_EQ(engine.step(), (Rows{{2, 4}}));
  EXPECT_EQ(engine.step(), (Rows{{2, 1}}));
  engine.scheduler.remove(&watched, /*keep=*/true);
  EXPECT_EQ(engine.step(), (Rows{{1, 1}}));
}

TEST(Scheduler, EachRowOfAPromptThatIsLookedAtIsAnOutput) {
  Engine engine({.step_tokens = 16});
  engine.add(20, {.prompt_logprobs = 0});
  EXPECT_EQ(engine.plan().output_rows.size(), 16u);
  EXPECT_FALSE(engine.plan().entries[0].samples);
}

TEST(Scheduler, WithStatesStepsEndWithBlocks) {
  Engine engine({.step_tokens = 40, .has_states = true});
  engine.add(100);
  for (const std::int64_t rows : {32, 32, 32, 4, 1}) EXPECT_EQ(engine.step(), (Rows{{1, rows}}));
  Engine whole({.step_tokens = 80, .has_states = true});
  whole.add(64);
  for (const std::int64_t rows : {32, 32, 1}) EXPECT_EQ(whole.step(), (Rows{{1, rows}})) << "before the last token too";
  Engine small({.step_tokens = 10, .has_states = true});
  small.add(65);
  for (const std::int64_t rows : {10, 10, 10, 2, 10, 10, 10, 2, 1}) EXPECT_EQ(small.step(), (Rows{{1, rows}}));
}

TEST(Scheduler, WithoutStatesStepsAreFull) {
  Engine engine({.step_tokens = 40});
  engine.add(100);
  for (const std::int64_t rows : {40, 40, 20, 1}) EXPECT_EQ(engine.step(), (Rows{{1, rows}}));
}

// ---- A full cache ----------------------------------------------------------------------------------------------------

TEST(Scheduler, TheLastInTheOrderMakesRoomAndBeginsAgainLater) {
  Engine engine({.num_blocks = 4, .step_tokens = 64});
  Sequence& a = engine.add(20);
  Sequence& b = engine.add(20);
  while (engine.scheduler.num_preemptions() == 0) engine.step();
  EXPECT_EQ(engine.running(), (Ids{1}));
  EXPECT_EQ(b.result.preemptions, 1);
  EXPECT_EQ(b.num_tokens(), 65) << "two blocks of each";
  engine.step();
  EXPECT_EQ(engine.running(), (Ids{1})) << "there is no room for it yet";
  engine.scheduler.remove(&a, /*keep=*/false);
  EXPECT_EQ(engine.step(), (Rows{{2, 33}})) << "its first block was still there";
  EXPECT_EQ(b.num_tokens(), 66);
}

TEST(Scheduler, TheFirstIsNeverStopped) {
  Engine engine({.num_blocks = 5, .step_tokens = 64});
  engine.add(10, {.priority = 1});
  for (int i = 0; i < 3; ++i) engine.add(10);
  for (int i = 0; i < 140; ++i) EXPECT_EQ(engine.step().count(1), 1u);
  EXPECT_EQ(engine.running(), (Ids{1}));
}

TEST(Scheduler, AWatchedOneThatMakesRoomLeavesNoStepEmpty) {
  Watcher watcher;
  Engine engine({.num_blocks = 4, .step_tokens = 64});
  engine.add(60);
  engine.step();
  engine.add(10, {.prefix_cache = false, .probe = &watcher});
  for (int i = 0; i < 70; ++i) EXPECT_EQ(engine.step().size(), 1u);
  EXPECT_EQ(engine.scheduler.num_preemptions(), 1);
}

// ---- Forks -----------------------------------------------------------------------------------------------------------

TEST(Scheduler, AForkWaitsForItsSourceAndBeginsWhereItIs) {
  Engine engine({.step_tokens = 16});
  Sequence& source = engine.add(40);
  Sequence& fork = engine.fork(source, 30);
  engine.add(1);
  EXPECT_EQ(engine.step(), (Rows{{1, 15}, {3, 1}})) << "others may go by";
  EXPECT_EQ(engine.step(), (Rows{{1, 15}, {3, 1}}));
  engine.scheduler.admit();
  EXPECT_EQ(engine.running(), (Ids{1, 2, 3}));
  EXPECT_EQ(fork.lease.computed, 30);
  EXPECT_EQ(fork.lease.blocks, source.lease.blocks);
  EXPECT_EQ(engine.step(), (Rows{{1, 10}, {2, 5}, {3, 1}}));
  EXPECT_EQ(engine.store.num_copies, 1);
}

TEST(Scheduler, AForkWhoseSourceIsGoneFindsWhatItLeft) {
  Engine engine({.step_tokens = 64});
  Sequence& source = engine.add(40);
  Sequence& fork = engine.fork(source, 36);
  engine.step();
  engine.scheduler.remove(&source, /*keep=*/true);
  engine.step();
  EXPECT_EQ(fork.result.cached_tokens, 36);
  EXPECT_EQ(fork.num_output(), 1);
}

TEST(Scheduler, AForkOfNothingYetIsNoCopy) {
  Engine engine({.step_tokens = 16, .max_sequences = 1, .has_states = true});
  engine.add(40);
  engine.step();
  Sequence& source = engine.add(40);
  Sequence& fork = engine.fork(source, 0, {.priority = 1});
  engine.scheduler.remove(engine.scheduler.find(1, 0), /*keep=*/false);
  EXPECT_EQ(engine.step(), (Rows{{fork.id(), 5}})) << "before its source, which has no state yet";
}

TEST(Scheduler, AForkThatIsLookedAtBeginsWithNothing) {
  Watcher watcher;
  Engine engine({.step_tokens = 64});
  Sequence& source = engine.add(40);
  engine.step();
  engine.fork(source, 40, {.prompt_logprobs = 0});
  EXPECT_EQ(engine.step(), (Rows{{1, 1}, {2, 45}}));
  engine.fork(source, 40, {.prefix_cache = false, .probe = &watcher});
  EXPECT_EQ(engine.step(), (Rows{{3, 45}}));
}

TEST(Scheduler, AForkThatMadeRoomGoesOnWhereItWas) {
  Engine engine({.num_blocks = 8, .step_tokens = 64});
  Sequence& source = engine.add(10);
  engine.step();
  Sequence& fork = engine.fork(source, 10);
  engine.add(1, {.priority = 1});
  while (engine.scheduler.num_preemptions() == 0) engine.step();
  EXPECT_EQ(fork.result.preemptions, 1);
  engine.scheduler.remove(engine.scheduler.find(3, 0), /*keep=*/false);
  engine.scheduler.admit();
  EXPECT_EQ(fork.lease.computed, 64) << "not where it began";
}

}  // namespace
}  // namespace vitrine
