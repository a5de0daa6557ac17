// SPDX-License-Identifier: Apache-2.0
#include "base/unicode.h"

#include <simdjson.h>
#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>

#include "base/check.h"

namespace vitrine::unicode {
namespace {

enum class Validity { kValid, kInvalid, kIncomplete };

struct Sequence {
  Validity validity;
  std::size_t length;  // of the character, or of the maximal prefix of one
};

/// What starts at text[0]; text is not empty. The ranges of the second byte are those of table 3-7 of the standard.
Sequence classify(std::string_view text) noexcept {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {Validity::kValid, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Validity::kInvalid, 1};
  const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  unsigned low = 0x80;
  unsigned high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Validity::kIncomplete, i};
    if (byte(i) < low || byte(i) > high) return {Validity::kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Validity::kValid, length};
}

/// All bytes from `pos` on that are ASCII, eight at a time.
std::size_t skip_ascii(std::string_view text, std::size_t pos) noexcept {
  while (pos + 8 <= text.size()) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + pos, 8);
    if ((word & 0x8080808080808080u) != 0) break;
    pos += 8;
  }
  while (pos < text.size() && static_cast<unsigned char>(text[pos]) < 0x80) ++pos;
  return pos;
}

int combining_class(char32_t code_point) noexcept {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(code_point))->combining_class;
}

/// NFC of one chunk. utf8proc's own ordering is an insertion sort, quadratic in a run of marks: so we decompose by
/// character, sort the runs here, and let it compose.
std::string normalize_chunk(std::string_view chunk) {
  std::vector<utf8proc_int32_t> points;
  points.reserve(chunk.size());
  for (std::size_t pos = 0; pos < chunk.size();) {
    const CodePoint point = decode(chunk.data() + pos);
    pos += point.length;
    utf8proc_int32_t parts[16];
    int boundary = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(point.value), parts, std::size(parts),
                                static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE), &boundary);
    VITRINE_CHECK(count > 0 && count <= static_cast<utf8proc_ssize_t>(std::size(parts)));
    points.insert(points.end(), parts, parts + count);
  }
  const auto class_of = [](utf8proc_int32_t point) { return combining_class(static_cast<char32_t>(point)); };
  for (auto run = points.begin(); run != points.end();) {
    const auto end = std::find_if(run, points.end(), [&](auto point) { return class_of(point) == 0; });
    std::stable_sort(run, end, [&](auto a, auto b) { return class_of(a) < class_of(b); });
    run = end == points.end() ? end : end + 1;
  }
  const auto count = utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                                              static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  VITRINE_CHECK(count >= 0);
  std::string out;
  out.reserve(chunk.size());
  for (utf8proc_ssize_t i = 0; i < count; ++i) append(out, static_cast<char32_t>(points[static_cast<std::size_t>(i)]));
  return out;
}

bool is_white_space(char32_t c) noexcept {
  return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/// Symbols that are Alphabetic though their category is So: circled, squared and parenthesised Latin letters.
bool is_alphabetic_symbol(char32_t c) noexcept {
  return (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
         (c >= 0x1F170 && c <= 0x1F189);
}

std::uint8_t basic_flags(char32_t c) noexcept {
  unsigned flags = 0;
  const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  switch (property->category) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      flags = kLetter | kWord;
      break;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      flags = kMark | kWord;
      break;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
      flags = kNumber | kWord;
      break;
    case UTF8PROC_CATEGORY_NO:
      flags = kNumber;
      break;
    case UTF8PROC_CATEGORY_PC:
      flags = kWord;
      break;
    default:
      break;
  }
  if (is_white_space(c)) flags |= kSpace;
  if (is_alphabetic_symbol(c) || c == 0x200C || c == 0x200D) flags |= kWord;  // Join_Control belongs to \w
  if (property->combining_class != 0) flags |= kCombining;
  return static_cast<std::uint8_t>(flags);
}

constexpr bool is_hangul_syllable(char32_t c) { return c >= 0xAC00 && c <= 0xD7A3; }
constexpr bool is_hangul_vowel_or_tail(char32_t c) {
  return (c >= 0x1161 && c <= 0x1175) || (c >= 0x11A8 && c <= 0x11C2);
}

/// Marks what NFC has to look at: characters that don't survive it, and the later parts of those that compose.
/// utf8proc has no table of NFC_Quick_Check, but its decompositions say the same.
void add_nfc_flags(char32_t c, std::vector<std::uint8_t>& flags) {
  if (is_hangul_vowel_or_tail(c)) flags[c] |= kNfcCheck;
  const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
  if (is_hangul_syllable(c) || property->decomp_seqindex == UINT16_MAX || property->decomp_type != 0) return;
  utf8proc_int32_t parts[16];
  int boundary = 0;
  const auto count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, std::size(parts),
                              static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE), &boundary);
  VITRINE_CHECK(count > 0 && count <= static_cast<utf8proc_ssize_t>(std::size(parts)));
  utf8proc_int32_t composed[16];
  std::copy_n(parts, count, composed);
  const auto left =
      utf8proc_normalize_utf32(composed, count, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  if (left != 1 || composed[0] != static_cast<utf8proc_int32_t>(c)) {
    flags[c] |= kNfcCheck;
    return;
  }
  for (utf8proc_ssize_t i = 1; i < count; ++i) flags[static_cast<std::size_t>(parts[i])] |= kNfcCheck;
}

}  // namespace

