// SPDX-License-Identifier: Apache-2.0
#include "support/divergence.h"

#include <algorithm>
#include <cmath>

namespace vitrine::test {

std::vector<float> log_probabilities(ModelRunner& runner, std::span<const TokenId> ids) {
  const auto vocab = static_cast<std::size_t>(runner.model().head().vocab_size());
  std::vector<float> out;
  for (std::size_t first = 0; first < ids.size(); first += kWindow) {
    const auto window = ids.subspan(first, std::min<std::size_t>(kWindow, ids.size() - first));
    const std::int64_t at_once[] = {kWindow};
    std::vector<float> logits = runner.logits(runner.hidden(window, at_once));
    for (float* row = logits.data(); row != logits.data() + logits.size(); row += vocab) {
      const double max = *std::max_element(row, row + vocab);
      double sum = 0;
      for (std::size_t v = 0; v < vocab; ++v) sum += std::exp(row[v] - max);
      for (std::size_t v = 0; v < vocab; ++v) row[v] = static_cast<float>(row[v] - max - std::log(sum));
    }
    out.insert(out.end(), logits.begin(), logits.end());
  }
  return out;
}

Divergence compare(std::span<const TokenId> ids, const std::vector<float>& reference, const std::vector<float>& other) {
  const std::size_t vocab = reference.size() / ids.size();
  double divergence = 0;
  double surprise = 0;
  std::size_t same = 0;
  std::size_t predicted = 0;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const float* p = reference.data() + t * vocab;
    const float* q = other.data() + t * vocab;
    for (std::size_t v = 0; v < vocab; ++v) divergence += std::exp(static_cast<double>(p[v])) * (p[v] - q[v]);
    same += std::max_element(p, p + vocab) - p == std::max_element(q, q + vocab) - q;
    if ((t + 1) % kWindow == 0 || t + 1 == ids.size()) continue;
    surprise -= q[ids[t + 1]];
    ++predicted;
  }
  const auto count = static_cast<double>(ids.size());
  return {divergence / count, static_cast<double>(same) / count, std::exp(surprise / static_cast<double>(predicted))};
}

}  // namespace vitrine::test
