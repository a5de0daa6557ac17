// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/config.h"

#include <gtest/gtest.h>
#include <vitrine/error.h>

#include <nlohmann/json.hpp>

#include "support/test_files.h"

namespace vitrine {
namespace {

using Json = nlohmann::json;
using Windows = std::vector<std::int64_t>;

/// qwen3-tiny's config.json with `changes` (null deletes a key).
ModelConfig with(const Json& changes) {
  Json json = test::read_json(test::data_path("models/qwen3-tiny/config.json"));
  json.merge_patch(changes);
  return parse_model_config(json.dump(), "config.json");
}

/// The same, but with a null written out.
ModelConfig with_null(const std::string& key) {
  Json json = test::read_json(test::data_path("models/qwen3-tiny/config.json"));
  json[key] = nullptr;
  return parse_model_config(json.dump(), "config.json");
}

GenerationConfig generation(const Json& json) { return parse_generation_config(json.dump(), "generation_config.json"); }

TEST(Config, ReadsThePublishedForm) {
  const ModelConfig config = read_model_config(test::data_path("models/qwen3-tiny"));
  EXPECT_EQ(config.source, test::data_path("models/qwen3-tiny/config.json").string());
  EXPECT_EQ(config.model_type, "qwen3");
  EXPECT_EQ(config.vocab_size, 384);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.intermediate_size, 160);
  EXPECT_EQ(config.num_hidden_layers, 3);
  EXPECT_EQ(config.num_attention_heads, 4);
  EXPECT_EQ(config.num_key_value_heads, 2);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.max_position_embeddings, 512);
  EXPECT_EQ(config.rms_norm_eps, 1e-6f);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_FALSE(config.attention_bias);
  EXPECT_EQ(config.rope.type, RopeConfig::Type::kDefault);
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config.layer_windows, (Windows{0, 0, 0}));
  EXPECT_EQ(config.eos_token_ids, std::vector<TokenId>{255});
}

TEST(Config, ReadsTheFormOfTransformers5) {
  const ModelConfig config = read_model_config(test::data_path("models/qwen3-untied-sharded"));
  EXPECT_EQ(config.rope.theta, 1e6);
  EXPECT_EQ(config.rope.type, RopeConfig::Type::kDefault);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.layer_windows, (Windows{0, 0, 0}));
}

TEST(Config, ReadsTheOtherFixtures) {
  EXPECT_TRUE(read_model_config(test::data_path("models/qwen3-bias")).attention_bias);
  EXPECT_EQ(read_model_config(test::data_path("models/qwen3-sliding")).layer_windows, (Windows{0, 0, 8, 8}));
  const RopeConfig yarn = read_model_config(test::data_path("models/qwen3-yarn")).rope;
  EXPECT_EQ(yarn.type, RopeConfig::Type::kYarn);
  EXPECT_EQ(yarn.factor, 4);  // not 160 / 32
  EXPECT_EQ(yarn.original_context, 32);
  EXPECT_EQ(read_model_config(test::demo_model()).vocab_size, 3840);
}

TEST(Config, AbsentKeysHaveTheClassDefaults) {
  for (const char* key : {"head_dim", "rms_norm_eps", "rope_theta", "attention_bias", "tie_word_embeddings",
                          "eos_token_id", "hidden_act", "architectures"}) {
    for (const ModelConfig& config : {with({{key, nullptr}}), with_null(key)}) {
      EXPECT_EQ(config.head_dim, std::string_view(key) == "head_dim" ? 128 : 32);
      EXPECT_EQ(config.rms_norm_eps, 1e-6f);
      EXPECT_EQ(config.rope.theta, std::string_view(key) == "rope_theta" ? 10000 : 1e6);
      EXPECT_EQ(config.tie_word_embeddings, std::string_view(key) != "tie_word_embeddings");
      EXPECT_EQ(config.eos_token_ids.empty(), std::string_view(key) == "eos_token_id");
    }
  }
  EXPECT_EQ(with({{"num_key_value_heads", nullptr}, {"num_attention_heads", 64}}).num_key_value_heads, 32);
  EXPECT_EQ(with_null("num_key_value_heads").num_key_value_heads, 4);
  for (const char* key : {"sliding_window", "layer_types", "quantization_config", "rope_scaling", "rope_parameters"}) {
    EXPECT_NO_THROW(with_null(key)) << key;
  }
}

