// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/types.h>

#include <span>
#include <vector>

#include "ops/linear.h"

namespace vitrine {

/// The last product of a decoder, hidden state to logits. Gives no more than is asked for.
class Head {
 public:
  Head() = default;
  explicit Head(Linear weight) : weight_(std::move(weight)) {}

  std::int64_t vocab_size() const noexcept { return weight_.out_features(); }

  /// All logits of each row. hidden [rows, H] after the final norm, out [rows, vocabulary].
  void logits(const Context& context, MatrixView<const float> hidden, MatrixView<float> out) const;

  /// The largest logit of each row over the ids below `usable_vocab`, without writing the others down.
  struct Best {
    TokenId id = -1;
    float logit = 0;
    bool finite = true;  // false: some logit is NaN or infinite, and id means nothing
  };
  /// Ties go to the lowest id. hidden [rows, H], best [rows].
  void argmax(const Context& context, MatrixView<const float> hidden, std::int64_t usable_vocab,
              std::span<Best> best) const;

  /// Upper bound of what argmax takes from the workspace.
  std::int64_t workspace_bytes(std::int64_t rows, int threads) const;

 private:
  PackedRows pack(const Context& context, MatrixView<const float> hidden) const;

  Linear weight_;
};

}  // namespace vitrine
