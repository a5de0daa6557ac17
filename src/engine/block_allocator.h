// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "tensor/paged_kv.h"

namespace vitrine {

/// Which blocks of the KV cache are free. Knows nothing of their bytes. A sequence reserves what it may need to its end
/// when it is admitted, and takes blocks as it grows, so memory follows use and none is ever missing halfway.
class BlockAllocator {
 public:
  explicit BlockAllocator(std::int64_t num_blocks) : num_blocks_(num_blocks) {}

  /// Sets `count` blocks aside; false, and nothing set aside, when there are not enough.
  bool reserve(std::int64_t count) noexcept {
    if (count > num_blocks_ - reserved_) return false;
    reserved_ += count;
    return true;
  }

  /// A block out of a reservation: one that was in use before, else the lowest id never used.
  BlockId take() {
    VITRINE_CHECK(num_taken_ < reserved_);
    ++num_taken_;
    if (recycled_.empty()) return static_cast<BlockId>(num_touched_++);
    const BlockId block = recycled_.back();
    recycled_.pop_back();
    return block;
  }

  /// Gives back a reservation and the blocks of it that were taken; `table` is empty afterwards.
  void release(std::int64_t reserved, std::vector<BlockId>& table) {
    VITRINE_CHECK(std::ssize(table) <= reserved && reserved <= reserved_);
    reserved_ -= reserved;
    num_taken_ -= std::ssize(table);
    recycled_.insert(recycled_.end(), table.rbegin(), table.rend());
    table.clear();
  }

  /// Blocks that nobody has reserved.
  std::int64_t num_free() const noexcept { return num_blocks_ - reserved_; }
  /// Blocks in use.
  std::int64_t num_taken() const noexcept { return num_taken_; }

 private:
  std::int64_t num_blocks_;
  std::int64_t reserved_ = 0;
  std::int64_t num_taken_ = 0;
  std::int64_t num_touched_ = 0;  // ids below this have been used at some time
  std::vector<BlockId> recycled_;
};

}  // namespace vitrine
