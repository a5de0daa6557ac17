// SPDX-License-Identifier: Apache-2.0
// Every table this machine can run against the generic one: sizes around the vector lengths, odd alignments, tails.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/float16.h"
#include "kernels/dispatch.h"
#include "support/model_runner.h"

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

  /// `n` stored elements, one byte off any alignment.
  std::vector<char> stored(StorageType type, std::int64_t n) {
    const auto values = normal(n);
    const std::size_t size = type == kStoreF32 ? 4 : 2;
    std::vector<char> bytes(1 + values.size() * size);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint16_t bf16 = to_bfloat16(values[i]).bits;
      // Random halves: any exponent below 16, so that no value is huge.
      const auto f16 = static_cast<std::uint16_t>((bf16 & 0x8000u) | (random() % 0x4000u));
      const void* source = type == kStoreF32 ? static_cast<const void*>(&values[i]) : type == kStoreF16 ? &f16 : &bf16;
      std::memcpy(bytes.data() + 1 + i * size, source, size);
    }
    return bytes;
  }

  std::vector<float> loaded(StorageType type, const std::vector<char>& bytes, std::int64_t n) {
    std::vector<float> values(static_cast<std::size_t>(n));
    generic.load[type](bytes.data() + 1, values.data(), n);
    return values;
  }
};

constexpr StorageType kAllTypes[] = {kStoreF32, kStoreF16, kStoreBF16};
constexpr StorageType kCacheTypes[] = {kStoreF32, kStoreBF16};

TEST_P(KernelTable, MatmulAgreesWithinTheRoundingOfItsSum) {
  for (const StorageType type : kAllTypes) {
    for (const std::int64_t k : {1, 7, 8, 15, 16, 17, 31, 32, 33, 192, 320}) {
      for (std::int64_t m = 0; m <= 13; ++m) {
        const std::int64_t n = 1 + (m * 5 + k) % 19;
        const auto weight = stored(type, n * k);
        const auto wide = loaded(type, weight, n * k);
        const auto x = normal(m * (k + 3));
        const auto before = normal(m * (n + 2));
        for (const bool accumulate : {false, true}) {
          auto y = before;
          table.matmul[type]({weight.data() + 1, x.data(), y.data(), m, n, k, k + 3, n + 2, accumulate});
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
                const double product = static_cast<double>(x[static_cast<std::size_t>(row * (k + 3) + i)]) *
                                       wide[static_cast<std::size_t>(col * k + i)];
                sum += product;
                magnitude += std::fabs(product);
              }
              ASSERT_NEAR(y[at], sum, 1e-6 * magnitude + 1e-12)
                  << "type " << type << " m " << m << " n " << n << " k " << k;
            }
          }
        }
      }
    }
  }
}

TEST_P(KernelTable, MatmulRowsHaveTheSameBitsInAnyCompany) {
  for (const StorageType type : kAllTypes) {
    for (const std::int64_t k : {5, 40, 67}) {
      constexpr std::int64_t kRows = 14;
      constexpr std::int64_t kColumns = 21;
      const auto weight = stored(type, kColumns * k);
      const auto x = normal(kRows * k);
      std::vector<float> all(kRows * kColumns);
      table.matmul[type]({weight.data() + 1, x.data(), all.data(), kRows, kColumns, k, k, kColumns, false});
      const std::int64_t row_bytes = k * (type == kStoreF32 ? 4 : 2);
      for (std::int64_t rows = 1; rows < kRows; ++rows) {
        for (std::int64_t column = 0; column < kColumns; ++column) {
          std::vector<float> part(static_cast<std::size_t>(rows * (kColumns - column)));
          table.matmul[type]({weight.data() + 1 + column * row_bytes, x.data(), part.data(), rows, kColumns - column, k,
                              k, kColumns - column, false});
          for (std::int64_t r = 0; r < rows; ++r) {
            ASSERT_EQ(std::memcmp(&part[static_cast<std::size_t>(r * (kColumns - column))],
                                  &all[static_cast<std::size_t>(r * kColumns + column)],
                                  static_cast<std::size_t>(kColumns - column) * sizeof(float)),
                      0)
                << "rows " << rows << " from column " << column;
          }
        }
      }
    }
  }
}

