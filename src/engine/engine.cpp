// SPDX-License-Identifier: Apache-2.0
// The step: schedule, one ragged batch through the model, choose. Everything the engine does, once per token.
#include <algorithm>
#include <cmath>
#include <exception>
#include <numeric>

#include "engine/engine_impl.h"
#include "engine/finite_probe.h"
#include "engine/top_tokens.h"

namespace vitrine {
namespace {

/// Logits of that many rows at once: the head's weights are read once for all of them.
constexpr std::int64_t kLogitRows = 16;
/// Every so many steps nobody guesses, to see what a step costs without.
constexpr std::int64_t kStepsBetweenPlainOnes = 64;

/// Whether choosing needs more than which logit is the largest.
bool needs_logits(const Sequence& sequence) {
  const Request& request = sequence.request();
  return !sequence.sampler.is_plain_argmax() || (request.top > 0 && sequence.num_output() == 0) ||
         request.logprobs >= 0 || sequence.needs_prompt_logprobs();
}

bool contains(const std::vector<TokenId>& ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

/// Names the thread that runs a step, while it does.
class Stepping {
 public:
  explicit Stepping(std::atomic<std::thread::id>& thread) : thread_(thread) { thread_ = std::this_thread::get_id(); }
  ~Stepping() { thread_ = std::thread::id(); }
  Stepping(const Stepping&) = delete;
  Stepping& operator=(const Stepping&) = delete;

 private:
  std::atomic<std::thread::id>& thread_;
};

}  // namespace

bool Engine::Impl::step_now() {
  const Stepping stepping(stepping_);
  take_inbox();
  end_those_marked();
  scheduler_.admit();
  const auto began = Clock::now();
  draft();
  const StepPlan& plan = scheduler_.plan([this](std::int64_t room, std::int64_t prompts, std::int64_t decoding) {
    return times_.prompt_rows(room, prompts, decoding);
  });
  live_in_step_ = manager_.num_live();
  if (!plan.empty()) {
    try {
      forward(plan);
      choose(plan);
    } catch (const std::exception& error) {
      // Not of any one request. What these were is unknown now; the others go on.
      for (const StepPlan::Entry& entry : plan.entries) {
        const bool there = scheduler_.find_if([&](const Sequence& s) { return &s == entry.sequence; }) != nullptr;
        if (there) finish(*entry.sequence, FinishReason::kError, {}, std::string("the step failed: ") + error.what());
      }
    }
  }
  return note_step(plan, began);
}

/// Guesses for those that decode, where that is likely to save time.
void Engine::Impl::draft() {
  draft_tasks_.clear();
  drafted_.clear();
  for (const auto& sequence : scheduler_.running()) {
    sequence->guesses.clear();
    if (sequence->num_pending() == 1) drafted_.push_back(sequence.get());
  }
  if (!speculation_ || step_stats_.steps % kStepsBetweenPlainOnes == kStepsBetweenPlainOnes - 1) return;
  const double cost = loaded_.draft_cost > 0 ? loaded_.draft_cost : times_.draft_cost(std::ssize(drafted_));
  for (Sequence* const sequence : drafted_) {
    const Request& request = sequence->request();
    if (!request.speculation || request.probe != nullptr || sequence->num_output() == 0) continue;
    const std::int64_t length =
        std::min(sequence->draft_length.next(cost), sequence->max_output - sequence->num_output() - 1);
    if (length <= 0) continue;
    draft_tasks_.push_back({sequence->id(), sequence->sample, sequence->tokens, length, &sequence->guesses});
  }
  if (!draft_tasks_.empty()) drafter_->draft(draft_tasks_);
}

void Engine::Impl::forward(const StepPlan& plan) {
  const std::int64_t hidden_size = loaded_.model->hidden_size();
  const auto outputs = std::ssize(plan.output_rows);
  hidden_.resize(static_cast<std::size_t>(outputs * hidden_size));
  for (const StepPlan::Entry& entry : plan.entries) {
    if (entry.num_guesses > 0 && manager_.has_states()) manager_.hold_state(entry.sequence->lease);
  }
  loaded_.model->forward(context(plan.entries[0].sequence->request().probe), plan.batch(), cache_,
                         {hidden_.data(), outputs, hidden_size, hidden_size});
}

/// From the hidden states of the output rows to tokens. The rows of a sequence come one after another; after its last
/// one it is settled.
void Engine::Impl::choose(const StepPlan& plan) {
  outputs_ = {.num_rows = std::ssize(plan.output_rows)};
  outputs_.as_logits = std::any_of(plan.entries.begin(), plan.entries.end(),
                                   [](const auto& e) { return e.num_outputs > 0 && needs_logits(*e.sequence); });
  if (!outputs_.as_logits && outputs_.num_rows > 0) {
    bests_.resize(static_cast<std::size_t>(outputs_.num_rows));
    loaded_.model->head().argmax(context(nullptr).timed(StepPart::kHead), output_rows(0, outputs_.num_rows),
                                 loaded_.usable_vocab, bests_);
  }
  for (const StepPlan::Entry& entry : plan.entries) {
    outcome_.events.clear();
    outcome_.accepted = 0;
    outcome_.open = true;
    outcome_.end.reset();
    outcome_.error.clear();
    try {
      for (std::int64_t i = 0; i < entry.num_outputs && outcome_.open; ++i) take_row(entry, i);
    } catch (const std::exception& error) {  // its own: a sampler that found nothing to draw from
      outcome_.end = FinishReason::kError;
      outcome_.error = error.what();
    }
    settle(entry);
  }
}

MatrixView<const float> Engine::Impl::output_rows(std::int64_t first, std::int64_t count) const {
  const std::int64_t hidden_size = loaded_.model->hidden_size();
  return {hidden_.data() + first * hidden_size, count, hidden_size, hidden_size};
}

/// The logits of an output row [vocab_size]; rows must be asked for in order.
std::span<float> Engine::Impl::logits_of(std::int64_t row) {
  const std::int64_t vocab_size = info.vocab_size;
  if (row >= outputs_.logits_end) {
    const std::int64_t count = std::min(kLogitRows, outputs_.num_rows - row);
    const auto size = static_cast<std::size_t>(count * vocab_size);
    if (logits_.size() < size) logits_.resize(size);
    outputs_.logits_begin = row;
    outputs_.logits_end = row + count;
    loaded_.model->head().logits(context(nullptr).timed(StepPart::kHead), output_rows(row, count),
                                 {logits_.data(), count, vocab_size, vocab_size});
  }
  return {logits_.data() + (row - outputs_.logits_begin) * vocab_size, static_cast<std::size_t>(vocab_size)};
}

/// One output row of a sequence: a row of its prompt, or one that gives its next token.
void Engine::Impl::take_row(const StepPlan::Entry& entry, std::int64_t index) {
  Sequence& sequence = *entry.sequence;
  const std::int64_t row = entry.first_output + index;
  const std::int64_t first_sampled = entry.samples ? entry.num_outputs - 1 - entry.num_guesses : entry.num_outputs;
  if (index < first_sampled) {
    const std::int64_t position = sequence.lease.computed + entry.num_rows - entry.num_outputs + index;
    note_prompt_logprobs(sequence, position, logits_of(row));
    return;
  }
  const auto id = outputs_.as_logits ? choose_from_logits(sequence, logits_of(row))
                                     : choose_best(sequence, bests_[static_cast<std::size_t>(row)]);
  if (!id) {
    outcome_.open = false;
    outcome_.end = FinishReason::kError;
    outcome_.error = explain_non_finite(sequence);
    return;
  }
  accept(sequence, *id);
  const auto guess = static_cast<std::size_t>(index - first_sampled);
  if (static_cast<std::int64_t>(guess) == entry.num_guesses) return;
  if (sequence.guesses[guess] == *id) {
    ++outcome_.accepted;
  } else {
    outcome_.open = false;
  }
}

std::optional<TokenId> Engine::Impl::choose_best(Sequence& sequence, const Head::Best& best) {
  if (!best.finite) return std::nullopt;
  const PartTimer timer(profile_, StepPart::kSampling);
  sequence.sampler.accept(best.id);
  return best.id;
}

std::optional<TokenId> Engine::Impl::choose_from_logits(Sequence& sequence, std::span<float> logits) {
  const auto usable = logits.first(static_cast<std::size_t>(loaded_.usable_vocab));
  if (!std::all_of(usable.begin(), usable.end(), [](float logit) { return std::isfinite(logit); })) return std::nullopt;
  const Request& request = sequence.request();
  if (request.top > 0 && sequence.num_output() == 0) explain_choice(sequence, logits);
  std::vector<Sampler::Candidate> candidates;
  std::vector<float> raw;
  if (request.logprobs >= 0) {
    if (request.processed_logprobs) {
      std::vector<float> copy(logits.begin(), logits.end());
      const auto kept = sequence.sampler.distribution(copy);
      candidates.assign(kept.begin(), kept.end());
    } else {
      raw.assign(logits.begin(), logits.end());
    }
  }
  TokenId id = 0;
  {
    const PartTimer timer(profile_, StepPart::kSampling);
    id = sequence.sampler.sample(logits);
  }
  if (request.logprobs >= 0) {
    sequence.result.logprobs.push_back(request.processed_logprobs ? candidate_logprobs(candidates, id, request.logprobs)
                                                                  : position_logprobs(raw, id, request.logprobs));
  }
  return id;
}

/// Fills Generation::top and candidates.
void Engine::Impl::explain_choice(Sequence& sequence, std::span<const float> logits) {
  Generation& result = sequence.result;
  result.top = top_tokens(logits, sequence.request().top);
  std::vector<float> copy(logits.begin(), logits.end());
  const auto candidates = sequence.sampler.distribution(copy);
  result.num_candidates = std::ssize(candidates);
  for (const Sampler::Candidate& candidate : candidates) {
    if (std::ssize(result.candidates) == sequence.request().top) break;
    result.candidates.push_back({candidate.id, logits[static_cast<std::size_t>(candidate.id)], candidate.probability});
  }
}

/// `logits` are those after the prompt's token at `position`. A prompt that began again has had some of them before.
void Engine::Impl::note_prompt_logprobs(Sequence& sequence, std::int64_t position, std::span<const float> logits) {
  std::vector<PositionLogprobs>& noted = sequence.result.prompt_logprobs;
  if (std::ssize(noted) != position || position + 1 >= sequence.num_prompt()) return;
  const TokenId next = sequence.tokens[static_cast<std::size_t>(position + 1)];
  noted.push_back(position_logprobs(logits, next, sequence.request().prompt_logprobs));
}

/// Takes the chosen token into the sequence, with the text it gives, and sees whether it is the last one.
void Engine::Impl::accept(Sequence& sequence, TokenId id) {
  const Request& request = sequence.request();
  Generation& result = sequence.result;
  sequence.last_token = Clock::now();
  if (sequence.num_output() == 0) sequence.first_token = sequence.last_token;
  result.timings.tokens_s.push_back(
      static_cast<float>(seconds_between(sequence.accepted->submitted, sequence.last_token)));
  sequence.tokens.push_back(id);
  Event event{.request = sequence.id(), .sample = sequence.sample, .token = id};
  if (request.logprobs >= 0) event.logprobs = result.logprobs.back();
  const bool is_end = (!request.ignore_eos && contains(info.eos_ids, id)) || contains(request.stop_ids, id);
  if (sequence.decoder && !is_end) event.text = sequence.stop.feed(sequence.decoder->push(id));
  outcome_.events.push_back(std::move(event));
  if (is_end || sequence.stop.stopped()) {
    outcome_.end = FinishReason::kStop;
  } else if (sequence.num_output() >= sequence.max_output) {
    outcome_.end = FinishReason::kLength;
  }
  if (outcome_.end) outcome_.open = false;
}

/// The step's rows of a sequence are over: brings the cache in line with what came of them, then tells the listener.
void Engine::Impl::settle(const StepPlan::Entry& entry) {
  Sequence& sequence = *entry.sequence;
  CacheLease& lease = sequence.lease;
  const bool right = outcome_.accepted == entry.num_guesses;
  // States that saw a wrong guess go back to before the step, and see the right tokens in the next one.
  const bool again = manager_.has_states() && !right;
  manager_.settle_state(lease, right);
  if (!again && outcome_.end != FinishReason::kError) {
    const std::int64_t rows = entry.num_rows - entry.num_guesses + outcome_.accepted;
    manager_.advance(lease, sequence.tokens, lease.computed + rows);
    if (manager_.has_states() && sequence.num_output() == 0) manager_.snapshot(lease);
  }
  if (!outcome_.events.empty()) {
    Speculation& speculation = sequence.result.speculation;
    ++speculation.steps;
    speculation.drafted += entry.num_guesses;
    speculation.accepted += outcome_.accepted;
    if (entry.num_guesses > 0 && !outcome_.end) sequence.draft_length.learn(entry.num_guesses, outcome_.accepted);
    add_to_stats(sequence, entry);
  }
  const bool ends = outcome_.end.has_value();
  const std::size_t told_here = outcome_.events.size() - (ends && !outcome_.events.empty() ? 1 : 0);
  for (std::size_t i = 0; i < told_here; ++i) {
    sequence.result.text += outcome_.events[i].text;
    std::string error;
    if (tell(sequence, outcome_.events[i], error)) continue;
    finish(sequence, FinishReason::kError, {}, std::move(error));
    return;
  }
  if (!ends) return;
  Event last;
  if (!outcome_.events.empty()) last = std::move(outcome_.events.back());
  finish(sequence, *outcome_.end, std::move(last), std::move(outcome_.error));
}

/// False, with the message, when the listener threw.
bool Engine::Impl::tell(Sequence& sequence, const Event& event, std::string& error) {
  const auto& on_event = sequence.request().on_event;
  if (!on_event) return true;
  try {
    on_event(event);
    return true;
  } catch (const std::exception& e) {
    error = std::string("on_event threw: ") + e.what();
  } catch (...) {
    error = "on_event threw something that is no std::exception";
  }
  return false;
}

/// Ends a sample. `last` is the event of its last token, or empty.
void Engine::Impl::finish(Sequence& sequence, FinishReason reason, Event last, std::string error) {
  last.request = sequence.id();
  last.sample = sequence.sample;
  if (sequence.decoder && !sequence.stop.stopped()) {
    last.text += sequence.stop.feed(sequence.decoder->flush());
    if (!sequence.stop.stopped()) last.text += sequence.stop.flush();
  }
  const auto now = Clock::now();
  Generation& result = sequence.result;
  result.text += last.text;
  result.stopped_by = sequence.stop.match();
  result.prompt_ids = sequence.request().prompt_ids;
  result.output_ids.assign(sequence.tokens.begin() + sequence.num_prompt(), sequence.tokens.end());
  result.finish_reason = reason;
  result.error = std::move(error);
  const auto submitted = sequence.accepted->submitted;
  result.timings.finished_s = seconds_between(submitted, now);
  result.timings.started_s = seconds_between(submitted, sequence.was_started() ? sequence.started : now);
  if (!result.output_ids.empty()) {
    result.prefill_s = seconds_between(sequence.started, sequence.first_token);
    result.decode_s = seconds_between(sequence.first_token, sequence.last_token);
  }
  drafter_->forget(sequence.id(), sequence.sample);
  // Out of the scheduler first, so that the listener may submit again.
  const auto owned = scheduler_.remove(&sequence, /*keep=*/reason != FinishReason::kError);
  last.finished = std::make_shared<const Generation>(std::move(owned->result));
  std::string ignored;  // it has heard of the end, whatever it throws
  tell(*owned, last, ignored);
}

/// Runs the sequence once more from its start with a probe, and says where the numbers went wrong.
std::string Engine::Impl::explain_non_finite(Sequence& sequence) {
  FiniteProbe probe;
  if (sequence.lease.state != kNoState) cache_.clear_state(sequence.lease.state);
  std::vector<std::int32_t> positions;
  const std::int64_t total = sequence.num_tokens();
  const std::int64_t hidden_size = loaded_.model->hidden_size();
  std::vector<float> hidden(static_cast<std::size_t>(hidden_size));
  for (std::int64_t first = 0; first < total && !probe.where(); first += step_tokens_) {
    const std::int64_t rows = std::min(step_tokens_, total - first);
    positions.resize(static_cast<std::size_t>(rows));
    std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(first));
    const SequenceSlice slice{0, rows, sequence.lease.blocks, sequence.lease.state};
    const auto last = static_cast<std::int32_t>(rows - 1);
    const auto tokens =
        std::span(sequence.tokens).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows));
    loaded_.model->forward(context(&probe), {tokens, positions, {&slice, 1}, {&last, 1}}, cache_,
                           {hidden.data(), 1, hidden_size, hidden_size});
  }
  return "the logits are not finite: NaN or infinity first appears in " + probe.where().value_or("the head");
}

