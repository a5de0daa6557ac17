// SPDX-License-Identifier: Apache-2.0
#include "support/engine_model.h"

#include <algorithm>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

namespace vitrine::test {
namespace {

void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(std::string("broken: ") + what);
}

bool is_watched(const Sequence* sequence) { return sequence->request().probe != nullptr; }

}  // namespace

EngineModel::EngineModel(const Setup& setup)
    : setup_(setup),
      store_(setup.num_blocks, 2 * setup.max_sequences + setup.max_snapshots),
      cache_(store_, {.num_blocks = setup.num_blocks,
                      .max_idle_blocks = setup.max_idle_blocks,
                      .has_states = setup.has_states,
                      .max_sequences = setup.max_sequences,
                      .max_snapshots = setup.max_snapshots}),
      scheduler_(cache_, {.step_tokens = setup.step_tokens, .max_sequences = setup.max_sequences}) {}

// ---- From outside ----------------------------------------------------------------------------------------------------

RequestId EngineModel::submit(Request request, RequestId fork_of, std::int64_t fork_position) {
  const std::int64_t room = setup_.num_blocks * kBlockTokens - std::ssize(request.prompt_ids);
  if (request.prompt_ids.empty() || room <= 0) return 0;
  if (request.probe != nullptr) request.prefix_cache = request.speculation = false;
  request.sampling = {.greedy = true, .seed = 0};
  const RequestId id = next_id_++;
  // Texts of different salts, and of requests that share nothing, are different texts.
  const bool shares_with_source = fork_of != 0 && request.probe == nullptr;
  const TextHash own = mixed(static_cast<TextHash>(id) + 1000);
  seeds_[id] = shares_with_source ? seeds_.at(fork_of) : request.prefix_cache ? mixed(request.cache_salt.size()) : own;
  auto accepted = std::make_shared<AcceptedRequest>();
  accepted->id = id;
  accepted->request = std::move(request);
  const auto num_prompt = std::ssize(accepted->request.prompt_ids);
  for (int i = 0; i < accepted->request.n; ++i) {
    auto sequence = std::make_unique<Sequence>(accepted, i, Sampler(accepted->request.sampling, kEnd + 1, {}));
    sequence->max_output = accepted->request.max_tokens < 0 ? room : std::min(room, accepted->request.max_tokens);
    const bool of_sample_0 = i > 0 && num_prompt > 1;
    sequence->fork_of = of_sample_0 ? id : fork_of;
    sequence->fork_position = of_sample_0 ? num_prompt - 1 : std::min(fork_position, num_prompt - 1);
    known_[sequence.get()].seed = seeds_[id];
    scheduler_.add(std::move(sequence));
  }
  return id;
}

RequestId EngineModel::fork(RequestId id, std::int64_t position, Request request) {
  const Sequence* const source = scheduler_.find(id, 0);
  if (source == nullptr) return 0;
  position = std::clamp<std::int64_t>(position, 1, source->num_tokens());
  std::vector<TokenId>& prompt = request.prompt_ids;
  prompt.insert(prompt.begin(), source->tokens.begin(), source->tokens.begin() + position);
  request.cache_salt = source->request().cache_salt;
  request.prefix_cache = source->request().prefix_cache;
  return submit(std::move(request), id, position);
}

void EngineModel::cancel(RequestId id, bool error) {
  while (Sequence* sequence = scheduler_.find_if([&](const Sequence& s) { return s.id() == id; })) {
    sequence->ended = FinishReason::kCancelled;
    finish(*sequence, error);
  }
  check_all();
}

void EngineModel::clear_idle() {
  cache_.clear_idle();
  expect(cache_.num_idle() == 0 && cache_.num_snapshots() == 0, "clear_idle() forgets all that nobody holds");
  check_all();
}

