// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tensor/paged_kv.h"

namespace vitrine {

/// Which beginnings of texts the cache has. A tree for each key (where what is computed from equal tokens is equal: a
/// precision, a KV type, a caller's salt): a node is a block with the tokens in it, its parent the block before. Tokens
/// are compared, never hashes, so two texts can't be taken for one another. Only full blocks have children. Knows
/// nothing of who holds a block; the owner says which nodes are idle.
class PrefixIndex {
 public:
  using Run = std::vector<TokenId>;  // the tokens of a block, 1 to kBlockTokens
  struct Node {
    Node* parent = nullptr;            // null for the root of a key
    const Run* run = nullptr;          // null for a root
    const std::string* key = nullptr;  // of a root
    std::map<Run, std::unique_ptr<Node>> children;
    BlockId block = 0;
    StateSlot state = kNoState;  // the recurrent states after its last token, where they were kept
    std::uint64_t used = 0;      // the larger, the later
    bool idle = false;           // nobody holds the block

    bool is_root() const noexcept { return parent == nullptr; }
    std::int64_t num_tokens() const noexcept { return is_root() ? 0 : static_cast<std::int64_t>(run->size()); }
    bool is_full() const noexcept { return num_tokens() == kBlockTokens; }
  };

  /// The root of a key; null if nothing of it is there.
  Node* find(const std::string& key) noexcept;
  /// The same, made if it is not there. It goes with its last node.
  Node& root(const std::string& key);

  /// How the tokens go on after a root or a full node: the child that shares the longest beginning with them, and its
  /// length; null and 0 if there is none.
  struct Match {
    Node* node = nullptr;
    std::int64_t length = 0;
  };
  static Match match(Node& parent, std::span<const TokenId> tokens);

  /// The child of exactly these tokens, made for `block` if there is none; true if so.
  std::pair<Node*, bool> insert(Node& parent, std::span<const TokenId> tokens, BlockId block);
  /// Takes out a node that has no children.
  void erase(Node& node);

  /// Marks the node as used now.
  void touch(Node& node);
  /// Says whether nobody holds the node's block. Whoever holds a node's block must hold its parent's.
  void set_idle(Node& node, bool idle);
  /// Of the idle nodes without children, the one used least lately; null if there is none.
  Node* oldest() const noexcept { return evictable_.empty() ? nullptr : evictable_.begin()->second; }

  /// Nodes without the roots.
  std::int64_t size() const noexcept { return size_; }
  /// Calls visit(node) for each node, parents first.
  template <class Visit>
  void for_each(Visit visit) {
    for (auto& [key, root] : roots_) visit_below(root, visit);
  }

 private:
  template <class Visit>
  static void visit_below(Node& parent, Visit& visit) {
    for (auto& [run, node] : parent.children) {
      visit(*node);
      visit_below(*node, visit);
    }
  }
  static bool is_evictable(const Node& node) noexcept { return node.idle && node.children.empty(); }
  void list(Node& node) { evictable_.insert({node.used, &node}); }
  void unlist(Node& node) { evictable_.erase({node.used, &node}); }

  std::map<std::string, Node> roots_;
  std::set<std::pair<std::uint64_t, Node*>> evictable_;
  std::uint64_t now_ = 0;
  std::int64_t size_ = 0;
};

}  // namespace vitrine
