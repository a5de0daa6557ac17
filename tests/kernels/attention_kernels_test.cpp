// SPDX-License-Identifier: Apache-2.0
// Attention of every table against the textbook formula in double, and against itself in other company, bit by bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "base/float16.h"
#include "kernels/attention_generic.h"
#include "kernels/dispatch.h"
#include "support/model_runner.h"

namespace vitrine::test {
namespace {

constexpr KvStorage kAllStorages[] = {kKvF32, kKvBF16, kKvInt8};

std::size_t index(std::int64_t i) { return static_cast<std::size_t>(i); }

/// A vector as the cache keeps it, in double.
std::vector<double> rounded(KvStorage storage, const float* x, std::int64_t n) {
  std::vector<double> out(x, x + n);
  if (storage == kKvBF16) std::transform(x, x + n, out.begin(), [](float v) { return to_float(to_bfloat16(v)); });
  if (storage != kKvInt8) return out;
  float most = 0;
  for (std::int64_t i = 0; i < n; ++i) most = std::max(most, std::fabs(x[i]));
  for (double& v : out) v = most == 0 ? 0 : std::nearbyint(static_cast<float>(v) * (127.0f / most)) * (most / 127.0f);
  return out;
}

/// Memory that is aligned as the cache and the workspace are.
class Bytes {
 public:
  Bytes(std::int64_t size, int fill) : bytes_(index(size + 64), static_cast<unsigned char>(fill)) {}
  unsigned char* data() {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    return bytes_.data() + (64 - address % 64) % 64;
  }

 private:
  std::vector<unsigned char> bytes_;
};

/// One KV head of one sequence, its blocks out of order in memory that was full of NaN.
struct Scene {
  KvStorage storage;
  std::int64_t tokens, heads, head_dim, window = 0;
  std::vector<float> q, k, v;
  std::vector<std::int32_t> blocks;
  std::int64_t block_bytes;
  Bytes cache;

  Scene(KvStorage type, std::int64_t num_tokens, std::int64_t num_heads, std::int64_t dim, std::mt19937& random,
        int garbage = 0xFF)
      : storage(type),
        tokens(num_tokens),
        heads(num_heads),
        head_dim(dim),
        blocks(index((num_tokens + kKvTokens - 1) / kKvTokens + 1)),
        block_bytes(KvFormat{type, dim}.bytes() + 128),
        cache(block_bytes * std::ssize(blocks), garbage) {
    std::normal_distribution<float> normal;
    for (auto [values, size] : {std::pair{&q, tokens * heads * dim}, {&k, tokens * dim}, {&v, tokens * dim}}) {
      values->resize(index(size));
      for (float& value : *values) value = normal(random);
    }
    for (float& value : k) value *= 2;  // so that the largest score is found late, and corrections are not all small
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random);
  }

  void store(const Kernels& kernels, std::int64_t first, std::int64_t end) {
    while (first < end) {
      const std::int64_t slot = first % kKvTokens;
      const std::int64_t count = std::min(end - first, kKvTokens - slot);
      kernels.store_kv[storage]({.k = k.data() + first * head_dim,
                                 .v = v.data() + first * head_dim,
                                 .k_stride = head_dim,
                                 .v_stride = head_dim,
                                 .tokens = count,
                                 .head_dim = head_dim,
                                 .block = cache.data() + blocks[index(first / kKvTokens)] * block_bytes,
                                 .slot = slot});
      first += count;
    }
  }

  AttentionTask task(std::int64_t first, std::int64_t count) {
    AttentionTask task{};
    task.q = q.data() + first * heads * head_dim;
    task.q_stride = task.out_stride = heads * head_dim;
    task.tokens = count;
    task.heads = heads;
    task.head_dim = head_dim;
    task.position = first;
    task.window = window;
    task.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    task.cache = cache.data();
    task.block_bytes = block_bytes;
    task.blocks = blocks.data();
    return task;
  }

  /// Rows of tokens [first, first + count), computed in tasks of `chunk` tokens.
  std::vector<float> attend(const Kernels& kernels, std::int64_t first, std::int64_t count, std::int64_t chunk) {
    Bytes scratch(attention_scratch_bytes(head_dim), 0xFF);
    std::vector<float> out(index(count * heads * head_dim));
    chunk = std::min(chunk, kAttentionRows / heads);
    for (std::int64_t t = 0; t < count; t += chunk) {
      AttentionTask part = task(first + t, std::min(chunk, count - t));
      part.out = out.data() + t * heads * head_dim;
      part.scratch = scratch.data();
      kernels.attention[storage](part);
    }
    return out;
  }