TEST(Config, TheFamilyMayBeKnownByEitherKey) {
  EXPECT_EQ(with({{"model_type", nullptr}}).model_type, "qwen3");
  EXPECT_EQ(with({{"architectures", nullptr}}).model_type, "qwen3");
  EXPECT_EQ(with({{"architectures", {"Other", "Qwen3ForCausalLM"}}}).model_type, "qwen3");
  try {
    with({{"model_type", "mamba"}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_STREQ(error.what(), "config.json: model_type: \"mamba\" is not supported (supported: \"qwen3\")");
  }
}

TEST(Config, YarnInEverySpelling) {
  const Json table = {{"factor", 4}, {"original_max_position_embeddings", 32768}};
  for (const char* dictionary : {"rope_scaling", "rope_parameters"}) {
    for (const char* type : {"type", "rope_type"}) {
      Json yarn = table;
      yarn[type] = "yarn";
      const RopeConfig rope = with({{dictionary, yarn}}).rope;
      EXPECT_EQ(rope.type, RopeConfig::Type::kYarn);
      EXPECT_EQ(rope.theta, 1e6);  // the one at the top level
      EXPECT_EQ(rope.factor, 4);
      EXPECT_EQ(rope.original_context, 32768);
    }
  }
}

TEST(Config, YarnReadsAllItsKeys) {
  RopeConfig rope = with({{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.5}}}}).rope;
  EXPECT_EQ(rope.original_context, 512);  // max_position_embeddings
  EXPECT_EQ(rope.beta_fast, 32);
  EXPECT_EQ(rope.beta_slow, 1);
  EXPECT_TRUE(rope.truncate);
  EXPECT_FALSE(rope.attention_factor || rope.mscale || rope.mscale_all_dim);
  rope = with({{"rope_scaling",
                {{"rope_type", "yarn"},
                 {"factor", 2},
                 {"attention_factor", 1.5},
                 {"beta_fast", 16},
                 {"beta_slow", 2},
                 {"mscale", 0.7},
                 {"mscale_all_dim", 0},
                 {"truncate", false}}}})
             .rope;
  EXPECT_EQ(rope.attention_factor, 1.5);
  EXPECT_EQ(rope.beta_fast, 16);
  EXPECT_EQ(rope.beta_slow, 2);
  EXPECT_EQ(rope.mscale, 0.7);
  EXPECT_FALSE(rope.mscale_all_dim);
  EXPECT_FALSE(rope.truncate);
}

TEST(Config, RopeParametersWinAndGapsAreFilled) {
  const RopeConfig rope = with({{"rope_parameters", {{"rope_theta", 5e6}, {"rope_type", "linear"}}},
                                {"rope_scaling", {{"rope_theta", 3}, {"type", "linear"}, {"factor", 8}}}})
                              .rope;
  EXPECT_EQ(rope.type, RopeConfig::Type::kLinear);
  EXPECT_EQ(rope.theta, 5e6);
  EXPECT_EQ(rope.factor, 8);
}

TEST(Config, SlidingWindows) {
  EXPECT_EQ(with({{"sliding_window", 8}}).layer_windows, (Windows{0, 0, 0}));
  EXPECT_EQ(with({{"sliding_window", 8}, {"use_sliding_window", false}, {"max_window_layers", 1}}).layer_windows,
            (Windows{0, 0, 0}));
  const Json on = {{"sliding_window", 8}, {"use_sliding_window", true}, {"max_window_layers", 1}};
  EXPECT_EQ(with(on).layer_windows, (Windows{0, 8, 8}));
  Json explicit_types = on;
  explicit_types["layer_types"] = {"sliding_attention", "full_attention", "full_attention"};
  EXPECT_EQ(with(explicit_types).layer_windows, (Windows{8, 0, 0}));
  Json by_default = on;
  by_default["max_window_layers"] = nullptr;
  EXPECT_EQ(with(by_default).layer_windows, (Windows{0, 0, 0}));  // the class's 28
}

TEST(Config, EosForms) {
  EXPECT_EQ(with({{"eos_token_id", 0}}).eos_token_ids, std::vector<TokenId>{0});
  EXPECT_EQ(with({{"eos_token_id", {383, 1, 383}}}).eos_token_ids, (std::vector<TokenId>{383, 1}));
  EXPECT_TRUE(with({{"eos_token_id", Json::array()}}).eos_token_ids.empty());
}

TEST(GenerationConfig, ReadsThePublishedForm) {
  const GenerationConfig config = read_generation_config(test::data_path("models/qwen3-tiny"));
  EXPECT_EQ(config.eos_token_ids, (std::vector<TokenId>{255, 253}));
  EXPECT_EQ(config.do_sample, true);
  EXPECT_EQ(config.temperature, 0.6f);
  EXPECT_EQ(config.top_k, 20);
  EXPECT_EQ(config.top_p, 0.95f);
  EXPECT_FALSE(config.min_p || config.repetition_penalty);
}

TEST(GenerationConfig, AbsentFileOrKeysAreEmpty) {
  for (const GenerationConfig& config :
       {read_generation_config(test::data_path("models/qwen3-f16")), generation(Json::object()),
        generation({{"temperature", nullptr}, {"eos_token_id", nullptr}, {"unknown", {1, 2}}})}) {
    EXPECT_TRUE(config.eos_token_ids.empty());
    EXPECT_FALSE(config.do_sample || config.temperature || config.top_p || config.top_k || config.min_p ||
                 config.repetition_penalty);
  }
}

TEST(GenerationConfig, BordersOfTheRanges) {
  const GenerationConfig config = generation({{"temperature", 0},
                                              {"top_p", 1},
                                              {"top_k", 0},
                                              {"min_p", 0},
                                              {"repetition_penalty", 1},
                                              {"eos_token_id", 2147483646}});
  EXPECT_EQ(config.temperature, 0.f);
  EXPECT_EQ(config.top_p, 1.f);
  EXPECT_EQ(config.top_k, 0);
  EXPECT_EQ(config.min_p, 0.f);
  EXPECT_EQ(config.repetition_penalty, 1.f);
  EXPECT_EQ(config.eos_token_ids, std::vector<TokenId>{2147483646});
  EXPECT_EQ(generation({{"top_k", -1}}).top_k, -1);
}

}  // namespace
}  // namespace vitrine
