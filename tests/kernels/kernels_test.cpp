// SPDX-License-Identifier: Apache-2.0
// Every table this machine can run against the generic one: sizes around the vector lengths, odd alignments, tails.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/float16.h"
#include "kernels/dispatch.h"
#include "support/model_runner.h"
#include "support/packed.h"

namespace vitrine::test {
namespace {

class KernelTable : public testing::TestWithParam<std::string> {
 protected:
  const Kernels generic = generic_kernels();
  const Kernels table = select_kernels(GetParam());
  std::mt19937 random{42};

  std::vector<float> normal(std::int64_t n, float scale = 1) {
    std::normal_distribution<float> distribution(0, scale);
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& value : values) value = distribution(random);
    return values;
  }

  /// x [rows, k] as the product of that type takes it, in `workspace`.
  PackedRows packed(const Kernels& kernels, OperandType type, const std::vector<float>& x, std::int64_t rows,
                    std::int64_t k) {
    const PackedRows out = take_packed_rows(workspace, type, rows, k);
    for (std::int64_t r = 0; r < rows; ++r) store_row(kernels, out, r, x.data() + r * k, 0, k);
    return out;
  }

  /// x [rows, k] times all columns of the matrix from `begin` on, added to y [rows, stride].
  void multiply(const Kernels& kernels, const TestMatrix& weight, const std::vector<float>& x, std::int64_t rows,
                std::int64_t begin, std::vector<float>& y, std::int64_t stride, bool accumulate) {
    const WorkspaceScope scope(workspace);
    const Linear linear = weight.linear();
    const std::int64_t k = linear.in_features();
    const PackedRows operand = packed(kernels, linear.operand(kernels), x, rows, k);
    std::byte* scratch = workspace.matrix<std::byte>(1, matmul_scratch_bytes(rows, k)).data;
    linear.columns(kernels, operand, begin, linear.out_features(), {y.data(), rows, stride, stride}, scratch,
                   accumulate);
  }

  Workspace workspace{1 << 26};
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float x, float y) {
    return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
  });
}

std::string describe(const PackedKind& kind) {
  return "type " + std::to_string(kind.type) + " group " + std::to_string(kind.group);
}

TEST_P(KernelTable, FloatProductsAgreeWithinTheRoundingOfTheirSum) {
  for (const PackedKind& kind : kPackedKinds) {
    if (!kind.is_float()) continue;
    for (const std::int64_t k : {1, 7, 15, 16, 17, 31, 32, 33, 65, 192, 320}) {
      for (std::int64_t m = 0; m <= 35; m += m < 18 ? 1 : 7) {
        const std::int64_t n = 1 + (m * 11 + k) % 70;
        const TestMatrix weight({kind.type, n, k, kind.group}, normal(n * k));
        const auto wide = weight.rows();
        auto x = normal(m * k);
        if (table.operand[kind.type] == kOperandBF16) {  // what the table rounds is not its product's error
          for (float& value : x) value = to_float(to_bfloat16(value));
        }
        const auto before = normal(m * (n + 2));
        for (const bool accumulate : {false, true}) {
          auto y = before;
          multiply(table, weight, x, m, 0, y, n + 2, accumulate);
          for (std::int64_t row = 0; row < m; ++row) {
            for (std::int64_t col = 0; col < n + 2; ++col) {
              const auto at = static_cast<std::size_t>(row * (n + 2) + col);
              if (col >= n) {
                ASSERT_EQ(y[at], before[at]) << "wrote past its columns";
                continue;
              }
              double sum = accumulate ? before[at] : 0;
              double magnitude = std::fabs(sum);
              for (std::int64_t i = 0; i < k; ++i) {
                const double product = static_cast<double>(x[static_cast<std::size_t>(row * k + i)]) *
                                       wide[static_cast<std::size_t>(col * k + i)];
                sum += product;
                magnitude += std::fabs(product);
              }
              ASSERT_NEAR(y[at], sum, 1e-6 * magnitude + 1e-12)
                  << describe(kind) << " m " << m << " n " << n << " k " << k;
            }
          }
        }
      }
    }
  }
}

