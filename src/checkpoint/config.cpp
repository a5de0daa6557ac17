// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/config.h"

#include <vitrine/error.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/checked_math.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "checkpoint/input.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;
using json::Value;

constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;

// Far above every published model; they keep all products of two or three of these numbers within 63 bits.
constexpr std::int64_t kMaxLayers = 10'000;
constexpr std::int64_t kMaxWidth = std::int64_t{1} << 24;  // of the residual stream, the MLP, all heads together
constexpr std::int64_t kMaxPositions = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kMaxEosIds = 1024;

/// A model family and the values its configuration class uses for absent keys (transformers
/// configuration_*.py).
struct Family {
  std::string_view model_type, architecture;
  std::int64_t head_dim, num_key_value_heads, max_window_layers;
};
constexpr Family kFamilies[] = {
    {.model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .head_dim = 128,
     .num_key_value_heads = 32,
     .max_window_layers = 28},
};

/// config.json's root, with errors of both kinds that name file and key.
struct Keys {
  Value root;
  const std::string& source;

  [[noreturn]] void unsupported(std::string_view path, const std::string& what) const {
    throw Error(ErrorCode::kUnsupported, source + ": " + std::string(path) + ": " + what);
  }
  [[noreturn]] void bad(std::string_view path, const std::string& what) const {
    throw Error(ErrorCode::kBadFile, source + ": " + std::string(path) + ": " + what);
  }
  std::int64_t integer(std::string_view key, std::int64_t max) const { return root.at(key).as_int(1, max); }
  std::int64_t integer_or(std::string_view key, std::int64_t max, std::int64_t otherwise) const {
    const auto value = root.find(key);
    return value ? value->as_int(1, max) : otherwise;
  }
  bool flag(std::string_view key) const {
    const auto value = root.find(key);
    return value && value->as_bool();
  }
};

/// A number for which `allowed` holds; complains with `expected` otherwise.
template <class Predicate>
double number(const Value& value, const char* expected, Predicate allowed) {
  if (!value.is_number()) value.fail_expected(expected);
  const double found = value.as_number();
  if (!allowed(found)) value.fail_expected(expected);
  return found;
}

double positive(const Value& value) {
  return number(value, "a finite number above 0", [](double x) { return x > 0 && std::isfinite(x); });
}

const Family& read_family(const Keys& keys) {
  std::string types, architectures;
  for (const Family& family : kFamilies) {
    types += (types.empty() ? "\"" : ", \"") + std::string(family.model_type) + "\"";
    architectures += (architectures.empty() ? "" : ", ") + std::string(family.architecture);
  }
  const auto type = keys.root.find("model_type");
  const auto names = keys.root.find("architectures");
  if (!type && !names) keys.bad("model_type", "the key is missing (supported: " + types + ")");

  const auto* family = std::begin(kFamilies);
  if (type) {
    const std::string_view found = type->as_string();
    family = std::find_if(family, std::end(kFamilies), [&](const Family& f) { return f.model_type == found; });
    if (family == std::end(kFamilies)) {
      keys.unsupported("model_type", "\"" + printable(found) + "\" is not supported (supported: " + types + ")");
    }
  }
  if (!names) return *family;
  // Another head on the same layers (a classifier, a bare encoder) is another model.
  std::string found;
  for (const auto element : names->as_array()) {
    const std::string_view name = names->child(0, element).as_string();
    const auto* match = type ? family : std::begin(kFamilies);
    const auto* end = type ? family + 1 : std::end(kFamilies);
    match = std::find_if(match, end, [&](const Family& f) { return f.architecture == name; });
    if (match != end) return *match;
    if (found.empty()) found = printable(name);
  }
  keys.unsupported("architectures", (found.empty() ? "an empty list" : "\"" + found + "\"") +
                                        " is not supported (supported: " + architectures + ")");
}

/// The rope keys of both spellings: `rope_parameters` (transformers 5) wins, then `rope_scaling` (4).
class RopeKeys {
 public:
  explicit RopeKeys(const Value& root) : tables_{root.find("rope_parameters"), root.find("rope_scaling")} {
    for (const auto& table : tables_) {
      if (table) check_unique_keys(*table);
    }
  }
  std::optional<Value> find(std::string_view key) const {
    for (const auto& table : tables_) {
      auto value = table ? table->find(key) : std::nullopt;
      if (value) return value;
    }
    return std::nullopt;
  }
  /// Path of `key` where it is missing.
  std::string path(std::string_view key) const {
    return (tables_[1] && !tables_[0] ? "rope_scaling." : "rope_parameters.") + std::string(key);
  }

