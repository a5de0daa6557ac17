// SPDX-License-Identifier: Apache-2.0
#include "support/scripted_model.h"

#include <algorithm>
#include <cstring>

#include "engine/loaded_model.h"
#include "kernels/dispatch.h"
#include "quant/pack.h"

namespace vitrine::test {
namespace {

std::uint64_t mix(std::uint64_t hash, TokenId token) {
  hash = (hash ^ (static_cast<std::uint64_t>(token) + 1)) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 31);
}

/// The state of a sequence: what it has seen.
struct State {
  std::uint64_t hash = 0;
  std::int64_t count = 0;
};

class ScriptedModel final : public Model {
 public:
  ScriptedModel(Script script, ScriptedOptions options) : script_(std::move(script)), options_(std::move(options)) {
    // The head is the identity: the hidden state of a row has a one where its next token is.
    format_.type = kPackedF32;
    format_.n = format_.k = kScriptedVocab;
    head_bytes_.resize(static_cast<std::size_t>(format_.bytes()));
    std::vector<float> identity(static_cast<std::size_t>(kScriptedVocab * kScriptedVocab));
    for (std::int64_t i = 0; i < kScriptedVocab; ++i) identity[static_cast<std::size_t>(i * kScriptedVocab + i)] = 1;
    for (std::int64_t panel = 0; panel < format_.panels(); ++panel) {
      pack_panel(format_, identity.data() + panel * kPanelRows * kScriptedVocab,
                 std::min<std::int64_t>(kPanelRows, kScriptedVocab - panel * kPanelRows),
                 head_bytes_.data() + panel * format_.panel_bytes());
    }
    head_ = Head(Linear({format_, reinterpret_cast<const std::byte*>(head_bytes_.data())}));
  }

  void forward(const Context&, const Batch& batch, ModelCache& cache, MatrixView<float> hidden) const override {
    if (options_.on_forward) options_.on_forward(batch.num_rows());
    std::int64_t output = 0;
    std::vector<TokenId> text;
    for (const SequenceSlice& slice : batch.sequences) {
      for (std::int64_t r = slice.first_row; r < slice.first_row + slice.num_rows; ++r) {
        const auto position = batch.positions[static_cast<std::size_t>(r)];
        const TokenId token = batch.token_ids[static_cast<std::size_t>(r)];
        store(cache, slice, position, token);
        if (options_.has_state) see(cache, slice, position, token);
        const bool wanted = output < hidden.rows && batch.output_rows[static_cast<std::size_t>(output)] == r;
        if (!wanted) continue;
        text.clear();
        for (std::int64_t p = 0; p <= position; ++p) text.push_back(load(cache, slice, p));
        if (options_.has_state) compare(cache, slice, text);
        std::fill_n(hidden.row(output), hidden.cols, 0.0f);
        hidden.row(output++)[script_(text)] = 8;
      }
    }
  }

  const Head& head() const noexcept override { return head_; }
  void final_norm(const Context&, MatrixView<const float> residual, MatrixView<float> out) const override {
    for (std::int64_t r = 0; r < out.rows; ++r) std::copy_n(residual.row(r), out.cols, out.row(r));
  }
  std::vector<LayerCacheSpec> cache_layers() const override {
    std::vector<LayerCacheSpec> layers = {{.kv_heads = 1, .head_dim = 32}};
    if (options_.has_state) layers.push_back({.state_bytes = 64});
    return layers;
  }
  std::int64_t hidden_size() const noexcept override { return kScriptedVocab; }
  std::int64_t workspace_bytes(std::int64_t max_rows, int threads) const override {
    return linear_workspace_bytes(max_rows, kScriptedVocab, threads);
  }
  std::vector<ModelPart> parts() const override { return {}; }
  const std::vector<std::string>& warnings() const noexcept override { return warnings_; }

 private:
  static std::byte* place(ModelCache& cache, const SequenceSlice& slice, std::int64_t position) {
    const BlockId block = slice.block_table[static_cast<std::size_t>(position / kBlockTokens)];
    return cache.layer(0).head(block, 0) + position % kBlockTokens * static_cast<std::int64_t>(sizeof(TokenId));
  }
  static void store(ModelCache& cache, const SequenceSlice& slice, std::int64_t position, TokenId token) {
    std::memcpy(place(cache, slice, position), &token, sizeof token);
  }
  static TokenId load(ModelCache& cache, const SequenceSlice& slice, std::int64_t position) {
    TokenId token = 0;
    std::memcpy(&token, place(cache, slice, position), sizeof token);
    return token;
  }

  static void see(ModelCache& cache, const SequenceSlice& slice, std::int64_t position, TokenId token) {
    State state;
    std::byte* const bytes = cache.state(1, slice.state_slot);
    std::memcpy(&state, bytes, sizeof state);
    if (state.count != position) {
      throw std::runtime_error("the state has seen " + std::to_string(state.count) + " tokens before position " +
                               std::to_string(position));
    }
    state = {mix(state.hash, token), state.count + 1};
    std::memcpy(bytes, &state, sizeof state);
  }

  static void compare(ModelCache& cache, const SequenceSlice& slice, std::span<const TokenId> text) {
    State state;
    std::memcpy(&state, cache.state(1, slice.state_slot), sizeof state);
    std::uint64_t hash = 0;
    for (const TokenId token : text) hash = mix(hash, token);
    if (state.hash != hash) throw std::runtime_error("the state has seen another text than the KV cache has");
  }

  Script script_;
  ScriptedOptions options_;
  PackedFormat format_;
  std::vector<unsigned char> head_bytes_;
  Head head_;
  std::vector<std::string> warnings_;
};

}  // namespace

Engine scripted_engine(Script script, ScriptedOptions options) {
  LoadedModel model;
  const EngineOptions engine = options.engine;
  model.pool = std::make_unique<ThreadPool>(std::max(1, engine.threads));
  model.kernels = select_kernels("", /*exact=*/true);
  model.kv = kKvF32;
  model.draft_cost = 0.1;  // its steps are too short for the clock
  model.usable_vocab = kScriptedVocab;
  model.info.vocab_size = model.info.hidden_size = kScriptedVocab;
  model.info.context = model.info.max_position_embeddings = options.context;
  model.info.eos_ids = {kScriptedEos};
  model.default_sampling.greedy = true;
  model.model = std::make_unique<ScriptedModel>(std::move(script), std::move(options));
  return make_engine(std::move(model), engine);
}

std::vector<TokenId> continuation(const Script& script, std::vector<TokenId> text, std::int64_t count) {
  std::vector<TokenId> output;
  while (std::ssize(output) < count && (output.empty() || output.back() != kScriptedEos)) {
    output.push_back(script(text));
    text.push_back(output.back());
  }
  return output;
}

Request greedy(std::vector<TokenId> prompt, std::int64_t max_tokens) {
  Request request;
  request.prompt_ids = std::move(prompt);
  request.sampling.greedy = true;
  request.max_tokens = max_tokens;
  return request;
}

TokenId unguessable(std::span<const TokenId> text) {
  std::uint64_t hash = 0;
  for (const TokenId token : text) hash = mix(hash, token);
  return static_cast<TokenId>((hash >> 20) % (kScriptedVocab - 1));
}

}  // namespace vitrine::test
