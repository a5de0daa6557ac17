// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/lazy_memory.h"
#include "cache/cache_store.h"
#include "kernels/kernels.h"
#include "tensor/paged_kv.h"

namespace vitrine {

/// What one layer remembers of the past: keys and values of every position, or a state that each token changes.
struct LayerCacheSpec {
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t state_bytes = 0;  // a multiple of 64; all zero is the state before any token
};

/// The bytes that a model keeps between steps: blocks of keys and values, all layers of a block side by side, and slots
/// of recurrent states, all layers of a slot side by side. Which sequence owns which is the engine's business.
class ModelCache final : public CacheStore {
 public:
  /// Memory is touched block by block as blocks are used.
  ModelCache(const std::vector<LayerCacheSpec>& layers, std::int64_t num_blocks, KvStorage storage,
             std::int64_t num_states = 0);

  PagedKv layer(std::int64_t index) noexcept { return layers_[static_cast<std::size_t>(index)]; }
  /// The state of a layer in a slot; its bytes are LayerCacheSpec::state_bytes.
  std::byte* state(std::int64_t layer, StateSlot slot) noexcept {
    return states_.data() + slot * state_bytes_ + state_offsets_[static_cast<std::size_t>(layer)];
  }
  std::int64_t num_blocks() const noexcept { return num_blocks_; }
  std::int64_t block_bytes() const noexcept { return block_bytes_; }

  void copy_block(BlockId from, BlockId to) noexcept override;
  void copy_state(StateSlot from, StateSlot to) noexcept override;
  void clear_state(StateSlot slot) noexcept override;

  /// Bytes kBlockTokens tokens take in all layers.
  static std::int64_t block_bytes(const std::vector<LayerCacheSpec>& layers, KvStorage storage);
  /// Bytes the states of one sequence take in all layers; 0: the model has none.
  static std::int64_t state_bytes(const std::vector<LayerCacheSpec>& layers);

 private:
  std::vector<PagedKv> layers_;
  std::vector<std::int64_t> state_offsets_;  // of each layer in a slot
  std::int64_t num_blocks_;
  std::int64_t block_bytes_, state_bytes_;
  LazyMemory memory_, states_;
};

}  // namespace vitrine
