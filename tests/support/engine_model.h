// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/request.h>

#include <cstdint>
#include <ostream>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/scheduler.h"
#include "support/fake_store.h"

namespace vitrine::test {

/// Small numbers one after another, from a seed.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}
  /// 0 to sides - 1.
  std::int64_t operator()(std::int64_t sides) noexcept {
    state_ += 0x9E3779B97F4A7C15u;
    return static_cast<std::int64_t>(mixed(state_) % static_cast<std::uint64_t>(sides));
  }

 private:
  std::uint64_t state_;
};

/// What the engine does with scheduler, cache manager and prefix index, with numbers in place of a model: each token
/// follows from what the cache has of the text before it. Throws std::runtime_error as soon as something is not as it
/// must be: rows, tables, contents, states, books, results, progress.
class EngineModel {
 public:
  struct Setup {
    std::int64_t num_blocks = 8;
    std::int64_t max_idle_blocks = 8;
    bool has_states = false;
    std::int64_t max_snapshots = 0;
    std::int64_t step_tokens = 16;
    std::int64_t max_sequences = 4;

    friend std::ostream& operator<<(std::ostream& out, const Setup& setup) {
      return out << setup.num_blocks << " blocks, " << setup.max_idle_blocks << " idle, " << setup.max_snapshots
                 << " snapshots, " << setup.step_tokens << " rows, " << setup.max_sequences << " sequences";
    }
  };
  struct Finished {
    RequestId id = 0;
    int sample = 0;
    std::vector<TokenId> tokens;  // prompt and output
    Generation result;
  };

  explicit EngineModel(const Setup& setup);

  /// As Engine::Impl::enqueue(); 0, and nothing done, where the prompt is too long.
  RequestId submit(Request request, RequestId fork_of = 0, std::int64_t fork_position = 0);
  /// As Engine::Impl::fork(), from anywhere: `position` is brought into its range.
  RequestId fork(RequestId id, std::int64_t position, Request request);
  /// Ends it now. With `error` as after a step that failed: nothing of it is kept.
  void cancel(RequestId id, bool error = false);
  void clear_idle();
  /// One step; false where nothing was left to do.
  bool step(Dice& dice);
  /// Steps until all have ended, within the bound of steps_left().
  void drain(Dice& dice);
  /// Nothing may be held when all have ended, nothing kept when that is forgotten.
  void check_empty();

  std::vector<RequestId> alive();
  std::span<const Finished> finished() const noexcept { return finished_; }

  CacheManager& cache() noexcept { return cache_; }
  Scheduler& scheduler() noexcept { return scheduler_; }
  FakeStore& store() noexcept { return store_; }
  const StepPlan& last_plan() const noexcept { return *plan_; }

  /// What the request gives with nothing in the way.
  std::vector<TokenId> alone(const Sequence& sequence) const;

  static constexpr TokenId kEnd = 9;

 private:
  struct Known {
    TextHash seed = 0;  // of the texts that may share what is cached
    std::vector<TextHash> texts;
  };
  struct Outcome {
    std::int64_t accepted = 0;
    bool open = true;
    bool ends = false;
  };

  void draft(Dice& dice);
  void check_plan(const StepPlan& plan);
  void check_entry(const StepPlan& plan, std::size_t index);
  void check_turns(const StepPlan& plan, std::span<Sequence* const> admitted);
  void forward(const StepPlan& plan);
  void read_back(const StepPlan& plan);
  void choose(const StepPlan& plan);
  void take_row(const StepPlan::Entry& entry, std::int64_t index, Outcome& outcome);
  void settle(const StepPlan::Entry& entry, const Outcome& outcome);
  void finish(Sequence& sequence, bool error);
  void check_contents(const Sequence& sequence);
  void check_all();
  std::int64_t steps_left();
  /// Of the first `count` tokens of the sequence.
  TextHash text(const Sequence& sequence, std::int64_t count);
  static TokenId next_token(TextHash text, int sample) noexcept;

  Setup setup_;
  FakeStore store_;
  CacheManager cache_;
  Scheduler scheduler_;
  RequestId next_id_ = 1;
  std::unordered_map<RequestId, TextHash> seeds_;
  std::unordered_map<const Sequence*, Known> known_;
  std::vector<Finished> finished_;
  const StepPlan* plan_ = nullptr;
};

}  // namespace vitrine::test
