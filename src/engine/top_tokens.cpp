// SPDX-License-Identifier: Apache-2.0
#include "engine/top_tokens.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace vitrine {

namespace {

constexpr float kImpossible = -std::numeric_limits<float>::infinity();

float finite_or_impossible(float logit) { return std::isfinite(logit) ? logit : kImpossible; }

/// The ids of the `count` largest, likeliest first, ties by id.
std::vector<TokenId> likeliest(std::span<const float> logits, int count) {
  const auto keep = std::min(logits.size(), static_cast<std::size_t>(std::max(count, 0)));
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), TokenId{0});
  const auto logit = [&](TokenId id) { return finite_or_impossible(logits[static_cast<std::size_t>(id)]); };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(keep), ids.end(),
                    [&](TokenId a, TokenId b) { return logit(a) > logit(b) || (logit(a) == logit(b) && a < b); });
  ids.resize(keep);
  return ids;
}

/// The largest logit and the sum of exp(logit - largest).
struct Mass {
  double largest = 0, sum = 0;
};

Mass mass_of(std::span<const float> logits) {
  Mass mass{.largest = kImpossible};
  for (const float value : logits)
    mass.largest = std::max(mass.largest, static_cast<double>(finite_or_impossible(value)));
  for (const float value : logits) {
    if (std::isfinite(value)) mass.sum += std::exp(static_cast<double>(value) - mass.largest);
  }
  return mass;
}

}  // namespace

std::vector<TokenScore> top_tokens(std::span<const float> logits, int count) {
  std::vector<TokenScore> top;
  if (count <= 0 || logits.empty()) return top;
  const Mass mass = mass_of(logits);
  for (const TokenId id : likeliest(logits, count)) {
    const float logit = finite_or_impossible(logits[static_cast<std::size_t>(id)]);
    top.push_back({id, logit, std::exp(static_cast<double>(logit) - mass.largest) / mass.sum});
  }
  return top;
}

PositionLogprobs position_logprobs(std::span<const float> logits, TokenId id, int count) {
  const Mass mass = mass_of(logits);
  const double log_sum = mass.largest + std::log(mass.sum);
  const auto logprob = [&](TokenId token) -> TokenLogprob {
    const float logit = finite_or_impossible(logits[static_cast<std::size_t>(token)]);
    return {token, static_cast<float>(static_cast<double>(logit) - log_sum)};
  };
  PositionLogprobs result{.token = logprob(id), .top = {}};
  if (count > 0) {
    for (const TokenId token : likeliest(logits, count)) result.top.push_back(logprob(token));
  }
  return result;
}

PositionLogprobs candidate_logprobs(std::span<const Sampler::Candidate> candidates, TokenId id, int count) {
  PositionLogprobs result{.token = {id, kImpossible}, .top = {}};
  for (const Sampler::Candidate& candidate : candidates) {
    const TokenLogprob logprob{candidate.id, static_cast<float>(std::log(candidate.probability))};
    if (candidate.id == id) result.token = logprob;
    if (std::ssize(result.top) < count) result.top.push_back(logprob);
  }
  return result;
}

}  // namespace vitrine
