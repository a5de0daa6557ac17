// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace vitrine {

/// Index of a block of the KV cache.
using BlockId = std::int32_t;

/// Tokens a block holds: block b of a sequence has the positions [b * kBlockTokens, (b + 1) * kBlockTokens).
inline constexpr std::int64_t kBlockTokens = 32;

/// How one layer's keys and values lie in the blocks of the cache. Keys and values of one KV head in one block are
/// [kBlockTokens, head_dim] contiguous.
struct PagedKv {
  std::byte* base = nullptr;       // keys of head 0 in block 0
  std::int64_t block_bytes = 0;    // from block to block
  std::int64_t head_bytes = 0;     // from head to head
  std::int64_t values_offset = 0;  // from the keys of a head to its values
  std::int64_t token_bytes = 0;    // from token to token
  std::uint8_t storage = 0;        // StorageType of the elements

  std::byte* keys(BlockId block, std::int64_t head) const noexcept {
    return base + block * block_bytes + head * head_bytes;
  }
  std::byte* values(BlockId block, std::int64_t head) const noexcept { return keys(block, head) + values_offset; }
};

}  // namespace vitrine
