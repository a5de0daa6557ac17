// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/engine.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace vitrine::app {

/// Exit codes: what a script can rely on.
inline constexpr int kExitFine = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

/// The options that every command with a model has.
struct ModelOptions {
  std::string model;  // empty: the demo model
  int threads = 0;
  std::int64_t context = 0;
  std::string precision = "default";

  void add_to(CLI::App& command);
  EngineOptions engine_options() const;
  /// The model to load: as given, or the demo's folder. Throws Error(kNotFound) when that is not there.
  std::string folder() const;
  /// How it is called in output.
  std::string name() const { return model.empty() ? "demo" : model; }
  /// Loads it with a progress bar where that takes long, and prints its warnings to standard error.
  Engine load() const;
};

/// Where a prompt or text comes from: an argument, "-" or a pipe for standard input, or a file.
struct TextInput {
  std::string argument;
  std::string file;
  const CLI::Option* option = nullptr;  // tells an empty argument from none

  void add_to(CLI::App& command, const std::string& what);
  bool has_argument() const { return option != nullptr && option->count() > 0; }
  bool given() const { return has_argument() || !file.empty(); }
  /// The text; one newline at the end of a file or of standard input is dropped.
  /// Throws Error(kInvalidArgument) when there is none.
  std::string read() const;
};

/// "785,6722" or "785 6722". Throws Error(kInvalidArgument).
std::vector<TokenId> parse_ids(const std::string& text);

// Each adds its command to the program; the command's exit code goes to `exit_code`.
void add_run(CLI::App& program, int& exit_code);
void add_tokenize(CLI::App& program, int& exit_code);
void add_info(CLI::App& program, int& exit_code);
void add_explain(CLI::App& program, int& exit_code);

}  // namespace vitrine::app
