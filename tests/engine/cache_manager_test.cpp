// SPDX-License-Identifier: Apache-2.0
#include "engine/cache_manager.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <vitrine/error.h>

#include <algorithm>
#include <list>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/fake_store.h"
#include "support/properties.h"

namespace vitrine {
namespace {

using test::FakeStore;
using test::TextHash;
using Tokens = std::vector<TokenId>;

/// first, first + 1, …
Tokens counted(std::int64_t count, TokenId first = 0) {
  Tokens tokens;
  for (std::int64_t i = 0; i < count; ++i) tokens.push_back(first + static_cast<TokenId>(i));
  return tokens;
}

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// A cache with those that use it; what is computed is written into its store and read back.
class Cache {
 public:
  struct User {
    CacheLease lease;
    Tokens tokens;
  };

  explicit Cache(const CacheManager::Options& options)
      : store(options.num_blocks, CacheManager::num_state_slots(options)), manager(store, options) {}

  /// Begins with what the cache has of the tokens.
  User& admit(Tokens tokens, const std::string& key = "", bool indexed = true) {
    User& user = add(std::move(tokens), key, indexed);
    const auto hit = manager.find(user.lease, user.tokens);
    manager.admit(user.lease, hit);
    check();
    return user;
  }

  /// Begins with nothing, whatever the cache has.
  User& admit_blind(Tokens tokens) {
    User& user = add(std::move(tokens), "", /*indexed=*/true);
    manager.admit(user.lease, {});
    return user;
  }

  /// Null where it can't.
  User* fork(const User& from, std::int64_t position) {
    if (!manager.can_fork(from.lease, position)) return nullptr;
    User& user = add(Tokens(from.tokens.begin(), from.tokens.begin() + position), from.lease.key, from.lease.indexed);
    manager.fork(user.lease, from.lease, position);
    check();
    return &user;
  }

  /// Computes up to `end`; false where there was no room.
  bool compute(User& user, std::int64_t end) {
    CacheLease& lease = user.lease;
    const bool grown = manager.grow(lease, end);
    if (grown) {
      write(user, end);
      manager.advance(lease, user.tokens, end);
    }
    check();
    return grown;
  }
  bool compute(User& user) { return compute(user, std::ssize(user.tokens)); }

  void release(User& user, bool keep = true) {
    manager.release(user.lease, user.tokens, keep);
    users.remove_if([&](const User& u) { return &u == &user; });
    check();
  }

  /// Computes a text from whatever there is, and ends.
  std::int64_t run(const Tokens& tokens, const std::string& key = "") {
    User& user = admit(tokens, key);
    const std::int64_t cached = user.lease.computed;
    EXPECT_TRUE(compute(user));
    release(user);
    return cached;
  }

  /// How much of it there is.
  std::int64_t cached(const Tokens& tokens, const std::string& key = "") {
    CacheLease lease;
    lease.key = key;
    return manager.find(lease, tokens).tokens;
  }

  void write(User& user, std::int64_t end) {
    const CacheLease& lease = user.lease;
    TextHash text = text_of(user, lease.computed);
    for (std::int64_t p = lease.computed; p < end; ++p) {
      text = test::grown(text, user.tokens[static_cast<std::size_t>(p)]);
      entry(user, p) = text;
      if (lease.state != kNoState) store.state(lease.state) = text;
    }
  }

  void check() {
    std::vector<const CacheLease*> leases;
    for (User& user : users) {
      leases.push_back(&user.lease);
      for (std::int64_t p = 0; p < user.lease.computed; ++p) expect(entry(user, p) == text_of(user, p + 1), "contents");
      if (user.lease.state == kNoState) continue;
      const TextHash seen = user.lease.computed == 0 ? FakeStore::kNothing : text_of(user, user.lease.computed);
      expect(store.state(user.lease.state) == seen, "the state");
    }
    manager.check(leases);
  }

  FakeStore store;
  CacheManager manager;
  std::list<User> users;

 private:
  static void expect(bool holds, const char* what) {
    if (!holds) throw std::runtime_error(std::string("broken: ") + what);
  }

