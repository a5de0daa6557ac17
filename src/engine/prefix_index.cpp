// SPDX-License-Identifier: Apache-2.0
#include "engine/prefix_index.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace vitrine {

PrefixIndex::Node* PrefixIndex::find(const std::string& key) noexcept {
  const auto it = roots_.find(key);
  return it == roots_.end() ? nullptr : &it->second;
}

PrefixIndex::Node& PrefixIndex::root(const std::string& key) {
  const auto [it, added] = roots_.try_emplace(key);
  if (added) it->second.key = &it->first;
  return it->second;
}

/// In the order of the map, the runs that share the longest beginning with a text stand next to it.
PrefixIndex::Match PrefixIndex::match(Node& parent, std::span<const TokenId> tokens) {
  const auto head = tokens.first(std::min(tokens.size(), static_cast<std::size_t>(kBlockTokens)));
  Match best;
  const auto consider = [&](const auto& child) {
    const Run& run = child->first;
    const auto length = std::mismatch(run.begin(), run.end(), head.begin(), head.end()).first - run.begin();
    if (length > best.length) best = {child->second.get(), length};
  };
  const auto after = parent.children.lower_bound(Run(head.begin(), head.end()));
  if (after != parent.children.end()) consider(after);
  if (after != parent.children.begin()) consider(std::prev(after));
  return best;
}

std::pair<PrefixIndex::Node*, bool> PrefixIndex::insert(Node& parent, std::span<const TokenId> tokens, BlockId block) {
  VITRINE_CHECK(!tokens.empty() && std::ssize(tokens) <= kBlockTokens && (parent.is_root() || parent.is_full()));
  if (is_evictable(parent)) unlist(parent);
  const auto [it, added] = parent.children.try_emplace(Run(tokens.begin(), tokens.end()));
  if (!added) return {it->second.get(), false};
  it->second = std::make_unique<Node>();
  Node& node = *it->second;
  node.parent = &parent;
  node.run = &it->first;
  node.block = block;
  node.used = ++now_;
  ++size_;
  return {&node, true};
}

void PrefixIndex::erase(Node& node) {
  VITRINE_CHECK(node.children.empty() && !node.is_root());
  if (node.idle) unlist(node);
  Node& parent = *node.parent;
  parent.children.erase(parent.children.find(*node.run));
  --size_;
  if (!parent.children.empty()) return;
  if (parent.is_root()) {
    roots_.erase(roots_.find(*parent.key));
  } else if (parent.idle) {
    list(parent);
  }
}

void PrefixIndex::touch(Node& node) {
  const bool listed = is_evictable(node);
  if (listed) unlist(node);
  node.used = ++now_;
  if (listed) list(node);
}

void PrefixIndex::set_idle(Node& node, bool idle) {
  if (is_evictable(node)) unlist(node);
  node.idle = idle;
  if (is_evictable(node)) list(node);
}

}  // namespace vitrine
