// SPDX-License-Identifier: Apache-2.0
// The bytes of a file of packed weights, little-endian:
//   one page    magic "VITRPACK", u32 format version, u32 layout version, u64 bytes of the file, u64 begin and u64
//               bytes of the directory, 32 bytes SHA-256 over this page (with zeros here) and the directory, zeros
//   data        the entries, each from a page boundary on
//   directory   model name, source, form; then for each entry name, tag, u64 begin, u64 bytes, up to the end of the
//               file (a string is u32 length and its bytes)
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

namespace vitrine {

/// What a file of packed weights belongs to.
struct PackedKey {
  std::string model_name;            ///< for people; not compared
  std::string source;                ///< 64 hexadecimal digits: Checkpoint::identity()
  std::string form;                  ///< "int8"; with the machine's part of it where the layout depends on the machine
  std::uint32_t layout_version = 0;  ///< changes whenever the same weights become other bytes

  /// Whether bytes packed for `other` serve here.
  bool matches(const PackedKey& other) const {
    return source == other.source && form == other.form && layout_version == other.layout_version;
  }
};

struct PackedEntry {
  std::string tag;
  std::int64_t begin = 0, bytes = 0;  // counted from the start of the file
};

struct PackedDirectory {
  PackedKey key;
  std::map<std::string, PackedEntry, std::less<>> entries;
};

/// Where entries begin, and the size of the first page: what mmap can place.
inline constexpr std::int64_t kPackedAlignment = 4096;

/// The first page and the directory of a file whose data end at `begin` (aligned), where the directory goes.
struct PackedEnds {
  std::string header, directory;
};
PackedEnds encode_packed(const PackedDirectory& directory, std::int64_t begin);

/// The directory of a file, if every byte of it and of the first page is as it was written, the file is whole and all
/// entries lie within its data. Reads nothing else.
std::optional<PackedDirectory> parse_packed(std::span<const std::byte> file);

}  // namespace vitrine
