// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdio>
#include <string>

#include <sys/types.h>

#include "json_output.h"

namespace vitrine::app {

/// Another engine, in a process of its own that answers a line of JSON to each line: bench/compare.py says which.
/// Whatever goes wrong is an Error(kIo) of one line.
class Peer {
 public:
  /// Starts it and waits until its model is loaded. `python` is looked for in PATH.
  Peer(const std::string& python, const std::string& model, int threads);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  const std::string& name() const { return name_; }
  double load_s() const { return load_s_; }
  /// Tokens/s of "prefill 512", "decode 2048 32" or "batch 8 32". Returns once its threads have gone to sleep.
  double measure(const std::string& command);

 private:
  void start(const std::string& python, const std::string& model, int threads);
  void stop() noexcept;
  void send(const std::string& line);
  Json receive();
  double number(const Json& answer, const char* key);
  [[noreturn]] void fail(const std::string& what);
  std::string last_words();

  std::string name_ = "the peer";
  double load_s_ = 0;
  pid_t process_ = -1;
  int socket_ = -1;
  std::FILE* errors_ = nullptr;  // its standard error, shown when it dies
  std::string received_;         // what came after the last line
};

}  // namespace vitrine::app
