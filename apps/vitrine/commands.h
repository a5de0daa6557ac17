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
inline constexpr int kExitInterrupted = 130;  // Ctrl-C while there was more to do

struct RunCommand {
  ModelOptions model;
  RequestOptions request;
  std::int64_t max_tokens = -1;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  int top = 0;
  std::string batch;  // a file of requests, - for standard input; empty: one prompt
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

struct BenchEngineCommand {
  ModelOptions model;
  std::int64_t requests = 64;
  std::int64_t concurrency = 16;
  std::int64_t prompt_tokens = 128, output_tokens = 128;
  std::int64_t shared_prefix = 0;  // of prompt_tokens, the same in all requests
  double rate = 0;                 // requests that arrive in a second; 0: the next one comes when one is done
  bool speculation = false;
  bool json = false;
};

struct CacheCommand {
  bool clear = false;  // else: list
  bool json = false;
};

// Each runs its command and returns the exit code, or throws.
int run(const RunCommand& o);
int run_batch(const RunCommand& o);
int explain(const ExplainCommand& o);
int tokenize(const TokenizeCommand& o);
int info(const InfoCommand& o);
int bench(const BenchCommand& o);
int bench_engine(const BenchEngineCommand& o);
int cache(const CacheCommand& o);

}  // namespace vitrine::app
