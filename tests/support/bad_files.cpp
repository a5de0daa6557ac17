// SPDX-License-Identifier: Apache-2.0
#include "support/bad_files.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "support/test_files.h"

namespace vitrine::test {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kWeights = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kNorm = "model.norm.weight";
constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kShardA = "model-00001-of-00002.safetensors";
constexpr const char* kShardB = "model-00002-of-00002.safetensors";

std::string length_prefix(std::uint64_t length) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(length >> shift & 0xFF);
  return bytes;
}

std::string join(const std::string& header, const std::string& data) {
  return length_prefix(header.size()) + header + data;
}

/// Collects cases; each begins with a good model and spoils one file.
class Cases {
 public:
  using Messages = std::vector<std::string>;

  /// The bytes of any file of the folder; an absent one is empty.
  void file(const std::string& name, const std::string& file, std::function<void(std::string&)> spoil,
            Messages messages) {
    messages.push_back(file);
    add(
        name,
        [file, spoil = std::move(spoil)](const fs::path& folder) {
          write_tiny_model(folder);
          std::string bytes = fs::exists(folder / file) ? read_file(folder / file) : "";
          spoil(bytes);
          write_file(folder / file, bytes);
        },
        std::move(messages));
  }

  /// model.safetensors: header and data as texts.
  void parts(const std::string& name, std::function<void(std::string& header, std::string& data)> spoil,
             Messages messages) {
    file(
        name, kWeights,
        [spoil = std::move(spoil)](std::string& bytes) {
          std::string header = safetensors_header(bytes);
          std::string data = bytes.substr(8 + header.size());
          spoil(header, data);
          bytes = join(header, data);
        },
        std::move(messages));
  }

  void header(const std::string& name, std::function<void(Json&)> spoil, Messages messages) {
    parts(
        name,
        [spoil = std::move(spoil)](std::string& text, std::string&) {
          Json json = Json::parse(text);
          spoil(json);
          text = json.dump();
        },
        std::move(messages));
  }

  /// A whole safetensors file given by header and number of data bytes.
  void small(const std::string& name, const std::string& text, std::size_t data_bytes, Messages messages) {
    file(
        name, kWeights, [=](std::string& bytes) { bytes = safetensors_bytes(text, data_bytes); }, std::move(messages));
  }

  void config(const std::string& name, const std::string& key, Json value, Messages messages = {}) {
    messages.push_back(key);
    json(
        name, "config.json", [key, value = std::move(value)](Json& json) { json[key] = value; }, std::move(messages));
  }

  void json(const std::string& name, const std::string& file_name, std::function<void(Json&)> spoil,
            Messages messages) {
    file(
        name, file_name,
        [spoil = std::move(spoil)](std::string& text) {
          Json json = Json::parse(text);
          spoil(json);
          text = json.dump();
        },
        std::move(messages));
  }

  /// Two shards with an index, and the folder they are in.
  void index(const std::string& name, std::function<void(Json& weight_map, const fs::path& folder)> spoil,
             Messages messages) {
    messages.push_back(kIndex);
    add(
        name,
        [spoil = std::move(spoil)](const fs::path& folder) {
          write_tiny_shards(folder, {kShardA, kShardB}, true);
          Json json = Json::parse(read_file(folder / kIndex));
          spoil(json["weight_map"], folder);
          write_file(folder / kIndex, json.dump());
        },
        std::move(messages));
  }

  void add(std::string name, std::function<void(const fs::path&)> write, Messages messages) {
    cases_.push_back({std::move(name), std::move(write), std::move(messages)});
  }

  std::vector<BadFile> take() { return std::move(cases_); }

 private:
  std::vector<BadFile> cases_;
};

