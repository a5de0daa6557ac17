// SPDX-License-Identifier: Apache-2.0
#include "cache/model_cache.h"

#include "base/check.h"
#include "base/checked_math.h"

namespace vitrine {

static_assert(kBlockTokens == kKvTokens);

std::int64_t ModelCache::block_bytes(const std::vector<LayerCacheSpec>& layers, KvStorage storage) {
  std::int64_t bytes = 0;
  for (const LayerCacheSpec& layer : layers) bytes += layer.kv_heads * KvFormat{storage, layer.head_dim}.bytes();
  return bytes;
}

ModelCache::ModelCache(const std::vector<LayerCacheSpec>& layers, std::int64_t num_blocks, KvStorage storage)
    : num_blocks_(num_blocks), block_bytes_(block_bytes(layers, storage)) {
  const auto total = checked_mul(num_blocks_, block_bytes_);
  if (!total) throw Error(ErrorCode::kTooLarge, "the KV cache would exceed 2^63 bytes");
  memory_ = LazyMemory(*total, "the KV cache (a shorter context needs less)", /*large_pages=*/true);
  std::byte* base = memory_.data();
  for (const LayerCacheSpec& layer : layers) {
    const std::int64_t head_bytes = KvFormat{storage, layer.head_dim}.bytes();
    layers_.push_back({.base = base, .block_bytes = block_bytes_, .head_bytes = head_bytes, .storage = storage});
    base += layer.kv_heads * head_bytes;
  }
  VITRINE_CHECK(num_blocks_ == 0 || base - memory_.data() == block_bytes_);
}

}  // namespace vitrine
