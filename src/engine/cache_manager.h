// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/cache_store.h"
#include "engine/block_pool.h"
#include "engine/prefix_index.h"

namespace vitrine {

/// Blocks that hold `tokens` tokens.
inline constexpr std::int64_t blocks_for(std::int64_t tokens) noexcept {
  return (tokens + kBlockTokens - 1) / kBlockTokens;
}

/// What a sequence holds of the cache.
struct CacheLease {
  std::string key;                    // of the prefix index
  bool indexed = true;                // it reads the index and leaves its blocks there
  std::vector<BlockId> blocks;        // the block table: positions [32 b, 32 b + 32) are in blocks[b]
  std::int64_t computed = 0;          // tokens whose keys and values are there, and which the state has seen
  std::int64_t num_nodes = 0;         // blocks at the front that are nodes of the index with the sequence's tokens
  PrefixIndex::Node* node = nullptr;  // the last of them; null where there is none
  StateSlot state = kNoState;         // its recurrent states
  StateSlot state_before = kNoState;  // what they were before tokens that may turn out wrong
};

/// Shares the cache out: who holds which block, which blocks are common to several, which are kept for later. A block is
/// written only by a sequence that holds it alone and while it is not in the index; else it is copied first. Moves bytes
/// by CacheStore alone, so it runs without a model.
class CacheManager {
 public:
  struct Options {
    std::int64_t num_blocks = 0;
    std::int64_t max_idle_blocks = 0;  // kept for later requests, at most
    bool has_states = false;           // the model has states that can't be rolled back
    std::int64_t max_sequences = 0;    // that hold states at once
    std::int64_t max_snapshots = 0;    // states kept for later requests, at most
  };
  CacheManager(CacheStore& store, const Options& options);

  /// Slots of recurrent states that the store must have.
  static std::int64_t num_state_slots(const Options& options) noexcept {
    return options.has_states ? 2 * options.max_sequences + options.max_snapshots : 0;
  }

  /// What the index has of these tokens, at most all but one: the last must be computed to know what follows.
  struct Hit {
    std::int64_t tokens = 0;
    std::int64_t held_blocks = 0;  // of the hit, in use already: sharing them takes nothing away
    std::vector<PrefixIndex::Node*> path;
  };
  Hit find(const CacheLease& lease, std::span<const TokenId> tokens);

  /// Begins an empty lease with a hit, or with nothing. The hit must be fresh: nothing else was called since find().
  void admit(CacheLease& lease, const Hit& hit);
  /// Whether the first `position` tokens of a lease are there, and its state is the one after them.
  bool can_fork(const CacheLease& from, std::int64_t position) const noexcept {
    return position <= from.computed && (!options_.has_states || position == from.computed);
  }
  /// Begins an empty lease with the first `position` tokens of another. Only where can_fork() says so.
  void fork(CacheLease& lease, const CacheLease& from, std::int64_t position);
  /// Makes [computed, end) writable. False when no block is left; what was got until then is kept.
  bool grow(CacheLease& lease, std::int64_t end);
  /// The first `computed` of the sequence's tokens are there now: full blocks enter the index, and where one is there
  /// already, that one is held instead.
  void advance(CacheLease& lease, std::span<const TokenId> tokens, std::int64_t computed);
  /// Keeps a copy of the states for later requests. Of use at the end of a block.
  void snapshot(const CacheLease& lease);
  /// Gives everything back. With `keep` what is computed stays for later requests, the unfinished last block too.
  void release(CacheLease& lease, std::span<const TokenId> tokens, bool keep);

  /// Before tokens that may turn out wrong: remembers the states.
  void hold_state(CacheLease& lease);
  /// After it: they were right, or the states go back.
  void settle_state(CacheLease& lease, bool right);

  /// Forgets all that nobody holds.
  void clear_idle();

  /// Blocks that can be had now: those that are free, and those kept for later requests.
  std::int64_t num_available() const noexcept { return blocks_.num_free() + blocks_.num_idle(); }
  std::int64_t num_live() const noexcept { return blocks_.num_held(); }
  std::int64_t num_idle() const noexcept { return blocks_.num_idle(); }
  std::int64_t num_blocks() const noexcept { return blocks_.size(); }
  std::int64_t num_snapshots() const noexcept { return std::ssize(snapshots_); }
  bool has_states() const noexcept { return options_.has_states; }

  /// Throws Error(kInternal) unless the books agree with themselves and with the leases, which must be all there are.
  /// For tests.
  void check(std::span<const CacheLease* const> leases);

 private:
  using Node = PrefixIndex::Node;

  Node*& node_of(BlockId block);
  bool is_writable(BlockId block) { return blocks_.holders(block) == 1 && node_of(block) == nullptr; }
  bool take(BlockId& block);
  void hold(BlockId block);
  void drop(BlockId block);
  void evict(Node& node);
  bool own(CacheLease& lease, std::size_t index);
  void keep_tail(CacheLease& lease, std::span<const TokenId> tokens);
  Node* keep_node(CacheLease& lease, std::span<const TokenId> run);
  bool room_for_snapshot(const Node& node);
  void drop_snapshot(Node& node);
  void trim();

  CacheStore& store_;
  Options options_;
  BlockPool blocks_;
  BlockPool states_;
  PrefixIndex index_;
  std::vector<Node*> nodes_;  // of each block ever used, null where it is in none
  std::vector<Node*> snapshots_;
};

}  // namespace vitrine
