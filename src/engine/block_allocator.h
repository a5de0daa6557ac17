// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "tensor/paged_kv.h"

namespace vitrine {

/// Which blocks of the KV cache are free. Knows nothing of their bytes.
class BlockAllocator {
 public:
  explicit BlockAllocator(std::int64_t num_blocks) : free_(static_cast<std::size_t>(num_blocks)) {
    // Taken from the back: low ids first, so that a small load keeps to the front of the memory.
    std::iota(free_.rbegin(), free_.rend(), BlockId{0});
  }

  std::int64_t num_free() const noexcept { return static_cast<std::int64_t>(free_.size()); }

  /// Appends `count` blocks to `table`; false, and nothing taken, when there are not enough.
  bool take(std::int64_t count, std::vector<BlockId>& table) {
    if (count > num_free()) return false;
    for (std::int64_t i = 0; i < count; ++i) {
      table.push_back(free_.back());
      free_.pop_back();
    }
    return true;
  }

  /// Gives back all blocks of `table`, which is empty afterwards.
  void give_back(std::vector<BlockId>& table) {
    VITRINE_CHECK(free_.size() + table.size() <= free_.capacity());
    free_.insert(free_.end(), table.rbegin(), table.rend());
    table.clear();
  }

 private:
  std::vector<BlockId> free_;
};

}  // namespace vitrine
