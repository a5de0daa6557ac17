// SPDX-License-Identifier: Apache-2.0
#include "ops/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "cache/model_cache.h"
#include "kernels/dispatch.h"
#include "support/model_runner.h"

namespace vitrine::test {
namespace {

constexpr std::int64_t kDim = 24, kQ = 4 * kDim, kKv = 2 * kDim;

/// Two sequences side by side in a cache that was full of NaN, their blocks out of order.
class AttentionTest : public testing::TestWithParam<std::tuple<std::int64_t, std::string>> {
 protected:
  static constexpr std::int64_t kLengths[] = {70, 333};
  static constexpr std::int64_t kRows = 70 + 333;

  AttentionTest() {
    std::normal_distribution<float> normal;
    for (auto [values, width] : {std::pair{&q_, kQ}, {&k_, kKv}, {&v_, kKv}}) {
      values->resize(static_cast<std::size_t>(kRows * width));
      for (float& value : *values) value = normal(random_);
    }
    std::vector<BlockId> blocks(kBlocks);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random_);
    tables_[0].assign(blocks.begin(), blocks.begin() + 3);
    tables_[1].assign(blocks.begin() + 3, blocks.end());
    shape_.window = std::get<0>(GetParam());
  }

  /// Everything through store_kv and attention, at most `chunk` tokens of each sequence a step.
  std::vector<float> run(KvStorage storage, int threads, std::int64_t chunk) {
    ModelCache cache({{2, kDim}}, kBlocks, storage);
    std::memset(cache.layer(0).head(0, 0), 0xFF, static_cast<std::size_t>(kBlocks * cache.block_bytes()));
    ThreadPool pool(threads);
    Workspace workspace(attention_workspace_bytes(shape_, kRows, threads));
    const Context context{pool, kernels_, workspace};
    std::vector<float> out(static_cast<std::size_t>(kRows * kQ));
    for (std::int64_t first = 0; first < kLengths[1]; first += chunk) step(context, cache, first, chunk, out);
    return out;
  }

  double expected(int sequence, std::int64_t t, std::int64_t head, std::int64_t d) const {
    const std::int64_t row = sequence * kLengths[0];
    const std::int64_t first = shape_.window > 0 ? std::max<std::int64_t>(0, t - shape_.window + 1) : 0;
    double sum = 0;
    double total = 0;
    for (std::int64_t s = first; s <= t; ++s) {
      const float* key = k_.data() + (row + s) * kKv + head / 2 * kDim;
      const float* query = q_.data() + (row + t) * kQ + head * kDim;
      const double weight = std::exp(std::inner_product(key, key + kDim, query, 0.0) / std::sqrt(24.0));
      total += weight;
      sum += weight * v_[static_cast<std::size_t>((row + s) * kKv + head / 2 * kDim + d)];
    }
    return sum / total;
  }

  static constexpr std::int64_t kBlocks = 3 + 11;
  AttentionShape shape_{.query_heads = 4, .kv_heads = 2, .head_dim = kDim};
  const Kernels kernels_ = select_kernels(std::get<1>(GetParam()));
  std::mt19937 random_{11};
  std::vector<float> q_, k_, v_;
  std::vector<BlockId> tables_[2];

