// SPDX-License-Identifier: Apache-2.0
#include "engine/top_tokens.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace vitrine {

std::vector<TokenScore> top_tokens(std::span<const float> logits, int count) {
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), TokenId{0});
  const auto keep = std::min(ids.size(), static_cast<std::size_t>(std::max(count, 0)));
  const auto logit = [&](TokenId id) {
    const float value = logits[static_cast<std::size_t>(id)];
    return std::isfinite(value) ? value : -std::numeric_limits<float>::infinity();
  };
  std::partial_sort(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(keep), ids.end(),
                    [&](TokenId a, TokenId b) { return logit(a) > logit(b) || (logit(a) == logit(b) && a < b); });
  std::vector<TokenScore> top;
  if (keep == 0) return top;
  const double max = logit(ids[0]);
  double sum = 0;
  for (const float value : logits) sum += std::isfinite(value) ? std::exp(static_cast<double>(value) - max) : 0;
  for (std::size_t i = 0; i < keep; ++i) {
    top.push_back({ids[i], logit(ids[i]), std::exp(static_cast<double>(logit(ids[i])) - max) / sum});
  }
  return top;
}

}  // namespace vitrine