  /// Softmax weights of one head of a token over all positions up to its own.
  std::vector<double> weights(std::int64_t token, std::int64_t head) const {
    const float* row = q.data() + (token * heads + head) * head_dim;
    const auto query = storage == kKvInt8 ? rounded(storage, row, head_dim) : std::vector<double>(row, row + head_dim);
    std::vector<double> scores(index(token + 1), -INFINITY);
    for (std::int64_t s = window > 0 ? std::max<std::int64_t>(0, token - window + 1) : 0; s <= token; ++s) {
      const auto key = rounded(storage, k.data() + s * head_dim, head_dim);
      scores[index(s)] =
          std::inner_product(query.begin(), query.end(), key.begin(), 0.0) / std::sqrt(static_cast<double>(head_dim));
    }
    const double most = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - most);
    for (double& score : scores) score /= sum;
    return scores;
  }

  std::vector<double> expected(std::int64_t token, std::int64_t head) const {
    std::vector<double> out(index(head_dim), 0.0);
    const auto weight = weights(token, head);
    for (std::int64_t s = 0; s <= token; ++s) {
      if (weight[index(s)] == 0) continue;
      const auto value = rounded(storage, v.data() + s * head_dim, head_dim);
      for (std::int64_t d = 0; d < head_dim; ++d) out[index(d)] += weight[index(s)] * value[index(d)];
    }
    return out;
  }
};

class AttentionKernels : public testing::TestWithParam<std::string> {
 protected:
  const Kernels table = select_kernels(GetParam());
  std::mt19937 random{7};

  /// Of a result: where queries and weights are rounded to bfloat16 too, that shows.
  double tolerance(KvStorage storage) const { return GetParam() == "amx" && storage != kKvF32 ? 0.03 : 1e-5; }