void add_header_lengths(Cases& cases) {
  cases.file("st_empty_file", kWeights, [](std::string& b) { b.clear(); }, {"header length", "8 bytes"});
  cases.file("st_seven_bytes", kWeights, [](std::string& b) { b.resize(7); }, {"header length"});
  cases.file("st_length_only", kWeights, [](std::string& b) { b.resize(8); }, {"header length", "truncated"});
  cases.file("st_length_zero", kWeights, [](std::string& b) { b.replace(0, 8, length_prefix(0)); }, {"header"});
  cases.file("st_length_max", kWeights, [](std::string& b) { b.replace(0, 8, length_prefix(~std::uint64_t{0})); },
             {"header length", "18446744073709551615"});
  cases.file("st_length_2_63", kWeights, [](std::string& b) { b.replace(0, 8, length_prefix(std::uint64_t{1} << 63)); },
             {"header length"});
  cases.file("st_length_file_size", kWeights, [](std::string& b) { b.replace(0, 8, length_prefix(b.size())); },
             {"header length"});
  cases.file("st_length_into_data", kWeights, [](std::string& b) { b.replace(0, 8, length_prefix(b.size() - 8)); },
             {"header", "not valid JSON"});
  cases.file("st_truncated_header", kWeights, [](std::string& b) { b.resize(100); }, {"header length", "truncated"});
  cases.file("st_truncated_data", kWeights, [](std::string& b) { b.resize(b.size() - 1); },
             {"data_offsets", "within the data"});
  cases.add("st_header_beyond_100_mb",
            [](const fs::path& folder) {
              write_tiny_model(folder);
              write_file(folder / kWeights, length_prefix(100'000'001) + "{");
              fs::resize_file(folder / kWeights, 100'000'100);  // a hole on disk
            },
            {kWeights, "header length", "100000000"});
}

void add_header_texts(Cases& cases) {
  cases.parts("st_not_json", [](std::string& h, std::string&) { h[1] = '!'; }, {"header", "not valid JSON"});
  cases.parts("st_leading_space", [](std::string& h, std::string&) { h = " " + h; }, {"header", "'{'"});
  cases.small("st_array", "[]", 0, {"header", "'{'"});
  cases.small("st_not_utf8", "{\"\xFF\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0, {"header"});
  cases.small("st_deep", "{\"a\":" + std::string(5000, '[') + std::string(5000, ']') + "}", 0, {"header"});
  cases.small("st_metadata_number", R"({"__metadata__":{"step":7}})", 0, {"__metadata__", "step", "string"});
  cases.small("st_metadata_text", R"({"__metadata__":"pt"})", 0, {"__metadata__", "object"});
  cases.small("st_metadata_twice", R"({"__metadata__":{},"__metadata__":{}})", 0, {"__metadata__", "twice"});
  cases.small("st_entry_null", R"({"t":null})", 0, {"tensor t", "object"});
  cases.small("st_entry_array", R"({"t":[]})", 0, {"tensor t", "object"});
  for (const std::string key : {"dtype", "shape", "data_offsets"}) {
    cases.header("st_no_" + key, [key](Json& h) { h[kNorm].erase(key); }, {kNorm, key, "missing"});
  }
  cases.small("st_name_twice",
              R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
              R"("t":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
              8, {"\"t\"", "twice"});
  cases.small("st_name_twice_escaped",
              R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
              R"("\u0074":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
              8, {"\"t\"", "twice"});
  cases.small("st_dtype_twice", R"({"t":{"dtype":"U8","dtype":"I8","shape":[4],"data_offsets":[0,4]}})", 4,
              {"tensor t", "dtype", "twice"});
  cases.small("st_offsets_twice", R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"data_offsets":[0,4]}})", 4,
              {"tensor t", "data_offsets", "twice"});
}