TEST_P(KernelTable, IntegerProductsHaveTheBitsOfTheGenericOnes) {
  for (const PackedKind& kind : kPackedKinds) {
    if (kind.is_float()) continue;
    for (const std::int64_t k : {1, 31, 33, 64, 127, 192, 257, 576, 1056}) {
      for (std::int64_t m = 0; m <= 35; m += m < 18 ? 1 : 7) {
        const std::int64_t n = 1 + (m * 11 + k) % 70;
        const TestMatrix weight({kind.type, n, k, kind.group}, normal(n * k));
        const auto x = normal(m * k);
        auto ours = normal(m * (n + 2));
        auto wanted = ours;
        multiply(table, weight, x, m, 0, ours, n + 2, m % 2 == 0);
        multiply(generic, weight, x, m, 0, wanted, n + 2, m % 2 == 0);
        ASSERT_TRUE(same_bits(ours, wanted)) << describe(kind) << " m " << m << " n " << n << " k " << k;
      }
    }
  }
}

TEST_P(KernelTable, IntegerProductsAreExactAtTheLimits) {
  // All at the largest magnitudes: what saturates or overflows anywhere shows.
  for (const PackedKind& kind : kPackedKinds) {
    if (kind.is_float()) continue;
    constexpr std::int64_t kK = 3072, kN = 40, kRows = 5;
    for (const int signs : {0, 1, 2, 3}) {
      std::vector<float> w(kN * kK), x(kRows * kK);
      for (std::size_t i = 0; i < w.size(); ++i) w[i] = (signs & 1) != 0 && i % 3 == 0 ? -8.0f : 7.0f;
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = (signs & 2) != 0 && i % 5 == 0 ? -127.0f : 127.0f;
      const TestMatrix weight({kind.type, kN, kK, kind.group}, w);
      std::vector<float> ours(kRows * kN), wanted(kRows * kN);
      multiply(table, weight, x, kRows, 0, ours, kN, false);
      multiply(generic, weight, x, kRows, 0, wanted, kN, false);
      ASSERT_EQ(ours, wanted) << describe(kind);
      const auto rows = weight.rows();
      double sum = 0;
      for (std::size_t i = 0; i < kK; ++i) sum += static_cast<double>(x[i]) * rows[i];
      EXPECT_NEAR(ours[0], sum, 1e-5 * kK * 127 * 8) << describe(kind);
    }
  }
}

TEST_P(KernelTable, ProductRowsHaveTheSameBitsInAnyCompany) {
  for (const PackedKind& kind : kPackedKinds) {
    for (const std::int64_t k : {5, 300}) {
      constexpr std::int64_t kRows = 37;
      constexpr std::int64_t kColumns = 70;
      const TestMatrix weight({kind.type, kColumns, k, kind.group}, normal(kColumns * k));
      const auto x = normal(kRows * k);
      std::vector<float> all(kRows * kColumns);
      multiply(table, weight, x, kRows, 0, all, kColumns, false);
      for (std::int64_t rows = 1; rows < kRows; ++rows) {
        for (const std::int64_t column : {std::int64_t{0}, kPanelRows}) {
          const std::int64_t first = kRows - rows;  // the last rows, so that they move to other places in their blocks
          const std::vector<float> some(x.begin() + first * k, x.end());
          std::vector<float> part(static_cast<std::size_t>(rows * kColumns));
          multiply(table, weight, some, rows, column, part, kColumns, false);
          for (std::int64_t r = 0; r < rows; ++r) {
            ASSERT_EQ(std::memcmp(&part[static_cast<std::size_t>(r * kColumns)],
                                  &all[static_cast<std::size_t>((first + r) * kColumns + column)],
                                  static_cast<std::size_t>(kColumns - column) * sizeof(float)),
                      0)
                << describe(kind) << " rows " << rows << " from column " << column;
          }
        }
      }
    }
  }
}

