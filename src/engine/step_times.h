// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace vitrine {

/// Learns from the steps that were run what rows cost, to say how many rows of prompts may go beside sequences that
/// decode, and whether guessing ahead pays. Speed alone depends on it, never a result.
class StepTimes {
 public:
  /// A step beside a prompt takes about so many times what it takes without.
  static constexpr double kSlowdown = 1.9;

  struct Step {
    std::int64_t decode_rows = 0;  // a token each
    std::int64_t draft_rows = 0;   // guesses
    std::int64_t prompt_rows = 0;
    double seconds = 0;
  };

  void learn(const Step& step) noexcept {
    const bool decodes = step.decode_rows > 0;
    if (step.prompt_rows > 0) {
      const double beside = decodes ? decode_s_ : 0;
      average(prompt_row_s_, std::max(0.0, step.seconds - beside) / static_cast<double>(step.prompt_rows));
    } else if (decodes && step.draft_rows == 0) {
      average(decode_s_, step.seconds);
      draft_row_s_ *= kForget;  // what seemed too dear once is tried again some time
    } else if (decodes && decode_s_ > 0) {
      average(draft_row_s_, std::max(0.0, step.seconds - decode_s_) / static_cast<double>(step.draft_rows));
    }
  }

  /// Rows of `prompts` prompts beside `decoding` sequences, at most `room`. Where more prompts wait than sequences
  /// decode, each is worth as much time as each of those.
  std::int64_t prompt_rows(std::int64_t room, std::int64_t prompts, std::int64_t decoding) const noexcept {
    if (room <= kFewest || prompt_row_s_ <= 0) return room;
    const double decode_s = decode_s_ > 0 ? decode_s_ : kFewest * prompt_row_s_;
    const double share = std::max(kSlowdown - 1, static_cast<double>(prompts) / static_cast<double>(decoding));
    const double rows = share * decode_s / prompt_row_s_;
    return static_cast<std::int64_t>(std::clamp(rows, static_cast<double>(kFewest), static_cast<double>(room)));
  }

  /// What a guessed row costs, in units of what a token costs without guesses.
  double draft_cost(std::int64_t decode_rows) const noexcept {
    if (decode_s_ <= 0 || draft_row_s_ <= 0) return kUnknownCost;
    return draft_row_s_ * static_cast<double>(decode_rows) / decode_s_;
  }

 private:
  static constexpr std::int64_t kFewest = 8;
  static constexpr double kUnknownCost = 0.2;
  static constexpr double kForget = 0.999;

  static void average(double& mean, double value) noexcept { mean = mean > 0 ? mean + 0.2 * (value - mean) : value; }

  double decode_s_ = 0;      // of a step that only decodes
  double prompt_row_s_ = 0;  // that a row of a prompt adds
  double draft_row_s_ = 0;   // that a guess adds
};

}  // namespace vitrine
