// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "checkpoint/packed_file.h"
#include "checkpoint/packed_format.h"
#include "checkpoint/packed_memory.h"

namespace vitrine {

/// Weights in the layout that the kernels read: mapped from the cache's file when there is a valid one, else packed now
/// by the caller, into a new file or, where there can be none, into memory. Not thread-safe.
/// Each start of a program uses one: get() for every entry, then finish(). The bytes live as long as the store.
class PackedStore {
 public:
  using Progress = std::function<void(std::int64_t done, std::int64_t total)>;
  struct Options {
    bool use_file = true;             ///< false: pack into memory, and leave the folder alone
    std::filesystem::path folder;     ///< empty: default_cache_folder()
    std::int64_t budget_bytes = -1;   ///< of all files together; -1: cache_budget()
    std::int64_t expected_bytes = 0;  ///< of all entries together, at least what will come
    Progress progress;                ///< of packing: bytes done, expected_bytes
  };

  /// Looks for a file. Throws Error(kInvalidArgument) when the environment asks for a budget that is none.
  PackedStore(PackedKey key, Options options);
  PackedStore(const PackedStore&) = delete;
  PackedStore& operator=(const PackedStore&) = delete;

  /// The `bytes` bytes of the entry `name`, at a multiple of kPackedAlignment. `tag` says what they are (format and
  /// shape: "int8 [3072, 1024]"); a file whose entry has another tag or size is packed anew. `fill` writes them into
  /// zeroed memory where they are not there yet; what it throws goes through. Throws Error(kIo) when there is not
  /// enough memory, never because of a disk.
  const std::byte* get(std::string_view name, std::string_view tag, std::int64_t bytes,
                       const std::function<void(std::byte*)>& fill);

  /// After the last get(): a new file is brought to the disk and gets its name (without this, nothing remains of it);
  /// then other files go, least recently used first, until the budget holds. Never throws because of a disk.
  void finish();

  /// Reads a mapped file into memory; does nothing where everything is there anyway.
  void populate(const Progress& progress) const;

  /// The file that holds the bytes; empty: only in memory. A new file counts from finish() on.
  std::string file() const { return file_.string(); }
  /// Whether everything came from a file that was there before.
  bool mapped() const noexcept { return mapped_; }
  /// Bytes of the file or memory.
  std::int64_t bytes() const noexcept;
  /// At most one: why there is no file though there should be.
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }

 private:
  void open_existing();
  void leave_existing();
  void begin_packing();
  const std::byte* pack(std::string_view name, std::string_view tag, std::int64_t bytes,
                        const std::function<void(std::byte*)>& fill);
  void write(std::int64_t begin, std::int64_t bytes);
  void publish();
  void give_up(const std::string& problem);
  void warn(const std::string& problem);

  PackedKey key_;
  Options options_;
  std::filesystem::path path_;  // where the file belongs; empty: no file
  std::filesystem::path file_;
  std::vector<std::string> warnings_;
  bool mapped_ = false;
  bool finished_ = false;

  // The file that was there. It stays mapped even when it turns out not to serve: some of its bytes are in use.
  std::optional<MappedFile> existing_;
  PackedDirectory existing_directory_;
  std::vector<std::string> taken_;  // names of its entries that get() has returned

  // What is packed now. Offsets are those of the file.
  std::optional<PackedMemory> memory_;
  std::optional<PackedFile> new_file_;  // while it can still become one
  PackedDirectory directory_;
  std::int64_t used_ = kPackedAlignment;  // end of the last entry
  std::int64_t written_ = 0;              // everything before is shown from the file
  std::int64_t packed_ = 0;               // bytes of entries, for the progress
};

}  // namespace vitrine
