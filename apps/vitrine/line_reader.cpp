// SPDX-License-Identifier: Apache-2.0
#include "line_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vitrine/error.h>

#include <cerrno>
#include <cstring>

#include "interrupt.h"

namespace vitrine::app {
namespace {

Error cannot_be_read(const std::string& name) {
  return {ErrorCode::kIo, name + ": cannot be read: " + std::strerror(errno)};
}

}  // namespace

LineReader::LineReader(const std::string& path) : name_(path == "-" ? "standard input" : path) {
  file_ = path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (file_ < 0 || ::fstat(file_, &status) != 0) throw cannot_be_read(name_);
  if (S_ISREG(status.st_mode)) size_ = status.st_size;
}

LineReader::~LineReader() {
  if (file_ != STDIN_FILENO) ::close(file_);
}

LineReader::Status LineReader::next(std::string& line, bool wait) {
  for (;;) {
    const std::size_t end = buffer_.find('\n', searched_);
    if (end != std::string::npos) return take(line, end, end + 1);
    searched_ = buffer_.size();
    if (ended_) return begin_ == buffer_.size() && !too_long_ ? Status::kEnd : take(line, searched_, searched_);
    if (searched_ - begin_ > kLongest) {
      too_long_ = true;
      position_ += static_cast<std::int64_t>(searched_ - begin_);
      begin_ = searched_;
    }
    if (!read_more(wait)) return Status::kNotYet;
  }
}

LineReader::Status LineReader::take(std::string& line, std::size_t end, std::size_t next) {
  position_ += static_cast<std::int64_t>(next - begin_);
  line.assign(buffer_, begin_, end - begin_);
  if (line.ends_with('\r')) line.pop_back();
  begin_ = searched_ = next;
  const bool too_long = too_long_ || line.size() > kLongest;
  too_long_ = false;
  return too_long ? Status::kTooLong : Status::kLine;
}

/// False when there is nothing to read yet.
bool LineReader::read_more(bool wait) {
  constexpr std::size_t kChunk = 65536;
  constexpr int kWaitMs = 200;  // then a look whether Ctrl-C came before the wait began
  pollfd ready{.fd = file_, .events = POLLIN, .revents = 0};
  while (::poll(&ready, 1, wait ? kWaitMs : 0) <= 0) {
    if (!wait || InterruptScope::interrupted()) return false;
  }
  buffer_.erase(0, begin_);
  searched_ -= begin_;
  begin_ = 0;
  const std::size_t size = buffer_.size();
  buffer_.resize(size + kChunk);
  const ssize_t count = ::read(file_, buffer_.data() + size, kChunk);
  buffer_.resize(size + static_cast<std::size_t>(count > 0 ? count : 0));
  if (count < 0 && errno != EINTR && errno != EAGAIN) throw cannot_be_read(name_);
  ended_ = count == 0;
  return count >= 0 || wait;
}

}  // namespace vitrine::app
