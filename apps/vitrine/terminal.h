// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace vitrine::app {

/// Writes to standard output at once. Throws Error(kIo) when it cannot: a full disk must not look like success.
void write_out(std::string_view text);
/// A line for people, to standard error.
void write_note(std::string_view line);

/// Whether standard output, or standard error, is a terminal that wants colours (NO_COLOR is honoured).
bool colours_on_stdout();
bool stderr_is_terminal();

/// The text with control characters written as \n, \t, \xHH, so that a table stays a table.
std::string visible(std::string_view text);
/// Columns of the text on a terminal.
int display_width(std::string_view text);
/// At most `columns`, the end replaced by "…" where it is longer.
std::string cut(std::string_view text, int columns);
/// Pads with spaces, or cuts with "…", to exactly `columns`.
std::string fit(std::string_view text, int columns);
/// Pads with spaces on the left to at least `columns`.
std::string right(std::string_view text, int columns);
std::string repeat(std::string_view text, std::int64_t times);
/// A share from 0 to 1, drawn `columns` wide at 1.
std::string bar(double share, int columns);

/// "4.6 M", "596 M"; "9.2 MB", "1.19 GB"; "151,936"
std::string short_count(std::int64_t count);
std::string short_bytes(std::int64_t bytes);
std::string with_commas(std::int64_t number);

/// A bar on standard error that appears only on a terminal and only once a second has passed.
class Progress {
 public:
  explicit Progress(std::string what) : what_(std::move(what)) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void update(std::int64_t done, std::int64_t total);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  std::string what_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_ = start_;
  bool shown_ = false;
};

}  // namespace vitrine::app
