// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <vector>

#include "support/model_runner.h"

namespace vitrine::test {

/// Tokens a context has where models are compared; each context starts empty.
inline constexpr std::int64_t kWindow = 256;

/// Log-probabilities [ids.size(), vocabulary], window by window.
std::vector<float> log_probabilities(ModelRunner& runner, std::span<const TokenId> ids);

struct Divergence {
  double mean_kl = 0;         // of the second from the first
  double same_top_token = 0;  // share
  double perplexity = 0;      // of the second, on the text itself
};
Divergence compare(std::span<const TokenId> ids, const std::vector<float>& reference, const std::vector<float>& other);

}  // namespace vitrine::test
