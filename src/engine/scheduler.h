// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "engine/block_allocator.h"
#include "engine/sequence.h"
#include "ops/context.h"

namespace vitrine {

/// The rows of the next step and whose they are.
struct StepPlan {
  std::vector<std::int32_t> token_ids;
  std::vector<std::int32_t> positions;
  std::vector<SequenceSlice> slices;
  std::vector<std::int32_t> output_rows;
  std::vector<Sequence*> sequences;  // one per slice
  std::vector<Sequence*> sampled;    // one per output row: the sequences that get a token

  bool empty() const noexcept { return slices.empty(); }
  Batch batch() const noexcept { return {token_ids, positions, slices, output_rows}; }
};

/// Decides which sequences run and which rows each step has: first come, first served. A sequence is admitted when the
/// cache can hold it to its end, so none is ever stopped halfway; running ones get their next token before prompts
/// get their next chunk.
class Scheduler {
 public:
  Scheduler(std::int64_t num_blocks, std::int64_t step_tokens) : blocks_(num_blocks), step_tokens_(step_tokens) {}

  void add(std::unique_ptr<Sequence> sequence) { waiting_.push_back(std::move(sequence)); }
  /// The sequence of that id, waiting or running; null if there is none.
  Sequence* find(RequestId id) noexcept;
  /// Admits what fits and lays out the next step. The plan stays valid until the next call.
  const StepPlan& plan();
  /// Gives back the sequence's blocks and takes it out.
  std::unique_ptr<Sequence> remove(Sequence* sequence);
  /// Some sequence marked cancelled, or null.
  Sequence* find_cancelled() noexcept;

  bool idle() const noexcept { return waiting_.empty() && running_.empty(); }
  std::int64_t num_free_blocks() const noexcept { return blocks_.num_free(); }
  std::int64_t num_taken_blocks() const noexcept { return blocks_.num_taken(); }

 private:
  void admit();
  void append(Sequence& sequence, std::int64_t rows);

  BlockAllocator blocks_;
  std::int64_t step_tokens_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;
  StepPlan plan_;
};

/// Blocks that hold `tokens` tokens.
inline std::int64_t blocks_for(std::int64_t tokens) noexcept { return (tokens + kBlockTokens - 1) / kBlockTokens; }

}  // namespace vitrine