  User& add(Tokens tokens, const std::string& key, bool indexed) {
    User& user = users.emplace_back();
    user.tokens = std::move(tokens);
    user.lease.key = key;
    user.lease.indexed = indexed;
    return user;
  }

  TextHash& entry(const User& user, std::int64_t p) {
    const BlockId block = user.lease.blocks[static_cast<std::size_t>(p / kBlockTokens)];
    return store.block(block)[static_cast<std::size_t>(p % kBlockTokens)];
  }

  static TextHash text_of(const User& user, std::int64_t count) {
    TextHash text = test::mixed(user.lease.key.size() + (user.lease.indexed ? 1 : 1000));
    for (std::int64_t p = 0; p < count; ++p) text = test::grown(text, user.tokens[static_cast<std::size_t>(p)]);
    return text;
  }
};

CacheManager::Options blocks(std::int64_t count) { return {.num_blocks = count, .max_idle_blocks = count}; }

CacheManager::Options with_states(std::int64_t count, std::int64_t snapshots) {
  return {.num_blocks = count,
          .max_idle_blocks = count,
          .has_states = true,
          .max_sequences = 4,
          .max_snapshots = snapshots};
}

// ---- What is there already -------------------------------------------------------------------------------------------

TEST(CacheManager, AHitIsAllButTheLastToken) {
  Cache cache(blocks(8));
  EXPECT_EQ(cache.run(counted(64)), 0);
  EXPECT_EQ(cache.cached(counted(64)), 63);
  EXPECT_EQ(cache.cached(counted(65)), 64);
  EXPECT_EQ(cache.cached(counted(100)), 64);
  EXPECT_EQ(cache.cached(counted(33)), 32);
  EXPECT_EQ(cache.cached(counted(32)), 31);
  EXPECT_EQ(cache.cached(counted(1)), 0);
  EXPECT_EQ(cache.cached({}), 0);
}

TEST(CacheManager, FullBlocksAreSharedNotCopied) {
  Cache cache(blocks(8));
  auto& first = cache.admit(counted(70));
  ASSERT_TRUE(cache.compute(first));
  auto& second = cache.admit(counted(64) + counted(10, 500));
  EXPECT_EQ(second.lease.computed, 64);
  EXPECT_EQ(second.lease.blocks, (std::vector(first.lease.blocks.begin(), first.lease.blocks.begin() + 2)));
  ASSERT_TRUE(cache.compute(second));
  EXPECT_EQ(cache.store.num_copies, 0);
  EXPECT_EQ(cache.manager.num_live(), 4);
}

TEST(CacheManager, APartOfABlockIsCopiedBeforeItIsWritten) {
  Cache cache(blocks(8));
  cache.run(counted(64));
  auto& user = cache.admit(counted(50) + counted(10, 500));
  EXPECT_EQ(user.lease.computed, 50);
  EXPECT_EQ(cache.store.num_copies, 0);
  const BlockId shared = user.lease.blocks[1];
  ASSERT_TRUE(cache.compute(user));
  EXPECT_EQ(cache.store.num_copies, 1);
  EXPECT_NE(user.lease.blocks[1], shared);
  EXPECT_EQ(cache.cached(counted(64)), 63) << "what was there stays";
}

TEST(CacheManager, TheUnfinishedLastBlockIsKept) {
  Cache cache(blocks(8));
  cache.run(counted(40));
  EXPECT_EQ(cache.cached(counted(45)), 40);
  EXPECT_EQ(cache.manager.num_idle(), 2);
  auto& other = cache.admit(counted(40, 500));
  ASSERT_TRUE(cache.compute(other));
  cache.release(other, /*keep=*/false);
  EXPECT_EQ(cache.cached(counted(45, 500)), 32) << "the full block is in the index since it was full";
}

TEST(CacheManager, WhereNoBlockIsLeftForACopyTheIndexLosesIt) {
  Cache cache(blocks(2));
  cache.run(counted(64));
  auto& user = cache.admit(counted(40) + counted(24, 500));
  EXPECT_EQ(user.lease.computed, 40);
  const auto before = user.lease.blocks;
  ASSERT_TRUE(cache.compute(user));
  EXPECT_EQ(cache.store.num_copies, 0);
  EXPECT_EQ(user.lease.blocks, before) << "in place";
  EXPECT_EQ(cache.cached(counted(64)), 40);
}

TEST(CacheManager, WhatAnotherReadsIsNotTakenFromIt) {
  Cache cache(blocks(2));
  cache.run(counted(64));
  auto& a = cache.admit(counted(40) + counted(24, 500));
  auto& b = cache.admit(counted(45) + counted(19, 600));
  EXPECT_FALSE(cache.compute(a));
  EXPECT_FALSE(cache.compute(b));
  cache.release(b);
  EXPECT_TRUE(cache.compute(a));
}

TEST(CacheManager, EqualBlocksComputedTwiceBecomeOne) {
  Cache cache(blocks(8));
  auto& a = cache.admit(counted(70));
  auto& b = cache.admit(counted(70));
  EXPECT_EQ(b.lease.computed, 0);
  ASSERT_TRUE(cache.compute(a));
  ASSERT_TRUE(cache.compute(b));
  EXPECT_EQ(cache.manager.num_live(), 4) << "two in common, and the last of each";
  EXPECT_EQ(a.lease.blocks[1], b.lease.blocks[1]);
  cache.release(a);
  cache.release(b);
  EXPECT_EQ(cache.manager.num_idle(), 3);
}

/// Tokens are compared, so there are no hashes of theirs that could be equal.
TEST(CacheManager, DifferentTextsOfEqualLengthNeverShare) {
  Cache cache(blocks(8));
  const Tokens a = counted(64);
  Tokens b = a;
  std::swap(b[0], b[1]);  // the same tokens in another order
  cache.run(a);
  EXPECT_EQ(cache.cached(b), 0);
  EXPECT_EQ(cache.run(b), 0);
  Tokens c = a;
  c[40] = 999;
  EXPECT_EQ(cache.cached(c), 40);
  EXPECT_EQ(cache.cached(Tokens(a.begin() + 32, a.end())), 0) << "the second block alone";
}

TEST(CacheManager, SaltsAndPrivateOnesShareNothing) {
  Cache cache(blocks(12));
  cache.run(counted(64), "a");
  EXPECT_EQ(cache.cached(counted(64), "b"), 0);
  EXPECT_EQ(cache.cached(counted(64)), 0);
  EXPECT_EQ(cache.cached(counted(64), "a"), 63);
  auto& own = cache.admit(counted(64), "a", /*indexed=*/false);
  EXPECT_EQ(own.lease.computed, 0);
  ASSERT_TRUE(cache.compute(own));
  EXPECT_EQ(cache.manager.num_live(), 2);
  cache.release(own);
  EXPECT_EQ(cache.manager.num_idle(), 2) << "only what was there before";
}

// ---- What is kept ----------------------------------------------------------------------------------------------------

TEST(CacheManager, NoMoreIsKeptThanMayBe) {
  Cache cache({.num_blocks = 8, .max_idle_blocks = 3});
  cache.run(counted(64));
  cache.run(counted(64, 500));
  EXPECT_EQ(cache.manager.num_idle(), 3);
  EXPECT_EQ(cache.cached(counted(64, 500)), 63);
  EXPECT_EQ(cache.cached(counted(64)), 32) << "the end goes before the beginning";
  Cache none({.num_blocks = 8, .max_idle_blocks = 0});
  none.run(counted(64));
  EXPECT_EQ(none.manager.num_idle(), 0);
}

TEST(CacheManager, TheOneUsedLeastLatelyMakesRoom) {
  Cache cache(blocks(3));
  cache.run(counted(32));
  cache.run(counted(32, 500));
  cache.run(counted(32, 600));
  auto& again = cache.admit(counted(33));
  EXPECT_EQ(again.lease.computed, 32);
  ASSERT_TRUE(cache.compute(again));
  EXPECT_EQ(cache.cached(counted(32, 500)), 0);
  EXPECT_EQ(cache.cached(counted(32, 600)), 31);
}

TEST(CacheManager, WhatIsFoundOrComputedAgainIsUsed) {
  for (const bool finds : {true, false}) {
    Cache cache(blocks(4));
    cache.run(counted(32));
    cache.run(counted(32, 500));
    auto& again = finds ? cache.admit(counted(33)) : cache.admit_blind(counted(32));
    EXPECT_TRUE(finds || cache.compute(again));
    cache.release(again, /*keep=*/false);
    cache.run(counted(96, 900));
    EXPECT_EQ(cache.cached(counted(33)), 32);
    EXPECT_EQ(cache.cached(counted(33, 500)), 0);
  }
}

TEST(CacheManager, ClearIdleForgetsWhatNobodyHolds) {
  Cache cache(blocks(8));
  cache.run(counted(64, 500));
  auto& user = cache.admit(counted(64));
  ASSERT_TRUE(cache.compute(user));
  cache.manager.clear_idle();
  cache.check();
  EXPECT_EQ(cache.cached(counted(64, 500)), 0);
  EXPECT_EQ(cache.cached(counted(64)), 63);
  EXPECT_EQ(cache.manager.num_idle(), 0);
  EXPECT_EQ(cache.manager.num_live(), 2);
}

TEST(CacheManager, GrowSaysWhenNothingIsLeft) {
  Cache cache(blocks(2));
  auto& user = cache.admit(counted(96));
  EXPECT_TRUE(cache.compute(user, 64));
  EXPECT_FALSE(cache.compute(user, 65));
  EXPECT_EQ(user.lease.computed, 64);
  EXPECT_EQ(cache.manager.num_available(), 0);
}

// ---- Forks -----------------------------------------------------------------------------------------------------------

TEST(CacheManager, AForkSharesUntilOneOfThemWrites) {
  Cache cache(blocks(8));
  auto& source = cache.admit(counted(80));
  ASSERT_TRUE(cache.compute(source, 50));
  auto* const fork = cache.fork(source, 45);
  ASSERT_NE(fork, nullptr);
  EXPECT_EQ(fork->lease.computed, 45);
  EXPECT_EQ(cache.manager.num_live(), 2);
  fork->tokens = fork->tokens + counted(10, 500);
  ASSERT_TRUE(cache.compute(source));
  ASSERT_TRUE(cache.compute(*fork));
  EXPECT_EQ(cache.store.num_copies, 1) << "the second one has it alone by then";
  EXPECT_EQ(fork->lease.blocks[0], source.lease.blocks[0]);
}

TEST(CacheManager, AForkWorksWithoutTheIndex) {
  Cache cache(blocks(8));
  auto& source = cache.admit(counted(70), "", /*indexed=*/false);
  ASSERT_TRUE(cache.compute(source));
  auto* const fork = cache.fork(source, 64);
  ASSERT_NE(fork, nullptr);
  cache.release(source);
  fork->tokens = fork->tokens + counted(10, 500);
  ASSERT_TRUE(cache.compute(*fork));
  EXPECT_EQ(cache.manager.num_live(), 3);
}

TEST(CacheManager, WhatAForkStillWritesIntoIsNotKeptAsATail) {
  Cache cache(blocks(8));
  auto& source = cache.admit(counted(40));
  ASSERT_TRUE(cache.compute(source));
  auto* const fork = cache.fork(source, 40);
  cache.release(source);
  fork->tokens = fork->tokens + counted(4, 500);
  ASSERT_TRUE(cache.compute(*fork));
  EXPECT_EQ(cache.store.num_copies, 0);
}

TEST(CacheManager, NoForkOfWhatIsNotComputed) {
  Cache cache(blocks(8));
  auto& source = cache.admit(counted(40));
  ASSERT_TRUE(cache.compute(source, 20));
  EXPECT_EQ(cache.fork(source, 21), nullptr);
  EXPECT_NE(cache.fork(source, 20), nullptr);
}

// ---- States ----------------------------------------------------------------------------------------------------------

TEST(CacheManagerStates, OnlyWhereAStateWasKeptIsAHit) {
  Cache cache(with_states(8, 4));
  auto& user = cache.admit(counted(90));
  ASSERT_TRUE(cache.compute(user, 32));
  cache.manager.snapshot(user.lease);
  ASSERT_TRUE(cache.compute(user, 70));
  cache.manager.snapshot(user.lease);  // in the middle of a block: none
  EXPECT_EQ(cache.manager.num_snapshots(), 1);
  EXPECT_EQ(cache.cached(counted(90)), 32);
  auto& other = cache.admit(counted(90));
  EXPECT_EQ(other.lease.computed, 32);
  ASSERT_TRUE(cache.compute(other));
  cache.release(other);
  EXPECT_EQ(cache.cached(counted(95)), 90) << "the state at the end is kept with the tail";
  EXPECT_EQ(cache.cached(counted(90)), 32) << "not a state that has seen the last token";
}

TEST(CacheManagerStates, NoMoreAreKeptThanMayBe) {
  Cache cache(with_states(12, 2));
  for (const TokenId first : {0, 500, 600}) cache.run(counted(32, first));
  EXPECT_EQ(cache.manager.num_snapshots(), 2);
  EXPECT_EQ(cache.cached(counted(33)), 0);
  EXPECT_EQ(cache.cached(counted(33, 500)), 32);
  EXPECT_EQ(cache.cached(counted(33, 600)), 32);
  Cache none(with_states(12, 0));
  none.run(counted(32));
  EXPECT_EQ(none.cached(counted(33)), 0);
}

TEST(CacheManagerStates, WrongGuessesGoBack) {
  Cache cache(with_states(8, 0));
  auto& user = cache.admit(counted(10));
  ASSERT_TRUE(cache.compute(user));
  const TextHash before = cache.store.state(user.lease.state);
  cache.manager.hold_state(user.lease);
  cache.store.state(user.lease.state) = 12345;
  cache.manager.settle_state(user.lease, /*right=*/false);
  EXPECT_EQ(cache.store.state(user.lease.state), before);
  cache.manager.hold_state(user.lease);
  cache.store.state(user.lease.state) = 12345;
  cache.manager.settle_state(user.lease, /*right=*/true);
  EXPECT_EQ(cache.store.state(user.lease.state), 12345u);
  EXPECT_EQ(user.lease.state_before, kNoState);
  EXPECT_THROW(
      {
        cache.manager.hold_state(user.lease);
        cache.manager.hold_state(user.lease);
      },
      Error);
}

TEST(CacheManagerStates, AForkNeedsTheStateOfItsPosition) {
  Cache cache(with_states(8, 0));
  auto& source = cache.admit(counted(40));
  ASSERT_TRUE(cache.compute(source, 35));
  EXPECT_EQ(cache.fork(source, 34), nullptr);
  auto* const fork = cache.fork(source, 35);
  ASSERT_NE(fork, nullptr);
  EXPECT_NE(fork->lease.state, source.lease.state);
  fork->tokens = fork->tokens + counted(10, 500);
  EXPECT_TRUE(cache.compute(*fork));
}

TEST(CacheManagerStates, ASnapshotGoesWithItsBlock) {
  Cache cache(with_states(2, 4));
  cache.run(counted(32));
  cache.run(counted(64, 500));
  EXPECT_EQ(cache.manager.num_snapshots(), 1);
  cache.manager.clear_idle();
  EXPECT_EQ(cache.manager.num_snapshots(), 0);
  cache.check();
}

// ---- Random histories ------------------------------------------------------------------------------------------------

/// Leases alone, so that the cache is full far more often than a scheduler lets it become.
class Player {
 public:
  Player(const CacheManager::Options& options) : options_(options), cache_(options) {}

