// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/rope.h"

namespace vitrine {

/// What queries, keys and values are made with.
struct Qkv {
  Linear q_proj, k_proj, v_proj;
  RmsNorm q_norm, k_norm;  // of every head by itself
};

/// q [rows, query heads * head_dim] = the queries of x; its keys and values go to their places in the cache, rounded as
/// it stores. Queries and keys are normalised head by head and turned by their row's position.
/// A few heads at a time, from the product to the cache, so that nothing of them leaves a core in between.
void project_qkv(const Context& context, const PackedRows& x, const Qkv& weights, std::int64_t head_dim,
                 const RopeTable& rope, const Batch& batch, const PagedKv& cache, MatrixView<float> q);

/// Upper bound of what that takes from the workspace.
std::int64_t qkv_workspace_bytes(std::int64_t rows, std::int64_t k, std::int64_t head_dim, int threads);

}  // namespace vitrine
