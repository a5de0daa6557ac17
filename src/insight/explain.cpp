// SPDX-License-Identifier: Apache-2.0
#include <vitrine/explain.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "insight/attention_recorder.h"
#include "insight/first_token_probe.h"
#include "insight/stream_recorder.h"
#include "insight/vectors.h"

namespace vitrine {
namespace {

void check_arguments(const Request& request, const ExplainOptions& options) {
  if (request.probe != nullptr) {
    throw Error(ErrorCode::kInvalidArgument, "explain: the request has a probe of its own; explain needs its place");
  }
  if (options.top < 1 || options.positions < 0) {
    throw Error(ErrorCode::kInvalidArgument, "explain: expected top of at least 1 and positions of at least 0, found " +
                                                 std::to_string(options.top) + " and " +
                                                 std::to_string(options.positions));
  }
}

StreamSize size_of(std::span<const float> row) {
  const double l2 = l2_norm(row);
  return {l2, l2 / std::sqrt(static_cast<double>(row.size()))};
}

Contribution contribution(std::span<const float> before, std::span<const float> after) {
  const Difference added = difference(before, after);
  return {added.l2, added.cosine};
}

TokenPlace place_of(TokenId id, const std::vector<TokenScore>& ordered) {
  const auto it = std::find_if(ordered.begin(), ordered.end(), [&](const TokenScore& t) { return t.id == id; });
  if (it == ordered.end()) return {};
  return {it - ordered.begin() + 1, it->probability};
}

void shorten(std::vector<TokenScore>& tokens, int count) {
  if (tokens.size() <= static_cast<std::size_t>(count)) return;
  tokens.resize(static_cast<std::size_t>(count));
  tokens.shrink_to_fit();
}

ReadOut read_out(Engine& engine, std::span<const float> residual, const Explanation& e, int top) {
  std::vector<TokenScore> all = engine.read_out(residual, static_cast<int>(engine.info().vocab_size));
  ReadOut out{.top = {}, .likeliest = place_of(e.likeliest, all), .chosen = place_of(e.chosen, all)};
  shorten(all, top);
  out.top = std::move(all);
  return out;
}

std::vector<ExplainedToken> explain_tokens(const Engine& engine, const std::vector<TokenId>& ids,
                                           const std::vector<double>& embedding_norms) {
  // Watched steps compute every row of the prompt themselves, from the first one on.
  VITRINE_CHECK(embedding_norms.size() == ids.size());
  std::vector<ExplainedToken> tokens;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    tokens.push_back({ids[i], engine.tokenizer() ? engine.tokenizer()->decode({&ids[i], 1}) : "", embedding_norms[i]});
  }
  return tokens;
}

/// `candidates`: all of them, as the sampler walks them.
Draw explain_draw(const SamplingParams& sampling, TokenId chosen, const std::vector<TokenScore>& candidates) {
  Draw draw{.sampling = sampling};
  for (const TokenScore& candidate : candidates) {
    draw.from = draw.to;
    draw.to = std::min(1.0, draw.from + candidate.probability);
    draw.probability = candidate.probability;
    if (candidate.id == chosen) return draw;
  }
  return {.sampling = sampling};
}

std::int64_t decided_at(const std::vector<ExplainedLayer>& layers) {
  auto layer = static_cast<std::int64_t>(layers.size()) - 1;
  while (layer > 0 && layers[static_cast<std::size_t>(layer - 1)].read_out.likeliest.rank == 1) --layer;
  return layer;
}

void explain_layers(Engine& engine, const StreamRecorder& stream, const AttentionRecorder& attention, int top,
                    Explanation& e) {
  e.embedding = size_of(stream.embedding());
  e.embedding_read_out = read_out(engine, stream.embedding(), e, top);
  std::span<const float> before = stream.embedding();
  for (std::size_t i = 0; i < static_cast<std::size_t>(engine.info().num_layers); ++i) {
    const std::span<const float> middle = stream.after_attention(i);
    const std::span<const float> after = stream.after_block(i);
    e.layers.push_back({.after_attention = size_of(middle),
                        .after_block = size_of(after),
                        .attention = contribution(before, middle),
                        .feed_forward = contribution(middle, after),
                        .head_groups = attention.groups(i),
                        .read_out = read_out(engine, after, e, top)});
    before = after;
  }
  e.decided_at_layer = decided_at(e.layers);
}

}  // namespace

Explanation explain(Engine& engine, Request request, ExplainOptions options) {
  check_arguments(request, options);
  const EngineInfo& info = engine.info();
  StreamRecorder stream(info.num_layers);
  AttentionRecorder attention(info.num_layers, info.kv_heads, options.positions);
  FirstTokenProbe probe({&stream, &attention});
  request.probe = &probe;
  if (request.max_tokens == 0) request.max_tokens = 1;
  const int kept = std::max(request.top, options.top);
  request.top = static_cast<int>(info.vocab_size);  // the chosen token may be any candidate, however unlikely
  const SamplingParams sampling = request.sampling;

  Explanation e;
  e.generation = engine.generate(std::move(request));
  if (e.generation.output_ids.empty()) return e;
  e.tokens = explain_tokens(engine, e.generation.prompt_ids, stream.embedding_norms());
  e.likeliest = e.generation.top[0].id;
  e.chosen = e.generation.output_ids[0];
  e.kv_cache_bytes = info.kv_bytes_per_token * static_cast<std::int64_t>(e.tokens.size());
  e.draw = explain_draw(sampling, e.chosen, e.generation.candidates);
  shorten(e.generation.top, kept);
  shorten(e.generation.candidates, kept);
  explain_layers(engine, stream, attention, options.top, e);
  return e;
}

}  // namespace vitrine
