// SPDX-License-Identifier: Apache-2.0
#include "bench_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "terminal.h"

namespace vitrine::app {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// Ids that look random and are the same in every run.
std::vector<TokenId> some_ids(std::int64_t count, std::int64_t vocab_size, std::int64_t seed) {
  std::vector<TokenId> ids;
  ids.reserve(static_cast<std::size_t>(count));
  std::uint64_t state = static_cast<std::uint64_t>(seed) + 1;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's linear congruential generator
    ids.push_back(static_cast<TokenId>((state >> 33) % static_cast<std::uint64_t>(vocab_size)));
  }
  return ids;
}

/// Steps in which some sequences of a batch decode while others still read their prompts, at most.
std::int64_t steps_to_start(std::int64_t sequences, std::int64_t step_tokens) {
  return sequences * kBatchPrompt / (step_tokens - sequences) + 2;
}

/// The length that a sequence of the item may reach.
std::int64_t tokens_needed(const BenchItem& item, std::int64_t tokens, std::int64_t step_tokens) {
  switch (item.kind) {
    case BenchKind::kPrefill:
      return item.size + 1;
    case BenchKind::kDecode:
      return std::max<std::int64_t>(item.size, 1) + tokens + 1;
    case BenchKind::kBatch:
      return kBatchPrompt + steps_to_start(item.size, step_tokens) + tokens + 1;
  }
  return 0;
}

}  // namespace

std::string BenchItem::name() const {
  return fmt::format("{}{}{}", to_string(kind), kind == BenchKind::kDecode ? " at " : " ", with_commas(size));
}

std::string BenchItem::command(std::int64_t tokens) const {
  return kind == BenchKind::kPrefill ? fmt::format("prefill {}", size)
                                     : fmt::format("{} {} {}", to_string(kind), size, tokens);
}

void BenchRuns::make_room(EngineOptions& options, const std::vector<BenchItem>& items, std::int64_t tokens) {
  for (const BenchItem& item : items) {
    if (item.kind == BenchKind::kBatch) options.step_tokens = std::max(options.step_tokens, 2 * item.size);
  }
  constexpr std::int64_t kBlock = 256;  // more than a block of the cache, whose last one a sequence need not fill
  for (const BenchItem& item : items) {
    const std::int64_t needed = tokens_needed(item, tokens, options.step_tokens) + kBlock;
    if (item.kind == BenchKind::kBatch) options.cache_tokens = std::max(options.cache_tokens, item.size * needed);
  }
}

std::string BenchRuns::too_long(const BenchItem& item) const {
  const std::int64_t needed = tokens_needed(item, tokens_, step_tokens_);
  if (needed <= engine_.info().context) return "";
  return fmt::format("needs {} tokens, the context has {}", with_commas(needed), with_commas(engine_.info().context));
}

/// What became of a request.
struct BenchRuns::Watch {
  std::int64_t tokens = 0;
  Clock::time_point first, last;
  bool finished = false;
  std::string error;

  void see(const Event& event) {
    if (event.token) {
      last = Clock::now();
      if (tokens++ == 0) first = last;
    }
    if (event.finished != nullptr) {
      finished = true;
      error = event.finished->error;
    }
  }
  void check() const {
    if (!error.empty()) throw Error(ErrorCode::kNumeric, error);
  }
};

RequestId BenchRuns::submit(std::int64_t prompt, std::int64_t output, std::int64_t seed, Watch& watch) {
  Request request;
  request.prompt_ids = some_ids(prompt, engine_.info().vocab_size, seed);
  request.sampling.greedy = true;
  request.max_tokens = output;
  request.ignore_eos = true;
  request.on_event = [&watch](const Event& event) { watch.see(event); };
  return engine_.submit(std::move(request));
}

double BenchRuns::measure(const BenchItem& item) {
  switch (item.kind) {
    case BenchKind::kPrefill:
      return static_cast<double>(item.size) / prefill(item.size);
    case BenchKind::kDecode:
      return static_cast<double>(tokens_) / decode(item.size);
    case BenchKind::kBatch:
      return static_cast<double>(item.size * tokens_) / batch(item.size);
  }
  return 0;
}

/// Seconds from handing the prompt in to the first token.
double BenchRuns::prefill(std::int64_t tokens) {
  Watch watch;
  const auto start = Clock::now();
  submit(tokens, 1, 0, watch);
  while (!watch.finished) engine_.step();
  watch.check();
  return seconds_between(start, watch.last);
}

/// Seconds from the first token, which belongs to the prompt, to the last.
double BenchRuns::decode(std::int64_t depth, Profile* profile) {
  Watch watch;
  submit(std::max<std::int64_t>(depth, 1), tokens_ + 1, 0, watch);
  while (watch.tokens == 0 && !watch.finished) engine_.step();
  engine_.set_profile(profile);
  while (!watch.finished) engine_.step();
  engine_.set_profile(nullptr);
  watch.check();
  return seconds_between(watch.first, watch.last);
}

/// Seconds of the steps once all of them have their first token.
double BenchRuns::batch(std::int64_t sequences) {
  std::vector<Watch> watches(static_cast<std::size_t>(sequences));
  std::vector<RequestId> ids;
  const std::int64_t output = steps_to_start(sequences, step_tokens_) + tokens_ + 1;
  for (std::int64_t i = 0; i < sequences; ++i) {
    ids.push_back(submit(kBatchPrompt, output, i, watches[static_cast<std::size_t>(i)]));
  }
  const auto waits = [](const Watch& watch) { return watch.tokens == 0 && !watch.finished; };
  while (std::any_of(watches.begin(), watches.end(), waits)) engine_.step();
  const auto start = Clock::now();
  for (std::int64_t i = 0; i < tokens_; ++i) engine_.step();
  const auto end = Clock::now();
  const bool all_ran = std::none_of(watches.begin(), watches.end(), [](const Watch& watch) { return watch.finished; });
  for (const RequestId id : ids) engine_.cancel(id);
  while (engine_.step()) {
  }
  for (const Watch& watch : watches) watch.check();
  if (!all_ran) throw Error(ErrorCode::kInternal, "a sequence of the batch ended before it was measured");
  return seconds_between(start, end);
}

BenchProfile BenchRuns::profile(const BenchItem& item) {
  BenchProfile result;
  if (item.kind == BenchKind::kPrefill) {
    engine_.set_profile(&result.parts);
    result.seconds = prefill(item.size);
    engine_.set_profile(nullptr);
    result.steps = 1;
  } else {
    result.seconds = decode(item.size, &result.parts);
    result.steps = tokens_;
  }
  return result;
}

}  // namespace vitrine::app
