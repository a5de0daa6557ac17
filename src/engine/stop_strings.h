// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

/// Ends a text before the first of several stop strings, and lets through at once all that can't belong to
/// one.
///
/// The match that is complete first wins; of several that end at the same byte, the longest. So the result
/// depends on the text alone, never on how it was cut into pieces, and generation ends with the token that
/// completes a match. Works on bytes; with pieces of whole UTF-8 characters and stop strings of valid UTF-8
/// only whole characters come out. Time is linear in the text for each stop string (Knuth, Morris, Pratt).
class StopMatcher {
 public:
  static constexpr std::size_t kMaxStrings = 64;
  static constexpr std::size_t kMaxTotalBytes = 65536;  ///< of all stop strings together

  /// None at all: everything is let through. Throws Error(kInvalidArgument) for an empty stop string, more
  /// than kMaxStrings or more than kMaxTotalBytes.
  explicit StopMatcher(std::span<const std::string> stop_strings);

  /// Takes the next piece and returns the text that may be emitted now: all but the longest end that could
  /// still become a stop string. After a match: the rest before the stop string, then nothing more.
  std::string feed(std::string_view piece);
  /// The text is over: what was held back.
  std::string flush();

  bool stopped() const noexcept { return match_.has_value(); }
  /// The stop string that was found; empty before.
  std::string_view match() const noexcept { return match_ ? std::string_view(patterns_[*match_].text) : ""; }
  /// Bytes held back now.
  std::size_t held() const noexcept { return pending_.size() - begin_; }

 private:
  struct Pattern {
    std::string text;
    std::vector<std::uint32_t> borders;  ///< [i]: the longest proper prefix of text[0..i] that also ends it
    std::size_t matched = 0;             ///< the longest prefix that ends the text so far

    void advance(char c);
  };

  std::string take(std::size_t count);

  std::vector<Pattern> patterns_;
  std::optional<std::size_t> match_;
  std::string pending_;    ///< what is held back, from begin_ on
  std::size_t begin_ = 0;  ///< erasing at every piece would be quadratic
};

}  // namespace vitrine
