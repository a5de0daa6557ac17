// SPDX-License-Identifier: Apache-2.0
#include "bench_peer.h"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vitrine/error.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <thread>

#include "terminal.h"

namespace vitrine::app {
namespace {

/// OpenMP's threads spin for up to 200 ms after their work, and would take the cores from what is measured next.
constexpr std::chrono::milliseconds kRest(300);
constexpr std::size_t kLongestAnswer = 1 << 20;

/// bench/compare.py: beside the demo model where the program is installed, else in the source tree.
std::string script() {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* where : {"../share/vitrine/bench/compare.py", "../../bench/compare.py"}) {
    const fs::path path = (program / where).lexically_normal();
    if (fs::exists(path, error)) return path.string();
  }
  throw Error(ErrorCode::kNotFound,
              "compare.py is not where it was installed (../share/vitrine/bench beside the program)");
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return fmt::format("killed by signal {}", WTERMSIG(status));
  return fmt::format("exit code {}", WEXITSTATUS(status));
}

}  // namespace

Peer::Peer(const std::string& python, const std::string& model, int threads) {
  start(python, model, threads);
  try {
    const Json hello = receive();
    load_s_ = number(hello, "load_s");
    name_ = visible(hello.value("name", name_));
  } catch (...) {
    stop();
    throw;
  }
}

Peer::~Peer() { stop(); }

void Peer::start(const std::string& python, const std::string& model, int threads) {
  const std::string compare = script();
  errors_ = std::tmpfile();
  // A socket and no pipe: writing to a peer that died is an error then, and no signal.
  std::array<int, 2> ends{-1, -1};
  if (errors_ == nullptr || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    const int reason = errno;
    stop();
    throw Error(ErrorCode::kIo, fmt::format("the peer cannot be started: {}", std::strerror(reason)));
  }
  socket_ = ends[0];
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, ::fileno(errors_), STDERR_FILENO);
  std::array<std::string, 5> words{python, compare, model, "--threads", fmt::format("{}", threads)};
  std::array<char*, words.size() + 1> arguments{};
  std::transform(words.begin(), words.end(), arguments.begin(), [](std::string& word) { return word.data(); });
  const int error = ::posix_spawnp(&process_, python.c_str(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error != 0) {
    process_ = -1;
    stop();
    throw Error(ErrorCode::kIo,
                fmt::format("--peer-python: {} cannot be started: {}", visible(python), std::strerror(error)));
  }
}

/// It ends when its input does; a peer that would rather not is ended.
void Peer::stop() noexcept {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
  for (int tries = 0; process_ > 0; ++tries) {
    if (::waitpid(process_, nullptr, WNOHANG) != 0) break;
    if (tries == 100) ::kill(process_, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  process_ = -1;
  if (errors_ != nullptr) std::fclose(errors_);
  errors_ = nullptr;
}

double Peer::measure(const std::string& command) {
  send(command + "\n");
  const double rate = number(receive(), "tokens_per_s");
  std::this_thread::sleep_for(kRest);
  return rate;
}

void Peer::send(const std::string& line) {
  const ssize_t sent = ::send(socket_, line.data(), line.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(line.size())) fail("takes no commands any more");
}

Json Peer::receive() {
  std::size_t end = std::string::npos;
  while ((end = received_.find('\n')) == std::string::npos) {
    std::array<char, 4096> chunk{};
    const ssize_t count = ::recv(socket_, chunk.data(), chunk.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0 || received_.size() > kLongestAnswer) fail("gave no answer");
    received_.append(chunk.data(), static_cast<std::size_t>(count));
  }
  const std::string line = received_.substr(0, end);
  received_.erase(0, end + 1);
  Json answer = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!answer.is_object()) {
    throw Error(ErrorCode::kIo,
                fmt::format("{}: expected a line with a JSON object, found \"{}\"", name_, cut(visible(line), 60)));
  }
  if (answer.contains("error")) {
    const Json& error = answer["error"];
    throw Error(ErrorCode::kIo, name_ + ": " + visible(error.is_string() ? error.get<std::string>() : error.dump()));
  }
  return answer;
}

double Peer::number(const Json& answer, const char* key) {
  const auto found = answer.find(key);
  if (found != answer.end() && found->is_number()) {
    const auto value = found->get<double>();
    if (std::isfinite(value) && value > 0) return value;
  }
  throw Error(ErrorCode::kIo,
              fmt::format("{}: expected a {} above 0, found {}", name_, key, cut(visible(answer.dump()), 60)));
}

/// Says how it ended and what it said last.
void Peer::fail(const std::string& what) {
  std::string how = "still running";
  for (int tries = 0; tries < 50; ++tries) {
    int status = 0;
    if (::waitpid(process_, &status, WNOHANG) == process_) {
      process_ = -1;
      how = how_it_ended(status);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const std::string words = last_words();
  throw Error(ErrorCode::kIo, fmt::format("{} {} ({}){}{}", name_, what, how, words.empty() ? "" : ": ", words));
}

std::string Peer::last_words() {
  std::string line;
  std::string last;
  std::rewind(errors_);
  for (int c = std::fgetc(errors_); c != EOF; c = std::fgetc(errors_)) {
    if (c != '\n') {
      if (line.size() < 300) line += static_cast<char>(c);
      continue;
    }
    if (!line.empty()) last = line;
    line.clear();
  }
  return visible(line.empty() ? last : line);
}

}  // namespace vitrine::app
