// SPDX-License-Identifier: Apache-2.0
#include "bench_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "terminal.h"

namespace vitrine::app {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// Tokens that the sequences of a batch may have before the first one that is measured: one, where all begin in one
/// step, as they do when the cache knows their prompts.
constexpr std::int64_t kTokensToStart = 2;
constexpr std::int64_t kBlock = 256;  // more than a block of the cache, whose last one a sequence need not fill

/// The length that a sequence of the item may reach.
std::int64_t tokens_needed(const BenchItem& item, std::int64_t tokens) {
  switch (item.kind) {
    case BenchKind::kPrefill:
      return item.size + 1;
    case BenchKind::kDecode:
      return std::max<std::int64_t>(item.size, 1) + tokens + 1;
    case BenchKind::kBatch:
      return kBatchPrompt + kTokensToStart + tokens + 1;
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
  constexpr std::int64_t kLongest = std::int64_t{1} << 22;  // beyond any context, for which a prompt may be too long
  const bool cache_is_given = options.cache_tokens > 0 || options.cache_bytes > 0;
  for (const BenchItem& item : items) {
    const std::int64_t needed = tokens_needed(item, tokens) + kBlock;
    const bool batch = item.kind == BenchKind::kBatch;
    if (batch) {
      options.step_tokens = std::max(options.step_tokens, 2 * item.size);
      options.max_sequences = std::max(options.max_sequences, item.size);
      options.prefix_cache_bytes = std::numeric_limits<std::int64_t>::max();  // see batch()
    }
    if (cache_is_given) continue;
    options.cache_tokens = std::max(options.cache_tokens, batch ? item.size * needed : std::min(needed, kLongest));
  }
}

std::string BenchRuns::too_long(const BenchItem& item) const {
  const EngineInfo& info = engine_.info();
  const std::int64_t needed = tokens_needed(item, tokens_);
  if (needed > info.context) {
    return fmt::format("needs {} tokens, the context has {}", with_commas(needed), with_commas(info.context));
  }
  const std::int64_t all = item.kind == BenchKind::kBatch ? item.size * (needed + kBlock) : needed;
  if (all <= info.cache_tokens) return "";
  return fmt::format("needs {} tokens, the KV cache has {}", with_commas(all), with_commas(info.cache_tokens));
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

/// `cached`: whether the prompt may come from the cache, and goes there.
RequestId BenchRuns::submit(std::int64_t prompt, std::int64_t output, std::int64_t seed, bool cached, Watch& watch) {
  Request request;
  request.prompt_ids = some_ids(prompt, engine_.info().vocab_size, seed);
  request.sampling.greedy = true;
  request.max_tokens = output;
  request.ignore_eos = true;
  request.prefix_cache = cached;
  request.speculation = false;
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
  submit(tokens, 1, 0, /*cached=*/false, watch);
  while (!watch.finished) engine_.step();
  watch.check();
  return seconds_between(start, watch.last);
}

/// Seconds from the first token, which belongs to the prompt, to the last.
double BenchRuns::decode(std::int64_t depth, Profile* profile) {
  Watch watch;
  submit(std::max<std::int64_t>(depth, 1), tokens_ + 1, 0, /*cached=*/false, watch);
  while (watch.tokens == 0 && !watch.finished) engine_.step();
  engine_.set_profile(profile);
  while (!watch.finished) engine_.step();
  engine_.set_profile(nullptr);
  watch.check();
  return seconds_between(watch.first, watch.last);
}

/// Seconds of the steps once all of them have their first token. Their prompts are read before, and come from the cache
/// then: those that were ready first would go on while the others read theirs.
double BenchRuns::batch(std::int64_t sequences) {
  std::vector<Watch> readers(static_cast<std::size_t>(sequences));
  std::vector<Watch> watches(static_cast<std::size_t>(sequences));
  std::vector<RequestId> ids;
  std::int64_t seed = 0;
  for (Watch& reader : readers) submit(kBatchPrompt, 1, seed++, /*cached=*/true, reader);
  while (engine_.step()) {
  }
  seed = 0;
  for (Watch& watch : watches) {
    ids.push_back(submit(kBatchPrompt, kTokensToStart + tokens_ + 1, seed++, /*cached=*/true, watch));
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
  engine_.clear_prefix_cache();
  for (const Watch& reader : readers) reader.check();
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
