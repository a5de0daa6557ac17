// SPDX-License-Identifier: Apache-2.0
#include "terminal.h"

#include <fmt/format.h>
#include <unistd.h>
#include <vitrine/error.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace vitrine::app {
namespace {

bool wants_colour(int descriptor) {
  const char* no_colour = std::getenv("NO_COLOR");
  return ::isatty(descriptor) != 0 && (no_colour == nullptr || *no_colour == '\0');
}

/// The code point that starts at `i`, which moves past it. The text is valid UTF-8.
char32_t next_code_point(std::string_view text, std::size_t& i) {
  const auto lead = static_cast<unsigned char>(text[i++]);
  if (lead < 0x80) return lead;
  int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
  char32_t code = lead & (0x3Fu >> more);
  for (; more > 0 && i < text.size(); --more) code = code << 6 | (static_cast<unsigned char>(text[i++]) & 0x3Fu);
  return code;
}

int columns_of(char32_t code) {
  const bool combining =
      (code >= 0x300 && code < 0x370) || (code >= 0x200B && code <= 0x200F) || (code >= 0xFE00 && code <= 0xFE0F);
  const bool wide = (code >= 0x1100 && code < 0x1160) || (code >= 0x2E80 && code < 0xA4D0) ||
                    (code >= 0xAC00 && code < 0xD7A4) || (code >= 0xF900 && code < 0xFB00) ||
                    (code >= 0xFF00 && code < 0xFF61) || (code >= 0x1F300 && code < 0x1FB00) ||
                    (code >= 0x20000 && code < 0x40000);
  return combining ? 0 : wide ? 2 : 1;
}

}  // namespace

void write_out(std::string_view text) {
  const std::size_t written = std::fwrite(text.data(), 1, text.size(), stdout);
  if (written != text.size() || std::fflush(stdout) != 0) {
    throw Error(ErrorCode::kIo, std::string("standard output cannot be written: ") + std::strerror(errno));
  }
}

void write_note(std::string_view line) {
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fputc('\n', stderr);
}

bool colours_on_stdout() { return wants_colour(STDOUT_FILENO); }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) != 0; }

std::string visible(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02X}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

int display_width(std::string_view text) {
  int width = 0;
  for (std::size_t i = 0; i < text.size();) width += columns_of(next_code_point(text, i));
  return width;
}

std::string cut(std::string_view text, int columns) {
  if (display_width(text) <= columns) return std::string(text);
  std::size_t end = 0;
  int used = 0;
  for (std::size_t i = 0; i < text.size(); end = i) {
    used += columns_of(next_code_point(text, i));
    if (used > columns - 1) break;
  }
  return std::string(text.substr(0, end)) + "…";
}

std::string fit(std::string_view text, int columns) {
  const std::string shown = cut(text, columns);
  return shown + std::string(static_cast<std::size_t>(columns - display_width(shown)), ' ');
}

std::string right(std::string_view text, int columns) {
  return repeat(" ", columns - display_width(text)) + std::string(text);
}

std::string repeat(std::string_view text, std::int64_t times) {
  std::string out;
  for (; times > 0; --times) out += text;
  return out;
}

std::string bar(double share, int columns) {
  constexpr const char* kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};  // of a column, from the left
  const auto eighths = std::clamp<std::int64_t>(std::llround(share * columns * 8), 0, columns * std::int64_t{8});
  return repeat("█", eighths / 8) + kEighths[eighths % 8];
}

std::string short_count(std::int64_t count) {
  const auto value = static_cast<double>(count);
  if (count >= 10'000'000'000) return fmt::format("{:.1f} B", value / 1e9);
  if (count >= 1'000'000'000) return fmt::format("{:.2f} B", value / 1e9);
  if (count >= 100'000'000) return fmt::format("{:.0f} M", value / 1e6);
  if (count >= 1'000'000) return fmt::format("{:.1f} M", value / 1e6);
  return with_commas(count);
}

std::string short_bytes(std::int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (bytes >= 1'000'000'000) return fmt::format("{:.2f} GB", value / 1e9);
  if (bytes >= 100'000'000) return fmt::format("{:.0f} MB", value / 1e6);
  if (bytes >= 1'000'000) return fmt::format("{:.1f} MB", value / 1e6);
  if (bytes >= 1'000) return fmt::format("{:.1f} kB", value / 1e3);
  return fmt::format("{} B", bytes);
}

std::string with_commas(std::int64_t number) {
  std::string digits = fmt::format("{}", number);
  const std::size_t first = digits[0] == '-' ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

void Progress::update(std::int64_t done, std::int64_t total) {
  constexpr int kWidth = 30;
  const auto now = Clock::now();
  const bool early = now - start_ < std::chrono::seconds(1);
  const bool too_often = now - last_ < std::chrono::milliseconds(80);
  if (total <= 0 || !stderr_is_terminal() || (!shown_ && early) || too_often) return;
  last_ = now;
  shown_ = true;
  const int filled = static_cast<int>(done * kWidth / total);
  std::fputs(fmt::format("\r{} [{:<{}}] {:3d} %", what_, std::string(static_cast<std::size_t>(filled), '#'), kWidth,
                         done * 100 / total)
                 .c_str(),
             stderr);
  std::fflush(stderr);
}

void Progress::clear() {
  if (!shown_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace vitrine::app
