// SPDX-License-Identifier: Apache-2.0
// The directory of a file of packed weights. The input is the first page's numbers and the directory; the checksum is
// made right, so that what lies behind it is looked at. Seeds: none needed, strings are short.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/sha256.h"
#include "checkpoint/packed_format.h"

namespace {

constexpr std::size_t kPage = vitrine::kPackedAlignment;
constexpr std::size_t kDataEnd = 4 * kPage;

void put(std::string& file, std::size_t at, std::uint64_t value) {
  for (std::size_t i = 0; i < 8; ++i) file[at + i] = static_cast<char>(value >> (8 * i) & 0xFF);
}

void parse(const std::string& file) {
  const auto directory = vitrine::parse_packed(std::as_bytes(std::span(file)));
  if (!directory) return;
  for (const auto& [name, entry] : directory->entries) {
    if (entry.begin < vitrine::kPackedAlignment || entry.begin % vitrine::kPackedAlignment != 0 || entry.bytes < 0 ||
        entry.bytes > static_cast<std::int64_t>(file.size()) - entry.begin) {
      std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  parse(input);
  std::string file(kDataEnd, '\0');
  file.replace(0, 8, "VITRPACK");
  file[8] = 1;
  file += input;
  put(file, 16, file.size());
  put(file, 24, kDataEnd);
  put(file, 32, size);
  vitrine::Sha256 hash;
  hash.update(std::string_view(file).substr(0, kPage));
  hash.update(input);
  const auto digest = hash.finish();
  std::copy(digest.begin(), digest.end(), reinterpret_cast<std::byte*>(file.data()) + 40);
  parse(file);
  return 0;
}
