// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace vitrine {

/// A new file that gets its name only when it is whole; until then, and if nothing comes of it, it leaves no trace that
/// others would take for a file. Nothing here throws because of a disk: a step that fails says so and leaves the reason
/// in problem().
class PackedFile {
 public:
  explicit PackedFile(std::filesystem::path path) : path_(std::move(path)) {}
  /// Removes the file if it was not published.
  ~PackedFile();
  PackedFile(const PackedFile&) = delete;
  PackedFile& operator=(const PackedFile&) = delete;

  /// Makes the folder and an empty file. `expected_bytes`: what the disk must have room for.
  bool create(std::int64_t expected_bytes);
  bool write(std::span<const std::byte> bytes, std::int64_t offset);
  /// Brings it to the disk, then gives it its name, in the place of a file that had it.
  bool publish();
  /// Sets problem(): the file, "cannot be WHAT", the reason.
  bool fail(const char* what, int error);

  int fd() const noexcept { return fd_; }
  const std::string& problem() const noexcept { return problem_; }

 private:
  bool create_folder();
  bool open_new();

  std::filesystem::path path_, unfinished_;
  int fd_ = -1;
  std::string problem_;
};

}  // namespace vitrine
