// SPDX-License-Identifier: Apache-2.0
#include "engine/cache_manager.h"

#include <algorithm>
#include <map>
#include <utility>

namespace vitrine {

CacheManager::CacheManager(CacheStore& store, const Options& options)
    : store_(store), options_(options), blocks_(options.num_blocks), states_(num_state_slots(options)) {}

PrefixIndex::Node*& CacheManager::node_of(BlockId block) {
  const auto i = static_cast<std::size_t>(block);
  if (i >= nodes_.size()) nodes_.resize(i + 1, nullptr);
  return nodes_[i];
}

bool CacheManager::take(BlockId& block) {
  if (blocks_.num_free() == 0) {
    Node* const oldest = index_.oldest();
    if (oldest == nullptr) return false;
    evict(*oldest);
  }
  block = blocks_.take();
  return true;
}

void CacheManager::hold(BlockId block) {
  blocks_.hold(block);
  if (Node* const node = node_of(block)) index_.set_idle(*node, false);
}

void CacheManager::drop(BlockId block) {
  Node* const node = node_of(block);
  if (blocks_.drop(block, node != nullptr) && node != nullptr) index_.set_idle(*node, true);
}

/// Takes a node that nobody holds out of the index; its block is free then.
void CacheManager::evict(Node& node) {
  drop_snapshot(node);
  node_of(node.block) = nullptr;
  blocks_.forget(node.block);
  index_.erase(node);
}

void CacheManager::drop_snapshot(Node& node) {
  if (node.state == kNoState) return;
  states_.drop(node.state, false);
  node.state = kNoState;
  std::erase(snapshots_, &node);
}

void CacheManager::trim() {
  while (blocks_.num_idle() > options_.max_idle_blocks) evict(*index_.oldest());
}

void CacheManager::clear_idle() {
  while (Node* const oldest = index_.oldest()) evict(*oldest);
  while (!snapshots_.empty()) drop_snapshot(*snapshots_.back());
}

CacheManager::Hit CacheManager::find(const CacheLease& lease, std::span<const TokenId> tokens) {
  Hit hit;
  Node* node = lease.indexed ? index_.find(lease.key) : nullptr;
  if (node == nullptr || tokens.empty()) return hit;
  std::int64_t total = 0;
  std::size_t usable = 0;  // nodes of the path up to the last one with a snapshot
  for (auto rest = tokens.first(tokens.size() - 1); !rest.empty();) {
    const auto match = PrefixIndex::match(*node, rest);
    if (match.node == nullptr) break;
    node = match.node;
    hit.path.push_back(node);
    total += match.length;
    const bool whole = match.length == node->num_tokens();
    if (!options_.has_states || (whole && node->state != kNoState)) {
      usable = hit.path.size();
      hit.tokens = total;
    }
    if (!whole || !node->is_full()) break;
    rest = rest.subspan(static_cast<std::size_t>(match.length));
  }
  hit.path.resize(usable);
  hit.held_blocks = std::count_if(hit.path.begin(), hit.path.end(), [](const Node* n) { return !n->idle; });
  return hit;
}

void CacheManager::admit(CacheLease& lease, const Hit& hit) {
  VITRINE_CHECK(lease.blocks.empty() && lease.computed == 0 && lease.state == kNoState);
  for (Node* const node : hit.path) {
    hold(node->block);
    index_.touch(*node);
    lease.blocks.push_back(node->block);
  }
  lease.computed = hit.tokens;
  lease.num_nodes = hit.tokens / kBlockTokens;
  lease.node = lease.num_nodes > 0 ? hit.path[static_cast<std::size_t>(lease.num_nodes - 1)] : nullptr;
  if (!options_.has_states) return;
  lease.state = states_.take();
  if (hit.path.empty()) {
    store_.clear_state(lease.state);
  } else {
    store_.copy_state(hit.path.back()->state, lease.state);
  }
}

void CacheManager::fork(CacheLease& lease, const CacheLease& from, std::int64_t position) {
  VITRINE_CHECK(lease.blocks.empty() && lease.computed == 0 && lease.state == kNoState);
  VITRINE_CHECK(can_fork(from, position));
  const std::int64_t count = blocks_for(position);
  for (std::int64_t b = 0; b < count; ++b) {
    lease.blocks.push_back(from.blocks[static_cast<std::size_t>(b)]);
    hold(lease.blocks.back());
  }
  lease.computed = position;
  lease.num_nodes = std::min(from.num_nodes, position / kBlockTokens);
  lease.node = lease.num_nodes > 0 ? node_of(lease.blocks[static_cast<std::size_t>(lease.num_nodes - 1)]) : nullptr;
  if (options_.has_states) {
    lease.state = states_.take();
    store_.copy_state(from.state, lease.state);
  }
}

/// Makes a block of the table the lease's own, by a copy where others have a part in it.
bool CacheManager::own(CacheLease& lease, std::size_t index) {
  const BlockId shared = lease.blocks[index];
  if (is_writable(shared)) return true;
  BlockId copy = 0;
  if (take(copy)) {
    store_.copy_block(shared, copy);
    lease.blocks[index] = copy;
    drop(shared);
    trim();
    return true;
  }
  if (blocks_.holders(shared) > 1) return false;
  // No block is left, so no node is idle and this one has none below it: nobody but the index has a part in it.
  Node& node = *node_of(shared);
  drop_snapshot(node);
  node_of(shared) = nullptr;
  index_.erase(node);
  return true;
}

bool CacheManager::grow(CacheLease& lease, std::int64_t end) {
  const auto first = static_cast<std::size_t>(lease.computed / kBlockTokens);
  const bool writes_into_first = first < lease.blocks.size() && end > lease.computed;
  if (writes_into_first && !own(lease, first)) return false;
  while (std::ssize(lease.blocks) < blocks_for(end)) {
    BlockId block = 0;
    if (!take(block)) return false;
    lease.blocks.push_back(block);
  }
  return true;
}

/// The node with the tokens that follow the lease's nodes, whose block is lease.blocks[num_nodes]: the lease's own block,
/// or the one that was there already.
PrefixIndex::Node* CacheManager::keep_node(CacheLease& lease, std::span<const TokenId> run) {
  Node& parent = lease.node != nullptr ? *lease.node : index_.root(lease.key);
  BlockId& block = lease.blocks[static_cast<std::size_t>(lease.num_nodes)];
  const auto [node, added] = index_.insert(parent, run, block);
  if (added) {
    node_of(block) = node;
  } else if (node->block != block) {
    hold(node->block);
    drop(block);
    block = node->block;
  }
  index_.touch(*node);
  return node;
}

void CacheManager::advance(CacheLease& lease, std::span<const TokenId> tokens, std::int64_t computed) {
  VITRINE_CHECK(computed <= std::ssize(lease.blocks) * kBlockTokens && computed <= std::ssize(tokens));
  lease.computed = computed;
  if (!lease.indexed) return;
  while ((lease.num_nodes + 1) * kBlockTokens <= computed) {
    const auto first = static_cast<std::size_t>(lease.num_nodes * kBlockTokens);
    lease.node = keep_node(lease, tokens.subspan(first, static_cast<std::size_t>(kBlockTokens)));
    ++lease.num_nodes;
  }
}

void CacheManager::snapshot(const CacheLease& lease) {
  const bool at_end_of_block = lease.num_nodes > 0 && lease.computed == lease.num_nodes * kBlockTokens;
  if (!lease.indexed || !at_end_of_block || !room_for_snapshot(*lease.node)) return;
  lease.node->state = states_.take();
  store_.copy_state(lease.state, lease.node->state);
  snapshots_.push_back(lease.node);
}

/// Whether the node has no snapshot and may get one. The one used least lately makes room.
bool CacheManager::room_for_snapshot(const Node& node) {
  if (!options_.has_states || node.state != kNoState || options_.max_snapshots == 0) return false;
  if (num_snapshots() == options_.max_snapshots) {
    drop_snapshot(**std::min_element(snapshots_.begin(), snapshots_.end(),
                                     [](const Node* a, const Node* b) { return a->used < b->used; }));
  }
  return true;
}

/// Leaves the unfinished last block, and the states as they are now, for later requests.
void CacheManager::keep_tail(CacheLease& lease, std::span<const TokenId> tokens) {
  const std::int64_t first = lease.num_nodes * kBlockTokens;
  Node* last = lease.node;
  if (lease.computed > first) {
    const BlockId block = lease.blocks[static_cast<std::size_t>(lease.num_nodes)];
    if (node_of(block) != nullptr) return;   // a part of another's block that it never wrote to
    if (blocks_.holders(block) > 1) return;  // a fork goes on in it
    last = keep_node(lease,
                     tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(lease.computed - first)));
  }
  if (last == nullptr || !room_for_snapshot(*last)) return;
  last->state = std::exchange(lease.state, kNoState);
  snapshots_.push_back(last);
}

