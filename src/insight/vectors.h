// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <span>

namespace vitrine {

inline double l2_norm(std::span<const float> row) {
  double sum = 0;
  for (const float value : row) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

struct Difference {
  double l2;      ///< norm of after - before
  double cosine;  ///< between after - before and before; 0 where one of them is zero
};

inline Difference difference(std::span<const float> before, std::span<const float> after) {
  double squares = 0;
  double product = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const double added = static_cast<double>(after[i]) - before[i];
    squares += added * added;
    product += added * before[i];
  }
  const double l2 = std::sqrt(squares);
  const double norms = l2 * l2_norm(before);
  return {l2, norms > 0 ? product / norms : 0};
}

}  // namespace vitrine
