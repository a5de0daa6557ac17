// SPDX-License-Identifier: Apache-2.0
#include "text/byte_level.h"

#include <array>
#include <cstdint>

#include "base/unicode.h"

namespace vitrine {
namespace {

struct Mapping {
  std::array<char16_t, 256> char_of{};
  std::array<std::int16_t, 0x144> byte_of{};  // by code point; -1: stands for no byte
};

constexpr Mapping make_mapping() {
  Mapping mapping;
  for (auto& byte : mapping.byte_of) byte = -1;
  char16_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
    mapping.char_of[byte] = printable ? static_cast<char16_t>(byte) : next++;
    mapping.byte_of[mapping.char_of[byte]] = static_cast<std::int16_t>(byte);
  }
  return mapping;
}

constexpr Mapping kMapping = make_mapping();
static_assert(kMapping.char_of[' '] == 0x120 && kMapping.char_of['\n'] == 0x10A && kMapping.char_of[0xAD] == 0x143);

}  // namespace

bool append_bytes_of(std::string_view spelled, std::string& bytes) {
  const std::size_t before = bytes.size();
  bytes.resize(before + spelled.size());  // never more bytes than the spelling takes
  char* out = bytes.data() + before;
  for (std::size_t pos = 0; pos < spelled.size();) {
    const unicode::CodePoint point = unicode::decode(spelled.data() + pos);
    const int byte = point.value < kMapping.byte_of.size() ? kMapping.byte_of[point.value] : -1;
    if (byte < 0) {
      bytes.resize(before);
      return false;
    }
    *out++ = static_cast<char>(byte);
    pos += point.length;
  }
  bytes.resize(static_cast<std::size_t>(out - bytes.data()));
  return true;
}

std::string byte_level_spelling(std::string_view bytes) {
  std::string spelled;
  spelled.reserve(bytes.size() * 2);
  for (const char byte : bytes) unicode::append(spelled, kMapping.char_of[static_cast<unsigned char>(byte)]);
  return spelled;
}

}  // namespace vitrine
