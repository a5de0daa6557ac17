// SPDX-License-Identifier: Apache-2.0
#include "engine/stop_strings.h"

#include <vitrine/error.h>

#include <algorithm>

namespace vitrine {
namespace {

std::vector<std::uint32_t> borders_of(std::string_view text) {
  std::vector<std::uint32_t> borders(text.size());
  std::uint32_t length = 0;
  for (std::size_t i = 1; i < text.size(); ++i) {
    while (length > 0 && text[i] != text[length]) length = borders[length - 1];
    if (text[i] == text[length]) ++length;
    borders[i] = length;
  }
  return borders;
}

void validate(std::span<const std::string> stop_strings) {
  const auto fail = [](const std::string& message) { throw Error(ErrorCode::kInvalidArgument, "stop: " + message); };
  if (stop_strings.size() > StopMatcher::kMaxStrings) {
    fail("expected at most " + std::to_string(StopMatcher::kMaxStrings) + " strings, found " +
         std::to_string(stop_strings.size()));
  }
  std::size_t total = 0;
  for (const std::string& text : stop_strings) {
    if (text.empty()) fail("expected strings that are not empty, found an empty one");
    total += text.size();
  }
  if (total > StopMatcher::kMaxTotalBytes) {
    fail("expected at most " + std::to_string(StopMatcher::kMaxTotalBytes) + " bytes altogether, found " +
         std::to_string(total));
  }
}

}  // namespace

StopMatcher::StopMatcher(std::span<const std::string> stop_strings) {
  validate(stop_strings);
  for (const std::string& text : stop_strings) patterns_.push_back({text, borders_of(text)});
}

void StopMatcher::Pattern::advance(char c) {
  while (matched > 0 && text[matched] != c) matched = borders[matched - 1];
  if (text[matched] == c) ++matched;
}

std::string StopMatcher::feed(std::string_view piece) {
  if (stopped()) return {};
  std::size_t open = 0;  // the longest end of the text that begins a stop string
  for (std::size_t i = 0; i < piece.size(); ++i) {
    open = 0;
    for (std::size_t p = 0; p < patterns_.size(); ++p) {
      Pattern& pattern = patterns_[p];
      pattern.advance(piece[i]);
      open = std::max(open, pattern.matched);
      const bool complete = pattern.matched == pattern.text.size();
      if (complete && pattern.text.size() > match().size()) match_ = p;
    }
    if (!stopped()) continue;
    pending_.append(piece.substr(0, i + 1));
    std::string before = take(held() - match().size());
    pending_.clear();
    begin_ = 0;
    return before;
  }
  if (piece.empty()) return {};
  pending_.append(piece);
  return take(held() - open);
}

std::string StopMatcher::flush() {
  for (Pattern& pattern : patterns_) pattern.matched = 0;
  return take(held());
}

/// Removes the first bytes of what is pending. They are moved up only when the gap is as large as what
/// remains, so a byte is moved once on average.
std::string StopMatcher::take(std::size_t count) {
  std::string taken = pending_.substr(begin_, count);
  begin_ += count;
  if (begin_ >= pending_.size() - begin_) {
    pending_.erase(0, begin_);
    begin_ = 0;
  }
  return taken;
}

}  // namespace vitrine