void Engine::Impl::add_to_stats(const Sequence& sequence, const StepPlan::Entry& entry) {
  const auto tokens = std::ssize(outcome_.events);
  step_stats_.output_tokens += tokens;
  step_stats_.speculation.drafted += entry.num_guesses;
  step_stats_.speculation.accepted += outcome_.accepted;
  if (sequence.num_output() == tokens) step_stats_.cached_tokens += sequence.result.cached_tokens;
}

/// Notes what the step was and took, for the next ones and for those who ask. Whether there is more to do.
bool Engine::Impl::note_step(const StepPlan& plan, Clock::time_point began) {
  EngineStats& stats = step_stats_;
  if (!plan.empty()) {
    StepTimes::Step step{.seconds = seconds_between(began, Clock::now())};
    for (const StepPlan::Entry& entry : plan.entries) {
      const std::int64_t rows = entry.num_rows - entry.num_guesses;
      (rows == 1 ? step.decode_rows : step.prompt_rows) += rows;
      step.draft_rows += entry.num_guesses;
    }
    times_.learn(step);
    ++stats.steps;
    stats.speculation.steps += stats.output_tokens > stats_.output_tokens;
    stats.rows += std::ssize(plan.token_ids);
    stats.max_batch = std::max(stats.max_batch, std::ssize(plan.entries));
  }
  stats.running = scheduler_.num_running();
  stats.waiting = scheduler_.num_waiting();
  stats.preemptions = scheduler_.num_preemptions();
  stats.kv_blocks_live = manager_.num_live();
  stats.kv_blocks_cached = manager_.num_idle();
  stats.kv_blocks_peak = std::max(stats.kv_blocks_peak, live_in_step_);
  const std::lock_guard lock(inbox_mutex_);
  stats_ = stats;
  return has_mail_ || !scheduler_.idle();
}

