// SPDX-License-Identifier: Apache-2.0
// What comes in from any thread: new requests, cancellations; and the engine's own thread.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/engine_impl.h"
#include "kernels/dispatch.h"

namespace vitrine {
namespace {

/// Block ids are 32 bits wide.
constexpr std::int64_t kMaxCacheTokens = std::numeric_limits<BlockId>::max() * kBlockTokens;
constexpr std::int64_t kDefaultCacheTokens = 16384;
constexpr std::int64_t kMaxSequences = 4096;
constexpr std::int64_t kMaxSamples = 128;
/// Room for that many tokens of a sequence is taken when it is accepted, more as it grows.
constexpr std::int64_t kReservedTokens = 16384;

Error wrong(const std::string& name, const std::string& expected, const std::string& found) {
  return {ErrorCode::kInvalidArgument, name + ": expected " + expected + ", found " + found};
}

std::int64_t num_blocks(const LoadedModel& model, const EngineOptions& options) {
  if (options.cache_tokens != 0 && options.cache_bytes != 0) {
    throw wrong("cache_bytes", "0 where cache_tokens is given", std::to_string(options.cache_bytes));
  }
  const std::int64_t tokens =
      option("cache_tokens", options.cache_tokens, kMaxCacheTokens, std::max(model.info.context, kDefaultCacheTokens));
  if (options.cache_bytes == 0) return blocks_for(tokens);
  const std::int64_t block_bytes =
      std::max<std::int64_t>(1, ModelCache::block_bytes(model.model->cache_layers(), model.kv));
  const std::int64_t blocks =
      option("cache_bytes", options.cache_bytes, std::numeric_limits<std::int64_t>::max(), 0) / block_bytes;
  if (blocks == 0) {
    throw wrong("cache_bytes", "at least the " + std::to_string(block_bytes) + " bytes of a block",
                std::to_string(options.cache_bytes));
  }
  return std::min(blocks, blocks_for(kMaxCacheTokens));
}

CacheManager::Options cache_options(const LoadedModel& model, const EngineOptions& options, std::int64_t step_tokens) {
  const auto layers = model.model->cache_layers();
  const std::int64_t block_bytes = std::max<std::int64_t>(1, ModelCache::block_bytes(layers, model.kv));
  const std::int64_t state_bytes = ModelCache::state_bytes(layers);
  if (options.prefix_cache_bytes < 0) {
    throw wrong("prefix_cache_bytes", "at least 0", std::to_string(options.prefix_cache_bytes));
  }
  // Blocks and states share the budget.
  const std::int64_t budget = state_bytes > 0 ? options.prefix_cache_bytes / 2 : options.prefix_cache_bytes;
  CacheManager::Options result{.num_blocks = num_blocks(model, options)};
  result.max_idle_blocks = std::min(result.num_blocks, budget / block_bytes);
  result.has_states = state_bytes > 0;
  result.max_sequences = std::min(
      step_tokens, option("max_sequences", options.max_sequences, kMaxSequences, EngineOptions{}.max_sequences));
  if (state_bytes > 0) result.max_snapshots = std::min(result.max_idle_blocks, budget / state_bytes);
  return result;
}

}  // namespace

Engine::Impl::Impl(LoadedModel model, const EngineOptions& options)
    : info(model.info),
      loaded_(std::move(model)),
      step_tokens_(option("step_tokens", options.step_tokens, 65536, EngineOptions{}.step_tokens)),
      speculation_(options.speculation),
      cache_options_(cache_options(loaded_, options, step_tokens_)),
      cache_(loaded_.model->cache_layers(), cache_options_.num_blocks, loaded_.kv,
             CacheManager::num_state_slots(cache_options_)),
      workspace_(loaded_.model->workspace_bytes(step_tokens_, loaded_.pool->size()) +
                 loaded_.model->head().workspace_bytes(step_tokens_, loaded_.pool->size())),
      manager_(cache_, cache_options_),
      scheduler_(manager_, {.step_tokens = step_tokens_, .max_sequences = cache_options_.max_sequences}) {
  info.kv_bytes_per_token = cache_.block_bytes() / kBlockTokens;
  info.cache_tokens = cache_.num_blocks() * kBlockTokens;
  info.prefix_cache_tokens = cache_options_.max_idle_blocks * kBlockTokens;
  info.max_sequences = cache_options_.max_sequences;
  info.workspace_bytes = workspace_.capacity();
  info.threads = loaded_.pool->size();
  info.isa = loaded_.kernels.name;
  info.isas = kernel_choices();
  step_stats_.kv_blocks = stats_.kv_blocks = cache_.num_blocks();
}

Engine::Impl::~Impl() { stop(); }

// ---- Requests --------------------------------------------------------------------------------------------------------

void Engine::Impl::validate_request(const Request& request) const {
  const auto num_prompt = std::ssize(request.prompt_ids);
  if (num_prompt == 0) throw Error(ErrorCode::kInvalidArgument, "the prompt is empty: expected at least one token");
  const auto check_ids = [&](const char* name, const std::vector<TokenId>& ids) {
    for (const TokenId id : ids) {
      if (id >= 0 && id < info.vocab_size) continue;
      throw wrong(name, "ids from 0 to " + std::to_string(info.vocab_size - 1), std::to_string(id));
    }
  };
  check_ids("prompt", request.prompt_ids);
  check_ids("stop_ids", request.stop_ids);
  if (num_prompt >= info.context) {
    throw Error(ErrorCode::kTooLarge, "the prompt has " + std::to_string(num_prompt) + " tokens; the context of " +
                                          std::to_string(info.context) + " has room for " +
                                          std::to_string(info.context - 1) + " and one new one");
  }
  if (num_prompt >= info.cache_tokens) {
    throw Error(ErrorCode::kTooLarge, "the prompt has " + std::to_string(num_prompt) + " tokens; the KV cache of " +
                                          std::to_string(info.cache_tokens) + " has room for " +
                                          std::to_string(info.cache_tokens - 1) + " and one new one");
  }
  if (request.max_tokens == 0 || request.max_tokens < -1) {
    throw wrong("max_tokens", "at least 1, or -1 for no limit", std::to_string(request.max_tokens));
  }
  if (request.n < 1 || request.n > kMaxSamples) {
    throw wrong("n", "1 to " + std::to_string(kMaxSamples), std::to_string(request.n));
  }
  if (request.probe != nullptr && request.n != 1) {
    throw wrong("n", "1 for a request with a probe", std::to_string(request.n));
  }
  for (const auto& [name, count] :
       {std::pair("logprobs", request.logprobs), {"prompt_logprobs", request.prompt_logprobs}}) {
    if (count < -1) throw wrong(name, "at least 0, or -1 for none", std::to_string(count));
  }
  if (request.deadline_s && !(*request.deadline_s >= 0)) {
    throw wrong("deadline_s", "at least 0", std::to_string(*request.deadline_s));
  }
  validate(request.sampling, info.vocab_size);
}

RequestId Engine::Impl::submit(Request request) {
  validate_request(request);
  return enqueue(std::move(request), Clock::now());
}

RequestId Engine::Impl::fork(RequestId id, std::int64_t position, Request request) {
  const auto now = Clock::now();
  const Turn turn(*this);
  take_inbox();
  const Sequence* const source = scheduler_.find(id, 0);
  if (source == nullptr) throw Error(ErrorCode::kNotFound, "fork: no request " + std::to_string(id) + " is in flight");
  if (position < 1 || position > source->num_tokens()) {
    throw wrong("fork: position", "1 to " + std::to_string(source->num_tokens()), std::to_string(position));
  }
  std::vector<TokenId>& prompt = request.prompt_ids;
  prompt.insert(prompt.begin(), source->tokens.begin(), source->tokens.begin() + position);
  request.cache_salt = source->request().cache_salt;
  request.prefix_cache = source->request().prefix_cache;
  validate_request(request);
  return enqueue(std::move(request), now, id, position);
}

/// Makes the samples of a valid request and leaves them to the next step.
RequestId Engine::Impl::enqueue(Request request, Clock::time_point now, RequestId fork_of, std::int64_t fork_position) {
  // A probe is to see every row.
  if (request.probe != nullptr) request.prefix_cache = request.speculation = false;
  auto accepted = std::make_shared<AcceptedRequest>();
  accepted->request = std::move(request);
  accepted->submitted = now;
  const Request& r = accepted->request;
  if (r.deadline_s) {
    // Beyond a year, where a clock could overflow, there is none.
    constexpr double kYear = 365.0 * 86400;
    if (*r.deadline_s < kYear) {
      accepted->deadline =
          now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*r.deadline_s));
    }
  }
  const auto num_prompt = std::ssize(r.prompt_ids);
  const std::int64_t room = std::min(info.context, info.cache_tokens) - num_prompt;
  std::vector<std::unique_ptr<Sequence>> samples;
  SamplingParams sampling = r.sampling;
  for (int i = 0; i < r.n; ++i) {
    Sampler sampler(sampling, loaded_.usable_vocab, r.prompt_ids);
    sampling.seed = sampler.seed() + 1;  // the next one's
    samples.push_back(std::make_unique<Sequence>(accepted, i, std::move(sampler)));
    Sequence& sequence = *samples.back();
    sequence.max_output = r.max_tokens < 0 ? room : std::min(room, r.max_tokens);
    if (loaded_.tokenizer) sequence.decoder.emplace(*loaded_.tokenizer, /*skip_special=*/true);
    const auto reserved = static_cast<std::size_t>(std::min(sequence.max_output, kReservedTokens));
    sequence.tokens.reserve(static_cast<std::size_t>(num_prompt) + reserved);
    sequence.result.timings.tokens_s.reserve(reserved);
  }
  const std::lock_guard lock(inbox_mutex_);
  const RequestId id = accepted->id = next_id_++;
  for (auto& sequence : samples) {
    if (sequence->sample > 0 && num_prompt > 1) {  // the last token is computed by each, to know what follows
      sequence->fork_of = id;
      sequence->fork_position = num_prompt - 1;
    } else {
      sequence->fork_of = fork_of;
      sequence->fork_position = std::min(fork_position, num_prompt - 1);
    }
    inbox_.push_back(std::move(sequence));
  }
  has_mail_ = true;
  wake_.notify_one();
  return id;
}

