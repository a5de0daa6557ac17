// SPDX-License-Identifier: Apache-2.0
// One prompt, how to continue it, and what comes of it.
#pragma once

#include <vitrine/probe.h>
#include <vitrine/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace vitrine {

using RequestId = std::int64_t;
struct Event;

/// One prompt and how to continue it.
struct Request {
  std::vector<TokenId> prompt_ids;
  SamplingParams sampling;
  int n = 1;  ///< samples of the same prompt, which is computed once; sample i is what seed + i alone would give
  std::int64_t max_tokens = -1;     ///< of each sample; -1: to the end of the context
  std::vector<std::string> stop{};  ///< ends before the first of these strings
  std::vector<TokenId> stop_ids{};  ///< ends with one of these ids, which gives no text; ignore_eos does not touch them
  bool ignore_eos = false;

  int priority = 0;                    ///< higher goes first; first come, first served among equals
  std::optional<double> deadline_s{};  ///< ends that many seconds after submit(), with FinishReason::kDeadline

  int top = 0;                      ///< fill Generation::top and candidates with that many entries
  int logprobs = -1;                ///< of each new token, with that many alternatives; 0: the token's alone, -1: none
  bool processed_logprobs = false;  ///< of the distribution the sampler draws from, and not of the model's own
  int prompt_logprobs = -1;         ///< of each token of the prompt, as `logprobs`; computes the whole prompt

  bool prefix_cache = true;  ///< use what the cache knows of the prompt, and leave it there for others
  std::string cache_salt{};  ///< requests with different ones never share what is cached
  bool speculation = true;   ///< guess ahead where that is faster; the text is the same either way

  Probe* probe = nullptr;  ///< watches this request's steps, which then run without company and guesses; n must be 1
  /// Called on the thread that runs the step; may call submit, cancel, fork and read_out, not step, generate or stop.
  /// An exception ends its sample with FinishReason::kError and harms nobody else.
  std::function<void(const Event&)> on_event{};
};

/// A token and the natural logarithm of its probability.
struct TokenLogprob {
  TokenId id = 0;
  float logprob = 0;
};

/// What was likely at one position.
struct PositionLogprobs {
  TokenLogprob token;             ///< what stands there; -infinity where the sampler excluded it
  std::vector<TokenLogprob> top;  ///< the likeliest, ties by id
};

/// Seconds since submit().
struct Timings {
  double started_s = 0;  ///< its first row was computed then; before that it was queued
  double finished_s = 0;
  std::vector<float> tokens_s{};  ///< when each output token was there
};

/// What guessing ahead brought.
struct Speculation {
  std::int64_t steps = 0;     ///< forward passes that gave output tokens
  std::int64_t drafted = 0;   ///< tokens guessed
  std::int64_t accepted = 0;  ///< guesses that were right, each of which saved a step
};

/// A finished sample of a request.
struct Generation {
  int sample = 0;  ///< below Request::n
  std::vector<TokenId> prompt_ids;
  std::vector<TokenId> output_ids;  ///< with the end-of-sequence id that ended it
  std::string text;                 ///< without special tokens and stop strings
  FinishReason finish_reason = FinishReason::kStop;
  std::string stopped_by;                  ///< the stop string that ended it
  std::string error;                       ///< for FinishReason::kError
  std::uint64_t seed = 0;                  ///< the seed that repeats it
  std::vector<TokenScore> top;             ///< the model's own distribution at the first new position, likeliest first
  std::vector<TokenScore> candidates;      ///< what the sampler drew the first token from, likeliest first
  std::int64_t num_candidates = 0;         ///< how many there were; `candidates` holds the first Request::top of them
  std::vector<PositionLogprobs> logprobs;  ///< of each output token, if asked for
  std::vector<PositionLogprobs> prompt_logprobs;  ///< of each prompt token but the first, if asked for; of sample 0
  std::int64_t cached_tokens = 0;                 ///< of the prompt: not computed, but found in the cache
  std::int64_t preemptions = 0;                   ///< times it gave up its memory to others and began again
  Timings timings;
  Speculation speculation;
  double prefill_s = 0;  ///< from the start of the prompt to the first new token
  double decode_s = 0;   ///< from there to the last one
};

/// What a step did for one sample of a request.
struct Event {
  RequestId request = 0;
  int sample = 0;
  std::optional<TokenId> token{};                ///< the new token; the end-of-sequence id too
  std::string text{};                            ///< text that may be shown now: whole characters, never part of a
                                                 ///< stop string
  std::optional<PositionLogprobs> logprobs{};    ///< of the token, if asked for
  std::shared_ptr<const Generation> finished{};  ///< set on the last event of a sample
};

}  // namespace vitrine