void add_entries(Cases& cases) {
  cases.header("st_dtype_unknown", [](Json& h) { h[kNorm]["dtype"] = "XYZ"; },
               {std::string("unsupported dtype XYZ in tensor ") + kNorm});
  cases.small("st_dtype_unknown_and_offsets",
              R"({"t":{"dtype":"XYZ","shape":[1],"data_offsets":[18446744073709551615,0]}})", 4,
              {"unsupported dtype XYZ in tensor t"});
  cases.header("st_dtype_lower_case", [](Json& h) { h[kNorm]["dtype"] = "bf16"; }, {"unsupported dtype bf16", kNorm});
  cases.header("st_dtype_number", [](Json& h) { h[kNorm]["dtype"] = 16; }, {kNorm, "dtype", "a string"});
  cases.header("st_dtype_wider", [](Json& h) { h[kNorm]["dtype"] = "F32"; }, {kNorm, "256 bytes", "found 128"});
  cases.header("st_shape_text", [](Json& h) { h[kNorm]["shape"] = "64"; }, {kNorm, "shape", "an array"});
  cases.header("st_shape_negative", [](Json& h) { h[kNorm]["shape"] = Json::array({-64}); },
               {kNorm, "shape[0]", "-64"});
  cases.header("st_shape_fraction", [](Json& h) { h[kNorm]["shape"] = Json::array({64.5}); },
               {kNorm, "shape[0]", "64.5"});
  cases.header("st_shape_beyond_u64", [](Json& h) { h[kNorm]["shape"] = Json::array({std::uint64_t{1} << 63}); },
               {kNorm, "shape[0]"});
  cases.header("st_shape_overflow",
               [](Json& h) {
                 h[kNorm]["shape"] = {std::int64_t{1} << 62, 4, 4};
               },
               {kNorm, "shape", "63 bits"});
  cases.header("st_shape_overflow_before_zero",
               [](Json& h) {
                 h[kNorm]["shape"] = {std::int64_t{1} << 62, 4, 0};
               },
               {kNorm, "shape", "63 bits"});
  cases.header("st_bytes_overflow", [](Json& h) { h[kNorm]["shape"] = Json::array({std::int64_t{1} << 62}); },
               {kNorm, "shape", "63 bits"});
  cases.header("st_shape_too_many", [](Json& h) { h[kNorm]["shape"] = {1, 1, 1, 1, 1, 1, 1, 1, 64}; },
               {kNorm, "shape", "8 dimensions"});
  cases.header("st_shape_wrong",
               [](Json& h) {
                 h[kEmbedding]["shape"] = {385, 64};
               },
               {kEmbedding, "data_offsets", "[385, 64]"});
  cases.small("st_shape_large_range_small", R"({"t":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]}})", 4,
              {"tensor t", "4000000 bytes", "found 4"});
  cases.header("st_offsets_one", [](Json& h) { h[kNorm]["data_offsets"].erase(0); },
               {kNorm, "data_offsets", "[begin, end]", "1 values"});
  cases.header("st_offsets_three", [](Json& h) { h[kNorm]["data_offsets"].push_back(9); },
               {kNorm, "data_offsets", "3 values"});
  cases.header("st_offsets_text",
               [](Json& h) {
                 h[kNorm]["data_offsets"] = {"0", "128"};
               },
               {kNorm, "data_offsets[0]", "an integer"});
  cases.header("st_offsets_negative",
               [](Json& h) {
                 h[kNorm]["data_offsets"] = {-128, 0};
               },
               {kNorm, "data_offsets[0]", "-128"});
  cases.header("st_offsets_object", [](Json& h) { h[kNorm]["data_offsets"] = Json::object(); },
               {kNorm, "data_offsets", "an array"});
  cases.small("st_offsets_swapped", R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[8,4]}})", 8,
              {"tensor t", "begin <= end", "[8, 4]"});
  cases.small("st_offsets_past_end", R"({"t":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", 8,
              {"tensor t", "within the data of 8 bytes"});
}

