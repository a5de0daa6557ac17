// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <vitrine/explain.h>

#include <cmath>
#include <map>
#include <numeric>

#include "support/test_files.h"

namespace vitrine {
namespace {

using test::data_path;
using test::demo_model;

constexpr int kAllPositions = 1000;

Engine load(const std::filesystem::path& folder, std::int64_t step_tokens = 256) {
  EngineOptions options;
  options.threads = 1;
  options.step_tokens = step_tokens;
  return Engine::load(folder.string(), options);
}

Request request_of(const Engine& engine, std::string_view prompt, std::int64_t max_tokens = 1) {
  Request request;
  request.prompt_ids = engine.encode(prompt);
  request.sampling.greedy = true;
  request.max_tokens = max_tokens;
  return request;
}

Request request_of(std::vector<TokenId> ids) {
  Request request;
  request.prompt_ids = std::move(ids);
  request.sampling.greedy = true;
  request.max_tokens = 1;
  return request;
}

std::vector<TokenId> counting(int count) {
  std::vector<TokenId> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 1);
  return ids;
}

/// Copies the last row of every point, and all of the attention. For prompts of one step and one new token.
class Copies final : public Probe {
 public:
  bool wants(ProbePoint, int) const noexcept override { return true; }
  void record(ProbePoint point, int layer, ProbeMatrix values) override {
    const std::int64_t first = point == ProbePoint::kAttentionWeights ? 0 : values.rows - 1;
    auto& rows = copies_[{point, layer}];
    rows.clear();
    for (std::int64_t r = first; r < values.rows; ++r) rows.emplace_back(values.row(r), values.row(r) + values.cols);
  }
  const std::vector<float>& row(ProbePoint point, int layer, std::size_t r = 0) const {
    return copies_.at({point, layer}).at(r);
  }

 private:
  std::map<std::pair<ProbePoint, int>, std::vector<std::vector<float>>> copies_;
};

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

double norm_of(const std::vector<float>& row) { return std::sqrt(dot(row, row)); }

std::vector<float> minus(const std::vector<float>& a, const std::vector<float>& b) {
  std::vector<float> out(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) out[i] = a[i] - b[i];
  return out;
}

void expect_equal(const std::vector<TokenScore>& a, const std::vector<TokenScore>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].id, b[i].id);
    EXPECT_EQ(a[i].logit, b[i].logit);
    EXPECT_EQ(a[i].probability, b[i].probability);
  }
}

void expect_equal(const ReadOut& a, const ReadOut& b) {
  expect_equal(a.top, b.top);
  EXPECT_EQ(a.likeliest.rank, b.likeliest.rank);
  EXPECT_EQ(a.likeliest.probability, b.likeliest.probability);
  EXPECT_EQ(a.chosen.rank, b.chosen.rank);
}

void expect_equal(const HeadGroup& a, const HeadGroup& b) {
  EXPECT_EQ(a.first_token_share, b.first_token_share);
  EXPECT_EQ(a.entropy_bits, b.entropy_bits);
  ASSERT_EQ(a.strongest.size(), b.strongest.size());
  for (std::size_t i = 0; i < a.strongest.size(); ++i) {
    EXPECT_EQ(a.strongest[i].position, b.strongest[i].position);
    EXPECT_EQ(a.strongest[i].weight, b.strongest[i].weight);
  }
}

void expect_equal(const ExplainedLayer& a, const ExplainedLayer& b) {
  EXPECT_EQ(a.after_attention.l2, b.after_attention.l2);
  EXPECT_EQ(a.after_block.l2, b.after_block.l2);
  EXPECT_EQ(a.after_block.rms, b.after_block.rms);
  EXPECT_EQ(a.attention.l2, b.attention.l2);
  EXPECT_EQ(a.attention.cosine, b.attention.cosine);
  EXPECT_EQ(a.feed_forward.l2, b.feed_forward.l2);
  EXPECT_EQ(a.feed_forward.cosine, b.feed_forward.cosine);
  ASSERT_EQ(a.head_groups.size(), b.head_groups.size());
  for (std::size_t g = 0; g < a.head_groups.size(); ++g) expect_equal(a.head_groups[g], b.head_groups[g]);
  expect_equal(a.read_out, b.read_out);
}

