// SPDX-License-Identifier: Apache-2.0
#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>

namespace vitrine {
namespace {

TEST(Float16, WidensExactly) {
  EXPECT_EQ(to_float(Float16{0x3C00}), 1.0f);
  EXPECT_EQ(to_float(Float16{0xC000}), -2.0f);
  EXPECT_EQ(to_float(Float16{0x7BFF}), 65504.0f);
  EXPECT_EQ(to_float(Float16{0x0001}), 0x1p-24f);
  EXPECT_EQ(to_float(Float16{0x83FF}), -1023 * 0x1p-24f);
  EXPECT_TRUE(std::signbit(to_float(Float16{0x8000})));
  EXPECT_EQ(to_float(Float16{0x7C00}), INFINITY);
  EXPECT_TRUE(std::isnan(to_float(Float16{0x7E01})));
}

TEST(BFloat16, RoundsToNearestEven) {
  EXPECT_EQ(to_bfloat16(1.0f).bits, 0x3F80);
  EXPECT_EQ(to_bfloat16(1.00390625f).bits, 0x3F80);  // halfway, down to even
  EXPECT_EQ(to_bfloat16(1.01171875f).bits, 0x3F82);  // halfway, up to even
  EXPECT_EQ(to_bfloat16(1.005f).bits, 0x3F81);
  EXPECT_EQ(to_bfloat16(-1.005f).bits, 0xBF81);
  EXPECT_EQ(to_bfloat16(3.4e38f).bits, 0x7F80);  // overflows to infinity
  EXPECT_EQ(to_bfloat16(INFINITY).bits, 0x7F80);
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(NAN))));
  for (std::uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const BFloat16 value{static_cast<std::uint16_t>(bits)};
    ASSERT_EQ(to_bfloat16(to_float(value)).bits, bits);
  }
}

}  // namespace
}  // namespace vitrine
