// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/types.h>

#include <span>
#include <vector>

namespace vitrine {

/// The `count` largest logits with their softmax probabilities over all of them, likeliest first, ties by id. A logit
/// that is not finite (a padding row may hold anything) counts as impossible.
std::vector<TokenScore> top_tokens(std::span<const float> logits, int count);

}  // namespace vitrine