  void expect_formula(const Scene& scene, const std::vector<float>& out) {
    for (std::int64_t t = 0; t < scene.tokens; ++t) {
      for (std::int64_t h = 0; h < scene.heads; ++h) {
        const auto wanted = scene.expected(t, h);
        for (std::int64_t d = 0; d < scene.head_dim; ++d) {
          ASSERT_NEAR(out[index((t * scene.heads + h) * scene.head_dim + d)], wanted[index(d)],
                      tolerance(scene.storage))
              << "storage " << int{scene.storage} << " token " << t << " of " << scene.tokens << " head " << h << " of "
              << scene.heads << " element " << d << " of " << scene.head_dim << " window " << scene.window;
        }
      }
    }
  }
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_P(AttentionKernels, EqualsTheFormula) {
  for (const KvStorage storage : kAllStorages) {
    int turn = 0;
    for (const std::int64_t head_dim : {4, 16, 24, 32, 40, 64, 80, 96, 128, 144}) {
      for (const std::int64_t heads : {1, 2, 3, 8}) {
        const std::int64_t tokens = std::vector{1, 2, 31, 32, 33, 47, 64, 70}[index(turn++ % 8)];
        Scene scene(storage, tokens, heads, head_dim, random);
        scene.window = std::vector{0, 0, 1, 20, 33}[index(turn % 5)];
        scene.store(table, 0, tokens);
        expect_formula(scene, scene.attend(table, 0, tokens, turn % 3 == 0 ? 1 : tokens));
      }
    }
  }
}

TEST_P(AttentionKernels, EqualsTheFormulaOverManySpans) {
  for (const KvStorage storage : kAllStorages) {
    for (const std::int64_t window : {0, 100, 256, 300}) {
      Scene scene(storage, 2 * kSpanTokens + 40, 2, 32, random);
      scene.window = window;
      scene.store(table, 0, scene.tokens);
      expect_formula(scene, scene.attend(table, 0, scene.tokens, 33));
    }
  }
}

TEST_P(AttentionKernels, RowsHaveTheSameBitsInAnyCompany) {
  for (const KvStorage storage : kAllStorages) {
    for (const std::int64_t window : {0, 5, 40, 270}) {
      for (const std::int64_t heads : {1, 2, 3}) {
        Scene scene(storage, kSpanTokens + 50, heads, 40, random);
        scene.window = window;
        // One by one, as they are decoded: nothing later is there yet.
        std::vector<float> alone;
        for (std::int64_t t = 0; t < scene.tokens; ++t) {
          scene.store(table, t, t + 1);
          const auto row = scene.attend(table, t, 1, 1);
          alone.insert(alone.end(), row.begin(), row.end());
        }
        for (std::int64_t chunk = 1; chunk <= 64; chunk += chunk < 20 ? 1 : 11) {
          ASSERT_TRUE(same_bits(scene.attend(table, 0, scene.tokens, chunk), alone))
              << "storage " << int{storage} << " chunks of " << chunk << " heads " << heads << " window " << window;
        }
        const auto tail = scene.attend(table, 250, 20, 20);  // from the middle of a span into the next
        ASSERT_TRUE(std::equal(tail.begin(), tail.end(), alone.begin() + 250 * heads * 40));
      }
    }
  }
}

TEST_P(AttentionKernels, StoresTheSameBytesAsGenericHoweverTheyArrive) {
  const Kernels generic = generic_kernels();
  for (const KvStorage storage : kAllStorages) {
    for (const std::int64_t head_dim : {4, 7, 16, 24, 33, 64, 100, 128, 144}) {
      Scene scene(storage, 70, 1, head_dim, random);
      scene.k[3] = 0;
      std::fill_n(scene.v.begin() + head_dim, head_dim, 0.0f);
      scene.k[index(2 * head_dim)] = INFINITY;
      Scene other = scene;
      scene.store(generic, 0, 70);
      for (const std::int64_t end : {1, 3, 8, 30, 31, 63, 70}) {
        static std::int64_t first;
        if (end == 1) first = 0;
        other.store(table, first, end);
        first = end;
      }
      for (std::int64_t b = 0; b < 3; ++b) {
        const KvFormat format{storage, head_dim};
        // Keys of tokens that are not there are never looked at: only those of whole blocks compare.
        const std::int64_t from = b == 2 ? format.values_offset() : 0;
        const auto* ours = other.cache.data() + other.blocks[index(b)] * other.block_bytes;
        const auto* wanted = scene.cache.data() + scene.blocks[index(b)] * scene.block_bytes;
        ASSERT_EQ(std::memcmp(ours + from, wanted + from, index(format.bytes() - from)), 0)
            << "storage " << int{storage} << " head_dim " << head_dim << " block " << b;
        for (std::int64_t i = format.bytes(); i < other.block_bytes; ++i) {
          ASSERT_EQ(ours[i], 0xFF) << "wrote past the block";
        }
      }
    }
  }
}

TEST_P(AttentionKernels, WhatIsNotANumberShowsAndStaysInItsRows) {
  for (const KvStorage storage : kAllStorages) {
    Scene scene(storage, 60, 2, 32, random);
    scene.k[40 * 32 + 5] = NAN;  // seen from token 40 on
    scene.store(table, 0, 60);
    const auto out = scene.attend(table, 0, 60, 60);
    for (std::int64_t t = 0; t < 60; ++t) {
      ASSERT_EQ(std::isfinite(out[index(t * 64)]), t < 40) << "storage " << int{storage} << " token " << t;
    }
  }
}

TEST_P(AttentionKernels, LargeAndEqualScores) {
  for (const KvStorage storage : kAllStorages) {
    Scene scene(storage, 300, 1, 16, random);
    std::fill(scene.q.begin(), scene.q.end(), 0.0f);  // all alike: the mean
    scene.store(table, 0, 300);
    expect_formula(scene, scene.attend(table, 0, 300, 64));
    for (float& value : scene.q) value = 1000;  // one takes it all
    const auto out = scene.attend(table, 0, 300, 64);
    for (const float value : out) ASSERT_TRUE(std::isfinite(value));
  }
}

TEST_P(AttentionKernels, ScoresThatGrowWithoutEnd) {  // every span finds larger ones, by more than floats can hold
  for (const KvStorage storage : kAllStorages) {
    Scene scene(storage, 2 * kSpanTokens + 90, 2, 16, random);
    std::fill(scene.q.begin(), scene.q.end(), 1.0f);
    for (std::int64_t t = 0; t < scene.tokens; ++t) {
      std::fill_n(scene.k.begin() + t * 16, 16, static_cast<float>(t) * 0.5f);
      std::fill_n(scene.v.begin() + t * 16, 16, 1.5f);
    }
    scene.store(table, 0, scene.tokens);
    const auto out = scene.attend(table, 0, scene.tokens, 50);
    for (const float value : out) ASSERT_NEAR(value, 1.5f, 0.01f) << "storage " << int{storage};
    ASSERT_TRUE(same_bits(scene.attend(table, 0, scene.tokens, 1), out));
  }
}

TEST_P(AttentionKernels, WeightsShownAreThoseOfTheFormula) {
  for (const KvStorage storage : kAllStorages) {
    Scene scene(storage, 70, 2, 24, random);
    scene.window = 40;
    scene.store(table, 0, 70);
    AttentionTask task = scene.task(69, 1);
    task.q += 24;  // head 1
    std::vector<float> weights(70);
    attention_weights(storage, task, weights.data());
    const auto wanted = scene.weights(69, 1);
    for (std::size_t s = 0; s < 70; ++s) EXPECT_NEAR(weights[s], wanted[s], 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, AttentionKernels, testing::ValuesIn(runnable_isas()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace vitrine::test