void Engine::Impl::cancel(RequestId id) noexcept {
  const std::lock_guard lock(inbox_mutex_);
  if (std::find(cancelled_.begin(), cancelled_.end(), id) == cancelled_.end()) cancelled_.push_back(id);
  has_mail_ = true;
  wake_.notify_one();
}

void Engine::Impl::take_inbox() {
  const std::lock_guard lock(inbox_mutex_);
  if (!has_mail_) return;
  has_mail_ = false;
  stats_.waiting += std::ssize(inbox_);  // until the step is over and counts them itself
  for (auto& sequence : inbox_) {
    any_deadline_ |= sequence->accepted->deadline.has_value();
    scheduler_.add(std::move(sequence));
  }
  inbox_.clear();
  for (const RequestId id : cancelled_) {
    scheduler_.find_if([&](Sequence& sequence) {
      if (sequence.id() == id) sequence.ended = FinishReason::kCancelled;
      return false;
    });
  }
  any_ended_ |= !cancelled_.empty();
  cancelled_.clear();
}

/// Ends the samples that were cancelled or whose time is up.
void Engine::Impl::end_those_marked() {
  if (any_deadline_) {
    const auto now = Clock::now();
    any_deadline_ = false;
    scheduler_.find_if([&](Sequence& sequence) {
      const auto& deadline = sequence.accepted->deadline;
      any_deadline_ |= deadline.has_value();
      if (deadline && *deadline <= now && !sequence.ended) sequence.ended = FinishReason::kDeadline;
      any_ended_ |= sequence.ended.has_value();
      return false;
    });
  }
  if (!any_ended_) return;
  any_ended_ = false;
  while (Sequence* sequence = scheduler_.find_if([](const Sequence& s) { return s.ended.has_value(); })) {
    finish(*sequence, *sequence->ended, {});
  }
}

