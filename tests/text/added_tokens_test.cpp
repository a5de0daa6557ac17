// SPDX-License-Identifier: Apache-2.0
#include "text/added_tokens.h"

#include <gtest/gtest.h>

namespace vitrine {
namespace {

struct Found {
  TokenId id;
  std::string text;
  bool operator==(const Found&) const = default;
};
void PrintTo(const Found& found, std::ostream* out) { *out << found.id << ":\"" << found.text << '"'; }

std::vector<Found> find_all(const std::vector<AddedToken>& tokens, std::string_view text) {
  AddedTokenMatcher matcher;
  for (const auto& token : tokens) matcher.add(token);
  std::vector<Found> found;
  AddedTokenMatcher::Match match;
  for (std::size_t from = 0; matcher.next(text, from, match); from = match.end) {
    EXPECT_GE(match.begin, from);
    EXPECT_GT(match.end, match.begin);
    found.push_back({match.id, std::string(text.substr(match.begin, match.end - match.begin))});
  }
  return found;
}

TEST(AddedTokens, LeftmostThenLongest) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "ab"},
                                          {.id = 2, .content = "abcd"},
                                          {.id = 3, .content = "bcde"},
                                          {.id = 4, .content = "é"}};
  EXPECT_EQ(find_all(tokens, "xabcde"), (std::vector<Found>{{2, "abcd"}}));
  EXPECT_EQ(find_all(tokens, "abce"), (std::vector<Found>{{1, "ab"}}));
  EXPECT_EQ(find_all(tokens, "abab bcde é"), (std::vector<Found>{{1, "ab"}, {1, "ab"}, {3, "bcde"}, {4, "é"}}));
  EXPECT_EQ(find_all(tokens, "a"), (std::vector<Found>{}));
  EXPECT_EQ(find_all(tokens, ""), (std::vector<Found>{}));
  EXPECT_EQ(find_all({}, "ab"), (std::vector<Found>{}));
}

TEST(AddedTokens, FalseStarts) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "<|im_start|>"}, {.id = 2, .content = "<think>"}};
  EXPECT_EQ(find_all(tokens, "<<|im<|im_start|>_start|>"), (std::vector<Found>{{1, "<|im_start|>"}}));
  EXPECT_EQ(find_all(tokens, "<think<think>"), (std::vector<Found>{{2, "<think>"}}));
}

TEST(AddedTokens, SingleWord) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "ab", .single_word = true}, {.id = 2, .content = "b"}};
  EXPECT_EQ(find_all(tokens, "ab ab."), (std::vector<Found>{{1, "ab"}, {1, "ab"}}));
  EXPECT_EQ(find_all(tokens, "xab abx éab ab\u0301 _ab"), (std::vector<Found>{}));
  EXPECT_EQ(find_all(tokens, "-ab中"), (std::vector<Found>{}));
  EXPECT_EQ(find_all(tokens, "-ab🦙b"), (std::vector<Found>{{1, "ab"}, {2, "b"}}));
}

TEST(AddedTokens, Strips) {
  const std::vector<AddedToken> tokens = {{.id = 1, .content = "L", .lstrip = true},
                                          {.id = 2, .content = "R", .rstrip = true},
                                          {.id = 3, .content = "B", .lstrip = true, .rstrip = true}};
  EXPECT_EQ(find_all(tokens, "x \t\u3000L y"), (std::vector<Found>{{1, " \t\u3000L"}}));
  EXPECT_EQ(find_all(tokens, "x R \n y"), (std::vector<Found>{{2, "R \n "}}));
  EXPECT_EQ(find_all(tokens, " B  B "), (std::vector<Found>{{3, " B  "}, {3, "B "}}));
  EXPECT_EQ(find_all(tokens, "é\u00A0L"), (std::vector<Found>{{1, "\u00A0L"}}));
}

}  // namespace
}  // namespace vitrine