  void play(const std::vector<std::uint32_t>& numbers) {
    for (const std::uint32_t number : numbers) play(number);
    while (!cache_.users.empty()) cache_.release(cache_.users.front());
    EXPECT_EQ(cache_.manager.num_live(), 0);
    cache_.manager.clear_idle();
    RC_ASSERT(cache_.manager.num_available() == options_.num_blocks && cache_.manager.num_snapshots() == 0);
  }

 private:
  void play(std::uint32_t number) {
    const std::uint32_t what = number % 16, more = number / 16;
    auto* const user = any(more);
    const bool room = std::ssize(cache_.users) < 4;
    if (user == nullptr || (what < 3 && room)) {
      cache_.admit(any_text(more), more % 7 == 0 ? "other" : "", more % 11 != 0);
    } else if (what < 5 && room) {
      const auto computed = user->lease.computed;
      if (computed > 0) extend(cache_.fork(*user, options_.has_states ? computed : 1 + more % computed), more);
    } else if (what < 7) {
      cache_.release(*user, /*keep=*/what != 6 || more % 3 != 0);
    } else if (what == 7 && more % 4 == 0) {
      cache_.manager.clear_idle();
    } else if (what < 10) {
      guess(*user, more);
    } else {
      advance(*user, 1 + more / 8 % 40);
    }
    cache_.check();
  }

