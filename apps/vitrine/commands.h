// SPDX-License-Identifier: Apache-2.0
// What the program can do: one struct of options and one function a command. command_line.cpp fills the structs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "options.h"

namespace vitrine::app {

/// Exit codes: what a script can rely on.
inline constexpr int kExitFine = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

struct RunCommand {
  ModelOptions model;
  RequestOptions request;
  std::int64_t max_tokens = -1;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  int top = 0;
  bool json = false;
  bool quiet = false;
};

struct ExplainCommand {
  ModelOptions model;
  RequestOptions request;
  int top = 5;
  bool json = false;
};

struct TokenizeCommand {
  std::string model;
  TextInput text;
  std::string special = "parse";
  bool decode = false;
  bool skip_special = false;
  bool batch = false;
  bool json = false;
};

struct InfoCommand {
  ModelOptions model;
  bool json = false;
};

struct BenchCommand {
  ModelOptions model;
  std::string prefill = "512", depth = "0,2048", batch = "8";
  std::int64_t tokens = 32;
  int repeat = 5;
  std::string against;
  std::string peer_python = "python3";
  bool json = false;
};

struct CacheCommand {
  bool clear = false;  // else: list
  bool json = false;
};

// Each runs its command and returns the exit code, or throws.
int run(const RunCommand& o);
int explain(const ExplainCommand& o);
int tokenize(const TokenizeCommand& o);
int info(const InfoCommand& o);
int bench(const BenchCommand& o);
int cache(const CacheCommand& o);

}  // namespace vitrine::app
