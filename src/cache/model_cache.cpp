// SPDX-License-Identifier: Apache-2.0
#include "cache/model_cache.h"

#include <cstring>

#include "base/check.h"
#include "base/checked_math.h"

namespace vitrine {

static_assert(kBlockTokens == kKvTokens);

std::int64_t ModelCache::block_bytes(const std::vector<LayerCacheSpec>& layers, KvStorage storage) {
  std::int64_t bytes = 0;
  for (const LayerCacheSpec& layer : layers) bytes += layer.kv_heads * KvFormat{storage, layer.head_dim}.bytes();
  return bytes;
}

std::int64_t ModelCache::state_bytes(const std::vector<LayerCacheSpec>& layers) {
  std::int64_t bytes = 0;
  for (const LayerCacheSpec& layer : layers) bytes += layer.state_bytes;
  return bytes;
}

ModelCache::ModelCache(const std::vector<LayerCacheSpec>& layers, std::int64_t num_blocks, KvStorage storage,
                       std::int64_t num_states)
    : num_blocks_(num_blocks), block_bytes_(block_bytes(layers, storage)), state_bytes_(state_bytes(layers)) {
  const auto total = checked_mul(num_blocks_, block_bytes_);
  const auto states = checked_mul(num_states, state_bytes_);
  if (!total || !states) throw Error(ErrorCode::kTooLarge, "the KV cache would exceed 2^63 bytes");
  memory_ = LazyMemory(*total, "the KV cache (a shorter context needs less)", /*large_pages=*/true);
  if (*states > 0) states_ = LazyMemory(*states, "the recurrent states (fewer sequences need less)");
  std::byte* base = memory_.data();
  std::int64_t state_offset = 0;
  for (const LayerCacheSpec& layer : layers) {
    const std::int64_t head_bytes = KvFormat{storage, layer.head_dim}.bytes();
    layers_.push_back({.base = base, .block_bytes = block_bytes_, .head_bytes = head_bytes, .storage = storage});
    base += layer.kv_heads * head_bytes;
    state_offsets_.push_back(state_offset);
    state_offset += layer.state_bytes;
  }
  VITRINE_CHECK(num_blocks_ == 0 || base - memory_.data() == block_bytes_);
}

void ModelCache::copy_block(BlockId from, BlockId to) noexcept {
  if (block_bytes_ == 0) return;  // no layer has keys and values
  std::byte* base = memory_.data();
  std::memcpy(base + to * block_bytes_, base + from * block_bytes_, static_cast<std::size_t>(block_bytes_));
}

void ModelCache::copy_state(StateSlot from, StateSlot to) noexcept {
  std::byte* base = states_.data();
  std::memcpy(base + to * state_bytes_, base + from * state_bytes_, static_cast<std::size_t>(state_bytes_));
}

void ModelCache::clear_state(StateSlot slot) noexcept {
  std::memset(states_.data() + slot * state_bytes_, 0, static_cast<std::size_t>(state_bytes_));
}

}  // namespace vitrine
