// SPDX-License-Identifier: Apache-2.0
#include "engine/draft_length.h"

#include <gtest/gtest.h>

namespace vitrine {
namespace {

constexpr double kCheap = 0.1;

TEST(DraftLength, BeginsWithSomeAndGrowsWhileTheyAreRight) {
  DraftLength draft;
  const auto first = draft.next(kCheap);
  EXPECT_GT(first, 0);
  EXPECT_LT(first, DraftLength::kMost);
  for (int i = 0; i < 20; ++i) draft.learn(8, 8);
  EXPECT_EQ(draft.next(kCheap), DraftLength::kMost);
}

TEST(DraftLength, GivesUpWhatIsNeverRight) {
  DraftLength draft;
  for (int i = 0; i < 30; ++i) draft.learn(4, 0);
  EXPECT_EQ(draft.next(kCheap), 0);
}

TEST(DraftLength, TriesAgainSomeTime) {
  DraftLength draft;
  for (int i = 0; i < 30; ++i) draft.learn(4, 0);
  int steps = 0;
  while (draft.next(kCheap) == 0 && steps < 1000) ++steps;
  EXPECT_GT(steps, 10) << "not at once";
  EXPECT_LT(steps, 200);
  for (int i = 0; i < 20; ++i) draft.learn(4, 4);
  EXPECT_GT(draft.next(kCheap), 8);
}

TEST(DraftLength, DearGuessesMustBeSurer) {
  DraftLength draft;
  EXPECT_GT(DraftLength().next(0.05), DraftLength().next(0.3));
  EXPECT_EQ(DraftLength().next(1), 0) << "a guess that costs as much as a token saves nothing";
  EXPECT_EQ(draft.next(0), DraftLength::kMost);
}

TEST(DraftLength, ConvergesToHowOftenTheyAreRight) {
  DraftLength draft;
  for (int i = 0; i < 300; ++i) draft.learn(2, i % 2 == 0 ? 2 : 0);
  const auto length = draft.next(kCheap);
  EXPECT_GE(length, 1);
  EXPECT_LE(length, 8);
}

}  // namespace
}  // namespace vitrine
