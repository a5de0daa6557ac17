// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace vitrine {

/// Zeroed, page-aligned memory that costs nothing until it is touched.
class LazyMemory {
 public:
  LazyMemory() = default;
  /// Throws Error(kIo) with the size and `what` when the system refuses it. Large pages (2 MB, where the system has them)
  /// are for memory that is used densely from its beginning.
  LazyMemory(std::int64_t bytes, const char* what, bool large_pages = false);
  ~LazyMemory();
  LazyMemory(LazyMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  LazyMemory& operator=(LazyMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  std::byte* data() const noexcept { return data_; }
  std::int64_t size() const noexcept { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t size_ = 0;
};

}  // namespace vitrine
