// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/request.h>
#include <vitrine/tokenizer.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/cache_manager.h"
#include "engine/draft_length.h"
#include "engine/sampler.h"
#include "engine/stop_strings.h"

namespace vitrine {

using Clock = std::chrono::steady_clock;

inline double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// A request as it was accepted: what its samples have in common.
struct AcceptedRequest {
  RequestId id = 0;
  Request request;
  Clock::time_point submitted;
  std::optional<Clock::time_point> deadline;
};

/// A sample of a request on its way: its tokens so far, what it holds of the cache, and what chooses the next.
struct Sequence {
  Sequence(std::shared_ptr<const AcceptedRequest> accepted_request, int sample_index, Sampler chooser)
      : accepted(std::move(accepted_request)),
        sample(sample_index),
        sampler(std::move(chooser)),
        stop(request().stop),
        tokens(request().prompt_ids) {
    lease.key = request().cache_salt;
    lease.indexed = request().prefix_cache;
    result.sample = sample;
    result.seed = sampler.seed();
  }

  std::shared_ptr<const AcceptedRequest> accepted;
  int sample;
  Sampler sampler;
  StopMatcher stop;
  std::optional<StreamDecoder> decoder;  // absent without a tokenizer
  std::vector<TokenId> tokens;           // prompt and output
  CacheLease lease;
  std::int64_t max_output = 0;
  std::optional<FinishReason> ended;  // from outside: cancelled, or its time is up

  // Where it begins as a copy: what is computed of the first `fork_position` tokens of sample `fork_sample` of request
  // `fork_of`, if that one is still there by then.
  RequestId fork_of = 0;
  int fork_sample = 0;
  std::int64_t fork_position = 0;

  std::vector<TokenId> guesses;  // for the tokens after its last one; checked in the next step
  DraftLength draft_length;

  Generation result;
  Clock::time_point started;  // first step
  Clock::time_point first_token, last_token;

  RequestId id() const noexcept { return accepted->id; }
  const Request& request() const noexcept { return accepted->request; }
  std::int64_t num_tokens() const noexcept { return static_cast<std::int64_t>(tokens.size()); }
  std::int64_t num_prompt() const noexcept { return static_cast<std::int64_t>(request().prompt_ids.size()); }
  std::int64_t num_output() const noexcept { return num_tokens() - num_prompt(); }
  std::int64_t num_pending() const noexcept { return num_tokens() - lease.computed; }
  bool was_started() const noexcept { return started != Clock::time_point(); }
  /// Whether some rows of the prompt are still to be looked at one by one.
  bool needs_prompt_logprobs() const noexcept {
    return request().prompt_logprobs >= 0 && sample == 0 && std::ssize(result.prompt_logprobs) < num_prompt() - 1;
  }
};

/// Whether `a` goes before `b`: by priority, then first come, first served.
inline bool goes_before(const Sequence& a, const Sequence& b) noexcept {
  if (a.request().priority != b.request().priority) return a.request().priority > b.request().priority;
  if (a.id() != b.id()) return a.id() < b.id();
  return a.sample < b.sample;
}

}  // namespace vitrine