TEST_P(KernelTable, OperandsHaveTheBytesOfTheGenericOnes) {
  for (int type = 0; type < kNumOperandTypes; ++type) {
    for (const std::int64_t k : {1, 15, 16, 31, 33, 128, 255, 256, 257, 640}) {
      auto x = normal(3 * k, 10);
      x[static_cast<std::size_t>(k / 2)] = 0.5f;  // a tie for some scale or other
      std::fill_n(x.begin() + k, k, 0.0f);
      const WorkspaceScope scope(workspace);
      const auto type_ = static_cast<OperandType>(type);
      const PackedRows ours = packed(table, type_, x, 3, k);
      const PackedRows wanted = packed(generic, type_, x, 3, k);
      const auto same = [](const void* a, const void* b, std::int64_t bytes) {
        return std::memcmp(a, b, static_cast<std::size_t>(bytes)) == 0;
      };
      ASSERT_TRUE(same(ours.view.tiles, wanted.view.tiles, 3 * ours.view.steps * 64)) << type << " " << k;
      if (type_ != kOperandInt8) continue;
      ASSERT_TRUE(same(ours.view.scales, wanted.view.scales, 3 * ours.view.segments * 4)) << k;
      ASSERT_TRUE(same(ours.view.segment_sums, wanted.view.segment_sums, 3 * ours.view.segments * 4)) << k;
      ASSERT_TRUE(same(ours.view.group_sums, wanted.view.group_sums, 3 * ours.view.groups * 4)) << k;
    }
  }
}

TEST_P(KernelTable, OperandsThatAreNotFiniteAreNotHidden) {
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> x(300, 1.0f);
    x[270] = bad;
    const TestMatrix weight({kPackedInt8, 3, 300, 0}, normal(900));
    std::vector<float> y(3);
    multiply(table, weight, x, 1, 0, y, 3, false);
    for (const float value : y) EXPECT_TRUE(std::isnan(value));
  }
}

TEST_P(KernelTable, BF16OperandsRoundToNearestEven) {
  std::vector<float> values = normal(1000, 1e3f);
  for (const float special : {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1.00390625f, 1.01171875f, 3.4e38f, 1e-40f}) {
    values.push_back(special);
  }
  const auto k = static_cast<std::int64_t>(values.size());
  const PackedRows row = packed(table, kOperandBF16, values, 1, k);
  for (std::size_t i = 0; i < values.size(); ++i) {
    BFloat16 ours;
    std::memcpy(&ours, row.view.tiles + 2 * i, sizeof(ours));
    ASSERT_EQ(ours.bits, to_bfloat16(values[i]).bits) << values[i];
  }
}

TEST_P(KernelTable, Largest) {
  for (std::int64_t n = 0; n <= 67; ++n) {
    auto x = normal(n, 3);
    for (const float shift : {0.0f, -50.0f}) {  // all of them negative, too
      for (float& value : x) value += shift;
      EXPECT_EQ(table.largest(x.data(), n), generic.largest(x.data(), n));
    }
    for (auto& value : x) {
      const float before = value;
      for (const float bad : {NAN, INFINITY, -INFINITY}) {
        value = bad;
        EXPECT_TRUE(std::isnan(table.largest(x.data(), n))) << n << " elements, " << bad;
      }
      value = before;
    }
  }
}

TEST_P(KernelTable, NormRopeSoftmaxSilu) {
  for (std::int64_t n = 1; n <= 67; ++n) {
    const auto size = static_cast<std::size_t>(n);
    const auto x = normal(n, 3), w = normal(n);
    std::vector<float> ours(size), wanted(size);
    table.rms_norm(x.data(), w.data(), n, 1e-6f, ours.data());
    generic.rms_norm(x.data(), w.data(), n, 1e-6f, wanted.data());
    for (std::size_t i = 0; i < size; ++i) ASSERT_NEAR(ours[i], wanted[i], 2e-6 * std::fabs(wanted[i]) + 1e-9);

    table.silu_mul(x.data(), w.data(), n, ours.data());
    for (std::size_t i = 0; i < size; ++i) {
      const double exact = x[i] / (1 + std::exp(-static_cast<double>(x[i]))) * w[i];
      ASSERT_NEAR(ours[i], exact, 2e-6 * std::fabs(exact) + 1e-12);
    }

    ours = x;
    table.softmax(ours.data(), n);
    double sum = 0;
    const double max = *std::max_element(x.begin(), x.end());
    for (const float value : x) sum += std::exp(value - max);
    for (std::size_t i = 0; i < size; ++i) {
      const double exact = std::exp(x[i] - max) / sum;
      ASSERT_NEAR(ours[i], exact, 2e-6 * exact + 1e-12);
    }

    if (n % 2 != 0) continue;
    const auto c = normal(n / 2), s = normal(n / 2);
    ours = x;
    wanted = x;
    table.rope(ours.data(), c.data(), s.data(), n);
    generic.rope(wanted.data(), c.data(), s.data(), n);
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(ours[i], wanted[i]);
  }
}