 private:
  std::optional<Value> tables_[2];
};

RopeConfig::Type read_rope_type(const Keys& keys, const RopeKeys& rope) {
  const auto modern = rope.find("rope_type");
  const auto legacy = rope.find("type");
  const auto& type = modern ? modern : legacy;
  if (!type) {
    if (rope.find("factor")) keys.bad(rope.path("rope_type"), "the key is missing beside a factor");
    return RopeConfig::Type::kDefault;
  }
  const std::string_view name = type->as_string();
  if (modern && legacy && legacy->as_string() != name) {
    legacy->fail_expected("the same as rope_type (" + printable(name) + ")");
  }
  if (name == "default") return RopeConfig::Type::kDefault;
  if (name == "linear") return RopeConfig::Type::kLinear;
  if (name == "yarn") return RopeConfig::Type::kYarn;
  keys.unsupported(type->path(), "\"" + printable(name) + "\" is not supported (supported: default, linear, yarn)");
}

void read_yarn(const Keys& keys, const RopeKeys& rope, std::int64_t max_position_embeddings, RopeConfig& config) {
  const auto original = rope.find("original_max_position_embeddings");
  config.original_context = original ? original->as_int(1, kMaxPositions) : max_position_embeddings;
  if (const auto value = rope.find("attention_factor")) config.attention_factor = positive(*value);
  const auto not_negative = [](double x) { return x >= 0 && std::isfinite(x); };
  const auto read_scale = [&](std::string_view key, std::optional<double>& scale) {
    const auto value = rope.find(key);
    if (!value) return;
    const double found = number(*value, "a finite number, 0 or above", not_negative);
    if (found > 0) scale = found;  // transformers takes 0 for absent
  };
  read_scale("mscale", config.mscale);
  read_scale("mscale_all_dim", config.mscale_all_dim);
  if (const auto value = rope.find("beta_fast")) config.beta_fast = positive(*value);
  if (const auto value = rope.find("beta_slow")) config.beta_slow = positive(*value);
  if (config.beta_fast < config.beta_slow) {
    const bool fast = rope.find("beta_fast").has_value();
    keys.bad((fast ? rope.find("beta_fast") : rope.find("beta_slow"))->path(),
             "expected beta_fast >= beta_slow, found " + std::to_string(config.beta_fast) + " and " +
                 std::to_string(config.beta_slow));
  }
  if (const auto value = rope.find("truncate")) config.truncate = value->as_bool();
}

RopeConfig read_rope(const Keys& keys, std::int64_t max_position_embeddings) {
  const RopeKeys rope(keys.root);
  for (const char* nested : {"full_attention", "sliding_attention"}) {
    if (const auto value = rope.find(nested)) keys.unsupported(value->path(), "rope per layer type is not supported");
  }
  if (const auto value = rope.find("mrope_section"))
    keys.unsupported(value->path(), "rope over several axes is not supported");
  for (const auto& value : {rope.find("partial_rotary_factor"), keys.root.find("partial_rotary_factor")}) {
    if (value && value->as_number() != 1) {
      keys.unsupported(value->path(), std::to_string(value->as_number()) + " is not supported (supported: 1)");
    }
  }
  RopeConfig config;
  config.type = read_rope_type(keys, rope);
  auto theta = rope.find("rope_theta");
  if (!theta) theta = keys.root.find("rope_theta");
  if (theta) config.theta = positive(*theta);
  if (config.type == RopeConfig::Type::kDefault) return config;

  const auto factor = rope.find("factor");
  if (!factor) keys.bad(rope.path("factor"), "the key is missing");
  // The explicit factor counts. (transformers 4.52 to 5.0 put max_position_embeddings / original instead.)
  config.factor = number(*factor, "a finite number, 1 or above", [](double x) { return x >= 1 && std::isfinite(x); });
  if (config.type == RopeConfig::Type::kYarn) {
    // The correction range divides by the logarithm of theta.
    if (config.theta <= 1) theta->fail_expected("a number above 1 (yarn)");
    read_yarn(keys, rope, max_position_embeddings, config);
  }
  return config;
}

