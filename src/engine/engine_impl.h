// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/engine.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/drafter.h"
#include "engine/loaded_model.h"
#include "engine/scheduler.h"
#include "engine/step_times.h"

namespace vitrine {

/// The engine. engine.cpp has the step; requests.cpp has what comes in from other threads, and the engine's own.
///
/// Two locks, taken in this order: step_mutex_ for the model, the scheduler and the cache; inbox_mutex_ for what other
/// threads leave to the next step. Listeners run under the first one.
class Engine::Impl {
 public:
  Impl(LoadedModel model, const EngineOptions& options);
  ~Impl();

  // requests.cpp
  RequestId submit(Request request);
  RequestId fork(RequestId id, std::int64_t position, Request request);
  void cancel(RequestId id) noexcept;
  void start();
  void stop();
  bool has_thread() const noexcept { return has_thread_; }
  /// Throws Error(kInvalidArgument) when called from a listener.
  void refuse_listener(const char* what) const;
  EngineStats stats() const;

  // engine.cpp
  bool step();
  std::vector<TokenScore> read_out(std::span<const float> residual, int count);
  void clear_prefix_cache();
  void set_profile(Profile* profile);

  EngineInfo info;
  const std::shared_ptr<const Tokenizer>& tokenizer() const noexcept { return loaded_.tokenizer; }
  const SamplingParams& default_sampling() const noexcept { return loaded_.default_sampling; }

 private:
  /// What the outputs of a step made of one sequence.
  struct Outcome {
    std::vector<Event> events;  // a token each; room is kept
    std::int64_t accepted = 0;  // guesses that were right
    bool open = true;           // its next output row counts
    std::optional<FinishReason> end;
    std::string error;
  };
  /// The output rows of a step, of which logits_ has some.
  struct Outputs {
    std::int64_t num_rows = 0;
    bool as_logits = false;  // else only which is the largest: bests_
    std::int64_t logits_begin = 0, logits_end = 0;
  };
  /// Holds the model for a while, without waiting for it within a step.
  class Turn;

  // engine.cpp
  bool step_now();
  void draft();
  void forward(const StepPlan& plan);
  void choose(const StepPlan& plan);
  MatrixView<const float> output_rows(std::int64_t first, std::int64_t count) const;
  std::span<float> logits_of(std::int64_t row);
  void take_row(const StepPlan::Entry& entry, std::int64_t index);
  std::optional<TokenId> choose_best(Sequence& sequence, const Head::Best& best);
  std::optional<TokenId> choose_from_logits(Sequence& sequence, std::span<float> logits);
  void explain_choice(Sequence& sequence, std::span<const float> logits);
  void note_prompt_logprobs(Sequence& sequence, std::int64_t position, std::span<const float> logits);
  void accept(Sequence& sequence, TokenId id);
  void settle(const StepPlan::Entry& entry);
  void finish(Sequence& sequence, FinishReason reason, Event last, std::string error = {});
  bool tell(Sequence& sequence, const Event& event, std::string& error);
  std::string explain_non_finite(Sequence& sequence);
  void add_to_stats(const Sequence& sequence, const StepPlan::Entry& entry);
  bool note_step(const StepPlan& plan, Clock::time_point began);
  Context context(Probe* probe) { return {*loaded_.pool, loaded_.kernels, workspace_, probe, profile_}; }

  // requests.cpp
  void validate_request(const Request& request) const;
  RequestId enqueue(Request request, Clock::time_point now, RequestId fork_of = 0, std::int64_t fork_position = 0);
  void take_inbox();
  void end_those_marked();
  void serve();

  LoadedModel loaded_;
  std::int64_t step_tokens_;
  bool speculation_;
  CacheManager::Options cache_options_;
  ModelCache cache_;
  Workspace workspace_;
  CacheManager manager_;
  Scheduler scheduler_;
  StepTimes times_;
  std::unique_ptr<Drafter> drafter_ = make_lookup_drafter();
  Profile* profile_ = nullptr;
  std::vector<float> hidden_;  // [output rows, hidden_size]: final-normed
  Outputs outputs_;
  std::vector<float> logits_;  // [logits_end - logits_begin, vocab_size]
  std::vector<Head::Best> bests_;
  std::vector<DraftTask> draft_tasks_;
  std::vector<Sequence*> drafted_;
  Outcome outcome_;
  EngineStats step_stats_;         // the step's own
  std::int64_t live_in_step_ = 0;  // blocks held while the model ran
  bool any_deadline_ = false;      // some request that was taken in has one
  bool any_ended_ = false;         // some sequence is marked as ended

  mutable std::mutex step_mutex_;
  mutable std::atomic<int> visitors_{0};  // that wait for step_mutex_: the engine's thread lets them
  std::atomic<std::thread::id> stepping_{};

  mutable std::mutex inbox_mutex_;
  std::condition_variable wake_;
  RequestId next_id_ = 1;
  std::vector<std::unique_ptr<Sequence>> inbox_;
  std::vector<RequestId> cancelled_;
  bool has_mail_ = false;
  bool stopping_ = false;
  EngineStats stats_;  // step_stats_ as of the last step

  std::mutex thread_mutex_;  // start() and stop(), one at a time
  std::atomic<bool> has_thread_{false};
  std::thread thread_;
};

class Engine::Impl::Turn {
 public:
  explicit Turn(const Impl& engine) : engine_(engine) {
    if (engine_.stepping_ == std::this_thread::get_id()) return;  // from a listener, within a step
    ++engine_.visitors_;
    lock_ = std::unique_lock(engine_.step_mutex_);
    --engine_.visitors_;
  }

 private:
  const Impl& engine_;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace vitrine
