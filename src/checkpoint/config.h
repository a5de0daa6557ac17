// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/types.h>

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

/// Every id must fit in a TokenId.
inline constexpr std::int64_t kMaxVocabSize = std::numeric_limits<TokenId>::max();

/// How positions become angles (transformers modeling_rope_utils.py).
struct RopeConfig {
  enum class Type { kDefault, kLinear, kYarn };
  Type type = Type::kDefault;
  double theta = 10000;
  double factor = 1;                  // linear, yarn
  std::int64_t original_context = 0;  // yarn: original_max_position_embeddings
  std::optional<double> attention_factor, mscale, mscale_all_dim;
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;
};

/// What config.json says about a decoder, in Hugging Face's words. Filled and validated by read_model_config.
struct ModelConfig {
  std::string source;      // path of config.json, for messages
  std::string model_type;  // "qwen3"
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t max_position_embeddings = 0;
  float rms_norm_eps = 1e-6f;
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  RopeConfig rope;
  std::vector<std::int64_t> layer_windows;  // one per layer: keys visible (t - s < window), 0 = all
  std::vector<TokenId> eos_token_ids;       // config.json's own
};

/// What generation_config.json says; absent keys stay empty. An absent file is an empty config.
struct GenerationConfig {
  std::vector<TokenId> eos_token_ids;
  std::optional<bool> do_sample;
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<std::int64_t> top_k;
};

/// Reads and validates FOLDER/config.json. Throws Error naming config.json and the key.
ModelConfig read_model_config(const std::filesystem::path& folder);
/// Reads FOLDER/generation_config.json if it is there. Throws Error naming the file and the key; ids from
/// `vocab_size` on are refused.
GenerationConfig read_generation_config(const std::filesystem::path& folder, std::int64_t vocab_size = kMaxVocabSize);

/// The same for texts in memory; `source` names them in messages.
ModelConfig parse_model_config(std::string_view text, std::string source);
GenerationConfig parse_generation_config(std::string_view text, std::string source,
                                         std::int64_t vocab_size = kMaxVocabSize);

}  // namespace vitrine
