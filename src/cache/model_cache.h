// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/lazy_memory.h"
#include "kernels/kernels.h"
#include "tensor/paged_kv.h"

namespace vitrine {

/// What one layer remembers of the past. (Layers with a recurrent state will say so here.)
struct LayerCacheSpec {
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
};

/// The bytes that a model keeps between steps: blocks of keys and values, all layers of a block side by side.
/// Which sequence owns which block is the engine's business.
class ModelCache {
 public:
  /// Memory is touched block by block as blocks are used.
  ModelCache(const std::vector<LayerCacheSpec>& layers, std::int64_t num_blocks, KvStorage storage);

  PagedKv layer(std::int64_t index) noexcept { return layers_[static_cast<std::size_t>(index)]; }
  std::int64_t num_blocks() const noexcept { return num_blocks_; }
  std::int64_t block_bytes() const noexcept { return block_bytes_; }

  /// Bytes kBlockTokens tokens take in all layers.
  static std::int64_t block_bytes(const std::vector<LayerCacheSpec>& layers, KvStorage storage);

 private:
  std::vector<PagedKv> layers_;
  std::int64_t num_blocks_;
  std::int64_t block_bytes_;
  LazyMemory memory_;
};

}  // namespace vitrine