/// The window of each layer, 0 for all keys.
std::vector<std::int64_t> read_layer_windows(const Keys& keys, const Family& family, std::int64_t num_layers) {
  std::vector<std::int64_t> windows(static_cast<std::size_t>(num_layers), 0);
  const bool sliding = keys.flag("use_sliding_window");
  std::int64_t window = 0;
  if (sliding) {
    const auto value = keys.root.find("sliding_window");
    if (!value) keys.bad("sliding_window", "expected an integer because use_sliding_window is true, found none");
    window = value->as_int(1, kMaxPositions);
  }
  if (const auto types = keys.root.find("layer_types")) {
    const auto array = types->as_array();
    if (array.size() != windows.size()) {
      types->fail("expected " + std::to_string(num_layers) + " entries (num_hidden_layers), found " +
                  std::to_string(array.size()));
    }
    std::size_t layer = 0;
    for (const auto element : array) {
      const Value type = types->child(layer, element);
      const std::string_view name = type.as_string();
      if (name != "full_attention" && name != "sliding_attention") {
        keys.unsupported(type.path(),
                         "\"" + printable(name) + "\" is not supported (supported: full_attention, sliding_attention)");
      }
      if (name == "sliding_attention") {
        if (!sliding) type.fail_expected("full_attention because use_sliding_window is not true");
        windows[layer] = window;
      }
      ++layer;
    }
    return windows;
  }
  if (sliding) {
    const auto value = keys.root.find("max_window_layers");
    const std::int64_t first = value ? value->as_int(0, kMaxLayers) : family.max_window_layers;
    for (std::int64_t layer = first; layer < num_layers; ++layer) windows[static_cast<std::size_t>(layer)] = window;
  }
  return windows;
}

/// An id, a list of ids, or none.
std::vector<TokenId> read_eos(const Value& root, std::int64_t vocab_size) {
  const auto value = root.find("eos_token_id");
  if (!value) return {};
  std::vector<TokenId> ids;
  const auto add = [&](const Value& id) {
    const auto found = static_cast<TokenId>(id.as_int(0, vocab_size - 1));
    if (std::find(ids.begin(), ids.end(), found) == ids.end()) ids.push_back(found);
  };
  if (!value->is_array()) {
    if (!value->is_number()) value->fail_expected("a token id or a list of them");
    add(*value);
    return ids;
  }
  std::size_t i = 0;
  for (const auto element : value->as_array()) {
    if (i == kMaxEosIds) value->fail("expected at most " + std::to_string(kMaxEosIds) + " ids, found more");
    add(value->child(i++, element));
  }
  return ids;
}

void read_attention(const Keys& keys, const Family& family, ModelConfig& config) {
  const std::int64_t heads = keys.integer("num_attention_heads", kMaxWidth);
  // Absent: the class's default. An explicit null: as many as heads (transformers' constructor).
  simdjson::dom::element element;
  const bool is_null =
      keys.root.as_object().at_key("num_key_value_heads").get(element) == simdjson::SUCCESS && element.is_null();
  config.num_attention_heads = heads;
  config.num_key_value_heads =
      keys.integer_or("num_key_value_heads", kMaxWidth, is_null ? heads : family.num_key_value_heads);
  config.head_dim = keys.integer_or("head_dim", kMaxWidth, family.head_dim);
  if (heads % config.num_key_value_heads != 0) {
    keys.bad("num_key_value_heads", "expected a divisor of num_attention_heads (" + std::to_string(heads) +
                                        "), found " + std::to_string(config.num_key_value_heads));
  }
  if (config.head_dim % 2 != 0) {
    keys.bad("head_dim", "expected an even number, found " + std::to_string(config.head_dim));
  }
  const auto width = checked_mul(heads, config.head_dim);
  if (!width || *width > kMaxWidth) {
    keys.bad("head_dim", "expected num_attention_heads * head_dim of at most " + std::to_string(kMaxWidth) +
                             ", found " + std::to_string(heads) + " * " + std::to_string(config.head_dim));
  }
  config.attention_bias = keys.flag("attention_bias");
}

/// The keys and values of a full context must have a size that 63 bits can hold, in any type up to float64.
void check_cache_size(const Keys& keys, const ModelConfig& config) {
  const std::int64_t width = config.num_key_value_heads * config.head_dim;  // <= kMaxWidth
  const auto per_position = checked_mul(config.num_hidden_layers * 2 * 8, width);
  if (!per_position || !checked_mul(*per_position, config.max_position_embeddings)) {
    keys.bad("max_position_embeddings", "expected a context whose keys and values fit in 63 bits, found " +
                                            std::to_string(config.max_position_embeddings) + " positions of " +
                                            std::to_string(config.num_hidden_layers) + " layers");
  }
}

}  // namespace

