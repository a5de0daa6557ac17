// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/engine.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace vitrine::app {

/// The options that every command with a model has.
struct ModelOptions {
  std::string model;  // empty: the demo model
  int threads = 0;
  std::int64_t context = 0;
  std::string precision = "default";
  std::string weights = to_string(EngineOptions{}.weights);
  std::string kv = to_string(EngineOptions{}.kv);
  std::string kv_memory;  // "2GB", or tokens: "8192"; empty: the engine's default
  bool no_cache = false;

  /// Throws Error(kInvalidArgument) when kv_memory is neither a size nor a number.
  EngineOptions engine_options() const;
  /// The model to load: as given, or the demo's folder. Throws Error(kNotFound) when that is not there.
  std::string folder() const;
  /// How it is called in output.
  std::string name() const { return model.empty() ? "demo" : model; }
  /// Loads it, with a progress bar where preloading takes long, and prints its warnings to standard error.
  Engine load(bool preload) const;
  /// The same with options that started as engine_options().
  Engine load(EngineOptions options) const;
};

/// Where a prompt or text comes from: an argument, "-" or a pipe for standard input, or a file.
struct TextInput {
  std::string argument;
  bool has_argument = false;  // an empty argument is not the same as none
  std::string file;

  bool given() const { return has_argument || !file.empty(); }
  /// The text; one newline at the end of a file or of standard input is dropped.
  /// Throws Error: kInvalidArgument for an argument beside a file, kIo for a file that cannot be read.
  std::string read() const;
};

/// The prompt and how to choose what follows it: the options of every command that generates.
struct RequestOptions {
  TextInput prompt;
  std::string ids;
  std::string special = "parse";
  bool greedy = false;
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<std::int64_t> top_k;
  float presence_penalty = 0, frequency_penalty = 0;
  std::vector<std::string> logit_bias;
  std::optional<std::uint64_t> seed;

  /// A request with prompt_ids and sampling filled in. Throws Error(kInvalidArgument), or kNotFound for a text without
  /// a tokenizer.
  Request make_request(const Engine& engine) const;
  /// How to choose tokens: the model's own way, and what was asked for. Throws Error(kInvalidArgument).
  SamplingParams make_sampling(const Engine& engine) const;
  /// The ids of a prompt. Throws Error(kNotFound) without a tokenizer.
  std::vector<TokenId> encode(const Engine& engine, const std::string& text) const;
};

/// The names that --weights and --kv know.
std::vector<std::string> weight_names();
std::vector<std::string> kv_names();
/// "785,6722" or "785 6722". Throws Error(kInvalidArgument).
std::vector<TokenId> parse_ids(const std::string& text);
/// The text of one token, decoded alone; empty without a tokenizer.
std::string token_text(const Engine& engine, TokenId id);
/// A token as a table shows it. Part of a character has no text of its own: its bytes, as \xC3.
std::string shown_token(const Tokenizer& tokenizer, TokenId id);

}  // namespace vitrine::app
