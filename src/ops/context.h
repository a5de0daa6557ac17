// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/probe.h>
#include <vitrine/profile.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "tensor/paged_kv.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace vitrine {

class TimedContext;

/// What every operation needs; passed, never global.
struct Context {
  ThreadPool& pool;
  const Kernels& kernels;
  Workspace& workspace;
  Probe* probe = nullptr;
  Profile* profile = nullptr;

  /// Rows that a thread takes at a time where a row is little work: fewer where others would be idle.
  std::int64_t rows_at_once(std::int64_t rows) const noexcept {
    constexpr std::int64_t kMost = 8;
    return std::clamp<std::int64_t>(rows / pool.size(), 1, kMost);
  }

  /// Stands for this context in one call, and adds the time of that call to the part.
  TimedContext timed(StepPart part) const noexcept;

  /// Hands `values` to the probe if there is one that wants them.
  void observe(ProbePoint point, int layer, MatrixView<const float> values) const {
    if (probe != nullptr && probe->wants(point, layer)) {
      probe->record(point, layer, {values.data, values.rows, values.cols, values.stride});
    }
  }
};

class TimedContext {
 public:
  TimedContext(const Context& context, StepPart part) noexcept : context_(context), timer_(context.profile, part) {}
  operator const Context&() const noexcept { return context_; }

 private:
  const Context& context_;
  PartTimer timer_;
};

inline TimedContext Context::timed(StepPart part) const noexcept { return {*this, part}; }

/// One sequence's share of a step: rows [first_row, first_row + num_rows) are its next tokens.
struct SequenceSlice {
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  std::span<const BlockId> block_table;  // block of positions [32 b, 32 b + 32), for all positions so far and these
  StateSlot state_slot = kNoState;       // where its recurrent states are; kNoState: the model has none
};

/// The rows of one step: chunks of prompts and single tokens of several sequences, one after another.
struct Batch {
  std::span<const std::int32_t> token_ids;  // one per row
  std::span<const std::int32_t> positions;  // one per row; consecutive within a sequence
  std::span<const SequenceSlice> sequences;
  std::span<const std::int32_t> output_rows;  // rows whose hidden state is wanted

  std::int64_t num_rows() const noexcept { return static_cast<std::int64_t>(token_ids.size()); }
};

}  // namespace vitrine
