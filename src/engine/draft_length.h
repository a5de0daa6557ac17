// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace vitrine {

/// How far ahead to guess for one sequence: as far as the next guess is likely to save more time than it costs.
class DraftLength {
 public:
  static constexpr std::int64_t kMost = 16;

  /// `cost`: what a guessed row adds to a step, in units of what a token costs without guesses.
  std::int64_t next(double cost) noexcept {
    rightness_ = std::min(kTrusted, rightness_ + kForget);  // what failed once is tried again some time
    std::int64_t length = 0;
    for (double right = rightness_; length < kMost && right > cost; right *= rightness_) ++length;
    return length;
  }

  /// Of `drafted` guesses the first `accepted` were right.
  void learn(std::int64_t drafted, std::int64_t accepted) noexcept {
    for (std::int64_t i = 0; i < accepted; ++i) rightness_ += kStep * (1 - rightness_);
    if (accepted < drafted) rightness_ -= 2 * kStep * rightness_;
  }

 private:
  static constexpr double kStep = 0.1;
  static constexpr double kForget = 0.001;
  static constexpr double kTrusted = 0.98;
  double rightness_ = 0.7;  // how often the next guess is right
};

}  // namespace vitrine
