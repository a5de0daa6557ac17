// SPDX-License-Identifier: Apache-2.0
#include "cache/model_cache.h"

#include "base/check.h"
#include "base/checked_math.h"

namespace vitrine {
namespace {

std::int64_t element_bytes(StorageType storage) { return storage == kStoreF32 ? 4 : 2; }

}  // namespace

std::int64_t ModelCache::bytes_per_token(const std::vector<LayerCacheSpec>& layers, StorageType storage) {
  std::int64_t elements = 0;
  for (const LayerCacheSpec& layer : layers) elements += 2 * layer.kv_heads * layer.head_dim;
  return elements * element_bytes(storage);
}

ModelCache::ModelCache(const std::vector<LayerCacheSpec>& layers, std::int64_t num_blocks, StorageType storage)
    : num_blocks_(num_blocks), block_bytes_(bytes_per_token(layers, storage) * kBlockTokens) {
  const auto total = checked_mul(num_blocks_, block_bytes_);
  if (!total) throw Error(ErrorCode::kTooLarge, "the KV cache would exceed 2^63 bytes");
  memory_ = LazyMemory(*total, "the KV cache (a shorter context needs less)");
  std::byte* base = memory_.data();
  for (const LayerCacheSpec& layer : layers) {
    const std::int64_t token_bytes = layer.head_dim * element_bytes(storage);
    const std::int64_t half = token_bytes * kBlockTokens;  // keys of one head in one block, then its values
    layers_.push_back({.base = base,
                       .block_bytes = block_bytes_,
                       .head_bytes = 2 * half,
                       .values_offset = half,
                       .token_bytes = token_bytes,
                       .storage = storage});
    base += layer.kv_heads * 2 * half;
  }
  VITRINE_CHECK(num_blocks_ == 0 || base - memory_.data() == block_bytes_);
}

}  // namespace vitrine