TEST_P(KernelTable, NormDriftsByLessThanOneBf16Ulp) {  // cases.md C05
  const auto x = normal(1024, 0.02f);
  const std::vector<float> w(1024, 1.0f);
  std::vector<float> y(1024);
  table.rms_norm(x.data(), w.data(), 1024, 1e-6f, y.data());
  double sum = 0;
  for (const float value : x) sum += static_cast<double>(value) * value;
  const double scale = 1 / std::sqrt(sum / 1024 + 1e-6);
  for (std::size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], x[i] * scale, std::fabs(x[i] * scale) / 256);
}

TEST_P(KernelTable, NormFollowsEpsilon) {              // cases.md C04
  const std::vector<float> x(64, 0.02f), w(64, 1.0f);  // mean square 4e-4
  std::vector<float> small(64), large(64);
  table.rms_norm(x.data(), w.data(), 64, 1e-6f, small.data());
  table.rms_norm(x.data(), w.data(), 64, 1e-5f, large.data());
  EXPECT_NEAR(small[0] / large[0], 1.01116, 1e-5);
}

TEST_P(KernelTable, ExtremesStayWhatTheyAre) {
  std::vector<float> masked(37, -INFINITY);
  masked[20] = 3;
  table.softmax(masked.data(), 37);
  for (std::size_t i = 0; i < masked.size(); ++i) EXPECT_EQ(masked[i], i == 20 ? 1.0f : 0.0f);

  std::vector<float> far = {1e4f, 9999, -1e4f};  // cases.md D01
  table.softmax(far.data(), 3);
  EXPECT_NEAR(far[0], 0.7310586, 1e-6);
  EXPECT_EQ(far[2], 0);

  for (const std::int64_t bad : {0, 5, 18}) {  // NaN must not be swallowed
    std::vector<float> row(19, 1.0f), up(19, 1.0f);
    row[static_cast<std::size_t>(bad)] = NAN;
    std::vector<float> out(19);
    table.silu_mul(row.data(), up.data(), 19, out.data());
    EXPECT_TRUE(std::isnan(out[static_cast<std::size_t>(bad)]));
    table.softmax(row.data(), 19);
    EXPECT_TRUE(std::isnan(row[0]));
  }
  const std::vector<float> gate = {-200, -90, 90, 200, 0}, one(5, 1.0f);
  std::vector<float> out(5);
  table.silu_mul(gate.data(), one.data(), 5, out.data());
  EXPECT_NEAR(out[0], 0, 1e-30);
  EXPECT_NEAR(out[1], 0, 1e-30);
  EXPECT_EQ(out[2], 90);
  EXPECT_EQ(out[3], 200);
  EXPECT_EQ(out[4], 0);
}

INSTANTIATE_TEST_SUITE_P(Tables, KernelTable, testing::ValuesIn(runnable_isas()),
                         [](const auto& param) { return param.param; });

TEST(Dispatch, UnknownTableIsRefused) {
  try {
    select_kernels("avx9000");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("avx9000"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("generic"), std::string::npos);
  }
}

TEST(Dispatch, TableThisCpuLacksIsRefused) {  // cases.md I02
  for (const IsaInfo& choice : kernel_choices()) {
    if (choice.available) continue;
    EXPECT_THROW(select_kernels(choice.name), Error) << choice.name;
  }
}

TEST(Dispatch, TheDefaultIsOneThatRuns) {
  const auto isas = runnable_isas();
  EXPECT_NE(std::find(isas.begin(), isas.end(), select_kernels("").name), isas.end());
  if (isas.back() == "amx") {
    EXPECT_STREQ(select_kernels("").name, "amx");
  }
}

TEST(Dispatch, ExactProductsTakeFloats) {
  for (const std::string& isa : runnable_isas()) {
    EXPECT_EQ(select_kernels(isa, true).operand[kPackedBF16], kOperandF32) << isa;
  }
}

}  // namespace
}  // namespace vitrine::test
