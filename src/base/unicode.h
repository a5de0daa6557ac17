// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine::unicode {

/// What U+FFFD looks like in UTF-8.
inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool is_valid_utf8(std::string_view text) noexcept;

/// Where the bytes of an edited text came from: a list of replaced ranges, equal bytes between them.
class OffsetMap {
 public:
  /// [begin, end) of the edited text stands for [original_begin, original_end). Calls come in ascending order.
  void add(std::size_t begin, std::size_t end, std::size_t original_begin, std::size_t original_end) {
    edits_.push_back({begin, end, original_begin, original_end});
  }
  /// Where the character or replaced range that holds the byte at `edited` begins in the original.
  std::size_t original_begin(std::size_t edited) const noexcept;
  /// Where what ends at `edited` (one past its last byte) ends in the original.
  std::size_t original_end(std::size_t edited) const noexcept;
  bool empty() const noexcept { return edits_.empty(); }

 private:
  struct Edit {
    std::size_t begin, end, original_begin, original_end;
  };
  std::vector<Edit> edits_;
};

/// The text with each maximal invalid subsequence replaced by U+FFFD, as Rust's from_utf8_lossy and the WHATWG
/// decoder do. `map`, when given, receives the replaced ranges.
std::string replace_invalid_utf8(std::string_view text, OffsetMap* map = nullptr);

/// How many bytes at the end (0 to 3) begin a character that more bytes could complete.
std::size_t incomplete_suffix(std::string_view text) noexcept;

/// Valid UTF-8 in Normalization Form C; nothing when it is so already, which is found without copying.
/// Linear in the length apart from sorting runs of combining marks (n log n). `map` receives what changed.
std::optional<std::string> to_nfc(std::string_view text, OffsetMap* map = nullptr);

/// A code point and how many bytes it takes.
struct CodePoint {
  char32_t value = 0;
  unsigned length = 0;
};

/// The code point at `p`, which must be the start of valid UTF-8.
inline CodePoint decode(const char* p) noexcept {
  const auto byte = [p](int i) { return static_cast<unsigned char>(p[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1Fu) << 6 | (byte(1) & 0x3Fu), 2};
  if (lead < 0xF0) return {(lead & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu), 3};
  return {(lead & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 | (byte(3) & 0x3Fu), 4};
}

/// Appends the code point in UTF-8.
void append(std::string& text, char32_t code_point);

/// What a character is, as bits.
enum CharFlag : std::uint8_t {
  kLetter = 1,      ///< \p{L}
  kMark = 2,        ///< \p{M}
  kNumber = 4,      ///< \p{N}
  kSpace = 8,       ///< White_Space
  kWord = 16,       ///< \w of Unicode Technical Standard 18
  kCombining = 32,  ///< canonical combining class other than 0
  kNfcCheck = 64,   ///< NFC_Quick_Check is not Yes: it may compose with what stands before, or always changes
};

/// The flags of all code points in two levels; about 60 KiB, made from utf8proc's tables at first use.
class CharTable {
 public:
  static const CharTable& get();
  std::uint8_t flags(char32_t code_point) const noexcept { return blocks_[index_[code_point >> 8]][code_point & 0xFF]; }
  /// For bytes below 0x80.
  std::uint8_t ascii(unsigned char byte) const noexcept { return blocks_[0][byte]; }

 private:
  using Block = std::array<std::uint8_t, 256>;
  CharTable();
  std::array<std::uint16_t, 0x1100> index_{};
  std::vector<Block> blocks_;
};

}  // namespace vitrine::unicode