std::vector<RequestId> EngineModel::alive() {
  std::set<RequestId> ids;
  scheduler_.find_if([&](const Sequence& sequence) {
    ids.insert(sequence.id());
    return false;
  });
  return {ids.begin(), ids.end()};
}

// ---- The step --------------------------------------------------------------------------------------------------------

bool EngineModel::step(Dice& dice) {
  if (scheduler_.idle()) return false;
  scheduler_.admit();
  check_all();
  draft(dice);
  std::vector<Sequence*> admitted;
  for (const auto& sequence : scheduler_.running()) admitted.push_back(sequence.get());
  const std::int64_t most = 1 + dice(setup_.step_tokens);
  const StepPlan& plan =
      scheduler_.plan([&](std::int64_t room, std::int64_t, std::int64_t) { return std::min(room, most); });
  plan_ = &plan;
  check_plan(plan);
  check_turns(plan, admitted);
  forward(plan);
  read_back(plan);
  choose(plan);
  check_all();
  return !scheduler_.idle();
}

/// Guesses of which the first ones are right, all, or none.
void EngineModel::draft(Dice& dice) {
  for (const auto& running : scheduler_.running()) {
    Sequence& sequence = *running;
    sequence.guesses.clear();
    if (sequence.num_pending() != 1 || !sequence.request().speculation || is_watched(&sequence) ||
        sequence.num_output() == 0) {
      continue;
    }
    const std::int64_t length = std::min(dice(6), sequence.max_output - sequence.num_output() - 1);
    const std::int64_t right = dice(6);
    TextHash so_far = text(sequence, sequence.num_tokens());
    for (std::int64_t i = 0; i < length; ++i) {
      const TokenId truth = next_token(so_far, sequence.sample);
      const TokenId guess = i < right ? truth : static_cast<TokenId>((truth + 1) % (kEnd + 1));
      sequence.guesses.push_back(guess);
      so_far = grown(so_far, guess);
    }
  }
}

void EngineModel::forward(const StepPlan& plan) {
  std::set<BlockId> written;
  for (std::size_t i = 0; i < plan.entries.size(); ++i) {
    const StepPlan::Entry& entry = plan.entries[i];
    Sequence& sequence = *entry.sequence;
    const SequenceSlice& slice = plan.slices[i];
    if (entry.num_guesses > 0 && setup_.has_states) cache_.hold_state(sequence.lease);
    const std::int64_t position = sequence.lease.computed;
    TextHash so_far = text(sequence, position);
    if (setup_.has_states) {
      const TextHash seen = store_.state(slice.state_slot);
      expect(seen == (position == 0 ? FakeStore::kNothing : so_far), "the state has seen the text so far");
    }
    std::set<BlockId> own;
    for (std::int64_t row = 0; row < slice.num_rows; ++row) {
      const std::int64_t p = position + row;
      const BlockId block = slice.block_table[static_cast<std::size_t>(p / kBlockTokens)];
      so_far = grown(so_far, plan.token_ids[static_cast<std::size_t>(slice.first_row + row)]);
      store_.block(block)[static_cast<std::size_t>(p % kBlockTokens)] = so_far;
      own.insert(block);
    }
    for (const BlockId block : own) expect(written.insert(block).second, "a block is written by one sequence");
    if (setup_.has_states) store_.state(slice.state_slot) = so_far;
  }
}

/// What the rows of the step see: all positions of their own sequence, after everything was written.
void EngineModel::read_back(const StepPlan& plan) {
  for (std::size_t i = 0; i < plan.entries.size(); ++i) {
    check_contents(*plan.entries[i].sequence);
    const SequenceSlice& slice = plan.slices[i];
    const std::int64_t position = plan.entries[i].sequence->lease.computed;
    TextHash so_far = text(*plan.entries[i].sequence, position);
    for (std::int64_t row = 0; row < slice.num_rows; ++row) {
      const std::int64_t p = position + row;
      so_far = grown(so_far, plan.token_ids[static_cast<std::size_t>(slice.first_row + row)]);
      const BlockId block = slice.block_table[static_cast<std::size_t>(p / kBlockTokens)];
      expect(store_.block(block)[static_cast<std::size_t>(p % kBlockTokens)] == so_far,
             "a row is where it was written");
    }
  }
}

