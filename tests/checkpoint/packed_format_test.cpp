// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/packed_format.h"

#include <gtest/gtest.h>
#include <vitrine/error.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>

#include "base/sha256.h"

namespace vitrine {
namespace {

constexpr std::size_t kPage = kPackedAlignment;
constexpr std::int64_t kDataEnd = 5 * kPackedAlignment;

PackedDirectory directory() {
  return {.key = {.model_name = "Modèle", .source = std::string(64, '7'), .form = "int8", .layout_version = 9},
          .entries = {{"a", {.tag = "int8 [2]", .begin = 4096, .bytes = 2}},
                      {"b", {.tag = "", .begin = 8192, .bytes = 3 * 4096}},
                      {"none", {.tag = "x", .begin = 20480, .bytes = 0}}}};
}

std::string file_of(const PackedDirectory& d) {
  const PackedEnds ends = encode_packed(d, kDataEnd);
  return ends.header + std::string(kDataEnd - kPage, 'x') + ends.directory;
}

std::optional<PackedDirectory> parse(const std::string& file) { return parse_packed(std::as_bytes(std::span(file))); }

/// Makes size and checksum right again after a change, so that what lies behind them is looked at.
void mend(std::string& file) {
  for (std::size_t i = 0; i < 8; ++i) file[16 + i] = static_cast<char>(file.size() >> (8 * i) & 0xFF);
  const std::size_t length = file.size() - kDataEnd;
  for (std::size_t i = 0; i < 8; ++i) file[32 + i] = static_cast<char>(length >> (8 * i) & 0xFF);
  file.replace(40, 32, 32, '\0');
  Sha256 hash;
  hash.update(std::string_view(file).substr(0, kPage));
  hash.update(std::string_view(file).substr(kDataEnd));
  const auto digest = hash.finish();
  std::copy(digest.begin(), digest.end(), reinterpret_cast<std::byte*>(file.data()) + 40);
}

TEST(PackedFormat, ReadsBackWhatItWrote) {
  const PackedDirectory d = directory();
  const auto read = parse(file_of(d));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->key.model_name, d.key.model_name);
  EXPECT_TRUE(read->key.matches(d.key));
  ASSERT_EQ(read->entries.size(), d.entries.size());
  for (const auto& [name, entry] : d.entries) {
    const PackedEntry& found = read->entries.at(name);
    EXPECT_EQ(found.tag, entry.tag);
    EXPECT_EQ(found.begin, entry.begin);
    EXPECT_EQ(found.bytes, entry.bytes);
  }
  std::string mended = file_of(d);
  mend(mended);
  EXPECT_EQ(mended, file_of(d));
}

TEST(PackedFormat, EntriesMustLieInTheData) {
  using Limits = std::numeric_limits<std::int64_t>;
  const std::pair<std::int64_t, std::int64_t> bad[] = {
      {0, 1},        {4097, 1},  {kDataEnd, 1},         {kDataEnd + 4096, 0}, {4096, kDataEnd - 4095},
      {-4096, 4096}, {4096, -1}, {4096, Limits::max()}, {Limits::min(), 0},   {Limits::max() - 4095, 8192}};
  for (const auto& [begin, bytes] : bad) {
    PackedDirectory d = directory();
    d.entries["a"].begin = begin;
    d.entries["a"].bytes = bytes;
    EXPECT_FALSE(parse(file_of(d))) << begin << " " << bytes;
  }
}

TEST(PackedFormat, ANameTwice) {
  std::string file = file_of(directory());
  const std::size_t at = file.rfind("\x01\0\0\0b", std::string::npos, 5);
  ASSERT_NE(at, std::string::npos);
  file[at + 4] = 'a';
  mend(file);
  EXPECT_FALSE(parse(file));
}

TEST(PackedFormat, DirectoriesCutAnywhere) {
  const std::string good = file_of(directory());
  for (std::size_t length = kDataEnd; length < good.size(); ++length) {
    std::string file = good.substr(0, length);
    EXPECT_FALSE(parse(file)) << length;
    mend(file);
    const auto read = parse(file);  // between two entries it is a whole directory
    EXPECT_TRUE(!read || read->entries.size() < 3) << length;
  }
}

TEST(PackedFormat, RandomChangesNeverLeadOutside) {
  const std::string good = file_of(directory());
  std::mt19937 random(1);
  const auto below = [&](std::size_t count) {
    return std::uniform_int_distribution<std::size_t>(0, count - 1)(random);
  };
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string file = good;
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
      const bool in_header = below(4) == 0;
      const std::size_t at = in_header ? below(48) : kDataEnd + below(file.size() - kDataEnd);
      switch (below(3)) {
        case 0:
          file[at] = static_cast<char>(below(256));
          break;
        case 1:
          file[at] = static_cast<char>(below(2) * 255);
          break;
        default:
          file.erase(kDataEnd + below(file.size() - kDataEnd), 1);
          break;
      }
      if (file.size() == kDataEnd) break;
    }
    if (below(8) != 0) mend(file);
    const auto read = parse(file);
    if (!read) continue;
    ++accepted;
    for (const auto& [name, entry] : read->entries) {
      ASSERT_GE(entry.begin, kPackedAlignment);
      ASSERT_EQ(entry.begin % kPackedAlignment, 0);
      ASSERT_GE(entry.bytes, 0);
      ASSERT_LE(entry.bytes, kDataEnd - entry.begin);
    }
  }
  EXPECT_GT(accepted, 100);  // else the changes never got past the first check
}

}  // namespace
}  // namespace vitrine
