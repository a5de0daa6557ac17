// SPDX-License-Identifier: Apache-2.0
#include "engine/top_tokens.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace vitrine {
namespace {

TEST(TopTokens, LogProbabilitiesAreNeverPositive) {  // cases.md D14
  const float logits[] = {3, 2, 1};
  const auto top = top_tokens(logits, 3);
  ASSERT_EQ(top.size(), 3u);
  const double wanted[] = {-0.4076060, -1.4076060, -2.4076060};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(top[i].id, static_cast<TokenId>(i));
    EXPECT_NEAR(std::log(top[i].probability), wanted[i], 1e-7);
  }
}

TEST(TopTokens, SortedWithTiesByIdAndNoMoreThanThereAre) {
  const float logits[] = {1, 5, 5, -std::numeric_limits<float>::infinity(), 7};
  const auto top = top_tokens(logits, 10);
  ASSERT_EQ(top.size(), 5u);
  EXPECT_EQ(top[0].id, 4);
  EXPECT_EQ(top[1].id, 1);
  EXPECT_EQ(top[2].id, 2);
  EXPECT_EQ(top[3].id, 0);
  EXPECT_EQ(top[4].probability, 0);
  double sum = 0;
  for (const TokenScore& score : top) sum += score.probability;
  EXPECT_NEAR(sum, 1, 1e-12);
  EXPECT_TRUE(top_tokens(logits, 0).empty());
  EXPECT_EQ(top_tokens(logits, 2).size(), 2u);
}

TEST(TopTokens, LargeLogitsDoNotOverflow) {  // cases.md D01
  const float logits[] = {1e4f, 9999, -1e4f};
  const auto top = top_tokens(logits, 3);
  EXPECT_NEAR(top[0].probability, 0.7310586, 1e-6);
  EXPECT_NEAR(top[1].probability, 0.2689414, 1e-6);
  EXPECT_EQ(top[2].probability, 0);
}

}  // namespace
}  // namespace vitrine