 private:
  void step(const Context& context, ModelCache& cache, std::int64_t first, std::int64_t chunk,
            std::vector<float>& out) const {
    std::vector<std::int32_t> positions, rows;
    std::vector<SequenceSlice> slices;
    for (int s = 0; s < 2; ++s) {
      const std::int64_t end = std::min(first + chunk, kLengths[s]);
      if (first >= end) continue;
      slices.push_back({static_cast<std::int64_t>(positions.size()), end - first, tables_[s]});
      for (std::int64_t t = first; t < end; ++t) {
        positions.push_back(static_cast<std::int32_t>(t));
        rows.push_back(static_cast<std::int32_t>(s * kLengths[0] + t));
      }
    }
    const auto count = static_cast<std::int64_t>(rows.size());
    const auto gather = [&](const std::vector<float>& all, std::int64_t width) {
      std::vector<float> some;
      for (const std::int32_t row : rows) {
        some.insert(some.end(), all.begin() + row * width, all.begin() + (row + 1) * width);
      }
      return some;
    };
    const auto q = gather(q_, kQ), k = gather(k_, kKv), v = gather(v_, kKv);
    std::vector<float> result(q.size());
    const Batch batch{positions, positions, slices, {}};
    store_kv(kernels_, batch, 0, {k.data(), count, kKv, kKv}, {v.data(), count, kKv, kKv}, kDim, 0, cache.layer(0));
    attention(context, shape_, batch, {q.data(), count, kQ, kQ}, cache.layer(0), {result.data(), count, kQ, kQ});
    for (std::int64_t r = 0; r < count; ++r) {
      std::copy_n(result.begin() + r * kQ, kQ, out.begin() + rows[static_cast<std::size_t>(r)] * kQ);
    }
  }
};

TEST_P(AttentionTest, EqualsTheFormulaForTwoSequencesAtOnce) {
  const auto out = run(kKvF32, 2, 1000);
  for (int s = 0; s < 2; ++s) {
    for (std::int64_t t = 0; t < kLengths[s]; ++t) {
      for (std::int64_t i = 0; i < kQ; ++i) {
        ASSERT_NEAR(out[static_cast<std::size_t>((s * kLengths[0] + t) * kQ + i)], expected(s, t, i / kDim, i % kDim),
                    1e-5)
            << "sequence " << s << " position " << t << " head " << i / kDim;
      }
    }
  }
}

TEST_P(AttentionTest, SameBitsInChunksAndOnAnyThreads) {
  for (const KvStorage storage : {kKvF32, kKvBF16, kKvInt8}) {
    const auto bits = run(storage, 1, 1000);
    for (const float value : bits) ASSERT_TRUE(std::isfinite(value));
    for (std::int64_t chunk = 1; chunk <= 40; chunk += chunk < 4 ? 1 : 9) {
      for (const int threads : {1, 3}) {
        const auto other = run(storage, threads, chunk);
        ASSERT_EQ(std::memcmp(other.data(), bits.data(), bits.size() * sizeof(float)), 0)
            << "storage " << int{storage} << " chunks of " << chunk << " threads " << threads;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Windows, AttentionTest,
                         testing::Combine(testing::Values(0, 1, 33, 100), testing::ValuesIn(runnable_isas())),
                         [](const auto& param) {
                           return std::to_string(std::get<0>(param.param)) + "_" + std::get<1>(param.param);
                         });

TEST(Attention, MoreQueryHeadsThanATaskTakes) {
  constexpr std::int64_t kHeads = kAttentionRows + 5;
  for (const KvStorage storage : {kKvF32, kKvBF16, kKvInt8}) {
    ModelCache cache({{1, 8}}, 1, storage);
    ThreadPool pool(2);
    const AttentionShape shape{kHeads, 1, 8, 0};
    Workspace workspace(attention_workspace_bytes(shape, 2, 2));
    const Kernels kernels = select_kernels("");
    const Context context{pool, kernels, workspace};
    const std::vector<float> kv(16, 0.5f);
    std::vector<float> q(2 * kHeads * 8, 1), out(q.size());
    const std::int32_t positions[] = {0, 1};
    const BlockId table[] = {0};
    const SequenceSlice slice{0, 2, table};
    const Batch batch{positions, positions, {&slice, 1}, {}};
    store_kv(kernels, batch, 0, {kv.data(), 2, 8, 8}, {kv.data(), 2, 8, 8}, 8, 0, cache.layer(0));
    attention(context, shape, batch, {q.data(), 2, kHeads * 8, kHeads * 8}, cache.layer(0),
              {out.data(), 2, kHeads * 8, kHeads * 8});
    for (const float value : out) ASSERT_NEAR(value, 0.5f, 2e-3);
  }
}

TEST(KvFormat, BytesOfABlock) {  // Qwen3-0.6B: performance.md 1.2
  const std::vector<LayerCacheSpec> layers(28, {8, 128});
  EXPECT_EQ(ModelCache::block_bytes(layers, kKvF32), 32 * 229376);
  EXPECT_EQ(ModelCache::block_bytes(layers, kKvBF16), 32 * 114688);
  EXPECT_EQ(ModelCache::block_bytes(layers, kKvInt8), 32 * 59136);
}

}  // namespace
}  // namespace vitrine::test
