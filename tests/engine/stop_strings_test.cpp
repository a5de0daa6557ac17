// SPDX-License-Identifier: Apache-2.0
#include "engine/stop_strings.h"

#include <gtest/gtest.h>
#include <vitrine/error.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace vitrine {
namespace {

using Strings = std::vector<std::string>;

/// What came out of each piece, then of flush(), joined.
std::string run(const Strings& stops, const Strings& pieces, bool* stopped = nullptr) {
  StopMatcher matcher(stops);
  std::string out;
  for (const std::string& piece : pieces) out += matcher.feed(piece);
  out += matcher.flush();
  if (stopped != nullptr) *stopped = matcher.stopped();
  return out;
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

/// The rule itself: the first byte at which some stop string is complete, there the longest.
struct Reference {
  std::string text;
  std::optional<std::string> match;
};

Reference reference(const Strings& stops, const std::string& text) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::string longest;
    for (const std::string& stop : stops) {
      if (ends_with(std::string_view(text).substr(0, end), stop) && stop.size() > longest.size()) longest = stop;
    }
    if (!longest.empty()) return {text.substr(0, end - longest.size()), longest};
  }
  return {text, std::nullopt};
}

/// The longest end of the text that begins a stop string.
std::size_t reference_held(const Strings& stops, const std::string& text) {
  std::size_t longest = 0;
  for (const std::string& stop : stops) {
    for (std::size_t n = 1; n < stop.size(); ++n) {
      if (ends_with(text, stop.substr(0, n))) longest = std::max(longest, n);
    }
  }
  return longest;
}

TEST(StopMatcher, WithoutStopStringsEverythingPasses) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.feed("abc"), "abc");
  EXPECT_EQ(matcher.feed(""), "");
  EXPECT_EQ(matcher.flush(), "");
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, BeginningOfAStopStringIsGivenBack) {  // F03
  StopMatcher matcher(Strings{"DEFX"});
  EXPECT_EQ(matcher.feed("ABC"), "ABC");
  EXPECT_EQ(matcher.feed(" DEF"), " ");
  EXPECT_EQ(matcher.held(), 3u);
  EXPECT_EQ(matcher.feed("G"), "DEFG");
  EXPECT_EQ(matcher.flush(), "");
  EXPECT_EQ(run({"DEFX"}, {"ABC", " DEF"}), "ABC DEF") << "held back at the end of the text";
}

TEST(StopMatcher, NothingIsHeldWithoutNeed) {  // F03
  StopMatcher matcher(Strings{"zzzzzzzzzzzzzzzz"});
  EXPECT_EQ(matcher.feed("normal text"), "normal text");
  EXPECT_EQ(matcher.feed("fuzz"), "fu");
  EXPECT_EQ(matcher.feed("y"), "zzy");
}

TEST(StopMatcher, OneStopStringBeginsAnother) {  // F03
  bool stopped = false;
  EXPECT_EQ(run({"END", "ENDING"}, {"the ENDING"}, &stopped), "the ");
  EXPECT_TRUE(stopped);
  EXPECT_EQ(run({"ENDING", "END"}, {"the E", "N", "DING"}), "the ");
}

TEST(StopMatcher, FirstCompleteMatchWins) {
  StopMatcher matcher(Strings{"abcd", "bc"});
  EXPECT_EQ(matcher.feed("xab"), "x");
  EXPECT_EQ(matcher.feed("cd"), "a") << "bc is complete before abcd";
  EXPECT_EQ(matcher.match(), "bc");
  EXPECT_EQ(run({"bcd", "abcd"}, {"xabcd"}), "x") << "both end at the same byte: the longest";
}