  Cache::User* any(std::uint32_t more) {
    if (cache_.users.empty()) return nullptr;
    return &*std::next(cache_.users.begin(), static_cast<std::ptrdiff_t>(more / 3 % cache_.users.size()));
  }

  static Tokens any_text(std::uint32_t more) {
    Tokens tokens;
    const std::uint32_t period = 8 + more / 5 % 3 * 16;
    for (std::uint32_t i = 0; i < 1 + more % 120; ++i) tokens.push_back(static_cast<TokenId>(i / period % 2));
    return tokens;
  }

  static void extend(Cache::User* user, std::uint32_t more) {
    if (user == nullptr) return;
    for (std::uint32_t i = 0; i < 1 + more % 30; ++i) user->tokens.push_back(static_cast<TokenId>(more >> (i % 8) & 1));
  }

  void advance(Cache::User& user, std::int64_t rows) {
    if (user.lease.computed == std::ssize(user.tokens)) extend(&user, static_cast<std::uint32_t>(rows));
    const auto end = std::min(std::ssize(user.tokens), user.lease.computed + rows);
    if (cache_.compute(user, end) && options_.has_states) cache_.manager.snapshot(user.lease);
  }

  /// Rows that turn out wrong from some point on, as after guesses.
  void guess(Cache::User& user, std::uint32_t more) {
    CacheLease& lease = user.lease;
    const std::int64_t rows = 1 + more % 5, right = more / 8 % (rows + 1);
    const Tokens tokens = user.tokens;
    user.tokens.resize(static_cast<std::size_t>(lease.computed));
    for (std::int64_t i = 0; i < rows; ++i) user.tokens.push_back(static_cast<TokenId>(more >> i & 1));
    if (!cache_.manager.grow(lease, lease.computed + rows)) {
      user.tokens = tokens;
      return;
    }
    if (options_.has_states) cache_.manager.hold_state(lease);
    cache_.write(user, lease.computed + rows);
    user.tokens.resize(static_cast<std::size_t>(lease.computed + right));
    cache_.manager.settle_state(lease, right == rows);
    const bool again = options_.has_states && right < rows;
    if (!again) cache_.manager.advance(lease, user.tokens, lease.computed + right);
    extend(&user, more);
  }

  CacheManager::Options options_;
  Cache cache_;
};

void any_history(bool states) {
  const std::int64_t count = *rc::gen::inRange(1, 12);
  CacheManager::Options options = states ? with_states(count, *rc::gen::inRange(0, 5)) : blocks(count);
  options.max_idle_blocks = std::min<std::int64_t>(count, *rc::gen::inRange(0, 12));
  Player(options).play(*rc::gen::container<std::vector<std::uint32_t>>(rc::gen::inRange<std::uint32_t>(0, 1 << 24)));
}

TEST(CacheManager, AnyHistory) {
  EXPECT_TRUE(test::holds([] { any_history(/*states=*/false); }, /*count=*/3000, /*size=*/80));
}

TEST(CacheManagerStates, AnyHistory) {
  EXPECT_TRUE(test::holds([] { any_history(/*states=*/true); }, /*count=*/3000, /*size=*/80));
}

}  // namespace
}  // namespace vitrine
