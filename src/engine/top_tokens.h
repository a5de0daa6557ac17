// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/request.h>
#include <vitrine/types.h>

#include <span>
#include <vector>

#include "engine/sampler.h"

namespace vitrine {

/// The `count` largest logits with their softmax probabilities over all of them, likeliest first, ties by id. A logit
/// that is not finite (a padding row may hold anything) counts as impossible.
std::vector<TokenScore> top_tokens(std::span<const float> logits, int count);

/// Of the token `id` and the `count` likeliest, by the softmax over all logits.
PositionLogprobs position_logprobs(std::span<const float> logits, TokenId id, int count);

/// The same by what the sampler draws from, likeliest first; -infinity for a token that is not among it.
PositionLogprobs candidate_logprobs(std::span<const Sampler::Candidate> candidates, TokenId id, int count);

}  // namespace vitrine
