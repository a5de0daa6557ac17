// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace vitrine {

/// Index of a block of the KV cache.
using BlockId = std::int32_t;

/// Index of the recurrent states that one sequence has in all layers, or that were kept of one.
using StateSlot = std::int32_t;
inline constexpr StateSlot kNoState = -1;

/// Tokens a block holds: block b of a sequence has the positions [b * kBlockTokens, (b + 1) * kBlockTokens).
inline constexpr std::int64_t kBlockTokens = 32;

/// How one layer's keys and values lie in the blocks of the cache: those of one KV head side by side, in the layout of
/// the kernels (KvFormat).
struct PagedKv {
  std::byte* base = nullptr;     // head 0 in block 0
  std::int64_t block_bytes = 0;  // from block to block
  std::int64_t head_bytes = 0;   // from head to head
  std::uint8_t storage = 0;      // KvStorage of the elements

  std::byte* head(BlockId block, std::int64_t head) const noexcept {
    return base + block * block_bytes + head * head_bytes;
  }
};

}  // namespace vitrine
