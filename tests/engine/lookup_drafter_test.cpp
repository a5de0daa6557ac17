// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "engine/drafter.h"

namespace vitrine {
namespace {

using Tokens = std::vector<TokenId>;

Tokens guess(Drafter& drafter, const Tokens& tokens, std::int64_t length = 4, RequestId request = 1, int sample = 0) {
  Tokens guesses;
  const DraftTask task{.request = request, .sample = sample, .tokens = tokens, .length = length, .guesses = &guesses};
  drafter.draft({&task, 1});
  return guesses;
}

Tokens guess(const Tokens& tokens, std::int64_t length = 4) { return guess(*make_lookup_drafter(), tokens, length); }

TEST(LookupDrafter, CopiesWhatFollowed) {
  EXPECT_EQ(guess({1, 2, 3, 4, 5, 6, 7, 9, 1, 2, 3}), (Tokens{4, 5, 6, 7}));
  EXPECT_EQ(guess({1, 2, 3, 4, 5, 6, 7, 9, 1, 2, 3}, 2), (Tokens{4, 5}));
}

TEST(LookupDrafter, TheLastTimeCounts) { EXPECT_EQ(guess({1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3}, 1), (Tokens{5})); }

TEST(LookupDrafter, ALoopGoesRound) {
  EXPECT_EQ(guess({7, 1, 2, 3, 1, 2, 3}, 7), (Tokens{1, 2, 3, 1, 2, 3, 1}));
  EXPECT_EQ(guess({5, 5, 5, 5}, 3), (Tokens{5, 5, 5}));
}

TEST(LookupDrafter, GuessesNothingWhereNothingIsFound) {
  EXPECT_EQ(guess({1, 2, 3, 4, 5, 6}), Tokens{});
  EXPECT_EQ(guess({1, 2, 3, 9, 2, 3}), Tokens{}) << "two tokens are not three";
  EXPECT_EQ(guess({}), Tokens{});
  EXPECT_EQ(guess({1, 2}), Tokens{});
  EXPECT_EQ(guess({1, 2, 3}), Tokens{}) << "the end is not found in itself";
}

TEST(LookupDrafter, GoesOnWhereItWas) {
  const auto drafter = make_lookup_drafter();
  Tokens tokens{1, 2, 3, 4};
  EXPECT_EQ(guess(*drafter, tokens), Tokens{});
  for (const TokenId next : {5, 1, 2}) {
    tokens.push_back(next);
    EXPECT_EQ(guess(*drafter, tokens), Tokens{});
  }
  tokens.push_back(3);
  EXPECT_EQ(guess(*drafter, tokens, 3), (Tokens{4, 5, 1}));
  // As a fresh one would, at each length.
  for (int i = 0; i < 200; ++i) {
    tokens.push_back((i * i + i / 3) % 3);
    EXPECT_EQ(guess(*drafter, tokens), guess(tokens));
  }
}

TEST(LookupDrafter, EachSampleIsItsOwnAndCanBeForgotten) {
  const auto drafter = make_lookup_drafter();
  const Tokens loop{1, 2, 3, 4, 1, 2, 3};
  EXPECT_EQ(guess(*drafter, loop, 1, /*request=*/1, /*sample=*/0), (Tokens{4}));
  EXPECT_EQ(guess(*drafter, {9, 9, 1, 2, 3}, 1, /*request=*/1, /*sample=*/1), Tokens{});
  EXPECT_EQ(guess(*drafter, {9, 9, 1, 2, 3}, 1, /*request=*/2, /*sample=*/0), Tokens{});
  drafter->forget(1, 0);
  drafter->forget(7, 7);
  EXPECT_EQ(guess(*drafter, {8, 1, 2, 3}, 1, /*request=*/1, /*sample=*/0), Tokens{}) << "a new text under an old name";
}

TEST(LookupDrafter, SeveralTasksAtOnce) {
  const auto drafter = make_lookup_drafter();
  const Tokens a{1, 2, 3, 4, 1, 2, 3}, b{6, 6, 6, 6};
  Tokens guesses_a, guesses_b;
  const std::vector<DraftTask> tasks{{1, 0, a, 2, &guesses_a}, {1, 1, b, 2, &guesses_b}};
  drafter->draft(tasks);
  EXPECT_EQ(guesses_a, (Tokens{4, 1}));
  EXPECT_EQ(guesses_b, (Tokens{6, 6}));
}

}  // namespace
}  // namespace vitrine