void EngineModel::choose(const StepPlan& plan) {
  for (const StepPlan::Entry& entry : plan.entries) {
    Outcome outcome;
    for (std::int64_t i = 0; i < entry.num_outputs && outcome.open; ++i) take_row(entry, i, outcome);
    settle(entry, outcome);
  }
}

void EngineModel::take_row(const StepPlan::Entry& entry, std::int64_t index, Outcome& outcome) {
  Sequence& sequence = *entry.sequence;
  const std::int64_t position = sequence.lease.computed + entry.num_rows - entry.num_outputs + index;
  const std::int64_t first_sampled = entry.samples ? entry.num_outputs - 1 - entry.num_guesses : entry.num_outputs;
  if (index < first_sampled) {
    auto& noted = sequence.result.prompt_logprobs;
    if (std::ssize(noted) == position && position + 1 < sequence.num_prompt()) noted.emplace_back();
    return;
  }
  const BlockId block = sequence.lease.blocks[static_cast<std::size_t>(position / kBlockTokens)];
  const TextHash seen = store_.block(block)[static_cast<std::size_t>(position % kBlockTokens)];
  const TokenId token = next_token(seen, sequence.sample);
  sequence.tokens.push_back(token);
  if (token == kEnd || sequence.num_output() >= sequence.max_output) {
    outcome.ends = true;
    outcome.open = false;
  }
  const std::int64_t guess = index - first_sampled;
  if (guess == entry.num_guesses) return;
  if (sequence.guesses[static_cast<std::size_t>(guess)] == token) {
    ++outcome.accepted;
  } else {
    outcome.open = false;
  }
}

void EngineModel::settle(const StepPlan::Entry& entry, const Outcome& outcome) {
  Sequence& sequence = *entry.sequence;
  CacheLease& lease = sequence.lease;
  const bool right = outcome.accepted == entry.num_guesses;
  cache_.settle_state(lease, right);
  if (right || !setup_.has_states) {
    const std::int64_t rows = entry.num_rows - entry.num_guesses + outcome.accepted;
    cache_.advance(lease, sequence.tokens, lease.computed + rows);
    if (setup_.has_states && sequence.num_output() == 0) cache_.snapshot(lease);
  }
  if (outcome.ends) finish(sequence, /*error=*/false);
}

void EngineModel::finish(Sequence& sequence, bool error) {
  const std::vector<TokenId> expected = alone(sequence);
  const std::vector<TokenId>& tokens = sequence.tokens;
  if (sequence.ended) {
    const bool begins_it =
        tokens.size() <= expected.size() && std::equal(tokens.begin(), tokens.end(), expected.begin());
    expect(begins_it, "what was cancelled begins what it would be alone");
  } else {
    expect(tokens == expected, "a text is what it would be alone");
    const bool looks = sequence.request().prompt_logprobs >= 0 && sequence.sample == 0;
    expect(!looks || std::ssize(sequence.result.prompt_logprobs) == sequence.num_prompt() - 1,
           "each token of the prompt was looked at");
  }
  known_.erase(&sequence);
  const auto owned = scheduler_.remove(&sequence, /*keep=*/!error);
  expect(owned.get() == &sequence, "what is removed comes back");
  finished_.push_back({owned->id(), owned->sample, std::move(owned->tokens), std::move(owned->result)});
}

void EngineModel::drain(Dice& dice) {
  const std::int64_t most = steps_left();
  std::int64_t steps = 0;
  for (bool more = !scheduler_.idle(); more; ++steps) {
    expect(steps < most, "all end in time");
    more = step(dice);
  }
}

