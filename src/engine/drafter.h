// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/request.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace vitrine {

/// What a drafter is asked for: guesses for the tokens after these.
struct DraftTask {
  RequestId request = 0;
  int sample = 0;
  std::span<const TokenId> tokens;          // prompt and output so far; only grows from call to call
  std::int64_t length = 0;                  // at most so many
  std::vector<TokenId>* guesses = nullptr;  // empty; written
};

/// Guesses tokens, which the model then checks all at once. A wrong guess costs time, never a wrong text. All sequences
/// of a step are asked together, so that a drafter with a model of its own can batch them.
class Drafter {
 public:
  virtual ~Drafter() = default;
  virtual void draft(std::span<const DraftTask> tasks) = 0;
  /// That sequence has ended.
  virtual void forget(RequestId request, int sample) noexcept = 0;
};

/// Guesses that what followed the last three tokens when they stood together before follows again (prompt lookup:
/// Saxena, 2023, without a model).
std::unique_ptr<Drafter> make_lookup_drafter();

}  // namespace vitrine