EngineStats Engine::Impl::stats() const {
  const std::lock_guard lock(inbox_mutex_);
  EngineStats stats = stats_;
  stats.waiting += std::ssize(inbox_);
  return stats;
}

// ---- The engine's thread ---------------------------------------------------------------------------------------------

void Engine::Impl::refuse_listener(const char* what) const {
  if (stepping_ != std::this_thread::get_id()) return;
  throw Error(ErrorCode::kInvalidArgument, std::string(what) + " may not be called from on_event");
}

void Engine::Impl::start() {
  const std::lock_guard lock(thread_mutex_);
  if (has_thread_) return;
  {
    const std::lock_guard inbox_lock(inbox_mutex_);
    stopping_ = false;
    has_mail_ = true;  // what was submitted before
  }
  thread_ = std::thread([this] { serve(); });
  has_thread_ = true;
}

void Engine::Impl::stop() {
  refuse_listener("stop()");
  const std::lock_guard lock(thread_mutex_);
  if (!has_thread_) return;
  {
    const std::lock_guard inbox_lock(inbox_mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  thread_.join();
  has_thread_ = false;
}

/// Steps while there is something to do, sleeps otherwise.
void Engine::Impl::serve() {
  for (bool busy = false;;) {
    {
      std::unique_lock lock(inbox_mutex_);
      if (!busy) wake_.wait(lock, [this] { return stopping_ || has_mail_; });
      if (stopping_) return;
    }
    while (visitors_ > 0) std::this_thread::yield();  // a mutex alone would let this thread have it again at once
    const Turn turn(*this);
    busy = step_now();
  }
}

}  // namespace vitrine
