// SPDX-License-Identifier: Apache-2.0
// What happened between a prompt and the token that follows it, as plain numbers: explain() runs the prompt
// once with recorders built on Probe. `vitrine explain` prints the result; nothing of this runs otherwise.
#pragma once

#include <vitrine/engine.h>

#include <cstdint>
#include <string>
#include <vector>

namespace vitrine {

struct ExplainOptions {
  int top = 5;        ///< tokens in every table of tokens, at least 1
  int positions = 3;  ///< strongest positions named for each KV head group, at least 0
};

/// A token of the prompt.
struct ExplainedToken {
  TokenId id = 0;
  std::string text;           ///< decoded alone: a part of a character is U+FFFD; empty without a tokenizer
  double embedding_norm = 0;  ///< L2 norm of its row of the embedding
};

/// How large one row of the residual stream, [hidden_size], is: rms = l2 / sqrt(hidden_size).
struct StreamSize {
  double l2 = 0;
  double rms = 0;  ///< what an RMSNorm that reads this row divides it by (but for its epsilon)
};

/// What one part of a block added to the residual stream.
struct Contribution {
  double l2 = 0;      ///< L2 norm of what was added
  double cosine = 0;  ///< between it and the stream before: -1 takes away, 0 turns, 1 makes longer
};

/// A position that the last token attends to, and its share of the attention.
struct AttendedPosition {
  std::int64_t position = 0;
  double weight = 0;
};

/// The attention of the query heads that share one KV head, as the mean of their softmax weights. A mean of
/// distributions is a distribution: it sums to 1. Positions before a sliding window have no weight.
struct HeadGroup {
  std::vector<AttendedPosition> strongest;  ///< the strongest first, ties by position; none of weight 0
  double first_token_share = 0;             ///< weight of position 0: many heads rest there ("attention sink")
  double entropy_bits = 0;                  ///< of the mean; 0: one position, log2(n): n positions alike
};

/// Where a token stands in a next-token distribution.
struct TokenPlace {
  std::int64_t rank = 0;  ///< 1: first
  double probability = 0;
};

/// What the final norm and the head make of a residual stream, wherever it is taken from (Engine::read_out).
/// Applied between the blocks this is the "logit lens" (nostalgebraist, "interpreting GPT: the logit lens",
/// 2020).
struct ReadOut {
  std::vector<TokenScore> top;  ///< likeliest first
  TokenPlace likeliest;         ///< of Explanation::likeliest
  TokenPlace chosen;            ///< of Explanation::chosen
};

/// One block, for the last token of the prompt.
struct ExplainedLayer {
  StreamSize after_attention;
  StreamSize after_block;
  Contribution attention;
  Contribution feed_forward;
  std::vector<HeadGroup> head_groups;  ///< one for each KV head
  ReadOut read_out;                    ///< of the stream after the block
};

/// How the first new token was drawn.
struct Draw {
  SamplingParams sampling;  ///< as asked for; Generation::seed is the seed in use
  double probability = 0;   ///< of the chosen token, after the sampler's steps
  /// The candidates, likeliest first, divide the line from 0 to 1 by their probabilities. A number from the
  /// seed points at a place on it: between these two, where the chosen token lies.
  double from = 0, to = 0;
};

/// All numbers are of the last position of the prompt, but for `tokens`. If the request ended before its
/// first token, only `generation` is filled.
struct Explanation {
  std::vector<ExplainedToken> tokens;
  StreamSize embedding;  ///< the stream before the first block
  ReadOut embedding_read_out;
  std::vector<ExplainedLayer> layers;
  TokenId likeliest = 0;              ///< the model's own first choice: Generation::top[0]
  TokenId chosen = 0;                 ///< what the sampler took: Generation::output_ids[0]
  std::int64_t decided_at_layer = 0;  ///< the first layer from which on `likeliest` is first in every read_out
  std::int64_t kv_cache_bytes = 0;    ///< keys and values of the prompt, in all layers
  Draw draw;
  Generation generation;  ///< `top` and `candidates` filled with the larger of Request::top and ExplainOptions::top
};

/// Runs the request to its end, as Engine::generate does and with the same result, and explains its first new
/// token. max_tokens 0 counts as 1. Takes memory for two rows [hidden_size] a layer, not for whole prompts.
/// The rank of a token needs its layer's whole vocabulary in order, so this takes several times as long as
/// the prompt alone. Throws Error(kInvalidArgument) for a Request::probe (the place is taken) or bad options,
/// and what Engine::submit throws. A request that ends with an error is reported in Explanation::generation.
Explanation explain(Engine& engine, Request request, ExplainOptions options = {});

}  // namespace vitrine
