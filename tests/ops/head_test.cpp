// SPDX-License-Identifier: Apache-2.0
#include "ops/head.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <optional>
#include <random>

#include "kernels/dispatch.h"
#include "support/packed.h"

namespace vitrine {
namespace {

class HeadTest : public testing::Test {
 protected:
  static constexpr std::int64_t kVocab = 5003, kHidden = 20, kRows = 3;

  void SetUp() override {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (float& w : weight) w = normal(random);
    for (float& x : hidden) x = normal(random);
  }

  /// Of the weights as they are now.
  Head head() {
    matrix.emplace(PackedFormat{kPackedF32, kVocab, kHidden}, weight);
    return Head(matrix->linear());
  }
  MatrixView<const float> rows() const { return {hidden.data(), kRows, kHidden, kHidden}; }

  std::vector<float> weight = std::vector<float>(kVocab * kHidden);
  std::vector<float> hidden = std::vector<float>(kRows * kHidden);
  std::optional<test::TestMatrix> matrix;
  Kernels kernels = select_kernels("");
  Workspace workspace{1 << 24};
};

TEST_F(HeadTest, ArgmaxIsTheLargestOfTheLogitsOnAnyThreads) {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    const Context context{pool, kernels, workspace};
    std::vector<float> logits(kRows * kVocab);
    head().logits(context, rows(), {logits.data(), kRows, kVocab, kVocab});
    for (const std::int64_t usable : {std::int64_t{1}, std::int64_t{77}, kVocab}) {
      Head::Best best[kRows];
      head().argmax(context, rows(), usable, best);
      for (std::int64_t r = 0; r < kRows; ++r) {
        const float* row = logits.data() + r * kVocab;
        const auto wanted = std::max_element(row, row + usable) - row;
        EXPECT_EQ(best[r].id, wanted);
        EXPECT_EQ(best[r].logit, row[wanted]);
        EXPECT_TRUE(best[r].finite);
      }
    }
  }
}

TEST_F(HeadTest, TiesGoToTheLowestId) {
  std::copy_n(weight.data() + 40 * kHidden, kHidden, weight.data() + 4999 * kHidden);
  for (std::int64_t i = 0; i < kHidden; ++i) {  // make both the largest
    weight[static_cast<std::size_t>(40 * kHidden + i)] = weight[static_cast<std::size_t>(4999 * kHidden + i)] =
        100 * hidden[static_cast<std::size_t>(i)];
  }
  ThreadPool pool(3);
  for (int round = 0; round < 50; ++round) {
    Head::Best best;
    head().argmax({pool, kernels, workspace}, rows().rows_from(0, 1), kVocab, {&best, 1});
    ASSERT_EQ(best.id, 40);
  }
}

TEST_F(HeadTest, SaysWhenALogitIsNotFinite) {
  ThreadPool pool(2);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    weight[4321 * kHidden] = bad;
    Head::Best best;
    head().argmax({pool, kernels, workspace}, rows().rows_from(0, 1), kVocab, {&best, 1});
    EXPECT_FALSE(best.finite);
    head().argmax({pool, kernels, workspace}, rows().rows_from(0, 1), 4321, {&best, 1});
    EXPECT_TRUE(best.finite) << "the row is beyond the usable ones";
  }
}

TEST(Linear, UnevenSizesAndBias) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  const auto fill = [&](std::size_t n) {
    std::vector<float> values(n);
    for (float& value : values) value = normal(random);
    return values;
  };
  constexpr std::int64_t kIn = 33, kRowCount = 4;
  const auto x = fill(kIn * kRowCount), a = fill(7 * kIn), b = fill(500 * kIn), bias = fill(500);
  const test::TestMatrix first_weight({kPackedF32, 7, kIn}, a), second_weight({kPackedF32, 500, kIn}, b);
  const Linear first = first_weight.linear();
  const Linear second(second_weight.packed(), bias);
  ThreadPool pool(3);
  Workspace workspace(1 << 20);
  const Kernels kernels = select_kernels("");
  const Context context{pool, kernels, workspace};
  const auto ya = workspace.matrix<float>(kRowCount, 7), yb = workspace.matrix<float>(kRowCount, 500);
  const PackedRows rows = take_packed_rows(workspace, kOperandF32, kRowCount, kIn);
  store_rows(context, {x.data(), kRowCount, kIn, kIn}, rows);
  linear(context, rows, first, ya);
  linear(context, rows, second, yb);
  const auto wanted = [&](const std::vector<float>& w, std::int64_t row, std::int64_t n) {
    double sum = 0;
    for (std::int64_t k = 0; k < kIn; ++k) {
      sum += static_cast<double>(x[static_cast<std::size_t>(row * kIn + k)]) * w[static_cast<std::size_t>(n * kIn + k)];
    }
    return sum;
  };
  for (std::int64_t r = 0; r < kRowCount; ++r) {
    for (std::int64_t n = 0; n < 7; ++n) ASSERT_NEAR(ya.row(r)[n], wanted(a, r, n), 1e-4);
    for (std::int64_t n = 0; n < 500; ++n) {
      ASSERT_NEAR(yb.row(r)[n], wanted(b, r, n) + bias[static_cast<std::size_t>(n)], 1e-4);
    }
  }
  const std::vector<float> before(yb.row(1), yb.row(1) + 500);
  linear_add(context, rows, second, yb);
  for (std::int64_t n = 0; n < 500; ++n) {
    const auto i = static_cast<std::size_t>(n);
    ASSERT_NEAR(yb.row(1)[n], before[i] + wanted(b, 1, n) + bias[i], 1e-4);
  }
}

}  // namespace
}  // namespace vitrine
