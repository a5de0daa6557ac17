// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/probe.h>

#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/kernels.h"
#include "tensor/paged_kv.h"
#include "tensor/tensor.h"
#include "tensor/workspace.h"

namespace vitrine {

/// What every operation needs; passed, never global.
struct Context {
  ThreadPool& pool;
  const Kernels& kernels;
  Workspace& workspace;
  Probe* probe = nullptr;

  /// Hands `values` to the probe if there is one that wants them.
  void observe(ProbePoint point, int layer, MatrixView<const float> values) const {
    if (probe != nullptr && probe->wants(point, layer)) {
      probe->record(point, layer, {values.data, values.rows, values.cols, values.stride});
    }
  }
};

/// One sequence's share of a step: rows [first_row, first_row + num_rows) are its next tokens.
struct SequenceSlice {
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
  std::span<const BlockId> block_table;  // block of positions [32 b, 32 b + 32), for all positions so far and these
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
