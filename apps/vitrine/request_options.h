// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/engine.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "command.h"

namespace vitrine::app {

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

  void add_to(CLI::App& command);
  /// A request with prompt_ids and sampling filled in. Throws Error(kInvalidArgument), or kNotFound for a
  /// text without a tokenizer.
  Request make_request(const Engine& engine) const;
};

/// The text of one token, decoded alone; empty without a tokenizer.
std::string token_text(const Engine& engine, TokenId id);

}  // namespace vitrine::app
