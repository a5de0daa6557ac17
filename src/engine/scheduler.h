// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/sequence.h"
#include "ops/context.h"

namespace vitrine {

/// The rows of the next step and whose they are.
struct StepPlan {
  /// One sequence's part.
  struct Entry {
    Sequence* sequence = nullptr;
    std::int64_t num_rows = 0;
    std::int64_t num_guesses = 0;  // of its rows, the last ones
    std::int64_t first_output = 0, num_outputs = 0;
    bool samples = false;  // its last rows give tokens: 1 + num_guesses outputs
  };

  std::vector<std::int32_t> token_ids;
  std::vector<std::int32_t> positions;
  std::vector<SequenceSlice> slices;  // one per entry
  std::vector<std::int32_t> output_rows;
  std::vector<Entry> entries;

  bool empty() const noexcept { return entries.empty(); }
  Batch batch() const noexcept { return {token_ids, positions, slices, output_rows}; }
  void clear();
};

/// Decides which sequences run and which rows each step has. By priority, then first come, first served, with three
/// exceptions: sequences that decode get their row before prompts get theirs; of the rows for prompts the first prompt
/// gets half and the shortest ones the rest, so that a long one starves nobody; and when the cache is full, the last in
/// the order gives up its blocks and begins again later.
class Scheduler {
 public:
  struct Options {
    std::int64_t step_tokens = 0;    // rows of a step, at most
    std::int64_t max_sequences = 0;  // that run at once; at most step_tokens
  };
  /// How many rows of `prompts` prompts may go beside `decoding` sequences, where there is room for `room`.
  using PromptRows = std::function<std::int64_t(std::int64_t room, std::int64_t prompts, std::int64_t decoding)>;

  Scheduler(CacheManager& cache, const Options& options);

  void add(std::unique_ptr<Sequence> sequence);
  /// Lets sequences begin while there is room; after it running() is what the next step may have rows of.
  void admit();
  /// Lays out the next step, of what is admitted, with the sequences' guesses as far as there is room for them. At most
  /// `prompt_rows` rows of prompts go beside sequences that decode. Valid until the next call.
  const StepPlan& plan(const PromptRows& prompt_rows);
  /// Gives back what the sequence holds of the cache and takes it out. With `keep` it stays for later requests.
  std::unique_ptr<Sequence> remove(Sequence* sequence, bool keep);

  /// The sequence of that request and sample, waiting or running; null if there is none.
  Sequence* find(RequestId id, int sample) noexcept;
  /// Calls visit(sequence) for each, until it returns true; that sequence, or null. It may not add or remove.
  template <class Visit>
  Sequence* find_if(Visit visit) {
    for (auto* list : {&running_, &waiting_}) {
      for (const auto& sequence : *list) {
        if (visit(*sequence)) return sequence.get();
      }
    }
    return nullptr;
  }
  /// In the order of goes_before().
  std::span<const std::unique_ptr<Sequence>> running() const noexcept { return running_; }

  bool idle() const noexcept { return waiting_.empty() && running_.empty(); }
  std::int64_t num_waiting() const noexcept { return std::ssize(waiting_); }
  std::int64_t num_running() const noexcept { return std::ssize(running_); }
  std::int64_t num_preemptions() const noexcept { return num_preemptions_; }

 private:
  using List = std::vector<std::unique_ptr<Sequence>>;  // in the order of goes_before()
  /// What a sequence is to get.
  struct Share {
    Sequence* sequence = nullptr;
    std::int64_t rows = 0;  // of its tokens
    std::int64_t guesses = 0;
  };

  static void insert(List& list, std::unique_ptr<Sequence> sequence);
  bool begin(Sequence& sequence);
  const Sequence* source_of(const Sequence& sequence);
  bool waits_for_fork(const Sequence& sequence);
  void share_out(const PromptRows& prompt_rows);
  void share_out_prompts(std::int64_t room);
  std::int64_t whole_chunk(const Sequence& sequence, std::int64_t rows) const noexcept;
  void make_room();
  void preempt(Sequence& sequence);
  void lay_out(const Share& share);

  CacheManager& cache_;
  Options options_;
  List waiting_, running_;
  std::vector<Share> shares_;
  std::vector<Sequence*> prompts_;
  std::int64_t num_preemptions_ = 0;
  StepPlan plan_;
};

}  // namespace vitrine
