// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/engine.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/sampler.h"
#include "engine/stop_strings.h"
#include "tensor/paged_kv.h"

namespace vitrine {

using Clock = std::chrono::steady_clock;

/// A request on its way: its tokens so far, how many of them the cache holds, and what chooses the next.
struct Sequence {
  Sequence(RequestId sequence_id, Request accepted, Sampler chooser)
      : id(sequence_id), request(std::move(accepted)), sampler(std::move(chooser)), stop(request.stop) {
    tokens = request.prompt_ids;
    result.seed = sampler.seed();
  }

  RequestId id;
  Request request;
  Sampler sampler;
  StopMatcher stop;
  std::optional<StreamDecoder> decoder;  // absent without a tokenizer
  std::vector<TokenId> tokens;           // prompt and output
  std::vector<BlockId> block_table;      // grows with num_computed
  std::int64_t reserved_blocks = 0;      // what it may grow to
  std::int64_t num_computed = 0;         // tokens whose keys and values are in the cache
  std::int64_t max_output = 0;
  bool cancelled = false;
  Generation result;
  Clock::time_point started;  // first step
  Clock::time_point first_token;

  std::int64_t num_prompt() const noexcept { return static_cast<std::int64_t>(request.prompt_ids.size()); }
  std::int64_t num_output() const noexcept { return static_cast<std::int64_t>(tokens.size()) - num_prompt(); }
  std::int64_t num_pending() const noexcept { return static_cast<std::int64_t>(tokens.size()) - num_computed; }
};

}  // namespace vitrine