ModelConfig parse_model_config(std::string_view text, std::string source) {
  const json::Document document = json::Document::parse(std::string(text), source);
  const Keys keys{document.root(), source};
  check_unique_keys(keys.root);
  ModelConfig config;
  const Family& family = read_family(keys);
  config.model_type = family.model_type;
  for (const char* key : {"quantization_config", "quantization"}) {  // Hugging Face's and MLX's name
    if (keys.root.find(key)) {
      keys.unsupported(key, "quantised safetensors are not supported yet (expected F32, F16 or BF16 weights)");
    }
  }
  if (const auto act = keys.root.find("hidden_act"); act && act->as_string() != "silu") {
    keys.unsupported("hidden_act", "\"" + printable(act->as_string()) + "\" is not supported (supported: silu)");
  }
  config.vocab_size = keys.integer("vocab_size", kMaxVocabSize);
  config.hidden_size = keys.integer("hidden_size", kMaxWidth);
  config.intermediate_size = keys.integer("intermediate_size", kMaxWidth);
  config.num_hidden_layers = keys.integer("num_hidden_layers", kMaxLayers);
  config.max_position_embeddings = keys.integer("max_position_embeddings", kMaxPositions);
  read_attention(keys, family, config);
  check_cache_size(keys, config);
  if (const auto eps = keys.root.find("rms_norm_eps")) {
    config.rms_norm_eps = static_cast<float>(number(*eps, "a finite number above 0", [](double x) {
      return static_cast<float>(x) > 0 && std::isfinite(static_cast<float>(x));
    }));
  }
  config.tie_word_embeddings = keys.flag("tie_word_embeddings");
  config.rope = read_rope(keys, config.max_position_embeddings);
  config.layer_windows = read_layer_windows(keys, family, config.num_hidden_layers);
  config.eos_token_ids = read_eos(keys.root, config.vocab_size);
  config.source = std::move(source);
  return config;
}

GenerationConfig parse_generation_config(std::string_view text, std::string source, std::int64_t vocab_size) {
  const json::Document document = json::Document::parse(std::string(text), std::move(source));
  const Value root = document.root();
  check_unique_keys(root);
  GenerationConfig config;
  config.eos_token_ids = read_eos(root, vocab_size);
  if (const auto value = root.find("do_sample")) config.do_sample = value->as_bool();
  // The range is that of the float, so that a tiny double does not become a forbidden 0.
  const auto read = [&](std::string_view key, std::optional<float>& target, const char* expected, auto allowed) {
    const auto value = root.find(key);
    if (!value) return;
    target = static_cast<float>(number(*value, expected, [&](double x) {
      const auto narrow = static_cast<float>(x);
      return std::isfinite(narrow) && allowed(narrow);
    }));
  };
  read("temperature", config.temperature, "a finite number, 0 or above", [](float x) { return x >= 0; });
  read("top_p", config.top_p, "a number above 0, at most 1", [](float x) { return x > 0 && x <= 1; });
  read("min_p", config.min_p, "a number from 0 to 1", [](float x) { return x >= 0 && x <= 1; });
  read("repetition_penalty", config.repetition_penalty, "a finite number above 0", [](float x) { return x > 0; });
  // 0 and -1 both mean off, in transformers and in vLLM.
  if (const auto value = root.find("top_k")) config.top_k = value->as_int(-1, kMaxVocabSize);
  return config;
}

ModelConfig read_model_config(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  std::error_code error;
  if (!fs::exists(path, error)) {
    throw Error(ErrorCode::kNotFound, path.string() +
                                          ": expected the model's config.json, found none (not a model "
                                          "folder, or an incomplete download)");
  }
  return parse_model_config(read_text_file(path, kMaxConfigBytes), path.string());
}

GenerationConfig read_generation_config(const fs::path& folder, std::int64_t vocab_size) {
  const fs::path path = folder / "generation_config.json";
  std::error_code error;
  // A link to nothing is an incomplete download, not an absent file.
  if (!fs::exists(fs::symlink_status(path, error))) return {};
  return parse_generation_config(read_text_file(path, kMaxConfigBytes), path.string(), vocab_size);
}

}  // namespace vitrine