void add_coverage(Cases& cases) {
  const auto two = [](int a_begin, int a_end, int b_begin, int b_end) {
    Json json;
    json["a"] = {{"dtype", "U8"}, {"shape", {a_end - a_begin}}, {"data_offsets", {a_begin, a_end}}};
    json["b"] = {{"dtype", "U8"}, {"shape", {b_end - b_begin}}, {"data_offsets", {b_begin, b_end}}};
    return json.dump();
  };
  cases.small("st_overlap", two(0, 8, 4, 12), 12, {"tensor b", "overlap", "tensor a"});
  cases.small("st_same_range", two(0, 8, 0, 8), 8, {"tensor", "overlap"});
  cases.small("st_hole", two(0, 4, 8, 12), 12, {"tensor b", "hole"});
  cases.small("st_hole_at_start", two(4, 8, 8, 12), 12, {"tensor a", "hole"});
  cases.small("st_no_tensors_but_data", "{}", 16, {"data", "expected 0 bytes"});
  cases.parts("st_trailing_bytes", [](std::string&, std::string& d) { d.append(16, '\0'); }, {"data: expected"});
  cases.header("st_tensor_removed", [](Json& h) { h.erase(kEmbedding); }, {"hole"});
}

void add_index_names(Cases& cases) {
  const auto name = [&](const std::string& case_name, const std::string& file) {
    cases.index(case_name, [file](Json& map, const fs::path&) { map[kNorm] = file; },
                {"weight_map", kNorm, "plain name"});
  };
  name("index_parent", "../model.safetensors");
  name("index_far_parent", "../../x.safetensors");
  name("index_absolute", "/etc/model.safetensors");
  name("index_subfolder", "sub/model.safetensors");
  name("index_backslash", "..\\model.safetensors");
  name("index_empty_name", "");
  name("index_dots", "..");
  name("index_other_format", "pytorch_model.bin");
  name("index_newline", "a\nb.safetensors");
  name("index_nul", std::string("a\0.safetensors", 14));
  cases.index("index_number", [](Json& map, const fs::path&) { map[kNorm] = 1; }, {"weight_map", kNorm, "a string"});
  cases.index("index_null", [](Json& map, const fs::path&) { map[kNorm] = nullptr; }, {"weight_map", kNorm});
  cases.index("index_empty_map", [](Json& map, const fs::path&) { map = Json::object(); }, {"weight_map", "empty"});
  cases.index("index_map_array", [](Json& map, const fs::path&) { map = Json::array(); }, {"weight_map", "an object"});
}

void add_index_contents(Cases& cases) {
  cases.index("index_one_missing", [](Json&, const fs::path& folder) { fs::remove(folder / kShardB); },
              {kShardB, "missing", "incomplete download"});
  cases.index("index_all_missing",
              [](Json&, const fs::path& folder) {
                fs::remove(folder / kShardA);
                fs::remove(folder / kShardB);
              },
              {kShardA, kShardB, "2 missing", "incomplete download"});
  cases.index("index_dangling_link",
              [](Json&, const fs::path& folder) {
                fs::remove(folder / kShardB);
                fs::create_symlink("nowhere", folder / kShardB);
              },
              {kShardB, "missing"});
  cases.index("index_folder_for_shard",
              [](Json&, const fs::path& folder) {
                fs::remove(folder / kShardB);
                fs::create_directory(folder / kShardB);
              },
              {kShardB, "missing"});
  cases.index("index_leftover",
              [](Json&, const fs::path& folder) {
                fs::remove(folder / kShardB);
                write_tiny_model(folder);
              },
              {kShardB, "leftover", kWeights});
  cases.index("index_wrong_shard",
              [](Json& map, const fs::path&) { map[kEmbedding] = map[kEmbedding] == kShardA ? kShardB : kShardA; },
              {"weight_map", kEmbedding, "found it in"});
  cases.index("index_unknown_tensor", [](Json& map, const fs::path&) { map["model.extra.weight"] = kShardA; },
              {"weight_map", "model.extra.weight", "no file"});
  cases.index("index_forgets_tensor", [](Json& map, const fs::path&) { map.erase(kNorm); },
              {"weight_map", kNorm, "is missing"});
  cases.add("index_tensor_in_two_shards",
            [](const fs::path& folder) {
              write_tiny_shards(folder, {kShardA, kShardB}, true);
              fs::copy_file(folder / kShardA, folder / kShardB, fs::copy_options::overwrite_existing);
            },
            {kShardB, kShardA, "tensor", "also found in"});
  cases.add("glob_tensor_in_two_files",
            [](const fs::path& folder) {
              write_tiny_model(folder);
              fs::rename(folder / kWeights, folder / "a.safetensors");
              fs::copy_file(folder / "a.safetensors", folder / "b.safetensors");
            },
            {"b.safetensors", "a.safetensors", "tensor", "also found in"});
  cases.file("index_not_json", kIndex, [](std::string& text) { text = "{\"weight_map\":"; }, {"not valid JSON"});
  cases.file("index_no_map", kIndex, [](std::string& text) { text = R"({"metadata":{}})"; }, {"weight_map", "missing"});
  cases.file("index_tensor_twice", kIndex,
             [](std::string& text) { text = R"({"weight_map":{"a":"model.safetensors","a":"model.safetensors"}})"; },
             {"weight_map", "\"a\"", "twice"});
}

