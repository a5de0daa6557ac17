// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/types.h>

#include <array>
#include <cstdint>
#include <vector>

#include "cache/cache_store.h"

namespace vitrine::test {

/// A text as a number: grows with each token.
using TextHash = std::uint64_t;

inline TextHash mixed(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

inline TextHash grown(TextHash text, TokenId token) noexcept {
  return mixed(text * 0x9E3779B97F4A7C15u + static_cast<std::uint64_t>(token) + 1);
}

/// A cache that keeps of each position which text it was computed from, and of each state which text it has seen. So
/// whatever is stale, foreign or twice can be told from what is right.
class FakeStore final : public CacheStore {
 public:
  static constexpr TextHash kNothing = 0;  // a state before any token, an entry never written
  using Block = std::array<TextHash, static_cast<std::size_t>(kBlockTokens)>;

  explicit FakeStore(std::int64_t num_blocks, std::int64_t num_states = 0)
      : blocks(static_cast<std::size_t>(num_blocks)), states(static_cast<std::size_t>(num_states)) {}

  void copy_block(BlockId from, BlockId to) noexcept override {
    block(to) = block(from);
    ++num_copies;
  }
  void copy_state(StateSlot from, StateSlot to) noexcept override { state(to) = state(from); }
  void clear_state(StateSlot slot) noexcept override { state(slot) = kNothing; }

  Block& block(BlockId id) noexcept { return blocks[static_cast<std::size_t>(id)]; }
  TextHash& state(StateSlot slot) noexcept { return states[static_cast<std::size_t>(slot)]; }

  std::vector<Block> blocks;
  std::vector<TextHash> states;
  std::int64_t num_copies = 0;  // of blocks
};

}  // namespace vitrine::test
