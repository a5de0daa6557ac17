// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.h"

#include <algorithm>

namespace vitrine {

void StepPlan::clear() {
  token_ids.clear();
  positions.clear();
  slices.clear();
  output_rows.clear();
  entries.clear();
}

void Scheduler::insert(List& list, std::unique_ptr<Sequence> sequence) {
  const auto after = std::upper_bound(list.begin(), list.end(), sequence,
                                      [](const auto& a, const auto& b) { return goes_before(*a, *b); });
  list.insert(after, std::move(sequence));
}

void Scheduler::add(std::unique_ptr<Sequence> sequence) { insert(waiting_, std::move(sequence)); }

Scheduler::Scheduler(CacheManager& cache, const Options& options) : cache_(cache), options_(options) {
  // Else those that decode could fill every step, and prompts would never get a row.
  VITRINE_CHECK(options_.max_sequences >= 1 && options_.max_sequences <= options_.step_tokens);
}

Sequence* Scheduler::find(RequestId id, int sample) noexcept {
  return find_if([&](const Sequence& sequence) { return sequence.id() == id && sequence.sample == sample; });
}

std::unique_ptr<Sequence> Scheduler::remove(Sequence* sequence, bool keep) {
  cache_.release(sequence->lease, sequence->tokens, keep);
  for (List* list : {&running_, &waiting_}) {
    const auto it =
        std::find_if(list->begin(), list->end(), [&](const auto& other) { return other.get() == sequence; });
    if (it == list->end()) continue;
    std::unique_ptr<Sequence> removed = std::move(*it);
    list->erase(it);
    return removed;
  }
  return nullptr;
}

// ---- Who runs --------------------------------------------------------------------------------------------------------

void Scheduler::admit() {
  for (std::size_t i = 0; i < waiting_.size() && num_running() < options_.max_sequences;) {
    if (waits_for_fork(*waiting_[i])) {
      ++i;
      continue;
    }
    if (!begin(*waiting_[i])) return;  // nobody overtakes it, or it might wait for ever
    insert(running_, std::move(waiting_[i]));
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

/// What the sequence is to begin as a copy of, if that is still there. Not where each of its rows is to be seen.
const Sequence* Scheduler::source_of(const Sequence& sequence) {
  const bool looked_at = sequence.needs_prompt_logprobs() || sequence.request().probe != nullptr;
  if (sequence.fork_position == 0 || looked_at) return nullptr;
  return find(sequence.fork_of, sequence.fork_sample);
}

/// Whether what the sequence is to begin with is still being computed by another.
bool Scheduler::waits_for_fork(const Sequence& sequence) {
  const Sequence* const source = source_of(sequence);
  return source != nullptr && source->lease.computed < sequence.fork_position;
}

/// Gives the sequence what the cache has of its beginning; false while the cache has no room for the rest.
bool Scheduler::begin(Sequence& sequence) {
  const Sequence* source = source_of(sequence);
  CacheManager::Hit hit;
  if (!sequence.needs_prompt_logprobs()) hit = cache_.find(sequence.lease, sequence.tokens);
  // No copy where the index has more, as of one that had to make room, or where the state is another by now.
  if (source != nullptr &&
      (hit.tokens > sequence.fork_position || !cache_.can_fork(source->lease, sequence.fork_position))) {
    source = nullptr;
  }
  const std::int64_t common = source != nullptr ? sequence.fork_position : hit.tokens;
  const std::int64_t shared = source != nullptr ? blocks_for(common) : hit.held_blocks;
  const bool copies = common % kBlockTokens != 0;
  // What it needs for its next token, what the others need for theirs, and a block of growth for each.
  std::int64_t needed = blocks_for(sequence.num_tokens() + 1) - shared + copies + num_running();
  for (const auto& other : running_) {
    needed += std::max<std::int64_t>(0, blocks_for(other->num_tokens() + 1) - std::ssize(other->lease.blocks));
  }
  if (!running_.empty() && needed > cache_.num_available()) return false;

  if (source != nullptr) {
    cache_.fork(sequence.lease, source->lease, sequence.fork_position);
  } else {
    cache_.admit(sequence.lease, hit);
    if (!sequence.was_started()) sequence.result.cached_tokens = hit.tokens;
  }
  if (!sequence.was_started()) sequence.started = Clock::now();
  return true;
}

/// It gives up its blocks and waits for its turn to begin again. What it computed is found in the index then, unless
/// others needed the room.
void Scheduler::preempt(Sequence& sequence) {
  ++num_preemptions_;
  ++sequence.result.preemptions;
  sequence.guesses.clear();
  insert(waiting_, remove(&sequence, /*keep=*/true));
}

// ---- Which rows a step has -------------------------------------------------------------------------------------------

const StepPlan& Scheduler::plan(const PromptRows& prompt_rows) {
  plan_.clear();
  do {
    share_out(prompt_rows);
    make_room();
  } while (shares_.empty() && !running_.empty());  // a watched sequence, alone in the step, had to make room itself
  for (const Share& share : shares_) lay_out(share);
  return plan_;
}

void Scheduler::share_out(const PromptRows& prompt_rows) {
  shares_.clear();
  prompts_.clear();
  // A watched sequence runs alone, so that its probe sees its rows and no others.
  const auto watched = std::find_if(running_.begin(), running_.end(),
                                    [](const auto& sequence) { return sequence->request().probe != nullptr; });
  if (watched != running_.end()) {
    Sequence& sequence = **watched;
    shares_.push_back({&sequence, whole_chunk(sequence, std::min(sequence.num_pending(), options_.step_tokens))});
    return;
  }
  for (const auto& sequence : running_) {
    if (sequence->num_pending() > 1) {
      prompts_.push_back(sequence.get());
    } else {
      shares_.push_back({sequence.get(), 1});
    }
  }
  std::int64_t room = options_.step_tokens - std::ssize(shares_);
  const std::int64_t decoding = std::ssize(shares_);
  std::int64_t guess_room = prompts_.empty() ? room : room / 2;
  for (Share& share : shares_) {
    share.guesses = std::min(std::ssize(share.sequence->guesses), guess_room);
    guess_room -= share.guesses;
    room -= share.guesses;
  }
  if (prompts_.empty()) return;
  if (decoding > 0) room = std::min(room, prompt_rows(room, std::ssize(prompts_), decoding));
  share_out_prompts(room);
}

/// Half of the room is the first prompt's, the other half goes to the shortest ones, and what they leave to the first.
void Scheduler::share_out_prompts(std::int64_t room) {
  Sequence& first = *prompts_.front();
  std::vector<Sequence*>& others = prompts_;
  others.erase(others.begin());
  std::int64_t left = others.empty() ? 0 : room - std::min(first.num_pending(), (room + 1) / 2);
  room -= left;
  std::stable_sort(others.begin(), others.end(),
                   [](const Sequence* a, const Sequence* b) { return a->num_pending() < b->num_pending(); });
  for (Sequence* const sequence : others) {
    const std::int64_t rows = whole_chunk(*sequence, std::min(sequence->num_pending(), left));
    if (rows == 0) continue;
    shares_.push_back({sequence, rows});
    left -= rows;
  }
  const std::int64_t rows = whole_chunk(first, std::min(first.num_pending(), room + left));
  if (rows > 0) shares_.push_back({&first, rows});
}

/// How many of `rows` to take so that the step ends where a snapshot of the states can be kept: at the end of a block,
/// and once before the last token of the prompt.
std::int64_t Scheduler::whole_chunk(const Sequence& sequence, std::int64_t rows) const noexcept {
  if (!cache_.has_states() || rows <= 0) return rows;
  const std::int64_t computed = sequence.lease.computed;
  const std::int64_t last = std::min(computed + rows, sequence.num_tokens() - 1);
  const std::int64_t end = last / kBlockTokens * kBlockTokens;
  return end > computed ? end - computed : rows;
}

/// Makes the blocks of all shares writable. Where there are not enough, the last in the order gives up its own.
void Scheduler::make_room() {
  std::sort(shares_.begin(), shares_.end(),
            [](const Share& a, const Share& b) { return goes_before(*a.sequence, *b.sequence); });
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    Share& share = shares_[i];
    CacheLease& lease = share.sequence->lease;
    if (share.guesses > 0 && !cache_.grow(lease, lease.computed + share.rows + share.guesses)) share.guesses = 0;
    while (!cache_.grow(lease, lease.computed + share.rows)) {
      VITRINE_CHECK(running_.size() > 1);  // a sequence alone always has room: submit() saw to that
      Sequence& last = *running_.back();
      const bool itself = &last == share.sequence;
      std::erase_if(shares_, [&](const Share& other) { return other.sequence == &last; });
      preempt(last);
      if (itself) break;
    }
  }
}

void Scheduler::lay_out(const Share& share) {
  Sequence& sequence = *share.sequence;
  const CacheLease& lease = sequence.lease;
  const auto first_row = std::ssize(plan_.token_ids);
  const std::int64_t rows = share.rows + share.guesses;
  VITRINE_CHECK(share.rows > 0 && share.rows <= sequence.num_pending());
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t position = lease.computed + i;
    plan_.token_ids.push_back(i < share.rows ? sequence.tokens[static_cast<std::size_t>(position)]
                                             : sequence.guesses[static_cast<std::size_t>(i - share.rows)]);
    plan_.positions.push_back(static_cast<std::int32_t>(position));
  }
  plan_.slices.push_back({first_row, rows, lease.blocks, lease.state});
  // Its last token is among them: the next one can be chosen.
  const bool samples = share.rows == sequence.num_pending();
  const std::int64_t outputs = sequence.needs_prompt_logprobs() ? rows : samples ? 1 + share.guesses : 0;
  plan_.entries.push_back({.sequence = &sequence,
                           .num_rows = rows,
                           .num_guesses = share.guesses,
                           .first_output = std::ssize(plan_.output_rows),
                           .num_outputs = outputs,
                           .samples = samples});
  for (std::int64_t i = rows - outputs; i < rows; ++i) {
    plan_.output_rows.push_back(static_cast<std::int32_t>(first_row + i));
  }
}

}  // namespace vitrine