TEST(Explain, AttentionIsTheMeanOfTheGroupsQueryHeads) {
  Engine engine = load(demo_model());
  const Explanation e = explain(engine, request_of(engine, "The capital of France is"), {.positions = kAllPositions});
  Copies copies;
  Request request = request_of(engine, "The capital of France is");
  request.probe = &copies;
  engine.generate(request);

  const auto group_size = static_cast<std::size_t>(engine.info().query_heads / engine.info().kv_heads);
  ASSERT_EQ(std::ssize(e.layers), engine.info().num_layers);
  for (std::size_t i = 0; i < e.layers.size(); ++i) {
    ASSERT_EQ(std::ssize(e.layers[i].head_groups), engine.info().kv_heads);
    for (std::size_t g = 0; g < e.layers[i].head_groups.size(); ++g) {
      const HeadGroup& group = e.layers[i].head_groups[g];
      for (const AttendedPosition& at : group.strongest) {
        double mean = 0;
        for (std::size_t h = g * group_size; h < (g + 1) * group_size; ++h) {
          mean += copies.row(ProbePoint::kAttentionWeights, static_cast<int>(i), h)
                      .at(static_cast<std::size_t>(at.position));
        }
        EXPECT_DOUBLE_EQ(at.weight, mean / static_cast<double>(group_size));
      }
    }
  }
}

TEST(Explain, AttentionSumsToOneOverThePromptAndNoFurther) {
  Engine engine = load(demo_model());
  const Explanation e =
      explain(engine, request_of(engine, "The capital of France is", 4), {.positions = kAllPositions});
  for (const ExplainedLayer& layer : e.layers) {
    for (const HeadGroup& group : layer.head_groups) {
      double sum = 0;
      double entropy = 0;
      double before = 1;
      double first = 0;
      for (const AttendedPosition& at : group.strongest) {
        EXPECT_GE(at.position, 0);
        EXPECT_LT(at.position, std::ssize(e.tokens));
        EXPECT_LE(at.weight, before);
        before = at.weight;
        sum += at.weight;
        entropy -= at.weight * std::log2(at.weight);
        if (at.position == 0) first = at.weight;
      }
      EXPECT_NEAR(sum, 1, 1e-5);
      EXPECT_NEAR(group.entropy_bits, entropy, 1e-9);
      EXPECT_LE(group.entropy_bits, std::log2(static_cast<double>(e.tokens.size())) + 1e-5);
      EXPECT_EQ(group.first_token_share, first);
    }
  }
}

TEST(Explain, TheLastReadOutIsTheNextTokenTable) {
  Engine engine = load(demo_model());
  const Explanation e = explain(engine, request_of(engine, "The capital of France is"), {.top = 7});
  ASSERT_EQ(e.generation.top.size(), 7u);
  expect_equal(e.layers.back().read_out.top, e.generation.top);
  EXPECT_EQ(e.likeliest, e.generation.top[0].id);
  EXPECT_EQ(e.chosen, e.generation.output_ids[0]);
  EXPECT_EQ(e.layers.back().read_out.likeliest.rank, 1);
  EXPECT_EQ(e.layers.back().read_out.likeliest.probability, e.generation.top[0].probability);
  EXPECT_EQ(engine.tokenizer()->decode({&e.likeliest, 1}), " Paris");
}

TEST(Explain, DecidedWhereTheFinalTokenStaysFirst) {
  Engine engine = load(demo_model());
  const Explanation e = explain(engine, request_of(engine, "The capital of France is"));
  for (std::size_t i = 0; i < e.layers.size(); ++i) {
    const bool is_first = e.layers[i].read_out.top[0].id == e.likeliest;
    EXPECT_EQ(is_first, e.layers[i].read_out.likeliest.rank == 1);
    const std::int64_t after = static_cast<std::int64_t>(i) - e.decided_at_layer;
    if (after >= -1) {
      EXPECT_EQ(is_first, after >= 0) << i;
    }
  }
}