TEST_P(KernelTable, LoadIsExact) {
  for (const StorageType type : kAllTypes) {
    for (std::int64_t n = 0; n <= 35; ++n) {
      const auto bytes = stored(type, n);
      std::vector<float> values(static_cast<std::size_t>(n) + 1, 7);
      table.load[type](bytes.data() + 1, values.data(), n);
      const auto wanted = loaded(type, bytes, n);
      EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), values.begin()));
      EXPECT_EQ(values.back(), 7) << "wrote past the end";
    }
  }
}

TEST_P(KernelTable, EveryHalfIsExact) {
  std::vector<std::uint16_t> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  for (const StorageType type : {kStoreF16, kStoreBF16}) {
    std::vector<float> ours(all.size()), wanted(all.size());
    table.load[type](all.data(), ours.data(), 1 << 16);
    generic.load[type](all.data(), wanted.data(), 1 << 16);
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_TRUE(ours[i] == wanted[i] || (std::isnan(ours[i]) && std::isnan(wanted[i]))) << i;
    }
  }
}

TEST_P(KernelTable, StoreRoundsToNearestEven) {
  std::vector<float> values = normal(1000, 1e3f);
  for (const float special : {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1.00390625f, 1.01171875f, 3.4e38f, 1e-40f}) {
    values.push_back(special);
  }
  for (std::size_t n = 0; n <= values.size(); n = n < 40 ? n + 1 : n * 2 + 1) {
    std::vector<BFloat16> ours(n + 1, BFloat16{0x1234});
    table.store[kStoreBF16](values.data(), ours.data(), static_cast<std::int64_t>(n));
    for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(ours[i].bits, to_bfloat16(values[i]).bits) << values[i];
    ASSERT_EQ(ours[n].bits, 0x1234);
  }
  std::vector<BFloat16> all(values.size());
  table.store[kStoreBF16](values.data(), all.data(), static_cast<std::int64_t>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_EQ(all[i].bits, to_bfloat16(values[i]).bits) << values[i];
}

TEST_P(KernelTable, AttentionScoresAndValues) {
  for (const StorageType type : kCacheTypes) {
    for (const std::int64_t dim : {4, 30, 32, 64, 100, 128, 144}) {
      for (const std::int64_t tokens : {0, 1, 3, 4, 5, 31, 32}) {
        constexpr std::int64_t kHeads = 3;
        const auto keys = stored(type, tokens * dim);
        const auto q = normal(kHeads * dim);
        const auto weights = normal(kHeads * (tokens + 1));
        std::vector<float> ours(static_cast<std::size_t>(kHeads * (tokens + 1)), 5), wanted = ours;
        const ScoresTask scores{q.data(), keys.data() + 1, ours.data(), kHeads, tokens, dim, dim, tokens + 1, 0.125f};
        ScoresTask reference = scores;
        reference.scores = wanted.data();
        table.attention_scores[type](scores);
        generic.attention_scores[type](reference);
        for (std::size_t i = 0; i < ours.size(); ++i) ASSERT_NEAR(ours[i], wanted[i], 1e-5) << dim << " " << tokens;

        std::vector<float> out = normal(kHeads * dim), out_wanted = out;
        table.attention_values[type](
            {weights.data(), keys.data() + 1, out.data(), kHeads, tokens, dim, tokens + 1, dim});
        generic.attention_values[type](
            {weights.data(), keys.data() + 1, out_wanted.data(), kHeads, tokens, dim, tokens + 1, dim});
        for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], out_wanted[i], 2e-5);
      }
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

TEST(Dispatch, TheDefaultIsTheLastAvailable) { EXPECT_EQ(select_kernels("").name, runnable_isas().back()); }

}  // namespace
}  // namespace vitrine::test
