// SPDX-License-Identifier: Apache-2.0
// The KV cache as the kernels see it, and what they do with it. Plain structs only (see kernels.h).
#pragma once

#include <cstdint>

#include "quant/packed.h"

namespace vitrine {

/// How keys and values are stored in the cache; indexes the arrays of Kernels.
enum KvStorage : std::uint8_t { kKvF32, kKvBF16, kKvInt8, kNumKvStorages };

/// Tokens of a block of the cache: the rows of a packed panel.
inline constexpr std::int64_t kKvTokens = kPanelRows;
/// Keys whose softmax is taken at once. Such spans begin at multiples of it, whatever the row or the window.
inline constexpr std::int64_t kSpanTokens = 256;
/// Most rows of a task: enough to read a long context seldom, few enough that idle threads find work.
inline constexpr std::int64_t kAttentionRows = 128;

/// One head's part of a block of the cache.
/// Keys are a packed panel of 32 rows, the tokens: a product with it is q k^T without a sum across a register.
/// Values are such that p v is a product too, 16 elements of the head a tile, tile after tile:
///   F32   [2][tile][16 tokens][16]         the first 16 tokens of all tiles before the other 16
///   BF16  [tile][16 pairs of tokens][16][2]
///   Int8  [tile][32 tokens][16]            signed
/// Int8 has a scale for each token's keys and one for its values, x = q * scale. Keys are signed bytes.
/// All is zero beyond head_dim. Values of tokens that are not there yet are zero, or what the same sequence had there
/// before: a weight of zero does not undo an infinity.
struct KvFormat {
  KvStorage storage = kKvBF16;
  std::int64_t head_dim = 0;

  /// Steps of 64 bytes of a token's keys.
  std::int64_t key_steps() const {
    const std::int64_t in_step = storage == kKvF32 ? 16 : storage == kKvBF16 ? 32 : 64;
    return (head_dim + in_step - 1) / in_step;
  }
  std::int64_t value_tiles() const { return (head_dim + kTileRows - 1) / kTileRows; }
  std::int64_t value_tile_bytes() const { return kKvTokens * kTileRows * element_bytes(); }

  std::int64_t key_scales_offset() const { return key_steps() * 2 * kTileBytes; }
  std::int64_t values_offset() const { return key_scales_offset() + scales_bytes(); }
  std::int64_t value_scales_offset() const { return values_offset() + value_tiles() * value_tile_bytes(); }
  std::int64_t bytes() const { return value_scales_offset() + scales_bytes(); }

 private:
  std::int64_t element_bytes() const { return storage == kKvF32 ? 4 : storage == kKvBF16 ? 2 : 1; }
  std::int64_t scales_bytes() const { return storage == kKvInt8 ? kKvTokens * 4 : 0; }
};

/// Keys and values of one head for consecutive tokens of one block. The token at slot 0 begins the block: what an
/// earlier owner left there must not be seen.
struct StoreKvTask {
  const float* k;  // [tokens, head_dim]
  const float* v;
  std::int64_t k_stride, v_stride;
  std::int64_t tokens, head_dim;
  unsigned char* block;  // this head's part
  std::int64_t slot;     // of the first token
};

/// out = softmax(scale * q k^T) v: the query heads of consecutive tokens of a sequence that share a KV head. A row, one
/// head of one token, sees the keys up to its own position, the last `window` of them if that is not 0.
/// Keys are visited by spans of kSpanTokens and the softmax carried from span to span. The order of a row's sums
/// depends on its position alone, so its bits are the same with any other rows, as long as all values are finite: an
/// infinite value of a later token in the same task makes NaN of the rows before it, too (but not in int8).
struct AttentionTask {
  const float* q;  // [tokens][heads][head_dim]
  float* out;
  std::int64_t q_stride, out_stride;  // from token to token
  std::int64_t tokens, heads, head_dim;
  std::int64_t position;  // of the first token
  std::int64_t window;
  float scale;
  const unsigned char* cache;  // this head's part of block 0
  std::int64_t block_bytes;
  const std::int32_t* blocks;  // block of positions [32 b, 32 b + 32)
  unsigned char* scratch;      // attention_scratch_bytes, 64-byte aligned
  const AttentionTask* next;   // what the same thread does afterwards, so that its keys can be fetched; or null
};

/// Upper bound of what any table needs, for up to kAttentionRows rows.
inline std::int64_t attention_scratch_bytes(std::int64_t head_dim) {
  const std::int64_t padded = (head_dim + 63) / 64 * 64;
  const std::int64_t queries_and_sums = kAttentionRows * (padded * 8 + 64);
  const std::int64_t scores = 2 * 32 * ((kSpanTokens + 16) * 4 + kSpanTokens * 2);
  const std::int64_t values = kSpanTokens * padded * 2 + 32 * padded * 4;  // where tiles need them unpacked
  return queries_and_sums + scores + values + 1024;
}

}  // namespace vitrine