TEST(Explain, NormsEqualThoseOfAProbe) {
  Engine engine = load(demo_model());
  const Explanation e = explain(engine, request_of(engine, "The capital of France is"));
  Copies copies;
  Request request = request_of(engine, "The capital of France is");
  request.probe = &copies;
  engine.generate(request);

  std::vector<float> before = copies.row(ProbePoint::kEmbedding, -1);
  EXPECT_NEAR(e.embedding.l2, norm_of(before), 1e-9);
  EXPECT_NEAR(e.tokens.back().embedding_norm, norm_of(before), 1e-9);
  for (std::size_t i = 0; i < e.layers.size(); ++i) {
    const ExplainedLayer& layer = e.layers[i];
    const auto& middle = copies.row(ProbePoint::kAttentionOutput, static_cast<int>(i));
    const auto& after = copies.row(ProbePoint::kResidual, static_cast<int>(i));
    EXPECT_NEAR(layer.after_attention.l2, norm_of(middle), 1e-9);
    EXPECT_NEAR(layer.after_block.l2, norm_of(after), 1e-9);
    EXPECT_NEAR(layer.after_block.rms, norm_of(after) / std::sqrt(engine.info().hidden_size), 1e-9);
    const std::vector<float> added = minus(middle, before);
    EXPECT_NEAR(layer.attention.l2, norm_of(added), 1e-5);
    EXPECT_NEAR(layer.attention.cosine, dot(added, before) / (norm_of(added) * norm_of(before)), 1e-5);
    EXPECT_NEAR(layer.feed_forward.l2, norm_of(minus(after, middle)), 1e-5);
    before = after;
  }
}

TEST(Explain, APromptInChunksIsExplainedAlike) {
  const std::string prompt = "The capital of France is Paris. The capital of Spain is";
  Engine whole = load(demo_model());
  Engine chunked = load(demo_model(), 4);
  const Explanation a = explain(whole, request_of(whole, prompt, 3));
  const Explanation b = explain(chunked, request_of(chunked, prompt, 3));
  ASSERT_GT(a.tokens.size(), 8u);
  ASSERT_EQ(a.tokens.size(), b.tokens.size());
  for (std::size_t i = 0; i < a.tokens.size(); ++i) {
    EXPECT_EQ(a.tokens[i].id, b.tokens[i].id);
    EXPECT_EQ(a.tokens[i].text, b.tokens[i].text);
    EXPECT_EQ(a.tokens[i].embedding_norm, b.tokens[i].embedding_norm);
  }
  EXPECT_EQ(a.embedding.l2, b.embedding.l2);
  expect_equal(a.embedding_read_out, b.embedding_read_out);
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (std::size_t i = 0; i < a.layers.size(); ++i) expect_equal(a.layers[i], b.layers[i]);
  EXPECT_EQ(a.decided_at_layer, b.decided_at_layer);
  EXPECT_EQ(a.kv_cache_bytes, b.kv_cache_bytes);
  EXPECT_EQ(a.generation.output_ids, b.generation.output_ids);
}

TEST(Explain, LaterTokensDoNotChangeIt) {
  Engine engine = load(demo_model());
  const Explanation one = explain(engine, request_of(engine, "The capital of France is", 1));
  const Explanation many = explain(engine, request_of(engine, "The capital of France is", 12));
  EXPECT_GT(many.generation.output_ids.size(), 1u);
  ASSERT_EQ(one.layers.size(), many.layers.size());
  for (std::size_t i = 0; i < one.layers.size(); ++i) expect_equal(one.layers[i], many.layers[i]);
}

TEST(Explain, TheTextIsThatOfAnUnwatchedGeneration) {
  Engine engine = load(demo_model());
  for (const bool greedy : {true, false}) {
    Request request = request_of(engine, "The capital of France is", 24);
    request.sampling.greedy = greedy;
    request.sampling.temperature = 1.5f;
    request.sampling.top_k = 40;
    request.sampling.seed = 7;
    const Generation plain = engine.generate(request);
    const Generation watched = explain(engine, request).generation;
    EXPECT_EQ(plain.output_ids, watched.output_ids);
    EXPECT_EQ(plain.text, watched.text);
    EXPECT_EQ(plain.finish_reason, watched.finish_reason);
    EXPECT_EQ(plain.seed, watched.seed);
  }
}