// ---- Beside the step -------------------------------------------------------------------------------------------------

bool Engine::Impl::step() {
  refuse_listener("step()");
  if (has_thread_) throw Error(ErrorCode::kInvalidArgument, "step(): the engine has a thread of its own that steps");
  const Turn turn(*this);
  return step_now();
}

std::vector<TokenScore> Engine::Impl::read_out(std::span<const float> residual, int count) {
  const std::int64_t hidden_size = loaded_.model->hidden_size();
  if (std::ssize(residual) != hidden_size) {
    throw Error(ErrorCode::kInvalidArgument, "residual: expected " + std::to_string(hidden_size) + " numbers, found " +
                                                 std::to_string(residual.size()));
  }
  const Turn turn(*this);
  std::vector<float> normed(residual.size());
  const MatrixView<float> row{normed.data(), 1, hidden_size, hidden_size};
  loaded_.model->final_norm(context(nullptr), {residual.data(), 1, hidden_size, hidden_size}, row);
  std::vector<float> logits(static_cast<std::size_t>(info.vocab_size));
  loaded_.model->head().logits(context(nullptr), row, {logits.data(), 1, info.vocab_size, info.vocab_size});
  return top_tokens(logits, count);
}

void Engine::Impl::clear_prefix_cache() {
  const Turn turn(*this);
  manager_.clear_idle();
  step_stats_.kv_blocks_cached = manager_.num_idle();
  const std::lock_guard lock(inbox_mutex_);
  stats_.kv_blocks_cached = step_stats_.kv_blocks_cached;
}

void Engine::Impl::set_profile(Profile* profile) {
  const Turn turn(*this);
  profile_ = profile;
}

}  // namespace vitrine