void add_folders(Cases& cases) {
  cases.add("no_files", [](const fs::path&) {}, {"no weights", kWeights, kIndex});
  cases.add("no_weights",
            [](const fs::path& folder) {
              write_tiny_model(folder);
              fs::remove(folder / kWeights);
            },
            {"no weights", kWeights, kIndex});
  for (const std::string file : {"pytorch_model.bin", "model-Q8_0.gguf"}) {
    cases.add("only_" + file.substr(file.size() - (file.ends_with(".bin") ? 3 : 4)),
              [file](const fs::path& folder) {
                write_tiny_model(folder);
                fs::rename(folder / kWeights, folder / file);
              },
              {file, "not supported", kWeights});
  }
  cases.add("no_config",
            [](const fs::path& folder) {
              write_tiny_model(folder);
              fs::remove(folder / "config.json");
            },
            {"config.json", "found none"});
  cases.add("weights_are_a_folder",
            [](const fs::path& folder) {
              write_tiny_model(folder);
              fs::remove(folder / kWeights);
              fs::create_directory(folder / kWeights);
            },
            {kWeights, "expected a file"});
  cases.add("weights_link_outwards",
            [](const fs::path& folder) {
              write_tiny_model(folder);
              fs::remove(folder / kWeights);
              fs::create_symlink(data_path("models/qwen3-tiny") / kWeights, folder / kWeights);
            },
            {kWeights, "expected a file inside", "link to"});
}

