// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace vitrine::app {

/// The lines of a file or of standard input, without waiting for those that are not there yet.
class LineReader {
 public:
  enum class Status {
    kLine,
    kTooLong,  ///< a line of more than kLongest bytes was passed over
    kNotYet,   ///< nothing to read at the moment
    kEnd,
  };
  static constexpr std::size_t kLongest = std::size_t{64} << 20;

  /// `path`: a file, or "-" for standard input. Throws Error(kIo).
  explicit LineReader(const std::string& path);
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  /// The next line without its end ("\n" or "\r\n"). With `wait`, kNotYet means that Ctrl-C came. Throws Error(kIo).
  Status next(std::string& line, bool wait);

  /// Bytes of the lines so far, and of the whole file; the latter 0 where that is not known.
  std::int64_t position() const { return position_; }
  std::int64_t size() const { return size_; }

 private:
  bool read_more(bool wait);
  Status take(std::string& line, std::size_t end, std::size_t next);

  int file_ = -1;
  std::string name_;
  std::string buffer_;
  std::size_t begin_ = 0, searched_ = 0;  // in buffer_: the next line, and how far no end of it was found
  bool ended_ = false, too_long_ = false;
  std::int64_t position_ = 0, size_ = 0;
};

}  // namespace vitrine::app
