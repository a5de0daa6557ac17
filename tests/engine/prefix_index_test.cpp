// SPDX-License-Identifier: Apache-2.0
#include "engine/prefix_index.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <vitrine/error.h>

#include <algorithm>
#include <set>
#include <vector>

#include "support/properties.h"

namespace vitrine {
namespace {

using Tokens = PrefixIndex::Run;

/// A full block that begins with these tokens.
Tokens full(Tokens tokens, TokenId rest = 0) {
  tokens.resize(static_cast<std::size_t>(kBlockTokens), rest);
  return tokens;
}

TEST(PrefixIndex, FindsTheLongestBeginning) {
  PrefixIndex index;
  auto& root = index.root("");
  index.insert(root, Tokens{1, 2, 3, 4}, 0);
  index.insert(root, Tokens{1, 2, 5}, 1);
  index.insert(root, Tokens{7}, 2);
  const auto match = [&](const Tokens& tokens) {
    const auto found = PrefixIndex::match(root, tokens);
    return std::pair(found.node == nullptr ? -1 : found.node->block, found.length);
  };
  EXPECT_EQ(match({1, 2, 3, 4}), std::pair(0, 4L));
  EXPECT_EQ(match({1, 2, 3, 4, 9}), std::pair(0, 4L)) << "all of a run";
  EXPECT_EQ(match({1, 2, 3}), std::pair(0, 3L)) << "part of a run";
  EXPECT_EQ(match({1, 2, 3, 9}), std::pair(0, 3L));
  EXPECT_EQ(match({1, 2, 5, 1}), std::pair(1, 3L));
  EXPECT_EQ(match({1, 2, 4}).second, 2L) << "either of two that share as much";
  EXPECT_EQ(match({7, 1}), std::pair(2, 1L));
  EXPECT_EQ(match({8}), std::pair(-1, 0L));
  EXPECT_EQ(match({}), std::pair(-1, 0L));
}

/// The neighbours in the order of the map are enough.
TEST(PrefixIndex, FindsWhatASearchThroughAllFinds) {
  const auto property = [] {
    const auto tokens = rc::gen::inRange<TokenId>(0, 3);
    const auto run = rc::gen::suchThat(rc::gen::container<Tokens>(tokens),
                                       [](const Tokens& r) { return !r.empty() && std::ssize(r) <= kBlockTokens; });
    const auto runs = *rc::gen::container<std::vector<Tokens>>(run);
    const auto text = *rc::gen::container<Tokens>(tokens);
    PrefixIndex index;
    auto& root = index.root("");
    std::int64_t longest = 0;
    for (const Tokens& r : runs) {
      index.insert(root, r, 0);
      const auto head = std::span(text).first(std::min<std::size_t>(text.size(), 32));
      longest = std::max<std::int64_t>(longest,
                                       std::mismatch(r.begin(), r.end(), head.begin(), head.end()).first - r.begin());
    }
    const auto found = PrefixIndex::match(root, text);
    RC_ASSERT(found.length == longest);
    RC_ASSERT((found.node != nullptr) == (longest > 0));
    if (longest > 0) RC_ASSERT(std::equal(text.begin(), text.begin() + longest, found.node->run->begin()));
  };
  EXPECT_TRUE(test::holds(property, /*count=*/2000, /*size=*/40));
}

TEST(PrefixIndex, EqualRunsAreOneNode) {
  PrefixIndex index;
  auto& root = index.root("");
  const auto [first, added] = index.insert(root, Tokens{1, 2}, 3);
  EXPECT_TRUE(added);
  const auto [again, added_again] = index.insert(root, Tokens{1, 2}, 4);
  EXPECT_FALSE(added_again);
  EXPECT_EQ(again, first);
  EXPECT_EQ(first->block, 3);
  EXPECT_EQ(index.size(), 1);
  EXPECT_NE(index.insert(root, Tokens{1}, 5).first, first) << "a beginning is another run";
}

/// There are no hashes that could be equal for different texts.
TEST(PrefixIndex, DifferentTextsOfEqualLengthNeverMeet) {
  PrefixIndex index;
  auto& root = index.root("");
  auto* const a = index.insert(root, full({1}), 0).first;
  index.insert(*a, full({2}), 1);
  auto* const b = index.insert(root, full({2}), 2).first;
  index.insert(*b, full({1}), 3);
  EXPECT_EQ(PrefixIndex::match(root, full({1})).node, a);
  EXPECT_EQ(PrefixIndex::match(root, full({2})).node, b);
  EXPECT_EQ(PrefixIndex::match(*a, full({1})).node, nullptr) << "the same tokens after another text";
  EXPECT_EQ(PrefixIndex::match(root, full({3})).node, nullptr);
  // Over the whole range of ids, the last token alone differs.
  Tokens c = full({1});
  for (const TokenId last : {-1, 1, 1 << 30, 0x7fffffff}) {
    c.back() = last;
    EXPECT_EQ(PrefixIndex::match(root, c).length, kBlockTokens - 1);
  }
}

TEST(PrefixIndex, KeysAreApart) {
  PrefixIndex index;
  EXPECT_EQ(index.find("a"), nullptr);
  index.insert(index.root("a"), Tokens{1}, 0);
  index.insert(index.root("b"), Tokens{1}, 1);
  EXPECT_EQ(PrefixIndex::match(*index.find("a"), Tokens{1}).node->block, 0);
  EXPECT_EQ(PrefixIndex::match(*index.find("b"), Tokens{1}).node->block, 1);
  EXPECT_EQ(index.find(""), nullptr);
}

TEST(PrefixIndex, ARootGoesWithItsLastNode) {
  PrefixIndex index;
  auto* const a = index.insert(index.root("a"), Tokens{1}, 0).first;
  auto* const b = index.insert(index.root("a"), Tokens{2}, 1).first;
  index.erase(*a);
  EXPECT_NE(index.find("a"), nullptr);
  index.erase(*b);
  EXPECT_EQ(index.find("a"), nullptr);
  EXPECT_EQ(index.size(), 0);
}

TEST(PrefixIndex, OnlyIdleLeavesGoTheOneUsedLeastLatelyFirst) {
  PrefixIndex index;
  auto& root = index.root("");
  auto* const parent = index.insert(root, full({1}), 0).first;
  auto* const child = index.insert(*parent, Tokens{2}, 1).first;
  auto* const other = index.insert(root, Tokens{3}, 2).first;
  EXPECT_EQ(index.oldest(), nullptr) << "all are held";
  for (auto* node : {child, parent, other}) index.set_idle(*node, true);
  EXPECT_EQ(index.oldest(), child) << "the parent is older, but not a leaf";
  index.touch(*child);
  EXPECT_EQ(index.oldest(), other);
  index.set_idle(*other, false);
  EXPECT_EQ(index.oldest(), child);
  index.set_idle(*other, true);
  index.erase(*child);
  EXPECT_EQ(index.oldest(), parent) << "a leaf now, and used before the other";
  index.erase(*parent);
  index.erase(*other);
  EXPECT_EQ(index.oldest(), nullptr);
}

TEST(PrefixIndex, AnIdleNodeWithANewChildStays) {
  PrefixIndex index;
  auto* const parent = index.insert(index.root(""), full({1}), 0).first;
  index.set_idle(*parent, true);
  EXPECT_EQ(index.oldest(), parent);
  index.insert(*parent, Tokens{2}, 1);
  EXPECT_EQ(index.oldest(), nullptr);
}

TEST(PrefixIndex, RefusesWhatBreaksTheTree) {
  PrefixIndex index;
  auto& root = index.root("");
  auto* const part = index.insert(root, Tokens{1}, 0).first;
  auto* const whole = index.insert(root, full({2}), 1).first;
  index.insert(*whole, Tokens{1}, 2);
  EXPECT_THROW(index.insert(*part, Tokens{1}, 3), Error) << "only full blocks have children";
  EXPECT_THROW(index.insert(root, Tokens{}, 3), Error);
  EXPECT_THROW(index.insert(root, Tokens(33, 1), 3), Error);
  EXPECT_THROW(index.erase(*whole), Error) << "it has a child";
  EXPECT_THROW(index.erase(root), Error);
}

}  // namespace
}  // namespace vitrine
