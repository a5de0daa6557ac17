// SPDX-License-Identifier: Apache-2.0
#include "base/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>

namespace vitrine::unicode {
namespace {

constexpr const char* kR = "\xEF\xBF\xBD";

std::string utf8(std::u32string_view points) {
  std::string text;
  for (const char32_t point : points) append(text, point);
  return text;
}

/// utf8proc's own NFC, correct but quadratic in runs of marks.
std::string reference_nfc(const std::string& text) {
  utf8proc_uint8_t* out = nullptr;
  const auto length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &out, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  std::string result(reinterpret_cast<const char*>(out), static_cast<std::size_t>(length));
  std::free(out);
  return result;
}

std::string nfc(const std::string& text) { return to_nfc(text).value_or(text); }

TEST(Utf8, Validity) {
  for (const char* text : {"", "a", "é", "中", "🦙", "\xEF\xBF\xBF", "\xF4\x8F\xBF\xBF", "\xED\x9F\xBF"}) {
    EXPECT_TRUE(is_valid_utf8(text)) << text;
    EXPECT_EQ(replace_invalid_utf8(text), text);
  }
  for (const char* text : {"\x80", "\xC3", "\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
                           "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "a\xE4\xB8", "\xF0\x9F\xA6"}) {
    EXPECT_FALSE(is_valid_utf8(text));
  }
}

// One U+FFFD per maximal subpart: the examples of the Unicode standard, section 3.9, and Rust's from_utf8_lossy.
TEST(Utf8, Replacement) {
  const std::string r = kR;
  EXPECT_EQ(replace_invalid_utf8("\xFF\xFE"), r + r);
  EXPECT_EQ(replace_invalid_utf8("\xC3"), r);
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF"), r + r);
  EXPECT_EQ(replace_invalid_utf8("\xE4\xB8z"), r + "z");
  EXPECT_EQ(replace_invalid_utf8("\xF0\x9F\xA6\xF0\x9F\xA6\x99"), r + "🦙");
  EXPECT_EQ(replace_invalid_utf8("\xF0\x80\x80\x41"), r + r + r + "A");
  EXPECT_EQ(replace_invalid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
  EXPECT_EQ(replace_invalid_utf8("\x80"), r);
  EXPECT_EQ(replace_invalid_utf8("Hello \xF0\x90\x80World"), "Hello " + r + "World");
  EXPECT_EQ(replace_invalid_utf8(std::string_view("a\0b\xFF", 4)), std::string("a\0b", 3) + r);
}

TEST(Utf8, ReplacementIsValidAndMapped) {
  std::mt19937 random(5);
  const std::string_view bytes = "a\x80\xC3\xA9\xE4\xB8\xAD\xF0\x9F\xA6\x99\xED\xF4\xFF";
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (auto n = random() % 12; n > 0; --n) text += bytes[random() % bytes.size()];
    OffsetMap map;
    const std::string out = replace_invalid_utf8(text, &map);
    ASSERT_TRUE(is_valid_utf8(out));
    std::size_t expected_begin = 0;  // the ranges tile the original
    for (std::size_t pos = 0; pos < out.size();) {
      const std::size_t end = pos + decode(out.data() + pos).length;
      ASSERT_EQ(map.original_begin(pos), expected_begin);
      expected_begin = map.original_end(end);
      const std::string character = out.substr(pos, end - pos);
      ASSERT_TRUE(character == kR || text.substr(map.original_begin(pos), end - pos) == character);
      pos = end;
    }
    ASSERT_EQ(expected_begin, text.size());
  }
}

TEST(Utf8, IncompleteSuffix) {
  EXPECT_EQ(incomplete_suffix(""), 0u);
  EXPECT_EQ(incomplete_suffix("abc"), 0u);
  EXPECT_EQ(incomplete_suffix("中"), 0u);
  EXPECT_EQ(incomplete_suffix("a\xC3"), 1u);
  EXPECT_EQ(incomplete_suffix("a\xE4"), 1u);
  EXPECT_EQ(incomplete_suffix("a\xE4\xB8"), 2u);
  EXPECT_EQ(incomplete_suffix("\xF0\x9F\xA6"), 3u);
  EXPECT_EQ(incomplete_suffix("\xF0\x9F"), 2u);
  EXPECT_EQ(incomplete_suffix("\xF0\x80"), 0u);  // invalid already: nothing can complete it
  EXPECT_EQ(incomplete_suffix("\xED\xA0"), 0u);
  EXPECT_EQ(incomplete_suffix("\x80\x80"), 0u);
  EXPECT_EQ(incomplete_suffix("\xFF"), 0u);
  EXPECT_EQ(incomplete_suffix("\xC3\xA9\x80"), 0u);
}

TEST(Nfc, NothingToDoCopiesNothing) {
  for (const char* text : {"", "plain", "café", "Ελληνικά", "हिन्दी", "안녕", "สวัสดี", "中文", "שלום", "ў"}) {
    EXPECT_FALSE(to_nfc(text).has_value()) << text;
  }
}

TEST(Nfc, Examples) {
  EXPECT_EQ(nfc("e\u0301"), "é");
  EXPECT_EQ(nfc("xe\u0301y"), "xéy");
  EXPECT_EQ(nfc("\u212B"), "Å");
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093C");          // excluded from composition
  EXPECT_EQ(nfc("q\u0307\u0323"), "q\u0323\u0307");  // order only
  EXPECT_EQ(nfc("\u1E9B\u0323"), "\u1E9B\u0323");
  EXPECT_EQ(nfc("\u1100\u1161\u11A8"), "\uAC01");
  EXPECT_EQ(nfc("\uAC00\u11A8"), "\uAC01");
  EXPECT_EQ(nfc("\uAC00\u11A7"), "\uAC00\u11A7");  // not a trailing consonant; utf8proc 2.8 itself drops it here
  EXPECT_EQ(nfc("\uAC00\u11A7\u0323\u0301"), "\uAC00\u11A7\u0323\u0301");
  EXPECT_EQ(nfc("\u0301"), "\u0301");
  EXPECT_EQ(nfc("\u0344"), "\u0308\u0301");
  EXPECT_EQ(nfc("a\u0301\u0301"), "á\u0301");
  EXPECT_EQ(nfc("\u09C7\u09BE"), "\u09CB");
}

TEST(Nfc, EveryCodePointAsUtf8proc) {
  for (char32_t point = 0; point < 0x110000; ++point) {
    if (point >= 0xD800 && point < 0xE000) continue;
    const std::string alone = utf8({&point, 1});
    ASSERT_EQ(nfc(alone), reference_nfc(alone)) << std::hex << static_cast<unsigned>(point);
  }
}

TEST(Nfc, RandomTextAsUtf8proc) {
  std::vector<char32_t> interesting;  // what NFC has to look at
  for (char32_t point = 0x80; point < 0x1FFFF; ++point) {
    if (CharTable::get().flags(point) & (kCombining | kNfcCheck)) interesting.push_back(point);
  }
  EXPECT_GT(interesting.size(), 1000u);
  const std::u32string usual = U"aeo qAИи한가각कকஒ\u1100\u1161\u11A8é中🦙 ";
  std::mt19937 random(7);
  for (int round = 0; round < 100000; ++round) {
    std::u32string points;
    for (auto n = random() % 10 + 1; n > 0; --n) {
      points += random() % 2 == 0 ? usual[random() % usual.size()] : interesting[random() % interesting.size()];
    }
    const std::string text = utf8(points);
    OffsetMap map;
    const std::string normal = to_nfc(text, &map).value_or(text);
    ASSERT_EQ(normal, reference_nfc(text));
    ASSERT_FALSE(to_nfc(normal).has_value());
    // Each part of the original between two places that NFC maps to normalises to what lies between them.
    std::size_t begin = 0;
    for (std::size_t pos = 0; pos < normal.size(); pos += decode(normal.data() + pos).length) {
      const std::size_t from = map.original_begin(pos);
      ASSERT_LE(begin, from);
      ASSERT_LT(from, map.original_end(pos + 1));
      begin = from;
    }
    ASSERT_EQ(map.original_end(normal.size()), text.size());
  }
}

TEST(Nfc, OffsetsLeadBack) {
  OffsetMap map;
  const std::string text = "ae\u0301bc\u212Bd";  // a(0) e(1) U+0301(2,3) b(4) c(5) U+212B(6-8) d(9)
  const auto normal = to_nfc(text, &map);
  ASSERT_EQ(normal, "aébcÅd");  // a(0) é(1,2) b(3) c(4) Å(5,6) d(7)
  EXPECT_EQ(map.original_begin(0), 0u);
  EXPECT_EQ(map.original_begin(1), 1u);
  EXPECT_EQ(map.original_begin(2), 1u);  // inside é
  EXPECT_EQ(map.original_end(2), 4u);
  EXPECT_EQ(map.original_end(3), 4u);
  EXPECT_EQ(map.original_begin(3), 4u);
  EXPECT_EQ(map.original_end(4), 5u);
  EXPECT_EQ(map.original_begin(7), 9u);
  EXPECT_EQ(map.original_end(8), 10u);
}

// utf8proc_map takes minutes here: its ordering of marks is an insertion sort.
TEST(Nfc, AMillionMarksThatNeedSorting) {
  std::string text = "a";
  for (int i = 0; i < 500'000; ++i) text += "\u0301\u0323";
  const std::string normal = nfc(text);
  EXPECT_TRUE(normal.starts_with("ạ\u0323\u0323"));
  EXPECT_TRUE(normal.ends_with("\u0323\u0301\u0301") || normal.ends_with("\u0301\u0301"));
  EXPECT_EQ(normal.size(), text.size() - 1 - 2 + 3);  // one mark went into the letter
}

TEST(CharTable, ClassesAsUtf8proc) {
  const CharTable& table = CharTable::get();
  for (char32_t point = 0; point < 0x110000; ++point) {
    const std::string category = utf8proc_category_string(static_cast<utf8proc_int32_t>(point));
    const unsigned flags = table.flags(point);
    ASSERT_EQ((flags & kLetter) != 0, category[0] == 'L') << static_cast<unsigned>(point);
    ASSERT_EQ((flags & kMark) != 0, category[0] == 'M') << static_cast<unsigned>(point);
    ASSERT_EQ((flags & kNumber) != 0, category[0] == 'N') << static_cast<unsigned>(point);
    ASSERT_TRUE(category[0] != 'Z' || (flags & kSpace) != 0) << static_cast<unsigned>(point);
  }
  for (const char32_t space :
       std::u32string(U"\t\n\v\f\r \u0085\u00A0\u1680\u2000\u200A\u2028\u2029\u202F\u205F\u3000")) {
    EXPECT_TRUE(table.flags(space) & kSpace) << static_cast<unsigned>(space);
  }
  for (const char32_t other : {0x00, 0x1C, 0x1F, 0x180E, 0x200B, 0x2060, 0xFEFF}) {
    EXPECT_FALSE(table.flags(other) & kSpace) << static_cast<unsigned>(other);
  }
  EXPECT_TRUE(table.flags('_') & kWord);
  EXPECT_TRUE(table.flags(U'Ⓐ') & kWord);
  EXPECT_FALSE(table.flags('-') & kWord);
}

}  // namespace
}  // namespace vitrine::unicode
