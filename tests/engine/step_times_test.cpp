// SPDX-License-Identifier: Apache-2.0
#include "engine/step_times.h"

#include <gtest/gtest.h>

namespace vitrine {
namespace {

TEST(StepTimes, BeforeAnythingIsKnownAllOfTheRoomMayBeUsed) {
  const StepTimes times;
  EXPECT_EQ(times.prompt_rows(0, 1, 4), 0);
  EXPECT_EQ(times.prompt_rows(500, 1, 4), 500);
  EXPECT_GT(times.draft_cost(1), 0);
}

TEST(StepTimes, RowsOfPromptsNearlyDoubleAStep) {
  StepTimes times;
  for (int i = 0; i < 40; ++i) {
    times.learn({.decode_rows = 4, .seconds = 0.040});
    times.learn({.decode_rows = 4, .prompt_rows = 100, .seconds = 0.140});  // 1 ms a row
  }
  EXPECT_NEAR(static_cast<double>(times.prompt_rows(500, 1, 4)), (StepTimes::kSlowdown - 1) * 40, 1);
  EXPECT_EQ(times.prompt_rows(20, 1, 4), 20) << "no more than there is room for";
  EXPECT_NEAR(static_cast<double>(times.prompt_rows(500, 12, 4)), 3 * 40, 1) << "twelve are worth three times as much";
}

TEST(StepTimes, PromptsAlwaysGetAFewRows) {
  StepTimes times;
  times.learn({.decode_rows = 1, .seconds = 0.001});
  times.learn({.prompt_rows = 10, .seconds = 10});
  EXPECT_EQ(times.prompt_rows(500, 1, 4), 8);
  EXPECT_EQ(times.prompt_rows(5, 1, 4), 5);
  EXPECT_EQ(times.prompt_rows(1, 1, 4), 1);
}

TEST(StepTimes, PromptsAloneAreEnoughToBeginWith) {
  StepTimes times;
  times.learn({.prompt_rows = 100, .seconds = 0.1});
  const auto rows = times.prompt_rows(500, 1, 4);
  EXPECT_GE(rows, 1);
  EXPECT_LT(rows, 500);
}

TEST(StepTimes, LearnsWhatAGuessCosts) {
  StepTimes times;
  for (int i = 0; i < 40; ++i) {
    times.learn({.decode_rows = 1, .seconds = 0.010});
    times.learn({.decode_rows = 1, .draft_rows = 4, .seconds = 0.014});
  }
  EXPECT_NEAR(times.draft_cost(1), 0.1, 0.01);
  EXPECT_NEAR(times.draft_cost(3), 0.3, 0.03) << "in units of what one of the three tokens costs";
}

TEST(StepTimes, WhatSeemedTooDearIsTriedAgain) {
  StepTimes times;
  times.learn({.decode_rows = 1, .seconds = 0.010});
  times.learn({.decode_rows = 1, .draft_rows = 1, .seconds = 0.030});
  EXPECT_GT(times.draft_cost(1), 1);
  for (int i = 0; i < 2000; ++i) times.learn({.decode_rows = 1, .seconds = 0.010});
  EXPECT_LT(times.draft_cost(1), 0.5);
}

TEST(StepTimes, AStepFasterThanExpectedCostsNothing) {
  StepTimes times;
  times.learn({.decode_rows = 1, .seconds = 0.010});
  times.learn({.decode_rows = 1, .draft_rows = 4, .seconds = 0.008});
  EXPECT_GE(times.draft_cost(1), 0);
  times.learn({.decode_rows = 1, .prompt_rows = 4, .seconds = 0.008});
  EXPECT_EQ(times.prompt_rows(100, 1, 4), 100);
}

}  // namespace
}  // namespace vitrine
