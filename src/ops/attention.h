// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/context.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace vitrine {

/// Grouped-query attention (Ainslie et al. 2023): query head h reads KV head h / (query_heads / kv_heads).
struct AttentionShape {
  std::int64_t query_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t window = 0;  // a query at t sees keys s with t - s < window; 0: all of them
};

/// Normalises every head of x [rows, heads * head_dim] by itself, then turns it by its row's position.
void qk_norm_rope(const Context& context, MatrixView<float> x, std::int64_t head_dim, const RmsNorm& norm,
                  const RopeTable& table);

/// Writes each row's keys and values [rows, kv_heads * head_dim] into its place in the cache, rounded as it stores.
void store_kv(const Context& context, const Batch& batch, MatrixView<const float> k, MatrixView<const float> v,
              std::int64_t head_dim, const PagedKv& cache);

/// out = softmax(q k^T / sqrt(head_dim)) v over the visible positions, read from the cache as stored. Causal.
/// The order of a row's sums depends on its own position alone, so its bits do not depend on the other rows.
void attention(const Context& context, const AttentionShape& shape, const Batch& batch, MatrixView<const float> q,
               const PagedKv& cache, MatrixView<float> out);

/// Hands the softmax of each output row, [query_heads, visible positions], to the probe; positions before a sliding
/// window are zero. Only for a probe that wants them: computes them again.
void observe_attention(const Context& context, const AttentionShape& shape, const Batch& batch,
                       MatrixView<const float> q, const PagedKv& cache, int layer);

/// What attention takes from the workspace, whatever the context.
std::int64_t attention_workspace_bytes(const AttentionShape& shape, int threads);

}  // namespace vitrine
