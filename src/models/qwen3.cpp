// SPDX-License-Identifier: Apache-2.0
#include "models/qwen3.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "checkpoint/weight_scope.h"
#include "ops/attention.h"
#include "ops/embedding.h"
#include "ops/mlp.h"
#include "ops/qkv.h"

namespace vitrine {
namespace {

struct Layer {
  RmsNorm input_layernorm;
  Qkv qkv;
  Linear o_proj;
  RmsNorm post_attention_layernorm;
  Linear gate_proj, up_proj, down_proj;
  AttentionShape attention;
};

/// The activations of one step. T rows.
struct Activations {
  MatrixView<float> x;  // [T, hidden_size] the residual stream
  PackedRows normed;    // [T, hidden_size]
  MatrixView<float> q;  // [T, query heads * head_dim]
  PackedRows attended;  // [T, query heads * head_dim]
  PackedRows gated;     // [T, intermediate_size]
  RopeTable rope;
};

Rope make_rope(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  if (rope.type != RopeConfig::Type::kYarn) return linear_rope(config.head_dim, rope.theta, rope.factor);
  const auto magnitude = [&](double scale) {
    return rope.factor <= 1 ? 1.0 : 0.1 * scale * std::log(rope.factor) + 1.0;
  };
  double attention_factor = magnitude(1);
  if (rope.mscale && rope.mscale_all_dim) {
    attention_factor = magnitude(*rope.mscale) / magnitude(*rope.mscale_all_dim);
  }
  if (rope.attention_factor) attention_factor = *rope.attention_factor;
  return yarn_rope(config.head_dim, rope.theta,
                   {.factor = rope.factor,
                    .original_context = rope.original_context,
                    .beta_fast = rope.beta_fast,
                    .beta_slow = rope.beta_slow,
                    .truncate = rope.truncate,
                    .attention_factor = static_cast<float>(attention_factor)});
}

class Qwen3 final : public Model {
 public:
  Qwen3(std::shared_ptr<const Checkpoint> checkpoint, PackedWeights& weights)
      : checkpoint_(std::move(checkpoint)), config_(checkpoint_->config()), rope_(make_rope(config_)) {
    bind(weights);
  }

  void forward(const Context& context, const Batch& batch, ModelCache& cache, MatrixView<float> hidden) const override {
    const WorkspaceScope scope(context.workspace);
    Activations a = allocate(context, batch);
    embed(context.timed(StepPart::kEmbedding), embedding_, batch.token_ids, a.x);
    context.observe(ProbePoint::kEmbedding, -1, a.x);
    for (std::size_t i = 0; i < layers_.size(); ++i) {
      forward_layer(context, batch, static_cast<int>(i), cache.layer(static_cast<std::int64_t>(i)), a);
    }
    const auto wanted = gather(context, a.x, batch.output_rows);
    rms_norm(context.timed(StepPart::kNorm), wanted, norm_, hidden);
    context.observe(ProbePoint::kFinalNorm, -1, hidden);
  }

  const Head& head() const noexcept override { return head_; }

  void final_norm(const Context& context, MatrixView<const float> residual, MatrixView<float> out) const override {
    rms_norm(context, residual, norm_, out);
  }

  std::vector<LayerCacheSpec> cache_layers() const override {
    return std::vector<LayerCacheSpec>(layers_.size(), {config_.num_key_value_heads, config_.head_dim});
  }

  std::int64_t hidden_size() const noexcept override { return config_.hidden_size; }

  std::int64_t workspace_bytes(std::int64_t max_rows, int threads) const override {
    const auto rows = [&](std::int64_t cols) { return Workspace::padded_bytes<float>(max_rows, cols); };
    const auto packed = [&](std::int64_t cols) { return packed_rows_bytes(max_rows, cols); };
    const std::int64_t widest = std::max({config_.hidden_size, q_size(), config_.intermediate_size});
    return 2 * rows(config_.hidden_size) + rows(q_size()) + 2 * rows(config_.head_dim / 2) +
           packed(config_.hidden_size) + packed(q_size()) + packed(config_.intermediate_size) +
           norm_workspace_bytes(config_.hidden_size, threads) +
           gate_up_workspace_bytes(max_rows, config_.hidden_size, config_.intermediate_size, threads) +
           linear_workspace_bytes(max_rows, widest, threads) +
           qkv_workspace_bytes(max_rows, config_.hidden_size, config_.head_dim, threads) +
           attention_workspace_bytes(layers_[0].attention, max_rows, threads);
  }

  std::vector<ModelPart> parts() const override { return parts_; }
  const std::vector<std::string>& warnings() const noexcept override { return warnings_; }