/// The first in the order advances by a row or a token in each step, so it is done after twice its tokens. Who begins
/// again had to make room for another, which then came before it for good, unless that one was there before.
std::int64_t EngineModel::steps_left() {
  std::int64_t tokens = 0;
  scheduler_.find_if([&](const Sequence& sequence) {
    tokens += sequence.num_prompt() + sequence.max_output;
    return false;
  });
  return 4 * tokens;
}

// ---- What must hold --------------------------------------------------------------------------------------------------

void EngineModel::check_plan(const StepPlan& plan) {
  expect(!plan.empty() || scheduler_.idle(), "where there is something to do there is a step");
  expect(scheduler_.num_running() <= setup_.max_sequences, "no more run than may");
  expect(std::ssize(plan.token_ids) <= setup_.step_tokens, "no more rows than a step may have");
  expect(plan.positions.size() == plan.token_ids.size() && plan.slices.size() == plan.entries.size(), "sizes agree");
  std::set<const Sequence*> there;
  for (const auto& sequence : scheduler_.running()) there.insert(sequence.get());
  std::int64_t row = 0;
  std::int64_t output = 0;
  for (std::size_t i = 0; i < plan.entries.size(); ++i) {
    const StepPlan::Entry& entry = plan.entries[i];
    expect(there.erase(entry.sequence) == 1, "rows are those of who runs, once each");
    expect(plan.slices[i].first_row == row && plan.slices[i].num_rows == entry.num_rows, "rows stand in order");
    expect(entry.first_output == output, "outputs stand in order");
    check_entry(plan, i);
    row += entry.num_rows;
    output += entry.num_outputs;
  }
  expect(row == std::ssize(plan.token_ids) && output == std::ssize(plan.output_rows), "no rows beside");
}

void EngineModel::check_entry(const StepPlan& plan, std::size_t index) {
  const StepPlan::Entry& entry = plan.entries[index];
  const SequenceSlice& slice = plan.slices[index];
  const Sequence& sequence = *entry.sequence;
  const CacheLease& lease = sequence.lease;
  const std::int64_t own = entry.num_rows - entry.num_guesses;
  expect(own > 0 && own <= sequence.num_pending(), "rows are of tokens that are there");
  expect(entry.num_guesses == 0 || own == sequence.num_pending(), "guesses follow the last token");
  expect(entry.samples == (own == sequence.num_pending()), "it samples after its last token");
  expect(std::equal(slice.block_table.begin(), slice.block_table.end(), lease.blocks.begin(), lease.blocks.end()) &&
             slice.state_slot == lease.state && (lease.state != kNoState) == setup_.has_states,
         "the slice is the lease's");
  for (std::int64_t i = 0; i < entry.num_rows; ++i) {
    const auto row = static_cast<std::size_t>(slice.first_row + i);
    const auto position = static_cast<std::size_t>(lease.computed + i);
    expect(plan.positions[row] == static_cast<std::int32_t>(position), "positions follow what is computed");
    const TokenId token = i < own ? sequence.tokens[position] : sequence.guesses[static_cast<std::size_t>(i - own)];
    expect(plan.token_ids[row] == token, "rows are the sequence's tokens and guesses");
  }
  for (std::int64_t i = 0; i < entry.num_outputs; ++i) {
    const std::int64_t row = slice.first_row + entry.num_rows - entry.num_outputs + i;
    expect(plan.output_rows[static_cast<std::size_t>(entry.first_output + i)] == row, "outputs are of the last rows");
  }
}