bool is_valid_utf8(std::string_view text) noexcept { return simdjson::validate_utf8(text.data(), text.size()); }

std::size_t OffsetMap::original_begin(std::size_t edited) const noexcept {
  // The last edit that begins at or before `edited`.
  auto after = std::partition_point(edits_.begin(), edits_.end(), [&](const Edit& e) { return e.begin <= edited; });
  if (after == edits_.begin()) return edited;
  const Edit& edit = *(after - 1);
  return edited < edit.end ? edit.original_begin : edit.original_end + (edited - edit.end);
}

std::size_t OffsetMap::original_end(std::size_t edited) const noexcept {
  // The last edit that begins before `edited`.
  auto after = std::partition_point(edits_.begin(), edits_.end(), [&](const Edit& e) { return e.begin < edited; });
  if (after == edits_.begin()) return edited;
  const Edit& edit = *(after - 1);
  return edited <= edit.end ? edit.original_end : edit.original_end + (edited - edit.end);
}

std::string replace_invalid_utf8(std::string_view text, OffsetMap* map) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    const std::size_t ascii_end = skip_ascii(text, pos);
    out.append(text, pos, ascii_end - pos);
    pos = ascii_end;
    if (pos == text.size()) break;
    const Sequence sequence = classify(text.substr(pos));
    if (sequence.validity == Validity::kValid) {
      out.append(text, pos, sequence.length);
    } else {
      if (map != nullptr) map->add(out.size(), out.size() + kReplacement.size(), pos, pos + sequence.length);
      out += kReplacement;
    }
    pos += sequence.length;
  }
  return out;
}

std::size_t incomplete_suffix(std::string_view text) noexcept {
  for (std::size_t length = 1; length <= std::min<std::size_t>(3, text.size()); ++length) {
    const std::size_t pos = text.size() - length;
    if ((static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80) continue;  // a continuation byte: look further back
    return classify(text.substr(pos)).validity == Validity::kIncomplete ? length : 0;
  }
  return 0;
}

std::optional<std::string> to_nfc(std::string_view text, OffsetMap* map) {
  const CharTable& table = CharTable::get();
  std::string out;
  std::size_t copied = 0;       // of text, into out
  std::size_t chunk_begin = 0;  // the last character that nothing before it can change
  bool changed = false;
  for (std::size_t pos = 0; pos < text.size();) {
    const auto lead = static_cast<unsigned char>(text[pos]);
    if (lead < 0x80) {
      pos = skip_ascii(text, pos);
      chunk_begin = pos - 1;
      continue;
    }
    if (lead < 0xCC) {  // below U+0300 nothing combines and all is NFC
      chunk_begin = pos;
      pos += 2;
      continue;
    }
    // The standard's quick check: marks in ascending class that can't compose are fine.
    int last_class = 0;
    bool suspect = false;
    std::size_t chunk_end = pos;
    while (chunk_end < text.size()) {
      const CodePoint point = decode(text.data() + chunk_end);
      const unsigned flags = table.flags(point.value);
      if ((flags & (kCombining | kNfcCheck)) == 0) break;
      const int current = (flags & kCombining) != 0 ? combining_class(point.value) : 0;
      suspect = suspect || (flags & kNfcCheck) != 0 || (current != 0 && current < last_class);
      last_class = current;
      chunk_end += point.length;
    }
    if (suspect) {
      const std::string_view chunk = text.substr(chunk_begin, chunk_end - chunk_begin);
      const std::string normal = normalize_chunk(chunk);
      if (normal != chunk) {
        changed = true;
        out.append(text, copied, chunk_begin - copied);
        if (map != nullptr) map->add(out.size(), out.size() + normal.size(), chunk_begin, chunk_end);
        out += normal;
        copied = chunk_end;
      }
    }
    if (chunk_end == pos) {  // a character that stands for itself
      chunk_begin = pos;
      pos += decode(text.data() + pos).length;
    } else {
      chunk_begin = pos = chunk_end;
    }
  }
  if (!changed) return std::nullopt;
  out.append(text, copied);
  return out;
}

void append(std::string& text, char32_t code_point) {
  utf8proc_uint8_t bytes[4];
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(count));
}

const CharTable& CharTable::get() {
  static const CharTable table;
  return table;
}

CharTable::CharTable() {
  constexpr char32_t kLast = 0x110000;
  std::vector<std::uint8_t> flags(kLast);
  // Planes 4 to 13 and 15 to 16 hold nothing but unassigned and private characters: no flags.
  const std::pair<char32_t, char32_t> assigned[] = {{0, 0xD800}, {0xE000, 0x40000}, {0xE0000, 0xE1000}};
  for (const auto& [begin, end] : assigned) {
    for (char32_t c = begin; c < end; ++c) flags[c] |= basic_flags(c);
    for (char32_t c = begin; c < end; ++c) add_nfc_flags(c, flags);
  }
  std::map<Block, std::uint16_t> known;
  for (std::size_t i = 0; i < index_.size(); ++i) {
    Block block;
    std::copy_n(flags.begin() + static_cast<std::ptrdiff_t>(i * block.size()), block.size(), block.begin());
    const auto [at, fresh] = known.emplace(block, static_cast<std::uint16_t>(blocks_.size()));
    if (fresh) blocks_.push_back(block);
    index_[i] = at->second;
  }
}

}  // namespace vitrine::unicode