 private:
  /// One block, as the paper draws it. PagedKv is this layer's part of the cache.
  void forward_layer(const Context& context, const Batch& batch, int index, const PagedKv& kv, Activations& a) const {
    const Layer& layer = layers_[static_cast<std::size_t>(index)];
    rms_norm(context.timed(StepPart::kNorm), a.x, layer.input_layernorm, a.normed);
    project_qkv(context.timed(StepPart::kQkv), a.normed, layer.qkv, config_.head_dim, a.rope, batch, kv, a.q);
    attention(context.timed(StepPart::kAttention), layer.attention, batch, a.q, kv, a.attended);
    if (context.probe != nullptr && context.probe->wants(ProbePoint::kAttentionWeights, index)) {
      observe_attention(context, layer.attention, batch, a.q, kv, index);
    }
    linear_add(context.timed(StepPart::kOProj), a.attended, layer.o_proj, a.x);
    context.observe(ProbePoint::kAttentionOutput, index, a.x);

    rms_norm(context.timed(StepPart::kNorm), a.x, layer.post_attention_layernorm, a.normed);
    gate_up_silu(context.timed(StepPart::kGateUp), a.normed, layer.gate_proj, layer.up_proj, a.gated);
    linear_add(context.timed(StepPart::kDownProj), a.gated, layer.down_proj, a.x);
    context.observe(ProbePoint::kResidual, index, a.x);
  }

  Activations allocate(const Context& context, const Batch& batch) const {
    const std::int64_t rows = batch.num_rows();
    Workspace& w = context.workspace;
    const Layer& layer = layers_[0];
    const auto packed = [&](const Linear& weight) {
      return take_packed_rows(w, weight.operand(context.kernels), rows, weight.in_features());
    };
    return {.x = w.matrix<float>(rows, config_.hidden_size),
            .normed = packed(layer.qkv.q_proj),
            .q = w.matrix<float>(rows, q_size()),
            .attended = packed(layer.o_proj),
            .gated = packed(layer.down_proj),
            .rope = rope_table(context.timed(StepPart::kQkv), rope_, batch.positions)};
  }

  static MatrixView<float> gather(const Context& context, MatrixView<const float> x,
                                  std::span<const std::int32_t> rows) {
    const auto out = context.workspace.matrix<float>(static_cast<std::int64_t>(rows.size()), x.cols);
    for (std::int64_t r = 0; r < out.rows; ++r) {
      std::memcpy(out.row(r), x.row(rows[static_cast<std::size_t>(r)]),
                  static_cast<std::size_t>(x.cols) * sizeof(float));
    }
    return out;
  }

  void bind(PackedWeights& weights) {
    const std::int64_t hidden = config_.hidden_size;
    const WeightScope root(*checkpoint_);
    const WeightScope model = root.sub("model");
    const Tensor embedding = model.get("embed_tokens.weight", {config_.vocab_size, hidden}, "vocab_size, hidden_size");
    embedding_ = weights.vocabulary(embedding);
    count("embedding", embedding, embedding_.format.bytes());
    for (std::int64_t i = 0; i < config_.num_hidden_layers; ++i)
      layers_.push_back(bind_layer(model.sub("layers", i), i, weights));
    norm_ = take_norm(model, "norm.weight", hidden, "hidden_size");
    bind_head(root, embedding, weights);
    report_unused(root);
  }

  Layer bind_layer(const WeightScope& scope, std::int64_t index, PackedWeights& weights) {
    const std::int64_t hidden = config_.hidden_size;
    const std::int64_t ffn = config_.intermediate_size;
    const WeightScope attention = scope.sub("self_attn");
    const WeightScope mlp = scope.sub("mlp");
    const char* q_keys = "num_attention_heads * head_dim, hidden_size";
    const char* kv_keys = "num_key_value_heads * head_dim, hidden_size";
    return {
        .input_layernorm = take_norm(scope, "input_layernorm.weight", hidden, "hidden_size"),
        .qkv = {.q_proj = take_linear(weights, attention, "q_proj", {q_size(), hidden}, q_keys),
                .k_proj = take_linear(weights, attention, "k_proj", {kv_size(), hidden}, kv_keys),
                .v_proj = take_linear(weights, attention, "v_proj", {kv_size(), hidden}, kv_keys),
                .q_norm = take_norm(attention, "q_norm.weight", config_.head_dim, "head_dim"),
                .k_norm = take_norm(attention, "k_norm.weight", config_.head_dim, "head_dim")},
        .o_proj = take_linear(weights, attention, "o_proj", {hidden, q_size()},
                              "hidden_size, num_attention_heads * head_dim"),
        .post_attention_layernorm = take_norm(scope, "post_attention_layernorm.weight", hidden, "hidden_size"),
        .gate_proj = take_linear(weights, mlp, "gate_proj", {ffn, hidden}, "intermediate_size, hidden_size", false),
        .up_proj = take_linear(weights, mlp, "up_proj", {ffn, hidden}, "intermediate_size, hidden_size", false),
        .down_proj = take_linear(weights, mlp, "down_proj", {hidden, ffn}, "hidden_size, intermediate_size", false),
        .attention = {config_.num_attention_heads, config_.num_key_value_heads, config_.head_dim,
                      config_.layer_windows[static_cast<std::size_t>(index)]},
    };
  }

