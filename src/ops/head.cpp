// SPDX-License-Identifier: Apache-2.0
#include "ops/head.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace vitrine {
namespace {

/// Keeps the better of two; ties go to the lower id, since chunks and threads come in any order.
void merge(Head::Best& best, const Head::Best& other) {
  const bool finite = best.finite && other.finite;
  const bool wins =
      other.id >= 0 && (best.id < 0 || other.logit > best.logit || (other.logit == best.logit && other.id < best.id));
  if (wins) best = other;
  best.finite = finite;
}

/// What `best`, of other chunks, becomes with this one. Its largest seldom is the largest so far: only then it is sought.
void merge_chunk(Head::Best& best, const Kernels& kernels, const float* logits, std::int64_t count,
                 std::int64_t first_id) {
  const float largest = kernels.largest(logits, count);
  Head::Best chunk{.id = static_cast<TokenId>(first_id), .logit = largest, .finite = !std::isnan(largest)};
  if (best.id < 0 || !(largest < best.logit)) {
    chunk.id += static_cast<TokenId>(std::find(logits, logits + count - 1, largest) - logits);
  }
  merge(best, chunk);
}

}  // namespace

PackedRows Head::pack(const Context& context, MatrixView<const float> hidden) const {
  const PackedRows x = take_packed_rows(context.workspace, weight_.operand(context.kernels), hidden.rows, hidden.cols);
  store_rows(context, hidden, x);
  return x;
}

void Head::logits(const Context& context, MatrixView<const float> hidden, MatrixView<float> out) const {
  const WorkspaceScope scope(context.workspace);
  linear(context, pack(context, hidden), weight_, out);
}

void Head::argmax(const Context& context, MatrixView<const float> hidden, std::int64_t usable_vocab,
                  std::span<Best> best) const {
  VITRINE_CHECK(usable_vocab <= vocab_size() && hidden.rows == static_cast<std::int64_t>(best.size()));
  const WorkspaceScope scope(context.workspace);
  const PackedRows x = pack(context, hidden);
  const int threads = context.pool.size();
  const std::int64_t grain = weight_.grain(hidden.rows, threads);
  const auto scratch = take_matmul_scratch(context, x);
  const auto chunks = context.workspace.matrix<float>(threads, hidden.rows * grain);
  const auto bests = context.workspace.matrix<Best>(threads, hidden.rows);
  for (std::int64_t t = 0; t < bests.rows; ++t) std::fill_n(bests.row(t), hidden.rows, Best{});

  context.pool.parallel_for(usable_vocab, grain, [&](std::int64_t begin, std::int64_t end, int thread) {
    const MatrixView<float> chunk{chunks.row(thread), hidden.rows, end - begin, grain};
    weight_.columns(context.kernels, x, begin, end, chunk, scratch.row(thread));
    for (std::int64_t r = 0; r < hidden.rows; ++r) {
      merge_chunk(bests.row(thread)[r], context.kernels, chunk.row(r), end - begin, begin);
    }
  });

  for (std::int64_t r = 0; r < hidden.rows; ++r) {
    best[static_cast<std::size_t>(r)] = Best{};
    for (std::int64_t t = 0; t < bests.rows; ++t) merge(best[static_cast<std::size_t>(r)], bests.row(t)[r]);
  }
}

std::int64_t Head::workspace_bytes(std::int64_t rows, int threads) const {
  const std::int64_t grain = std::max(weight_.grain(1, threads), weight_.grain(rows, threads));
  return packed_rows_bytes(rows, weight_.in_features()) + linear_workspace_bytes(rows, weight_.in_features(), threads) +
         Workspace::padded_bytes<float>(threads, rows * grain) + Workspace::padded_bytes<Best>(threads, rows);
}

}  // namespace vitrine
