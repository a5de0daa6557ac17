// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/operand.h"

namespace vitrine {

/// Grouped-query attention (Ainslie et al. 2023): query head h reads KV head h / (query_heads / kv_heads).
struct AttentionShape {
  std::int64_t query_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t window = 0;  // a query at t sees keys s with t - s < window; 0: all of them
};

/// Writes keys and values [rows, heads * head_dim] of the batch's rows from `first_row` on and the KV heads from
/// `first_head` on into their places in the cache, rounded as it stores. On the calling thread; a block of the cache is
/// cleared by its first token, so its tokens of one head come in order.
void store_kv(const Kernels& kernels, const Batch& batch, std::int64_t first_row, MatrixView<const float> k,
              MatrixView<const float> v, std::int64_t head_dim, std::int64_t first_head, const PagedKv& cache);

/// out = softmax(q k^T / sqrt(head_dim)) v over the visible positions, read from the cache as stored. Causal.
/// The order of a row's sums depends on its own position alone, so its bits do not depend on the other rows.
void attention(const Context& context, const AttentionShape& shape, const Batch& batch, MatrixView<const float> q,
               const PagedKv& cache, MatrixView<float> out);
/// The same, packed for the product that follows.
void attention(const Context& context, const AttentionShape& shape, const Batch& batch, MatrixView<const float> q,
               const PagedKv& cache, const PackedRows& out);

/// Hands the softmax of each output row, [query_heads, visible positions], to the probe; positions before a sliding
/// window are zero. Only for a probe that wants them: computes them again.
void observe_attention(const Context& context, const AttentionShape& shape, const Batch& batch,
                       MatrixView<const float> q, const PagedKv& cache, int layer);

/// Upper bound of what attention takes from the workspace, whatever the context.
std::int64_t attention_workspace_bytes(const AttentionShape& shape, std::int64_t rows, int threads);

}  // namespace vitrine
