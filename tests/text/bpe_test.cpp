// SPDX-License-Identifier: Apache-2.0
#include "text/bpe.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace vitrine {
namespace {

/// The definition: merge the pair of lowest rank, the leftmost of several, until there is none.
std::vector<TokenId> naive(const MergeTable& merges, std::string_view piece) {
  std::vector<TokenId> ids;
  for (const char c : piece) ids.push_back(static_cast<unsigned char>(c));
  while (true) {
    MergeTable::Merge best;
    std::size_t where = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto merge = merges.find(ids[i], ids[i + 1]);
      if (merge.rank < best.rank) {
        best = merge;
        where = i;
      }
    }
    if (best.rank == MergeTable::kNoRank) return ids;
    ids[where] = best.result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

struct Model {
  Vocabulary vocabulary;
  MergeTable merges;
};

/// Bytes and random merges over a few letters, in an order that training would never give.
Model random_model(std::mt19937& random) {
  Model model;
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  for (const char letter : std::string_view("abcd")) model.vocabulary.add(letter, std::string_view(&letter, 1));
  std::set<std::string> known = {"a", "b", "c", "d"};
  std::vector<TokenId> usable = {'a', 'b', 'c', 'd'};
  std::uint32_t rank = 0;
  for (int i = 0; i < 60; ++i) {
    const TokenId left = usable[random() % usable.size()];
    const TokenId right = usable[random() % usable.size()];
    const std::string text = tokens[static_cast<std::size_t>(left)] + tokens[static_cast<std::size_t>(right)];
    if (text.size() > 12) continue;
    TokenId id = model.vocabulary.find_bytes(text);
    if (id == kNoToken) {
      id = static_cast<TokenId>(tokens.size());
      model.vocabulary.add(id, text);  // a to d are spelled as they are
      tokens.push_back(text);
      usable.push_back(id);
    }
    model.merges.add(left, right, {rank++, id});
  }
  return model;
}

TEST(Bpe, ShortAndLongPiecesFollowTheDefinition) {
  std::mt19937 random(3);
  Bpe::Scratch scratch;
  for (int round = 0; round < 200; ++round) {
    const Model model = random_model(random);
    const Bpe bpe(model.vocabulary, model.merges, false);
    for (int k = 0; k < 60; ++k) {
      std::string piece;
      const std::size_t length = k % 3 == 0 ? 60 + random() % 10 : random() % 200 + 1;
      const std::size_t letters = 1 + random() % 4;
      for (std::size_t i = 0; i < length; ++i) piece += "abcd"[random() % letters];
      if (k % 4 == 0) piece = piece.substr(0, 1 + random() % 8);  // often a token of its own
      std::vector<Bpe::Symbol> symbols;
      bpe.encode(piece, scratch, symbols);
      std::vector<TokenId> ids;
      std::string joined;
      for (const auto& symbol : symbols) {
        ASSERT_EQ(symbol.begin, joined.size());
        joined += model.vocabulary.bytes(symbol.id);
        ids.push_back(symbol.id);
      }
      ASSERT_EQ(joined, piece);
      ASSERT_EQ(ids, naive(model.merges, piece)) << piece;
    }
  }
}

TEST(MergeTable, FindsWhatWasAddedAndNothingElse) {
  MergeTable table;
  EXPECT_EQ(table.find(1, 2).rank, MergeTable::kNoRank);
  for (TokenId i = 0; i < 5000; ++i) table.add(i, i * 7 % 5000, {static_cast<std::uint32_t>(i), i + 5000});
  EXPECT_EQ(table.size(), 5000u);
  for (TokenId i = 0; i < 5000; ++i) {
    EXPECT_EQ(table.find(i, i * 7 % 5000).result, i + 5000);
    EXPECT_EQ(table.find(i, i * 7 % 5000 + 1).rank, MergeTable::kNoRank);
  }
  table.add(3, 21, {9999, 1});  // again: the last counts
  EXPECT_EQ(table.find(3, 21).rank, 9999u);
  EXPECT_EQ(table.size(), 5000u);
}

TEST(Vocabulary, AddsFindsAndRefusesDuplicates) {
  Vocabulary vocabulary;
  EXPECT_EQ(vocabulary.find("a"), kNoToken);
  EXPECT_EQ(vocabulary.add(7, "Ġa"), Vocabulary::Added::kYes);
  EXPECT_EQ(vocabulary.add(8, "Ġa"), Vocabulary::Added::kDuplicateToken);
  EXPECT_EQ(vocabulary.add(7, "b"), Vocabulary::Added::kDuplicateId);
  EXPECT_EQ(vocabulary.add_literal(7, "<x>"), Vocabulary::Added::kDuplicateId);
  EXPECT_EQ(vocabulary.add_literal(9, "Ġa"), Vocabulary::Added::kDuplicateToken);
  EXPECT_EQ(vocabulary.add_literal(9, " a"), Vocabulary::Added::kYes);
  EXPECT_EQ(vocabulary.find_bytes(" a"), 7);
  EXPECT_EQ(vocabulary.find(" a"), 9);
  EXPECT_EQ(vocabulary.find("Ġa"), 7);
  EXPECT_EQ(vocabulary.id_limit(), 10u);
  EXPECT_FALSE(vocabulary.has(8));
}

}  // namespace
}  // namespace vitrine