/// Whose turn it is. `admitted`: who ran before the cache had to make room.
void EngineModel::check_turns(const StepPlan& plan, std::span<Sequence* const> admitted) {
  std::set<const Sequence*> has_rows, runs;
  for (const StepPlan::Entry& entry : plan.entries) has_rows.insert(entry.sequence);
  for (const auto& sequence : scheduler_.running()) runs.insert(sequence.get());
  for (std::size_t i = 0; i < admitted.size(); ++i) {
    expect(i == 0 || goes_before(*admitted[i - 1], *admitted[i]), "they run in their order");
    expect((runs.count(admitted[i]) > 0) == (i < runs.size()), "the last in the order make room");
  }
  const bool watched = std::any_of(runs.begin(), runs.end(), is_watched);
  if (watched) {
    expect(plan.entries.size() == 1 && is_watched(plan.entries[0].sequence), "a watched one runs alone");
    return;
  }
  const bool was_watched = std::any_of(admitted.begin(), admitted.end(), is_watched);
  for (const auto& sequence : scheduler_.running()) {
    const bool first = sequence == scheduler_.running().front();
    expect(was_watched || !first || has_rows.count(sequence.get()) > 0, "the first in the order goes on");
    const bool decodes = sequence->num_pending() == 1;
    expect(was_watched || !decodes || has_rows.count(sequence.get()) > 0, "who decodes has a row");
  }
}

void EngineModel::check_contents(const Sequence& sequence) {
  const CacheLease& lease = sequence.lease;
  if (lease.computed == 0) return;
  text(sequence, lease.computed);
  const std::vector<TextHash>& texts = known_.at(&sequence).texts;
  for (std::int64_t first = 0; first < lease.computed; first += kBlockTokens) {
    const auto count = static_cast<std::ptrdiff_t>(std::min(kBlockTokens, lease.computed - first));
    const FakeStore::Block& block = store_.block(lease.blocks[static_cast<std::size_t>(first / kBlockTokens)]);
    expect(std::equal(block.begin(), block.begin() + count, texts.begin() + first), "the cache has the text so far");
  }
}

void EngineModel::check_all() {
  std::vector<const CacheLease*> leases;
  scheduler_.find_if([&](const Sequence& sequence) {
    leases.push_back(&sequence.lease);
    return false;
  });
  cache_.check(leases);
  for (const auto& sequence : scheduler_.running()) {
    check_contents(*sequence);
    const CacheLease& lease = sequence->lease;
    if (!setup_.has_states) continue;
    const TextHash seen = lease.computed == 0 ? FakeStore::kNothing : text(*sequence, lease.computed);
    expect(store_.state(lease.state) == seen, "the state has seen what is computed");
  }
}

void EngineModel::check_empty() {
  expect(scheduler_.idle() && cache_.num_live() == 0, "when all have ended nothing is held");
  expect(known_.empty(), "all have ended");
  clear_idle();
  expect(cache_.num_available() == cache_.num_blocks(), "no block is lost");
}

// ---- Texts -----------------------------------------------------------------------------------------------------------

TextHash EngineModel::text(const Sequence& sequence, std::int64_t count) {
  Known& known = known_.at(&sequence);
  for (auto i = std::ssize(known.texts); i < count; ++i) {
    known.texts.push_back(
        grown(i == 0 ? known.seed : known.texts.back(), sequence.tokens[static_cast<std::size_t>(i)]));
  }
  return count == 0 ? known.seed : known.texts[static_cast<std::size_t>(count - 1)];
}

TokenId EngineModel::next_token(TextHash text, int sample) noexcept {
  const TextHash drawn = mixed(text + static_cast<TextHash>(sample));
  return drawn % 32 == 0 ? kEnd : static_cast<TokenId>(drawn / 32 % 2);
}

std::vector<TokenId> EngineModel::alone(const Sequence& sequence) const {
  std::vector<TokenId> tokens = sequence.request().prompt_ids;
  TextHash so_far = seeds_.at(sequence.id());
  for (const TokenId token : tokens) so_far = grown(so_far, token);
  for (std::int64_t i = 0; i < sequence.max_output; ++i) {
    tokens.push_back(next_token(so_far, sequence.sample));
    if (tokens.back() == kEnd) break;
    so_far = grown(so_far, tokens.back());
  }
  return tokens;
}

}  // namespace vitrine::test
