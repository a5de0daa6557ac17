// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/attention_generic.h"

namespace vitrine {
namespace {

/// The sequence that a row belongs to. Few sequences, sorted by first_row.
const SequenceSlice& slice_of(const Batch& batch, std::int64_t row) {
  auto after = std::upper_bound(batch.sequences.begin(), batch.sequences.end(), row,
                                [](std::int64_t r, const SequenceSlice& s) { return r < s.first_row; });
  return *std::prev(after);
}

std::int64_t position_of(const Batch& batch, std::int64_t row) {
  return batch.positions[static_cast<std::size_t>(row)];
}

/// Consecutive tokens of a sequence.
struct Piece {
  const SequenceSlice* sequence;
  std::int64_t row, tokens;
};

/// The rows of a batch cut into pieces of at most `tokens`, no two sequences in one. Sequences are few: looked up by
/// walking over them.
struct Pieces {
  const Batch& batch;
  std::int64_t tokens;

  std::int64_t count(const SequenceSlice& sequence) const { return (sequence.num_rows + tokens - 1) / tokens; }
  std::int64_t count() const {
    std::int64_t total = 0;
    for (const SequenceSlice& sequence : batch.sequences) total += count(sequence);
    return total;
  }
  Piece at(std::int64_t index) const {
    auto sequence = batch.sequences.begin();
    for (; index >= count(*sequence); ++sequence) index -= count(*sequence);
    const std::int64_t begin = index * tokens;
    return {&*sequence, sequence->first_row + begin, std::min(tokens, sequence->num_rows - begin)};
  }
};

/// Tokens of a work item: as many as a kernel takes, fewer where that would leave threads idle.
std::int64_t tokens_of_item(const Context& context, const AttentionShape& shape, std::int64_t rows) {
  constexpr std::int64_t kItemsPerThread = 4;
  constexpr std::int64_t kFewestRows = 32;
  const std::int64_t group = shape.query_heads / shape.kv_heads;
  const std::int64_t fair = rows * shape.query_heads / (context.pool.size() * kItemsPerThread);
  return std::max<std::int64_t>(std::clamp(fair, kFewestRows, kAttentionRows) / group, 1);
}

AttentionTask task_for(const AttentionShape& shape, const Batch& batch, const Piece& piece, const PagedKv& cache,
                       std::int64_t kv) {
  AttentionTask task{};
  task.tokens = piece.tokens;
  task.heads = shape.query_heads / shape.kv_heads;
  task.head_dim = shape.head_dim;
  task.position = position_of(batch, piece.row);
  task.window = shape.window;
  task.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
  task.cache = reinterpret_cast<const unsigned char*>(cache.head(0, kv));
  task.block_bytes = cache.block_bytes;
  task.blocks = piece.sequence->block_table.data();
  return task;
}

}  // namespace

std::int64_t attention_workspace_bytes(const AttentionShape& shape, std::int64_t rows, int threads) {
  return Workspace::padded_bytes<float>(rows, shape.query_heads * shape.head_dim) +
         Workspace::padded_bytes<unsigned char>(threads, attention_scratch_bytes(shape.head_dim));
}

void store_kv(const Kernels& kernels, const Batch& batch, std::int64_t first_row, MatrixView<const float> k,
              MatrixView<const float> v, std::int64_t head_dim, std::int64_t first_head, const PagedKv& cache) {
  for (const SequenceSlice& sequence : batch.sequences) {
    const std::int64_t end = std::min(first_row + k.rows, sequence.first_row + sequence.num_rows);
    for (std::int64_t row = std::max(first_row, sequence.first_row); row < end;) {
      const std::int64_t position = position_of(batch, row);
      const std::int64_t slot = position % kBlockTokens;
      const std::int64_t tokens = std::min(end - row, kBlockTokens - slot);
      const BlockId block = sequence.block_table[static_cast<std::size_t>(position / kBlockTokens)];
      for (std::int64_t at = 0; at < k.cols; at += head_dim) {
        kernels.store_kv[cache.storage](
            {.k = k.row(row - first_row) + at,
             .v = v.row(row - first_row) + at,
             .k_stride = k.stride,
             .v_stride = v.stride,
             .tokens = tokens,
             .head_dim = head_dim,
             .block = reinterpret_cast<unsigned char*>(cache.head(block, first_head + at / head_dim)),
             .slot = slot});
      }
      row += tokens;
    }
  }
}

namespace {

/// Most items of a token each that a thread takes in one go.
constexpr std::int64_t kItemsOfSingleTokens = 4;

/// finished(row, rows, begin, end): the columns of the rows are there. kv_at_once: KV heads that are finished together.
template <class Finished>
void attend(const Context& context, const AttentionShape& shape, const Batch& batch, MatrixView<const float> q,
            const PagedKv& cache, MatrixView<float> out, std::int64_t kv_at_once, Finished finished) {
  const std::int64_t group = shape.query_heads / shape.kv_heads;
  const std::int64_t heads = std::min(group, kAttentionRows);  // of a task
  const WorkspaceScope scope(context.workspace);
  const auto scratch =
      context.workspace.matrix<unsigned char>(context.pool.size(), attention_scratch_bytes(shape.head_dim));
  const Pieces pieces{batch, tokens_of_item(context, shape, q.rows)};
  const std::int64_t count = pieces.count();
  const std::int64_t kv_items = (shape.kv_heads + kv_at_once - 1) / kv_at_once;
  const auto kernel = context.kernels.attention[cache.storage];
  // Single tokens are little work: a thread takes several, and fetches the next while it is at one.
  const bool single_tokens = count == std::ssize(batch.sequences);
  const std::int64_t grain =
      single_tokens ? std::clamp<std::int64_t>(kv_items * count / (4 * context.pool.size()), 1, kItemsOfSingleTokens)
                    : 1;

  // KV heads outside, so that neighbouring items read the same keys; the last pieces, which see most, first.
  context.pool.parallel_for(kv_items * count, grain, [&](std::int64_t begin, std::int64_t end, int thread) {
    const auto task_at = [&](std::int64_t item, std::int64_t kv, std::int64_t head) {
      const Piece piece = pieces.at(count - 1 - item % count);
      AttentionTask task = task_for(shape, batch, piece, cache, kv);
      task.heads = std::min(heads, group - head);
      task.q = q.row(piece.row) + (kv * group + head) * shape.head_dim;
      task.q_stride = q.stride;
      task.out = out.row(piece.row) + (kv * group + head) * shape.head_dim;
      task.out_stride = out.stride;
      task.scratch = scratch.row(thread);
      return task;
    };
    for (std::int64_t item = begin; item < end; ++item) {
      const Piece piece = pieces.at(count - 1 - item % count);
      const std::int64_t first_kv = item / count * kv_at_once;
      const std::int64_t end_kv = std::min(first_kv + kv_at_once, shape.kv_heads);
      AttentionTask next{};
      if (item + 1 < end) next = task_at(item + 1, (item + 1) / count * kv_at_once, 0);
      for (std::int64_t kv = first_kv; kv < end_kv; ++kv) {
        for (std::int64_t head = 0; head < group; head += heads) {
          AttentionTask task = task_at(item, kv, head);
          if (next.tokens > 0 && kv + 1 == end_kv && head + heads >= group) task.next = &next;
          kernel(task);
        }
      }
      finished(piece.row, piece.tokens, first_kv * group * shape.head_dim, end_kv * group * shape.head_dim);
    }
  });
}

}  // namespace

void attention(const Context& context, const AttentionShape& shape, const Batch& batch, MatrixView<const float> q,
               const PagedKv& cache, MatrixView<float> out) {
  attend(context, shape, batch, q, cache, out, 1, [](std::int64_t, std::int64_t, std::int64_t, std::int64_t) {});
}

void attention(const Context& context, const AttentionShape& shape, const Batch& batch, MatrixView<const float> q,
               const PagedKv& cache, const PackedRows& out) {
  const WorkspaceScope scope(context.workspace);
  const auto attended = context.workspace.matrix<float>(out.rows(), out.k);
  if (q.rows <= kTileRows) {  // heads are what threads share
    attention(context, shape, batch, q, cache, attended);
    store_rows(context, attended, out);
    return;
  }
  const std::int64_t kv_columns = shape.query_heads / shape.kv_heads * shape.head_dim;
  const std::int64_t kv_at_once = out.columns_at_once() / std::gcd(out.columns_at_once(), kv_columns);
  attend(context, shape, batch, q, cache, attended, kv_at_once,
         [&](std::int64_t row, std::int64_t rows, std::int64_t begin, std::int64_t end) {
           for (std::int64_t r = row; r < row + rows; ++r) {
             store_row(context.kernels, out, r, attended.row(r) + begin, begin, end - begin);
           }
         });
}

void observe_attention(const Context& context, const AttentionShape& shape, const Batch& batch,
                       MatrixView<const float> q, const PagedKv& cache, int layer) {
  const std::int64_t group = shape.query_heads / shape.kv_heads;
  for (const std::int32_t row : batch.output_rows) {
    const Piece piece{&slice_of(batch, row), row, 1};
    const std::int64_t length = position_of(batch, row) + 1;
    std::vector<float> weights(static_cast<std::size_t>(shape.query_heads * length));
    context.pool.parallel_for(shape.query_heads, 1, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t head = begin; head < end; ++head) {
        AttentionTask task = task_for(shape, batch, piece, cache, head / group);
        task.heads = 1;
        task.q = q.row(row) + head * shape.head_dim;
        attention_weights(static_cast<KvStorage>(cache.storage), task, weights.data() + head * length);
      }
    });
    context.probe->record(ProbePoint::kAttentionWeights, layer, {weights.data(), shape.query_heads, length, length});
  }
}

}  // namespace vitrine
