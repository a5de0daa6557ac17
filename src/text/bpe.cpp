// SPDX-License-Identifier: Apache-2.0
#include "text/bpe.h"

#include <vitrine/error.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <string>

namespace vitrine {
namespace {

constexpr std::size_t kMaxProbes = 2048;  // see vocabulary.cpp
constexpr std::size_t kShort = 64;        // bytes; a linear search for the lowest rank wins up to about here
constexpr std::uint32_t kEnd = UINT32_MAX;

std::uint64_t pair_of(TokenId left, TokenId right) noexcept {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

std::size_t hash_pair(std::uint64_t pair) noexcept {
  pair *= 0x9E3779B97F4A7C15u;
  return static_cast<std::size_t>(pair ^ (pair >> 32));
}

}  // namespace

void MergeTable::reserve(std::size_t count) { grow(std::bit_ceil(std::max<std::size_t>(count * 8 / 5 + 1, 16))); }

void MergeTable::add(TokenId left, TokenId right, Merge merge) {
  if ((count_ + 1) * 8 > slots_.size() * 5) grow(std::max<std::size_t>(16, slots_.size() * 2));
  const std::uint64_t pair = pair_of(left, right);
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash_pair(pair) & mask;
  for (std::size_t probes = 0; slots_[at].merge.rank != kNoRank; at = (at + 1) & mask) {
    if (slots_[at].pair == pair) {
      slots_[at].merge = merge;
      return;
    }
    if (++probes > kMaxProbes) throw Error(ErrorCode::kBadFile, "too many merges hash alike");
  }
  slots_[at] = {pair, merge};
  ++count_;
}

MergeTable::Merge MergeTable::find(TokenId left, TokenId right) const noexcept {
  const std::uint64_t pair = pair_of(left, right);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = hash_pair(pair) & mask;; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.pair == pair || slot.merge.rank == kNoRank) return slot.merge;
  }
}

void MergeTable::grow(std::size_t num_slots) {
  std::vector<Slot> old(num_slots);
  old.swap(slots_);
  count_ = 0;
  for (const Slot& slot : old) {
    if (slot.merge.rank == kNoRank) continue;
    add(static_cast<TokenId>(slot.pair >> 32), static_cast<TokenId>(slot.pair & 0xFFFFFFFFu), slot.merge);
  }
}

Bpe::Bpe(const Vocabulary& vocabulary, MergeTable merges, bool ignore_merges)
    : vocabulary_(&vocabulary),
      merges_(std::move(merges)),
      ignore_merges_(ignore_merges),
      whole_(std::make_unique<std::atomic<std::uint8_t>[]>(vocabulary.id_limit())) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    byte_ids_[byte] = vocabulary.find_bytes({&text, 1});
  }
}

void Bpe::encode(std::string_view piece, Scratch& scratch, std::vector<Symbol>& out) const {
  // Most pieces of ordinary text are one token. That is the answer when merging would find it too, which is nearly
  // always so but not a law: it depends on the ranks, so it is tried once a token.
  const TokenId id = vocabulary_->find_bytes(piece);
  if (id == kNoToken) return merge(piece, scratch, out);
  std::atomic<std::uint8_t>& whole = whole_[static_cast<std::size_t>(id)];
  const auto known = ignore_merges_ ? kYes : static_cast<Whole>(whole.load(std::memory_order_relaxed));
  if (known == kYes) {
    out.push_back({id, 0});
    return;
  }
  const std::size_t before = out.size();
  merge(piece, scratch, out);
  const bool same = out.size() == before + 1 && out.back().id == id;
  if (known == kUnknown) whole.store(same ? kYes : kNo, std::memory_order_relaxed);
}

void Bpe::merge(std::string_view piece, Scratch& scratch, std::vector<Symbol>& out) const {
  if (piece.size() <= kShort) return merge_short(piece, out);
  merge_long(piece, scratch, out);
}

void Bpe::merge_short(std::string_view piece, std::vector<Symbol>& out) const {
  struct Part {
    MergeTable::Merge merge;  // with the next part
    Symbol symbol;
  };
  Part parts[kShort + 1];  // the last one ends the list: it merges with nothing
  std::size_t count = 0;
  for (std::size_t i = 0; i < piece.size(); ++i) {
    const TokenId id = byte_ids_[static_cast<unsigned char>(piece[i])];
    if (id != kNoToken) parts[count++].symbol = {id, static_cast<std::uint32_t>(i)};
  }
  const auto look_up = [&](std::size_t i) {
    parts[i].merge = i + 1 < count ? merges_.find(parts[i].symbol.id, parts[i + 1].symbol.id) : MergeTable::Merge{};
  };
  for (std::size_t i = 0; i < count; ++i) look_up(i);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (parts[i].merge.rank < parts[best].merge.rank) best = i;  // the leftmost of equals
    }
    if (parts[best].merge.rank == MergeTable::kNoRank) break;
    parts[best].symbol.id = parts[best].merge.result;
    std::copy(parts + best + 2, parts + count, parts + best + 1);
    --count;
    if (best > 0) look_up(best - 1);
    look_up(best);
  }
  for (std::size_t i = 0; i < count; ++i) out.push_back(parts[i].symbol);
}

/// A linked list of tokens and a heap of (rank, position); an entry is stale when the pair there has another rank.
void Bpe::merge_long(std::string_view piece, Scratch& scratch, std::vector<Symbol>& out) const {
  if (piece.size() >= kEnd) throw Error(ErrorCode::kTooLarge, "a single word of the text is longer than 4 GiB");
  auto& nodes = scratch.nodes;
  auto& heap = scratch.heap;
  nodes.clear();
  heap.clear();
  const auto size = static_cast<std::uint32_t>(piece.size());
  nodes.reserve(size);
  std::uint32_t last = kEnd;
  for (std::uint32_t i = 0; i < size; ++i) {
    nodes.push_back({byte_ids_[static_cast<unsigned char>(piece[i])], MergeTable::kNoRank, last, kEnd});
    if (nodes[i].id == kNoToken) continue;
    if (last != kEnd) nodes[last].next = i;
    last = i;
  }
  const auto push = [&](std::uint32_t at) {
    Scratch::Node& node = nodes[at];
    node.rank = node.next == kEnd ? MergeTable::kNoRank : merges_.find(node.id, nodes[node.next].id).rank;
    if (node.rank != MergeTable::kNoRank) heap.push_back(std::uint64_t{node.rank} << 32 | at);
    return node.rank != MergeTable::kNoRank;
  };
  for (std::uint32_t i = 0; i < size; ++i) push(i);
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const auto rank = static_cast<std::uint32_t>(heap.back() >> 32);
    const auto at = static_cast<std::uint32_t>(heap.back() & 0xFFFFFFFFu);
    heap.pop_back();
    Scratch::Node& node = nodes[at];
    if (node.rank != rank) continue;
    Scratch::Node& absorbed = nodes[node.next];
    node.id = merges_.find(node.id, absorbed.id).result;
    node.next = absorbed.next;
    absorbed.rank = MergeTable::kNoRank;
    absorbed.id = kNoToken;
    if (node.next != kEnd) nodes[node.next].previous = at;
    if (push(at)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
    if (node.previous != kEnd && push(node.previous)) std::push_heap(heap.begin(), heap.end(), std::greater<>());
  }
  for (std::uint32_t i = 0; i < size; ++i) {
    if (nodes[i].id != kNoToken) out.push_back({nodes[i].id, i});
  }
}

}  // namespace vitrine
