// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/packed_format.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/check.h"
#include "base/sha256.h"

namespace vitrine {
namespace {

constexpr std::string_view kMagic = "VITRPACK";
constexpr std::uint32_t kFormatVersion = 1;
constexpr std::size_t kPage = kPackedAlignment;
constexpr std::size_t kChecksumAt = 40;
constexpr std::size_t kMaxDirectoryBytes = std::size_t{64} << 20;

template <class T>
void put(std::string& out, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) out += static_cast<char>(value >> (8 * i) & 0xFF);
}

void put_text(std::string& out, std::string_view text) {
  put(out, static_cast<std::uint32_t>(text.size()));
  out += text;
}

/// Takes values off the front of bytes. What is not there reads as zero or nothing, and ok() is false from then on.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  T number() {
    T value = 0;
    const auto taken = take(sizeof(T));
    for (std::size_t i = 0; i < taken.size(); ++i) value |= std::to_integer<T>(taken[i]) << (8 * i);
    return value;
  }
  std::string text() {
    const auto taken = take(number<std::uint32_t>());
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }
  std::span<const std::byte> take(std::size_t count) {
    ok_ = ok_ && count <= bytes_.size();
    if (!ok_) return {};
    const auto taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }
  bool ok() const { return ok_; }
  bool empty() const { return bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

Sha256::Digest checksum(std::span<const std::byte> header, std::span<const std::byte> directory) {
  Sha256 hash;
  constexpr Sha256::Digest kZeros{};
  hash.update(header.first(kChecksumAt));
  hash.update(kZeros);
  hash.update(header.subspan(kChecksumAt + kZeros.size()));
  hash.update(directory);
  return hash.finish();
}

std::optional<PackedDirectory> parse_directory(std::span<const std::byte> bytes, std::uint32_t layout_version,
                                               std::uint64_t data_end) {
  Reader reader(bytes);
  PackedDirectory directory;
  directory.key.model_name = reader.text();
  directory.key.source = reader.text();
  directory.key.form = reader.text();
  directory.key.layout_version = layout_version;
  while (reader.ok() && !reader.empty()) {
    std::string name = reader.text();
    PackedEntry entry{.tag = reader.text()};
    const auto begin = reader.number<std::uint64_t>();
    const auto size = reader.number<std::uint64_t>();
    if (begin < kPage || begin % kPage != 0 || begin > data_end || size > data_end - begin) return std::nullopt;
    entry.begin = static_cast<std::int64_t>(begin);
    entry.bytes = static_cast<std::int64_t>(size);
    if (!directory.entries.emplace(std::move(name), std::move(entry)).second) return std::nullopt;
  }
  if (!reader.ok()) return std::nullopt;
  return directory;
}

}  // namespace

PackedEnds encode_packed(const PackedDirectory& directory, std::int64_t begin) {
  VITRINE_CHECK(begin >= kPackedAlignment && begin % kPackedAlignment == 0);
  PackedEnds ends;
  put_text(ends.directory, directory.key.model_name);
  put_text(ends.directory, directory.key.source);
  put_text(ends.directory, directory.key.form);
  for (const auto& [name, entry] : directory.entries) {
    put_text(ends.directory, name);
    put_text(ends.directory, entry.tag);
    put(ends.directory, static_cast<std::uint64_t>(entry.begin));
    put(ends.directory, static_cast<std::uint64_t>(entry.bytes));
  }
  VITRINE_CHECK(ends.directory.size() <= kMaxDirectoryBytes);
  ends.header = kMagic;
  put(ends.header, kFormatVersion);
  put(ends.header, directory.key.layout_version);
  put(ends.header, static_cast<std::uint64_t>(begin) + ends.directory.size());
  put(ends.header, static_cast<std::uint64_t>(begin));
  put(ends.header, static_cast<std::uint64_t>(ends.directory.size()));
  VITRINE_CHECK(ends.header.size() == kChecksumAt);
  ends.header.resize(kPage, '\0');
  const auto digest = checksum(std::as_bytes(std::span(ends.header)), std::as_bytes(std::span(ends.directory)));
  std::copy(digest.begin(), digest.end(), reinterpret_cast<std::byte*>(ends.header.data()) + kChecksumAt);
  return ends;
}

std::optional<PackedDirectory> parse_packed(std::span<const std::byte> file) {
  if (file.size() < kPage) return std::nullopt;
  Reader reader(file.first(kPage));
  const auto magic = reader.take(kMagic.size());
  const auto expected = std::as_bytes(std::span(kMagic));
  if (!std::equal(magic.begin(), magic.end(), expected.begin(), expected.end())) return std::nullopt;
  if (reader.number<std::uint32_t>() != kFormatVersion) return std::nullopt;
  const auto layout_version = reader.number<std::uint32_t>();
  const auto file_bytes = reader.number<std::uint64_t>();
  const auto begin = reader.number<std::uint64_t>();
  const auto size = reader.number<std::uint64_t>();
  if (file_bytes != file.size() || begin < kPage || begin > file.size()) return std::nullopt;
  if (size != file.size() - begin || size > kMaxDirectoryBytes) return std::nullopt;
  const auto directory = file.subspan(begin);
  const auto digest = checksum(file.first(kPage), directory);
  const auto stored = reader.take(digest.size());
  if (!std::equal(digest.begin(), digest.end(), stored.begin(), stored.end())) return std::nullopt;
  return parse_directory(directory, layout_version, begin);
}

}  // namespace vitrine
