// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler.h"

#include <algorithm>

namespace vitrine {

Sequence* Scheduler::find(RequestId id) noexcept {
  for (const auto& sequence : running_) {
    if (sequence->id == id) return sequence.get();
  }
  for (const auto& sequence : waiting_) {
    if (sequence->id == id) return sequence.get();
  }
  return nullptr;
}

Sequence* Scheduler::find_cancelled() noexcept {
  for (const auto& sequence : running_) {
    if (sequence->cancelled) return sequence.get();
  }
  for (const auto& sequence : waiting_) {
    if (sequence->cancelled) return sequence.get();
  }
  return nullptr;
}

void Scheduler::admit() {
  while (!waiting_.empty()) {
    Sequence& next = *waiting_.front();
    const std::int64_t needed = blocks_for(next.num_prompt() + next.max_output);
    if (!blocks_.reserve(needed)) return;
    next.reserved_blocks = needed;
    next.started = Clock::now();
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
}

void Scheduler::append(Sequence& sequence, std::int64_t rows) {
  VITRINE_CHECK(rows > 0);
  const auto first_row = static_cast<std::int64_t>(plan_.token_ids.size());
  while (std::ssize(sequence.block_table) < blocks_for(sequence.num_computed + rows)) {
    sequence.block_table.push_back(blocks_.take());
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t position = sequence.num_computed + i;
    plan_.token_ids.push_back(sequence.tokens[static_cast<std::size_t>(position)]);
    plan_.positions.push_back(static_cast<std::int32_t>(position));
  }
  plan_.slices.push_back({first_row, rows, sequence.block_table});
  plan_.sequences.push_back(&sequence);
  if (rows == sequence.num_pending()) {  // its last token is among them: the next one can be chosen
    plan_.output_rows.push_back(static_cast<std::int32_t>(first_row + rows - 1));
    plan_.sampled.push_back(&sequence);
  }
}

const StepPlan& Scheduler::plan() {
  plan_.token_ids.clear();
  plan_.positions.clear();
  plan_.slices.clear();
  plan_.output_rows.clear();
  plan_.sequences.clear();
  plan_.sampled.clear();
  admit();

  // A watched sequence runs alone, so that its probe sees its rows and no others.
  const auto watched = std::find_if(running_.begin(), running_.end(),
                                    [](const auto& sequence) { return sequence->request.probe != nullptr; });
  if (watched != running_.end()) {
    append(**watched, std::min((*watched)->num_pending(), step_tokens_));
    return plan_;
  }

  std::int64_t room = step_tokens_;
  for (const bool prompts : {false, true}) {
    for (const auto& sequence : running_) {
      const bool is_prompt = sequence->num_pending() > 1;
      if (is_prompt != prompts || room == 0) continue;
      const std::int64_t rows = std::min(sequence->num_pending(), room);
      append(*sequence, rows);
      room -= rows;
    }
  }
  return plan_;
}

std::unique_ptr<Sequence> Scheduler::remove(Sequence* sequence) {
  blocks_.release(sequence->reserved_blocks, sequence->block_table);
  sequence->reserved_blocks = 0;
  const auto is_it = [&](const auto& other) { return other.get() == sequence; };
  std::unique_ptr<Sequence> removed;
  if (const auto it = std::find_if(running_.begin(), running_.end(), is_it); it != running_.end()) {
    removed = std::move(*it);
    running_.erase(it);
  } else if (const auto at = std::find_if(waiting_.begin(), waiting_.end(), is_it); at != waiting_.end()) {
    removed = std::move(*at);
    waiting_.erase(at);
  }
  return removed;
}

}  // namespace vitrine
