// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace vitrine {

/// A range of addresses that never moves, while what lies behind it changes: nothing at first, then memory to write to,
/// then the pages of a file with the same bytes, or memory again when the file cannot stay.
/// Offsets are multiples of kPackedAlignment; sizes are rounded up to it.
class PackedMemory {
 public:
  /// Addresses alone; they cost nothing. Throws Error(kIo) when the system refuses them.
  explicit PackedMemory(std::int64_t capacity);
  ~PackedMemory();
  PackedMemory(const PackedMemory&) = delete;
  PackedMemory& operator=(const PackedMemory&) = delete;

  std::byte* data() const noexcept { return data_; }
  std::int64_t capacity() const noexcept { return capacity_; }

  /// Makes everything up to `end` memory: zeroed and writable where it was nothing before. Throws Error(kIo).
  void grow(std::int64_t end);
  /// The file's pages take the place of the memory, which is given back. The file holds the same bytes; they are
  /// read-only from here on. False (and errno) when the system refuses: the memory stays.
  bool show_file(int fd, std::int64_t begin, std::int64_t bytes) noexcept;
  /// Memory takes the place of the file's pages in [0, end), with the same bytes, and the file is cut to nothing. When
  /// there is not enough memory the first part stays in the file, which may have lost its name by then.
  void leave_file(int fd, std::int64_t end) noexcept;
  /// Nothing is written any more: [0, end) becomes read-only, the addresses behind it are given back.
  void seal(std::int64_t end) noexcept;

 private:
  std::byte* data_ = nullptr;
  std::int64_t capacity_ = 0;
  std::int64_t grown_ = 0;  // everything before it is memory or a file's pages
};

}  // namespace vitrine