  RmsNorm take_norm(const WeightScope& scope, const char* name, std::int64_t size, const char* keys) {
    const Tensor tensor = scope.get(name, {size}, keys);
    count("norms", tensor, tensor.num_elements() * static_cast<std::int64_t>(sizeof(float)));
    return {tensor, config_.rms_norm_eps};
  }

  Linear take_linear(PackedWeights& weights, const WeightScope& parent, const char* name, const Shape& shape,
                     const char* keys, bool in_attention = true) {
    const WeightScope scope = parent.sub(name);
    const Tensor weight = scope.get("weight", shape, keys);
    const char* part = in_attention ? "attention" : "feed-forward";
    const PackedMatrix packed = weights.layer(weight);
    count(part, weight, packed.format.bytes());
    if (!in_attention || !config_.attention_bias) return Linear(packed);
    const Tensor stored = scope.get("bias", {shape[0]}, keys);
    std::vector<float> bias(static_cast<std::size_t>(shape[0]));
    load_floats(stored, 0, bias);
    count(part, stored, std::ssize(bias) * static_cast<std::int64_t>(sizeof(float)));
    return Linear(packed, std::move(bias));
  }

  /// The head's weight. A tied model may carry lm_head.weight all the same: equal, it is one copy; different, the
  /// file's head is used, as transformers 5.24 does, and the user is told.
  void bind_head(const WeightScope& root, const Tensor& embedding, PackedWeights& weights) {
    constexpr const char* kName = "lm_head.weight";
    head_ = Head(Linear(embedding_));
    if (config_.tie_word_embeddings && !root.has(kName)) return;
    const Tensor head = root.get(kName, embedding.shape, "tie_word_embeddings, vocab_size, hidden_size");
    if (config_.tie_word_embeddings) {
      if (head.dtype == embedding.dtype &&
          std::memcmp(head.data, embedding.data, static_cast<std::size_t>(head.num_bytes())) == 0) {
        return;
      }
      warnings_.push_back(config_.source + " says tie_word_embeddings, but " + kName +
                          " differs from the embedding: using " + kName);
    }
    const PackedMatrix packed = weights.vocabulary(head);
    count("head", head, packed.format.bytes());
    head_ = Head(Linear(packed));
  }

  /// Nothing of the checkpoint is dropped in silence; a bias that would change the result is an error.
  void report_unused(const WeightScope& root) {
    const std::vector<std::string> unused = root.unused();
    for (const std::string& name : unused) {
      if (name.starts_with("model.layers.") && name.ends_with(".bias")) {
        throw Error(ErrorCode::kBadFile, config_.source + ": attention_bias: the checkpoint has " + name +
                                             ", which this configuration does not use");
      }
    }
    if (unused.empty()) return;
    std::string line = std::to_string(unused.size()) + (unused.size() == 1 ? " tensor is" : " tensors are") +
                       " not part of the model and ignored: " + unused[0];
    if (unused.size() > 1) line += ", " + unused[1];
    if (unused.size() > 2) line += ", …";
    warnings_.push_back(line);
  }

  void count(const char* name, const Tensor& tensor, std::int64_t bytes) {
    auto part = std::find_if(parts_.begin(), parts_.end(), [&](const ModelPart& p) { return p.name == name; });
    if (part == parts_.end()) part = parts_.insert(part, {name, 0, 0});
    part->parameters += tensor.num_elements();
    part->bytes += bytes;
  }

  std::int64_t q_size() const { return config_.num_attention_heads * config_.head_dim; }
  std::int64_t kv_size() const { return config_.num_key_value_heads * config_.head_dim; }

  std::shared_ptr<const Checkpoint> checkpoint_;
  const ModelConfig& config_;
  Rope rope_;
  PackedMatrix embedding_;
  std::vector<Layer> layers_;
  RmsNorm norm_;
  Head head_;
  std::vector<ModelPart> parts_;
  std::vector<std::string> warnings_;
};

}  // namespace

std::unique_ptr<Model> make_qwen3(std::shared_ptr<const Checkpoint> checkpoint, PackedWeights& weights) {
  return std::make_unique<Qwen3>(std::move(checkpoint), weights);
}

}  // namespace vitrine