TEST(Explain, TheDrawLiesWhereTheCandidatesPutTheToken) {
  Engine engine = load(demo_model());
  Request request = request_of(engine, "The capital of France is");
  request.sampling.greedy = false;
  request.sampling.temperature = 3.0f;
  request.sampling.top_k = 50;
  request.sampling.seed = 3;
  const Explanation e = explain(engine, request, {.top = 50});
  EXPECT_EQ(e.generation.num_candidates, 50);
  ASSERT_EQ(e.generation.candidates.size(), 50u);
  double sum = 0;
  bool found = false;
  for (const TokenScore& candidate : e.generation.candidates) {
    if (candidate.id == e.chosen) {
      found = true;
      EXPECT_DOUBLE_EQ(e.draw.from, sum);
      EXPECT_EQ(e.draw.probability, candidate.probability);
      EXPECT_NEAR(e.draw.to - e.draw.from, candidate.probability, 1e-12);
    }
    sum += candidate.probability;
  }
  EXPECT_TRUE(found);
  EXPECT_NEAR(sum, 1, 1e-9);
  EXPECT_EQ(e.draw.sampling.temperature, 3.0f);
  EXPECT_GE(e.layers.back().read_out.chosen.rank, 1);
}

TEST(Explain, ASlidingWindowHidesWhatLiesBeforeIt) {
  constexpr std::int64_t kWindow = 8;  // of layers 2 and 3; layers 0 and 1 see everything
  Engine engine = load(data_path("models/qwen3-sliding"));
  const Explanation e = explain(engine, request_of(counting(40)), {.positions = kAllPositions});
  ASSERT_EQ(e.layers.size(), 4u);
  for (std::size_t i = 0; i < e.layers.size(); ++i) {
    for (const HeadGroup& group : e.layers[i].head_groups) {
      EXPECT_EQ(std::ssize(group.strongest), i < 2 ? 40 : kWindow);
      EXPECT_EQ(group.first_token_share > 0, i < 2);
      double sum = 0;
      for (const AttendedPosition& at : group.strongest) {
        sum += at.weight;
        EXPECT_GE(at.position, i < 2 ? 0 : 40 - kWindow);
      }
      EXPECT_NEAR(sum, 1, 1e-5);
    }
  }
  EXPECT_EQ(e.tokens[0].id, 1);
  EXPECT_EQ(e.tokens[0].text, "");
  expect_equal(e.layers.back().read_out.top, e.generation.top);
}

TEST(Explain, ASingleTokenLooksAtItself) {
  Engine engine = load(data_path("models/qwen3-tiny"));
  Request request = request_of({5});
  request.max_tokens = 0;
  const Explanation e = explain(engine, request);
  EXPECT_EQ(e.generation.output_ids.size(), 1u);
  for (const ExplainedLayer& layer : e.layers) {
    for (const HeadGroup& group : layer.head_groups) {
      ASSERT_EQ(group.strongest.size(), 1u);
      EXPECT_EQ(group.strongest[0].weight, 1);
      EXPECT_EQ(group.entropy_bits, 0);
    }
  }
}

TEST(Explain, RefusesWhatMakesNoSense) {
  Engine engine = load(data_path("models/qwen3-tiny"));
  const auto code_of = [&](const Request& request, ExplainOptions options) {
    try {
      explain(engine, request, options);
    } catch (const Error& error) {
      return error.code();
    }
    return ErrorCode::kInternal;
  };
  Copies copies;
  Request watched = request_of({1, 2});
  watched.probe = &copies;
  EXPECT_EQ(code_of(watched, {}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(request_of({1, 2}), {.top = 0}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(request_of({1, 2}), {.positions = -1}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of(request_of(std::vector<TokenId>{}), {}), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace vitrine
