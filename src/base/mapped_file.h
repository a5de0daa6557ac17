// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace vitrine {

/// A whole file mapped read-only. If the file is truncated while mapped, touching the lost part raises SIGBUS
/// (the program says so and ends); replacing it by rename is safe.
class MappedFile {
 public:
  /// Throws Error (kNotFound, kIo, kBadFile for a folder or device).
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  const std::filesystem::path& path() const noexcept { return path_; }
  /// When the file was last changed, in nanoseconds since 1970, as it was when it was mapped.
  std::int64_t modified_ns() const noexcept { return modified_ns_; }

  /// Brings [begin, end) into memory, as far as the kernel agrees; never fails.
  void populate(std::size_t begin, std::size_t end) const noexcept;
  /// The pages no longer count as this process's memory. They stay in the page cache as long as the kernel likes, and
  /// come back when they are touched.
  void release_pages() const noexcept;

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::int64_t modified_ns_ = 0;
};

/// A parser may read that far behind a text, so read_text_file() keeps so much capacity free.
inline constexpr std::size_t kRoomBehindText = 64;
/// A small text file read whole. Throws Error: kNotFound, kIo, kTooLarge beyond `max_bytes`.
std::string read_text_file(const std::filesystem::path& path, std::size_t max_bytes);

}  // namespace vitrine
