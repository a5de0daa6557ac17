// SPDX-License-Identifier: Apache-2.0
#include "ops/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/dispatch.h"

namespace vitrine {
namespace {

void expect_near(const Rope& rope, std::size_t i, double golden) {
  EXPECT_NEAR(rope.inverse_frequencies[i], golden, 5e-7 * golden) << i;
}

TEST(Rope, DefaultAndLinear) {
  const Rope plain = linear_rope(128, 1e6, 1);
  ASSERT_EQ(plain.inverse_frequencies.size(), 64u);
  EXPECT_EQ(plain.attention_factor, 1);
  for (std::size_t i = 0; i < 64; ++i) expect_near(plain, i, std::pow(1e6, -2.0 * static_cast<double>(i) / 128));
  const Rope linear = linear_rope(128, 1e6, 4);
  for (std::size_t i = 0; i < 64; ++i) expect_near(linear, i, std::pow(1e6, -2.0 * static_cast<double>(i) / 128) / 4);
}

TEST(Rope, YarnGoldenValues) {  // Qwen3's long-context setting: factor 4 over 32768
  const double factor = 0.1 * std::log(4.0) + 1;
  const Rope rope = yarn_rope(128, 1e6, {4, 32768, 32, 1, true, static_cast<float>(factor)});
  EXPECT_NEAR(rope.attention_factor, 1.138629436111989, 1e-6);
  expect_near(rope, 1, .8058421878);
  expect_near(rope, 23, 6.978305849e-3);
  expect_near(rope, 24, 5.375321491e-3);
  expect_near(rope, 30, 1.064360981e-3);
  expect_near(rope, 40, 4.445698525e-5);
  expect_near(rope, 41, 3.582531426e-5);
  expect_near(rope, 63, 3.102344402e-7);
}

TEST(Rope, TableIsFloat32AtAnyPosition) {  // cases.md C13: no other precision past the trained length
  ThreadPool pool(2);
  Workspace workspace(1 << 20);
  const Kernels kernels = generic_kernels();
  const Context context{pool, kernels, workspace};
  const Rope rope = linear_rope(8, 1e6, 1);
  const std::int32_t positions[] = {0, 1, 40959, 40960, 131071};
  const RopeTable table = rope_table(context, rope, positions);
  for (std::int64_t r = 0; r < 5; ++r) {
    for (std::int64_t i = 0; i < 4; ++i) {
      const float angle = static_cast<float>(positions[r]) * rope.inverse_frequencies[static_cast<std::size_t>(i)];
      EXPECT_NEAR(table.cosines.row(r)[i], std::cos(static_cast<double>(angle)), 1e-7);
      EXPECT_NEAR(table.sines.row(r)[i], std::sin(static_cast<double>(angle)), 1e-7);
    }
  }
}

}  // namespace
}  // namespace vitrine
