// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"

namespace vitrine {

/// Who holds which of a number of equal things: blocks of the KV cache, or slots of recurrent states. Each is free, held
/// by one or more, or idle: held by nobody, but kept for what is in it. Knows nothing of their bytes.
class BlockPool {
 public:
  using Id = std::int32_t;

  explicit BlockPool(std::int64_t size) : size_(size) {}

  /// A free one, now held once: one that was in use before, else the lowest id never used, so that memory follows use.
  Id take() {
    VITRINE_CHECK(num_free() > 0);
    Id id = static_cast<Id>(holders_.size());
    if (recycled_.empty()) {
      holders_.push_back(0);
    } else {
      id = recycled_.back();
      recycled_.pop_back();
    }
    holders_[index(id)] = 1;
    ++num_held_;
    return id;
  }

  /// One more holder, of one that is held or idle.
  void hold(Id id) {
    if (holders_[index(id)]++ > 0) return;
    VITRINE_CHECK(num_idle_ > 0);
    ++num_held_;
    --num_idle_;
  }

  /// One holder fewer. The last one leaves it idle when it is kept, else free. True when that was the last.
  bool drop(Id id, bool keep) {
    VITRINE_CHECK(holders_[index(id)] > 0);
    if (--holders_[index(id)] > 0) return false;
    --num_held_;
    if (keep) {
      ++num_idle_;
    } else {
      recycled_.push_back(id);
    }
    return true;
  }

  /// Idle to free.
  void forget(Id id) {
    VITRINE_CHECK(holders_[index(id)] == 0 && num_idle_ > 0);
    --num_idle_;
    recycled_.push_back(id);
  }

  std::int64_t holders(Id id) const { return holders_[index(id)]; }
  std::int64_t size() const noexcept { return size_; }
  std::int64_t num_held() const noexcept { return num_held_; }
  std::int64_t num_idle() const noexcept { return num_idle_; }
  std::int64_t num_free() const noexcept { return size_ - num_held_ - num_idle_; }

 private:
  static std::size_t index(Id id) noexcept { return static_cast<std::size_t>(id); }

  std::int64_t size_;
  std::int64_t num_held_ = 0;
  std::int64_t num_idle_ = 0;
  std::vector<std::int32_t> holders_;  // of those ever used
  std::vector<Id> recycled_;
};

}  // namespace vitrine
