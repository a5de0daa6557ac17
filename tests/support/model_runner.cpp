// SPDX-License-Identifier: Apache-2.0
#include "support/model_runner.h"

#include <algorithm>
#include <numeric>

#include "kernels/dispatch.h"

namespace vitrine::test {

constexpr std::int64_t kMaxRows = 512;

ModelRunner::ModelRunner(const std::filesystem::path& folder, Options options)
    : kernels_(select_kernels(options.isa, options.exact)),
      pool_(options.threads),
      checkpoint_(Checkpoint::open(folder)),
      weights_(pool_, *checkpoint_, {.type = options.weights, .exact = options.exact}),
      model_(make_model(checkpoint_, weights_)),
      cache_(model_->cache_layers(), options.blocks, options.kv),
      workspace_(model_->workspace_bytes(kMaxRows, options.threads) +
                 model_->head().workspace_bytes(kMaxRows, options.threads)) {}

std::vector<float> ModelRunner::hidden(std::span<const TokenId> ids, std::span<const std::int64_t> chunks,
                                       Probe* probe) {
  const std::int64_t size = model_->hidden_size();
  const auto total = static_cast<std::int64_t>(ids.size());
  std::vector<float> out(static_cast<std::size_t>(total * size));
  // Blocks from the back and out of order, so that nothing works by accident.
  std::vector<BlockId> table;
  for (std::int64_t b = (total + kBlockTokens - 1) / kBlockTokens; b-- > 0;)
    table.push_back(static_cast<BlockId>((b * 7) % cache_.num_blocks()));
  std::size_t chunk = 0;
  for (std::int64_t first = 0; first < total; ++chunk) {
    const std::int64_t rows = std::min(chunks[std::min(chunk, chunks.size() - 1)], total - first);
    std::vector<std::int32_t> positions(static_cast<std::size_t>(rows));
    std::iota(positions.begin(), positions.end(), static_cast<std::int32_t>(first));
    std::vector<std::int32_t> outputs(static_cast<std::size_t>(rows));
    std::iota(outputs.begin(), outputs.end(), 0);
    const SequenceSlice slice{0, rows, table};
    model_->forward(
        context(probe),
        {ids.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows)), positions, {&slice, 1}, outputs},
        cache_, {out.data() + first * size, rows, size, size});
    first += rows;
  }
  return out;
}

std::vector<float> ModelRunner::logits(std::span<const float> hidden) {
  const std::int64_t size = model_->hidden_size();
  const std::int64_t rows = static_cast<std::int64_t>(hidden.size()) / size;
  const std::int64_t vocab = model_->head().vocab_size();
  std::vector<float> out(static_cast<std::size_t>(rows * vocab));
  model_->head().logits(context(), {hidden.data(), rows, size, size}, {out.data(), rows, vocab, vocab});
  return out;
}

std::vector<std::string> runnable_isas() {
  std::vector<std::string> names;
  for (const IsaInfo& choice : kernel_choices()) {
    if (choice.available) names.push_back(choice.name);
  }
  return names;
}

}  // namespace vitrine::test
