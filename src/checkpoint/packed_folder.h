// SPDX-License-Identifier: Apache-2.0
// The folder of packed weights: which files are there, and which of them go. Every file in it can be made again, so all
// of this is allowed to lose a race against another process.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/packed_format.h"

namespace vitrine {

/// VITRINE_CACHE, else XDG_CACHE_HOME/vitrine, else ~/.cache/vitrine; empty when none of the variables is set.
std::filesystem::path default_cache_folder();

/// Bytes that the files may take together: VITRINE_CACHE_BUDGET, else 8 GB. Throws Error(kInvalidArgument) when the
/// variable is not a size.
std::int64_t cache_budget();

/// "20GB", "1.5 GiB", "500MB", "1000": bytes. Throws Error(kInvalidArgument) that begins with `what`.
std::int64_t parse_size(std::string_view text, std::string_view what);
/// "1.27 GB", "300 MB", for messages.
std::string size_text(std::int64_t bytes);

/// Where the file of a key belongs. The versions are no part of the name, so that a new one takes the place of the old.
std::filesystem::path packed_path(const std::filesystem::path& folder, const PackedKey& key);
/// A new name for a file on its way to becoming `path`.
std::filesystem::path unfinished_path(const std::filesystem::path& path);

struct PackedFileInfo {
  std::filesystem::path path;
  std::string model_name;  // of a file that is not valid: the file's name
  std::string form;
  std::int64_t bytes = 0;
  std::int64_t last_used = 0;  // seconds since 1970
  bool valid = false;          // not valid: damaged, or of another version of this program
};

/// The files of packed weights, the last used first; none if the folder does not exist. Throws Error(kIo) when it
/// cannot be read.
std::vector<PackedFileInfo> list_packed(const std::filesystem::path& folder);

/// Removes them, and what killed processes left. Returns the bytes freed. Who has one of them mapped can go on using
/// it. Throws Error(kIo) when something cannot be removed; the rest is gone then.
std::int64_t clear_packed(const std::filesystem::path& folder);

/// Removes files, least recently used first, until the rest takes at most `budget` bytes; never `keep`. What cannot be
/// read or removed stays.
void trim_packed(const std::filesystem::path& folder, const std::filesystem::path& keep, std::int64_t budget);

/// Removes what killed processes left unfinished, if it has not changed for `quiet` seconds. Returns the bytes freed;
/// what cannot be removed stays.
std::int64_t remove_abandoned(const std::filesystem::path& folder, std::int64_t quiet = 60);

/// Notes that a file was used now, as far as that is possible.
void mark_used(const std::filesystem::path& path) noexcept;

}  // namespace vitrine