void add_config_texts(Cases& cases) {
  const auto text = [&](const std::string& name, const std::string& content, Cases::Messages messages) {
    cases.file(
        name, "config.json", [content](std::string& t) { t = content; }, std::move(messages));
  };
  text("config_empty", "", {"not valid JSON"});
  text("config_array", "[]", {"an object"});
  text("config_not_utf8", "{\"model_type\":\"\xFF\"}", {"not valid JSON"});
  text("config_deep", std::string(100'000, '['), {"not valid JSON"});
  text("config_too_large", std::string((1 << 20) + 1, ' '), {"at most 1048576 bytes"});
  text("config_no_family", "{}", {"model_type", "missing", "qwen3"});
  cases.file("config_nan", "config.json", [](std::string& t) { t.insert(1, "\"rope_theta\": NaN,"); },
             {"not valid JSON"});
  cases.file("config_key_twice", "config.json", [](std::string& t) { t.insert(1, "\"hidden_size\": 128,"); },
             {"hidden_size", "twice"});
}

void add_config_sizes(Cases& cases) {
  for (const std::string key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                                "num_attention_heads", "max_position_embeddings"}) {
    cases.json("config_no_" + key, "config.json", [key](Json& json) { json.erase(key); }, {key, "missing"});
    cases.config("config_zero_" + key, key, 0, {"found 0"});
    cases.config("config_text_" + key, key, "64", {"an integer"});
  }
  cases.config("config_many_layers", "num_hidden_layers", 1'000'000'000, {"10000"});
  cases.config("config_negative_layers", "num_hidden_layers", -1, {"found -1"});
  cases.config("config_fraction_hidden", "hidden_size", 64.5, {"an integer"});
  cases.config("config_large_vocab", "vocab_size", std::int64_t{1} << 31, {"2147483647"});
  cases.config("config_beyond_i64", "hidden_size", ~std::uint64_t{0}, {"an integer"});
  cases.config("config_zero_kv_heads", "num_key_value_heads", 0, {"found 0"});
  cases.config("config_kv_heads_no_divisor", "num_key_value_heads", 3, {"divisor of num_attention_heads (4)"});
  cases.config("config_kv_heads_more", "num_key_value_heads", 8, {"divisor of num_attention_heads (4)"});
  cases.json("config_no_kv_heads", "config.json", [](Json& json) { json.erase("num_key_value_heads"); },
             {"num_key_value_heads", "found 32"});
  cases.config("config_odd_head_dim", "head_dim", 31, {"even"});
  cases.config("config_zero_head_dim", "head_dim", 0, {"found 0"});
  cases.config("config_wide_heads", "head_dim", 8'000'000, {"num_attention_heads * head_dim"});
  cases.json("config_huge_cache", "config.json",
             [](Json& json) {
               json["max_position_embeddings"] = 2'147'483'647;
               json["num_hidden_layers"] = 10'000;
               json["num_attention_heads"] = json["num_key_value_heads"] = 8192;
               json["head_dim"] = 2048;
             },
             {"max_position_embeddings", "63 bits"});
  cases.config("config_zero_eps", "rms_norm_eps", 0, {"above 0"});
  cases.config("config_tiny_eps", "rms_norm_eps", 1e-60, {"above 0"});
  cases.config("config_negative_eps", "rms_norm_eps", -1e-6, {"above 0"});
  cases.config("config_text_eps", "rms_norm_eps", "1e-6", {"above 0"});
}

void add_config_kinds(Cases& cases) {
  cases.config("config_other_family", "model_type", "gpt_oss", {"\"gpt_oss\"", "supported: \"qwen3\""});
  cases.config("config_family_number", "model_type", 3, {"a string"});
  cases.config("config_other_head", "architectures", Json::array({"Qwen3ForSequenceClassification"}),
               {"Qwen3ForSequenceClassification", "supported: Qwen3ForCausalLM"});
  cases.config("config_architectures_text", "architectures", "Qwen3ForCausalLM", {"an array"});
  cases.config("config_hidden_act", "hidden_act", "gelu", {"\"gelu\"", "silu"});
  cases.config("config_quantized", "quantization_config", {{"quant_method", "gptq"}}, {"not supported yet"});
  cases.config("config_mlx_quantized", "quantization", {{"bits", 4}}, {"not supported yet"});
  cases.config("config_bias_number", "attention_bias", 1, {"true or false"});
  cases.config("config_tie_text", "tie_word_embeddings", "true", {"true or false"});
  cases.config("config_eos_beyond_vocab", "eos_token_id", 384, {"0 to 383", "found 384"});
  cases.config("config_eos_negative", "eos_token_id", -1, {"found -1"});
  cases.config("config_eos_text", "eos_token_id", "<|im_end|>", {"a token id"});
  cases.config("config_eos_list_text", "eos_token_id", {255, "x"}, {"eos_token_id[1]"});
  cases.config("config_eos_long_list", "eos_token_id", std::vector<int>(1025, 7), {"1024"});
}

void add_config_windows(Cases& cases) {
  cases.config("config_sliding_text", "use_sliding_window", "yes", {"true or false"});
  cases.config("config_sliding_null", "use_sliding_window", true, {"sliding_window", "found none"});
  const auto sliding = [&](const std::string& name, Json more, Cases::Messages messages) {
    cases.json(
        name, "config.json",
        [more = std::move(more)](Json& json) {
          json["use_sliding_window"] = true;
          json["sliding_window"] = 8;
          json.update(more);
        },
        std::move(messages));
  };
  sliding("config_sliding_zero", {{"sliding_window", 0}}, {"sliding_window", "found 0"});
  sliding("config_sliding_negative", {{"sliding_window", -8}}, {"sliding_window", "found -8"});
  sliding("config_max_window_negative", {{"max_window_layers", -1}}, {"max_window_layers", "found -1"});
  const std::string full = "full_attention";
  cases.config("config_layer_types_short", "layer_types", {full, full}, {"3 entries", "found 2"});
  cases.config("config_layer_types_long", "layer_types", {full, full, full, full}, {"3 entries", "found 4"});
  cases.config("config_layer_types_unknown", "layer_types", {full, full, "linear_attention"},
               {"layer_types[2]", "linear_attention"});
  cases.config("config_layer_types_number", "layer_types", {full, 1, full}, {"layer_types[1]", "a string"});
  cases.config("config_layer_types_sliding_off", "layer_types", {full, "sliding_attention", full},
               {"layer_types[1]", "use_sliding_window"});
}

void add_config_rope(Cases& cases) {
  for (const double theta : {0.0, -1.0}) {
    cases.config(theta == 0 ? "rope_theta_zero" : "rope_theta_negative", "rope_theta", theta, {"above 0"});
  }
  cases.config("rope_theta_text", "rope_theta", "1e6", {"above 0"});
  cases.config("rope_partial", "partial_rotary_factor", 0.5, {"supported: 1"});
  const auto rope = [&](const std::string& name, Json value, Cases::Messages messages) {
    cases.config("rope_" + name, "rope_scaling", std::move(value), std::move(messages));
  };
  for (const std::string type : {"dynamic", "llama3", "longrope", "mrope", "su"}) {
    rope(type, {{"type", type}, {"factor", 4}}, {"rope_scaling.type", type, "supported: default, linear, yarn"});
  }
  rope("text", "yarn", {"an object"});
  rope("no_type", {{"factor", 4}}, {"rope_type", "missing"});
  rope("types_differ", {{"rope_type", "yarn"}, {"type", "linear"}, {"factor", 4}}, {"rope_scaling.type", "yarn"});
  rope("yarn_no_factor", {{"rope_type", "yarn"}}, {"factor", "missing"});
  rope("yarn_factor_small", {{"rope_type", "yarn"}, {"factor", 0.5}}, {"rope_scaling.factor", "1 or above", "0.5"});
  rope("linear_factor_text", {{"rope_type", "linear"}, {"factor", "4"}}, {"rope_scaling.factor", "\"4\""});
  rope("yarn_original_zero", {{"type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 0}},
       {"original_max_position_embeddings", "found 0"});
  rope("yarn_attention_factor", {{"type", "yarn"}, {"factor", 4}, {"attention_factor", 0}}, {"attention_factor"});
  rope("yarn_betas", {{"type", "yarn"}, {"factor", 4}, {"beta_fast", 1}, {"beta_slow", 32}},
       {"beta_fast >= beta_slow"});
  rope("yarn_mscale", {{"type", "yarn"}, {"factor", 4}, {"mscale", -1}}, {"rope_scaling.mscale"});
  rope("yarn_truncate", {{"type", "yarn"}, {"factor", 4}, {"truncate", 0}}, {"truncate", "true or false"});
  rope("yarn_theta_one", {{"type", "yarn"}, {"factor", 4}, {"rope_theta", 1}}, {"rope_theta", "above 1"});
  rope("partial_inside", {{"type", "yarn"}, {"factor", 4}, {"partial_rotary_factor", 0.25}},
       {"partial_rotary_factor", "supported: 1"});
  rope("mrope_section", {{"type", "default"}, {"mrope_section", {24, 20, 20}}}, {"mrope_section"});
  cases.config("rope_nested", "rope_parameters", {{"full_attention", {{"rope_theta", 10000}}}}, {"full_attention"});
  cases.config("rope_parameters_no_type", "rope_parameters", {{"factor", 4}}, {"rope_parameters.rope_type"});
}

void add_generation(Cases& cases) {
  const auto key = [&](const std::string& name, const std::string& field, Json value, Cases::Messages messages) {
    messages.push_back(field);
    cases.json(
        "generation_" + name, "generation_config.json",
        [field, value = std::move(value)](Json& json) { json[field] = value; }, std::move(messages));
  };
  key("temperature_text", "temperature", "0.6", {"\"0.6\""});
  key("temperature_negative", "temperature", -0.1, {"0 or above"});
  key("temperature_beyond_float", "temperature", 1e300, {"finite"});
  key("top_p_zero", "top_p", 0, {"above 0"});
  key("top_p_above_one", "top_p", 1.5, {"at most 1"});
  key("top_k_fraction", "top_k", 20.5, {"an integer"});
  key("top_k_negative", "top_k", -20, {"found -20"});
  key("min_p_above_one", "min_p", 2, {"0 to 1"});
  key("repetition_penalty_zero", "repetition_penalty", 0, {"above 0"});
  key("do_sample_number", "do_sample", 1, {"true or false"});
  key("eos_beyond_vocab", "eos_token_id", {255, 384}, {"eos_token_id[1]", "found 384"});
  key("eos_object", "eos_token_id", Json::object(), {"a token id"});
  cases.file("generation_not_json", "generation_config.json", [](std::string& t) { t = "{"; }, {"not valid JSON"});
}

}  // namespace

std::string safetensors_bytes(std::string_view header, std::size_t data_bytes) {
  return join(std::string(header), std::string(data_bytes, '\0'));
}

std::string safetensors_header(std::string_view file) {
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < 8; ++i) length |= std::uint64_t{static_cast<unsigned char>(file[i])} << (8 * i);
  return std::string(file.substr(8, length));
}

void write_tiny_model(const fs::path& folder) {
  for (const char* name : {"config.json", "generation_config.json", kWeights}) {
    fs::copy_file(data_path("models/qwen3-tiny") / name, folder / name, fs::copy_options::overwrite_existing);
  }
}

void write_tiny_shards(const fs::path& folder, const std::vector<std::string>& names, bool with_index) {
  write_tiny_model(folder);
  const std::string file = read_file(folder / kWeights);
  fs::remove(folder / kWeights);
  const std::string text = safetensors_header(file);
  std::vector<Json> headers(names.size(), Json::object());
  std::vector<std::string> data(names.size());
  Json index{{"metadata", Json::object()}, {"weight_map", Json::object()}};
  std::size_t turn = 0;
  const Json entries = Json::parse(text);
  for (const auto& [name, entry] : entries.items()) {
    if (name == "__metadata__") continue;
    const auto begin = entry["data_offsets"][0].get<std::size_t>();
    const auto end = entry["data_offsets"][1].get<std::size_t>();
    const std::size_t shard = turn++ % names.size();
    Json moved = entry;
    moved["data_offsets"] = {data[shard].size(), data[shard].size() + end - begin};
    headers[shard][name] = moved;
    data[shard] += file.substr(8 + text.size() + begin, end - begin);
    index["weight_map"][name] = names[shard];
  }
  for (std::size_t i = 0; i < names.size(); ++i) write_file(folder / names[i], join(headers[i].dump(), data[i]));
  if (with_index) write_file(folder / kIndex, index.dump());
}

std::vector<BadFile> bad_checkpoints() {
  Cases cases;
  add_header_lengths(cases);
  add_header_texts(cases);
  add_entries(cases);
  add_coverage(cases);
  add_index_names(cases);
  add_index_contents(cases);
  add_folders(cases);
  add_config_texts(cases);
  add_config_sizes(cases);
  add_config_kinds(cases);
  add_config_windows(cases);
  add_config_rope(cases);
  add_generation(cases);
  return cases.take();
}

}  // namespace vitrine::test
