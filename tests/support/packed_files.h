// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/packed_store.h"

namespace vitrine::test {

struct PackedSpec {
  std::string name, tag;
  std::int64_t bytes;
};
/// Some entries of odd sizes, one of them empty.
const std::vector<PackedSpec>& packed_specs();
/// The same key each time but for its source, 64 times `digit`.
PackedKey packed_key(char digit = 'a');

/// What the entry `name` of the key's source holds.
void fill_packed(const std::string& name, const PackedKey& key, std::span<std::byte> out);

/// get() for all specs, then, if asked for, finish(). Throws std::runtime_error when a byte is wrong or an entry is not
/// aligned. Returns how many were filled.
int use_packed(PackedStore& store, const PackedKey& key, bool finish = true,
               const std::vector<PackedSpec>& specs = packed_specs());

/// Options for a store in that folder, independent of the environment.
PackedStore::Options packed_options(const std::filesystem::path& folder, std::int64_t budget = 8'000'000'000);
/// Packs into the folder. Returns the new file.
std::filesystem::path pack_into(const std::filesystem::path& folder, const PackedKey& key);

/// Names in a folder, hidden ones too, sorted.
std::vector<std::string> names_in(const std::filesystem::path& folder);
/// Makes a file's last use (and change) that many seconds old.
void make_older(const std::filesystem::path& file, int seconds);

}  // namespace vitrine::test
