// SPDX-License-Identifier: Apache-2.0
#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>
#include <vitrine/error.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "base/unicode.h"

namespace vitrine {
namespace {

using Pieces = std::vector<std::string>;
using Engine = PreTokenizer::Engine;

constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Pieces split(const PreTokenizer& pre_tokenizer, std::string_view text) {
  std::vector<std::size_t> ends;
  pre_tokenizer.split(text, ends);
  Pieces pieces;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  EXPECT_EQ(begin, text.size());
  return pieces;
}

Pieces split(std::string_view pattern, std::string_view text, Engine engine = Engine::kFastest) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add_split(pattern, engine);
  return split(pre_tokenizer, text);
}

/// Code points whose class PCRE2's Unicode tables and ours agree on: nearly all, but the versions differ.
const std::vector<char32_t>& agreed() {
  static const std::vector<char32_t> points = [] {
    const std::pair<const char*, unicode::CharFlag> classes[] = {
        {"(?<=\\p{L})-", unicode::kLetter}, {"(?<=\\p{M})-", unicode::kMark}, {"(?<=\\p{N})-", unicode::kNumber}};
    std::vector<std::pair<RegexSplitter, unicode::CharFlag>> splitters;
    for (const auto& [pattern, flag] : classes) splitters.emplace_back(RegexSplitter(pattern), flag);
    std::vector<char32_t> out;
    std::vector<std::size_t> ends;
    for (char32_t point = 1; point < 0x32000; ++point) {
      if (point >= 0xD800 && point < 0xE000) continue;
      std::string text;
      unicode::append(text, point);
      text += '-';
      const auto same = [&](const auto& entry) {
        ends.clear();
        entry.first.split(text, ends);
        return (ends.size() == 2) == ((unicode::CharTable::get().flags(point) & entry.second) != 0);
      };
      if (std::all_of(splitters.begin(), splitters.end(), same)) out.push_back(point);
    }
    return out;
  }();
  return points;
}

TEST(KnownSplits, BothEnginesKnowNearlyAllCharacters) { EXPECT_GT(agreed().size(), 0x32000u - 0x800 - 20'000); }

std::string random_text(std::mt19937& random) {
  static const std::u32string usual =
      U"aZé中한ſsStTrReEvVmMlLdD''' "
      U"\t\n\r\u00A0\u3000\u2028\u0085\u180E\u200B09²½Ⅻ٣.,!_-🦙\u0301\u093E\u20DD";
  std::string text;
  const unsigned kind = random() % 3;
  for (auto n = random() % 24 + 1; n > 0; --n) {
    char32_t point = usual[random() % usual.size()];
    if (kind == 1) point = static_cast<char32_t>(32 + random() % 95);
    if (kind == 2 && random() % 2 == 0) point = agreed()[random() % agreed().size()];
    unicode::append(text, point);
  }
  return text;
}

TEST(KnownSplits, ScannersEqualThePatterns) {
  const char* rounds_text = std::getenv("VITRINE_SPLIT_ROUNDS");
  const int rounds = rounds_text != nullptr ? std::atoi(rounds_text) : 100'000;
  for (const std::string_view pattern :
       {std::string_view(kQwen2), std::string_view(kQwen35), std::string_view(kLlama3), kGpt2Pattern}) {
    ASSERT_NE(find_known_split(pattern), nullptr);
    PreTokenizer scanner;
    scanner.add_split(pattern);
    PreTokenizer regex;
    regex.add_split(pattern, Engine::kRegex);
    std::mt19937 random(17);
    std::vector<std::size_t> ours;
    std::vector<std::size_t> theirs;
    for (int round = 0; round < rounds; ++round) {
      const std::string text = random_text(random);
      scanner.split(text, ours);
      regex.split(text, theirs);
      ASSERT_EQ(ours, theirs) << testing::PrintToString(text) << " with " << pattern;
    }
  }
}

TEST(KnownSplits, OtherPatternsAreNotMistakenForThem) {
  EXPECT_EQ(find_known_split(std::string(kQwen2) + "|x"), nullptr);
  EXPECT_EQ(find_known_split(""), nullptr);
}

TEST(PreTokenizer, Qwen2Examples) {
  for (const Engine engine : {Engine::kFastest, Engine::kRegex}) {
    EXPECT_EQ(split(kQwen2, "x'ſy", engine), (Pieces{"x", "'ſ", "y"}));
    EXPECT_EQ(split(kQwen2, "I'LLx don't", engine), (Pieces{"I", "'LL", "x", " don", "'t"}));
    EXPECT_EQ(split(kQwen2, "  x\n\n  y", engine), (Pieces{" ", " x", "\n\n", " ", " y"}));
    EXPECT_EQ(split(kQwen2, " \n \n x", engine), (Pieces{" \n \n", " x"}));
    EXPECT_EQ(split(kQwen2, "a   ", engine), (Pieces{"a", "   "}));
    EXPECT_EQ(split(kQwen2, " !?\r\n\nx 12", engine), (Pieces{" !?\r\n\n", "x", " ", "1", "2"}));
    EXPECT_EQ(split(kQwen2, "\u180Ex \u180E", engine), (Pieces{"\u180Ex", " \u180E"}));  // not white space since 6.3
    EXPECT_EQ(split(kQwen2, "", engine), (Pieces{}));
  }
  EXPECT_EQ(split(kQwen2, "e\u0301x"), (Pieces{"e", "\u0301x"}));
  EXPECT_EQ(split(kQwen35, "e\u0301x"), (Pieces{"e\u0301x"}));
  EXPECT_EQ(split(kLlama3, "12345"), (Pieces{"123", "45"}));
  EXPECT_EQ(split(kGpt2Pattern, "it's IT'S 12345\n\n x"),
            (Pieces{"it", "'s", " IT", "'", "S", " 12345", "\n\n", " x"}));
}

TEST(PreTokenizer, StepsFollowEachOther) {
  PreTokenizer pre_tokenizer;
  pre_tokenizer.add_split("\\p{N}");
  pre_tokenizer.add_split(kGpt2Pattern);
  EXPECT_EQ(split(pre_tokenizer, "a 12b"), (Pieces{"a", " ", "1", "2", "b"}));
  EXPECT_EQ(split(PreTokenizer(), "a b"), (Pieces{"a b"}));
}

TEST(RegexSplitter, GapsAndEmptyMatches) {
  EXPECT_EQ(split("b+", "abbcb"), (Pieces{"a", "bb", "c", "b"}));
  EXPECT_EQ(split("z", "abc"), (Pieces{"abc"}));
  EXPECT_EQ(split("b*", "aébb"), (Pieces{"a", "é", "bb"}));
  EXPECT_EQ(split("(?=b)", "abab"), (Pieces{"a", "ba", "b"}));
  EXPECT_EQ(split("(?<=a)b", "bab"), (Pieces{"ba", "b"}));
}

TEST(RegexSplitter, Translation) {
  EXPECT_EQ(translate_regex("\\s+(?!\\S)"), "\\p{White_Space}+(?!\\P{White_Space})");
  EXPECT_EQ(translate_regex("[^\\s\\d]\\p{Han}\\p{^Lu}"), "[^\\p{White_Space}\\p{Nd}]\\p{sc:Han}\\p{^Lu}");
  EXPECT_EQ(translate_regex("\\u4E00\\x41\\x{1F999}"), "\\x{4E00}\\x{41}\\x{1F999}");
  EXPECT_EQ(split("\\w+", "a_b-cⒶ\u0301"), (Pieces{"a_b", "-", "cⒶ\u0301"}));
  EXPECT_EQ(split("\\p{Han}+", "a中文b"), (Pieces{"a", "中文", "b"}));
  EXPECT_EQ(split("[\\]a]+", "x]ay"), (Pieces{"x", "]a", "y"}));
  EXPECT_EQ(split("(?:a|b)?+c{2,3}", "accccc"), (Pieces{"accc", "cc"}));
}

TEST(RegexSplitter, RefusesWhatTheDialectsReadDifferently) {
  for (const char* pattern :
       {"^a",     "a$",   "\\bx",  "\\h",     "\\R",     "\\X",      "\\K",     "\\1",   "\\A",   "[a[b]]",
        "[a&&b]", "[]a]", "(?R)",  "(?m:a)",  "(?<n>a)", "(?P<n>a)", "(*UTF)a", "a{2}+", "a{2}?", "a{,3}",
        "a{x}",   "\\pL", "\\p{}", "\\p{L&}", "[\\W]",   "\\x{}",    "\\x{zz}", "\\u12", "\\x4"}) {
    EXPECT_THROW(translate_regex(pattern), Error) << pattern;
  }
  for (const char* pattern : {"(", "a)", "[a", "*", "a\\", "[b-a]", "\\p{Klingon}", "\\x{110000}"}) {
    EXPECT_THROW(RegexSplitter{pattern}, Error) << pattern;
  }
}

TEST(RegexSplitter, ExponentialPatternEndsWithAnError) {
  std::vector<std::size_t> ends;
  try {
    RegexSplitter("(?:a+)+(?:a+)+(?:a+)+[bc]").split(std::string(2000, 'a'), ends);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTooLarge) << error.what();
  }
}

TEST(RegexSplitter, MuchBacktrackingStillSplitsRight) {
  // Each repetition of the group keeps a place to come back to: more than the JIT's stack holds.
  const std::string text(200'000, 'a');
  EXPECT_EQ(split("(?:a|b)*c|a+", text).size(), 1u);
}

}  // namespace
}  // namespace vitrine
