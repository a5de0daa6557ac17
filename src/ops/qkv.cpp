// SPDX-License-Identifier: Apache-2.0
#include "ops/qkv.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "ops/attention.h"

namespace vitrine {
namespace {

/// Rows that are taken from the product to the cache in one go: their heads fit the second cache of a core beside x.
constexpr std::int64_t kRowsAtOnce = 16 * kTileRows;

/// The fewest heads that are whole panels of a weight.
std::int64_t heads_at_once(std::int64_t head_dim) { return kPanelRows / std::gcd(head_dim, kPanelRows); }

/// out = every head of some rows normalised, then turned; the first is the batch's row `first`. out may be heads.
void norm_and_turn(const Kernels& kernels, MatrixView<const float> heads, std::int64_t head_dim, const RmsNorm& norm,
                   const RopeTable& rope, std::int64_t first, MatrixView<float> out) {
  for (std::int64_t r = 0; r < heads.rows; ++r) {
    for (std::int64_t at = 0; at < heads.cols; at += head_dim) {
      float* head = out.row(r) + at;
      kernels.rms_norm(heads.row(r) + at, norm.weight.data(), head_dim, norm.eps, head);
      kernels.rope(head, rope.cosines.row(first + r), rope.sines.row(first + r), head_dim);
    }
  }
}

}  // namespace

void project_qkv(const Context& context, const PackedRows& x, const Qkv& weights, std::int64_t head_dim,
                 const RopeTable& rope, const Batch& batch, const PagedKv& cache, MatrixView<float> q) {
  const Kernels& kernels = context.kernels;
  VITRINE_CHECK(x.k == weights.q_proj.in_features() && x.type == weights.q_proj.operand(kernels));
  const WorkspaceScope scope(context.workspace);
  const int threads = context.pool.size();
  const auto scratch = take_matmul_scratch(context, x);
  const std::int64_t at_once = std::min(x.rows(), kRowsAtOnce);
  const std::int64_t width = heads_at_once(head_dim) * head_dim;
  const auto room = context.workspace.matrix<float>(threads, 2 * at_once * width);
  const std::int64_t kv_size = weights.k_proj.out_features();
  const std::int64_t kv_items = (kv_size + width - 1) / width;
  const std::int64_t q_items = (q.cols + width - 1) / width;

  // Keys and values first: they are the larger pieces.
  context.pool.parallel_for(kv_items + q_items, 1, [&](std::int64_t item, std::int64_t, int thread) {
    const bool is_kv = item < kv_items;
    const std::int64_t begin = (is_kv ? item : item - kv_items) * width;
    const std::int64_t end = std::min(begin + width, is_kv ? kv_size : q.cols);
    for (std::int64_t first = 0; first < x.rows(); first += at_once) {
      const std::int64_t rows = std::min(at_once, x.rows() - first);
      const PackedRows some = x.slice(first, rows);
      const auto project = [&](const Linear& weight, float* to) {
        const MatrixView<float> heads{to, rows, end - begin, width};
        weight.columns(kernels, some, begin, end, heads, scratch.row(thread));
        return heads;
      };
      if (is_kv) {
        const auto k = project(weights.k_proj, room.row(thread));
        const auto v = project(weights.v_proj, room.row(thread) + at_once * width);
        norm_and_turn(kernels, k, head_dim, weights.k_norm, rope, first, k);
        store_kv(kernels, batch, first, k, v, head_dim, begin / head_dim, cache);
      } else {
        norm_and_turn(kernels, project(weights.q_proj, room.row(thread)), head_dim, weights.q_norm, rope, first,
                      {q.row(first) + begin, rows, end - begin, q.stride});
      }
    }
  });
}

std::int64_t qkv_workspace_bytes(std::int64_t rows, std::int64_t k, std::int64_t head_dim, int threads) {
  const std::int64_t width = heads_at_once(head_dim) * head_dim;
  return linear_workspace_bytes(rows, k, threads) +
         Workspace::padded_bytes<float>(threads, 2 * std::min(rows, kRowsAtOnce) * width);
}

}  // namespace vitrine
