// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "cache/model_cache.h"
#include "kernels/dispatch.h"

namespace vitrine {
namespace {

/// Two sequences side by side, each against the textbook formula in double.
class AttentionTest : public testing::TestWithParam<std::int64_t> {
 protected:
  static constexpr AttentionShape kShape{.query_heads = 4, .kv_heads = 2, .head_dim = 24};
  static constexpr std::int64_t kQ = 4 * 24, kKv = 2 * 24;

  std::vector<float> normal(std::int64_t n) {
    std::normal_distribution<float> distribution;
    std::vector<float> values(static_cast<std::size_t>(n));
    for (float& value : values) value = distribution(random);
    return values;
  }

  static double reference(const AttentionShape& shape, const std::vector<float>& q, const std::vector<float>& k,
                          const std::vector<float>& v, std::int64_t t, std::int64_t head, std::int64_t d) {
    const std::int64_t kv = head / 2;
    const std::int64_t first = shape.window > 0 ? std::max<std::int64_t>(0, t - shape.window + 1) : 0;
    std::vector<double> scores;
    for (std::int64_t s = first; s <= t; ++s) {
      double dot = 0;
      for (std::int64_t i = 0; i < 24; ++i) {
        dot += static_cast<double>(q[static_cast<std::size_t>(t * kQ + head * 24 + i)]) *
               k[static_cast<std::size_t>(s * kKv + kv * 24 + i)];
      }
      scores.push_back(std::exp(dot / std::sqrt(24.0)));
    }
    double sum = 0;
    double total = 0;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      total += scores[i];
      sum += scores[i] * v[static_cast<std::size_t>((first + static_cast<std::int64_t>(i)) * kKv + kv * 24 + d)];
    }
    return sum / total;
  }

  std::mt19937 random{11};
};

TEST_P(AttentionTest, EqualsTheFormulaForTwoSequencesAtOnce) {
  AttentionShape shape = kShape;
  shape.window = GetParam();
  constexpr std::int64_t kLengths[] = {70, 33};
  ModelCache cache({{2, 24}}, 8, kKvF32);
  const std::vector<BlockId> tables[] = {{5, 0, 3}, {7, 2}};
  std::vector<float> q, k, v;
  std::vector<std::int32_t> positions;
  std::vector<SequenceSlice> slices;
  for (int s = 0; s < 2; ++s) {
    slices.push_back({static_cast<std::int64_t>(positions.size()), kLengths[s], tables[s]});
    for (std::int64_t t = 0; t < kLengths[s]; ++t) positions.push_back(static_cast<std::int32_t>(t));
  }
  const auto rows = static_cast<std::int64_t>(positions.size());
  q = normal(rows * kQ);
  k = normal(rows * kKv);
  v = normal(rows * kKv);
  const Batch batch{positions, positions, slices, {}};
  ThreadPool pool(2);
  Workspace workspace(1 << 20);
  const Kernels kernels = select_kernels("");
  const Context context{pool, kernels, workspace};
  store_kv(context, batch, {k.data(), rows, kKv, kKv}, {v.data(), rows, kKv, kKv}, 24, cache.layer(0));
  std::vector<float> out(static_cast<std::size_t>(rows * kQ));
  attention(context, shape, batch, {q.data(), rows, kQ, kQ}, cache.layer(0), {out.data(), rows, kQ, kQ});

  for (int s = 0; s < 2; ++s) {
    const auto from = [&](const std::vector<float>& all, std::int64_t width) {
      return std::vector<float>(all.begin() + slices[static_cast<std::size_t>(s)].first_row * width, all.end());
    };
    const auto sq = from(q, kQ), sk = from(k, kKv), sv = from(v, kKv), so = from(out, kQ);
    for (std::int64_t t = 0; t < kLengths[s]; ++t) {
      for (std::int64_t head = 0; head < 4; ++head) {
        for (std::int64_t d = 0; d < 24; ++d) {
          ASSERT_NEAR(so[static_cast<std::size_t>(t * kQ + head * 24 + d)], reference(shape, sq, sk, sv, t, head, d),
                      1e-5)
              << "sequence " << s << " position " << t << " head " << head;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Windows, AttentionTest, testing::Values(0, 1, 8, 32, 33, 100));

TEST(StoreKv, NeverReadsOrChangesOtherPositions) {  // cases.md C09: rows of an earlier owner must not be seen
  ModelCache cache({{1, 4}}, 2, kKvBF16);
  const PagedKv layer = cache.layer(0);
  std::memset(layer.head(0, 0), 0x7F, static_cast<std::size_t>(2 * cache.block_bytes()));  // NaN everywhere
  ThreadPool pool(1);
  Workspace workspace(1 << 22);
  const Kernels kernels = select_kernels("");
  const Context context{pool, kernels, workspace};
  const std::vector<float> values = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::int32_t positions[] = {0, 1};
  const BlockId table[] = {1};
  const SequenceSlice slice{0, 2, table};
  const Batch batch{positions, positions, {&slice, 1}, {}};
  store_kv(context, batch, {values.data(), 2, 4, 4}, {values.data(), 2, 4, 4}, 4, layer);
  std::vector<float> out(8);
  attention(context, {1, 1, 4, 0}, batch, {values.data(), 2, 4, 4}, layer, {out.data(), 2, 4, 4});
  for (const float value : out) EXPECT_TRUE(std::isfinite(value));
  EXPECT_EQ(out[0], 1.0f);
}

}  // namespace
}  // namespace vitrine
