// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace vitrine {
namespace {

/// The sequence that a row belongs to. Few sequences, sorted by first_row.
const SequenceSlice& slice_of(const Batch& batch, std::int64_t row) {
  auto after = std::upper_bound(batch.sequences.begin(), batch.sequences.end(), row,
                                [](std::int64_t r, const SequenceSlice& s) { return r < s.first_row; });
  return *std::prev(after);
}

/// The positions one row attends to: [first, last], counted from the start of the block that holds `first`.
struct Visible {
  std::int64_t first, last;
  std::int64_t origin;  // first position of the first block touched
  std::int64_t count() const { return last + 1 - origin; }
};

Visible visible_from(std::int64_t position, std::int64_t window) {
  const std::int64_t first = window > 0 ? std::max<std::int64_t>(0, position - window + 1) : 0;
  return {first, position, first / kBlockTokens * kBlockTokens};
}

/// Softmax of the scores of the query heads that share KV head `kv`, into scores [group, visible.count()].
void attention_weights(const Context& context, const AttentionShape& shape, const SequenceSlice& sequence,
                       const float* q, const PagedKv& cache, std::int64_t kv, const Visible& visible,
                       MatrixView<float> scores) {
  const std::int64_t group = shape.query_heads / shape.kv_heads;
  const float scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  for (std::int64_t start = visible.origin; start <= visible.last; start += kBlockTokens) {
    const BlockId block = sequence.block_table[static_cast<std::size_t>(start / kBlockTokens)];
    context.kernels.attention_scores[cache.storage]({.q = q,
                                                     .keys = cache.keys(block, kv),
                                                     .scores = scores.data + (start - visible.origin),
                                                     .heads = group,
                                                     .tokens = std::min(kBlockTokens, visible.last + 1 - start),
                                                     .head_dim = shape.head_dim,
                                                     .q_stride = shape.head_dim,
                                                     .scores_stride = scores.stride,
                                                     .scale = scale});
  }
  for (std::int64_t h = 0; h < group; ++h) {
    std::fill_n(scores.row(h), visible.first - visible.origin, -INFINITY);  // before the window
    context.kernels.softmax(scores.row(h), visible.count());
  }
}

}  // namespace

std::int64_t attention_scratch_floats(const AttentionShape& shape, std::int64_t context_length) {
  return shape.query_heads / shape.kv_heads * (context_length + kBlockTokens);
}

void qk_norm_rope(const Context& context, MatrixView<float> x, std::int64_t head_dim, const RmsNorm& norm,
                  const RopeTable& table) {
  constexpr std::int64_t kHeadsPerChunk = 32;
  const std::int64_t heads = x.cols / head_dim;
  context.pool.parallel_for(x.rows * heads, kHeadsPerChunk, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t row = i / heads;
      float* head = x.row(row) + i % heads * head_dim;
      context.kernels.rms_norm(head, norm.weight.data(), head_dim, norm.eps, head);
      context.kernels.rope(head, table.cosines.row(row), table.sines.row(row), head_dim);
    }
  });
}

void store_kv(const Context& context, const Batch& batch, MatrixView<const float> k, MatrixView<const float> v,
              std::int64_t head_dim, const PagedKv& cache) {
  constexpr std::int64_t kRowsPerChunk = 16;
  const std::int64_t kv_heads = k.cols / head_dim;
  context.pool.parallel_for(k.rows, kRowsPerChunk, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t position = batch.positions[static_cast<std::size_t>(row)];
      const BlockId block = slice_of(batch, row).block_table[static_cast<std::size_t>(position / kBlockTokens)];
      const std::int64_t offset = position % kBlockTokens * cache.token_bytes;
      for (std::int64_t h = 0; h < kv_heads; ++h) {
        const auto store = context.kernels.store[cache.storage];
        store(k.row(row) + h * head_dim, cache.keys(block, h) + offset, head_dim);
        store(v.row(row) + h * head_dim, cache.values(block, h) + offset, head_dim);
      }
    }
  });
}

void attention(const Context& context, const AttentionShape& shape, const Batch& batch, MatrixView<const float> q,
               const PagedKv& cache, MatrixView<float> out) {
  const std::int64_t group = shape.query_heads / shape.kv_heads;
  const std::int64_t longest = *std::max_element(batch.positions.begin(), batch.positions.end()) + 1;
  const WorkspaceScope scope(context.workspace);
  const auto scratch = context.workspace.matrix<float>(context.pool.size(), attention_scratch_floats(shape, longest));

  // KV heads outside, rows inside: neighbouring items read the same keys.
  context.pool.parallel_for(shape.kv_heads * q.rows, 1, [&](std::int64_t begin, std::int64_t end, int thread) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t kv = i / q.rows;
      const std::int64_t row = i % q.rows;
      const SequenceSlice& sequence = slice_of(batch, row);
      const Visible visible = visible_from(batch.positions[static_cast<std::size_t>(row)], shape.window);
      const MatrixView<float> scores{scratch.row(thread), group, visible.count(), longest + kBlockTokens};
      const std::int64_t first_head = kv * group * shape.head_dim;
      attention_weights(context, shape, sequence, q.row(row) + first_head, cache, kv, visible, scores);

      float* result = out.row(row) + first_head;
      std::fill_n(result, group * shape.head_dim, 0.0f);
      for (std::int64_t start = visible.origin; start <= visible.last; start += kBlockTokens) {
        const BlockId block = sequence.block_table[static_cast<std::size_t>(start / kBlockTokens)];
        context.kernels.attention_values[cache.storage]({.weights = scores.data + (start - visible.origin),
                                                         .values = cache.values(block, kv),
                                                         .out = result,
                                                         .heads = group,
                                                         .tokens = std::min(kBlockTokens, visible.last + 1 - start),
                                                         .head_dim = shape.head_dim,
                                                         .weights_stride = scores.stride,
                                                         .out_stride = shape.head_dim});
      }
    }
  });
}

void observe_attention(const Context& context, const AttentionShape& shape, const Batch& batch,
                       MatrixView<const float> q, const PagedKv& cache, int layer) {
  const std::int64_t group = shape.query_heads / shape.kv_heads;
  for (const std::int32_t row : batch.output_rows) {
    const std::int64_t position = batch.positions[static_cast<std::size_t>(row)];
    const Visible visible = visible_from(position, shape.window);
    std::vector<float> weights(static_cast<std::size_t>(shape.query_heads * (position + 1)), 0.0f);
    for (std::int64_t kv = 0; kv < shape.kv_heads; ++kv) {
      float* first = weights.data() + kv * group * (position + 1) + visible.origin;
      attention_weights(context, shape, slice_of(batch, row), q.row(row) + kv * group * shape.head_dim, cache, kv,
                        visible, {first, group, visible.count(), position + 1});
    }
    context.probe->record(ProbePoint::kAttentionWeights, layer,
                          {weights.data(), shape.query_heads, position + 1, position + 1});
  }
}

}  // namespace vitrine