TEST(StopMatcher, StopStringAtTheVeryEnd) {  // F03
  StopMatcher matcher(Strings{"\n\n"});
  EXPECT_EQ(matcher.feed("text\n"), "text");
  EXPECT_EQ(matcher.feed("\n"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.flush(), "");
  EXPECT_EQ(matcher.feed("more"), "") << "nothing comes after the stop";
}

TEST(StopMatcher, MatchInsideOnePiece) {
  StopMatcher matcher(Strings{"###", "User:", "</s>", "\n\n", "stop"});  // F03: five of them
  EXPECT_EQ(matcher.feed("Hello. User: and ### more"), "Hello. ");
  EXPECT_EQ(matcher.match(), "User:");
}

TEST(StopMatcher, AcrossUtf8Borders) {
  const std::string e_acute = "\xC3\xA9";
  StopMatcher matcher(Strings{e_acute + "!"});
  EXPECT_EQ(matcher.feed("caf\xC3"), "caf");
  EXPECT_EQ(matcher.feed("\xA9"), "");
  EXPECT_EQ(matcher.feed("!"), "");
  EXPECT_TRUE(matcher.stopped());
  // U+00E8 shares its first byte with the stop string; fed as a whole character it comes out whole at once.
  StopMatcher other(Strings{e_acute});
  EXPECT_EQ(other.feed("\xC3\xA8"), "\xC3\xA8");
}

TEST(StopMatcher, RestartsInsideARepeatedBeginning) {
  EXPECT_EQ(run({"aab"}, {"a", "a", "a", "b"}), "a");
  EXPECT_EQ(run({"abab!"}, {"ababab!"}), "ab");
}

TEST(StopMatcher, RefusesWhatMakesNoSense) {
  const auto message = [](const Strings& stops) -> std::string {
    try {
      StopMatcher matcher(stops);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message({"a", ""}), "stop: expected strings that are not empty, found an empty one");
  EXPECT_EQ(message(Strings(64, "a")), "accepted");
  EXPECT_EQ(message(Strings(100000, "a")), "stop: expected at most 64 strings, found 100000");
  EXPECT_EQ(message({std::string(65536, 'a')}), "accepted");
  EXPECT_EQ(message({std::string(1 << 20, 'a')}), "stop: expected at most 65536 bytes altogether, found 1048576");
}

/// Texts over two letters, so that beginnings of stop strings are everywhere.
TEST(StopMatcher, EqualsTheRuleForRandomTextsAndCuts) {
  std::mt19937_64 random(42);
  const auto word = [&](std::size_t shortest, std::size_t longest) {
    std::string text(shortest + random() % (longest - shortest + 1), ' ');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  int stopped = 0;
  for (int round = 0; round < 20000; ++round) {
    Strings stops(1 + random() % 4);
    for (std::string& stop : stops) stop = word(2, 9);
    const std::string text = word(0, 60);
    const Reference expected = reference(stops, text);
    StopMatcher matcher(stops);
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = std::min<std::size_t>(random() % 5, text.size() - at);
      out += matcher.feed(text.substr(at, size));
      at += size;
      if (!matcher.stopped()) {
        ASSERT_EQ(matcher.held(), reference_held(stops, text.substr(0, at)));
        ASSERT_EQ(out.size() + matcher.held(), at);
      }
    }
    out += matcher.flush();
    ASSERT_EQ(out, expected.text) << text;
    ASSERT_EQ(matcher.stopped(), expected.match.has_value());
    ASSERT_EQ(matcher.match(), expected.match.value_or(""));
    stopped += matcher.stopped() ? 1 : 0;
  }
  EXPECT_GT(stopped, 5000);
  EXPECT_LT(stopped, 19000);
}

/// Quadratic behaviour, in matching or in moving what is held back, would take hours.
TEST(StopMatcher, LongestStopStringsAndWorstText) {
  StopMatcher matcher(Strings{std::string(65535, 'a') + "b"});
  std::size_t out = 0;
  for (int i = 0; i < 2'000'000; ++i) out += matcher.feed("a").size();
  EXPECT_EQ(out, 2'000'000u - 65535u);
  EXPECT_EQ(matcher.feed("b"), "");
  EXPECT_TRUE(matcher.stopped());
}

}  // namespace
}  // namespace vitrine