void CacheManager::release(CacheLease& lease, std::span<const TokenId> tokens, bool keep) {
  if (keep && lease.indexed && lease.computed > 0) keep_tail(lease, tokens);
  for (; !lease.blocks.empty(); lease.blocks.pop_back()) drop(lease.blocks.back());
  for (StateSlot* slot : {&lease.state, &lease.state_before}) {
    if (*slot != kNoState) states_.drop(*slot, false);
    *slot = kNoState;
  }
  lease.computed = lease.num_nodes = 0;
  lease.node = nullptr;
  trim();
}

void CacheManager::hold_state(CacheLease& lease) {
  VITRINE_CHECK(options_.has_states && lease.state_before == kNoState);
  lease.state_before = states_.take();
  store_.copy_state(lease.state, lease.state_before);
}

void CacheManager::settle_state(CacheLease& lease, bool right) {
  if (lease.state_before == kNoState) return;
  if (!right) std::swap(lease.state, lease.state_before);
  states_.drop(lease.state_before, false);
  lease.state_before = kNoState;
}

void CacheManager::check(std::span<const CacheLease* const> leases) {
  std::map<BlockId, std::int64_t> holders;
  std::int64_t states = 0;
  for (const CacheLease* lease : leases) {
    for (const BlockId block : lease->blocks) ++holders[block];
    states += (lease->state != kNoState) + (lease->state_before != kNoState);
    VITRINE_CHECK(lease->computed <= std::ssize(lease->blocks) * kBlockTokens);
    VITRINE_CHECK(lease->num_nodes * kBlockTokens <= lease->computed);
    const Node* node = lease->node;
    for (std::int64_t b = lease->num_nodes; b-- > 0; node = node->parent) {  // its nodes are its blocks, in order
      VITRINE_CHECK(node != nullptr && node->block == lease->blocks[static_cast<std::size_t>(b)] && node->is_full());
    }
    VITRINE_CHECK(lease->num_nodes == 0 ? node == nullptr : node->is_root());
    // Where the lease may write it is alone: nothing of the index, nothing of others.
    const std::int64_t first_whole = blocks_for(lease->computed);
    for (std::int64_t b = first_whole; b < std::ssize(lease->blocks); ++b) {
      VITRINE_CHECK(is_writable(lease->blocks[static_cast<std::size_t>(b)]));
    }
  }
  VITRINE_CHECK(std::ssize(holders) == blocks_.num_held());
  for (const auto& [block, count] : holders) VITRINE_CHECK(blocks_.holders(block) == count);
  std::int64_t idle = 0;
  index_.for_each([&](Node& node) {
    VITRINE_CHECK(node_of(node.block) == &node);
    VITRINE_CHECK(node.idle == (blocks_.holders(node.block) == 0));
    VITRINE_CHECK(node.parent->is_root() || !node.parent->idle || node.idle);
    idle += node.idle;
  });
  VITRINE_CHECK(idle == blocks_.num_idle() && idle <= options_.max_idle_blocks);
  VITRINE_CHECK(states + num_snapshots() == states_.num_held() && num_snapshots() <= options_.max_snapshots);
}

}  // namespace vitrine
