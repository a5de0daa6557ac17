// SPDX-License-Identifier: Apache-2.0
#include "text/vocabulary.h"

#include <vitrine/error.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "text/byte_level.h"

namespace vitrine {
namespace {

/// Far beyond what chance brings at 5/8 load; only a file made for it gets here.
constexpr std::size_t kMaxProbes = 2048;

std::uint64_t mix(std::uint64_t x) noexcept {
  x *= 0x9E3779B97F4A7C15u;
  return x ^ (x >> 32);
}

}  // namespace

std::uint64_t hash_bytes(std::string_view bytes) noexcept {
  std::uint64_t hash = mix(bytes.size() + 1);
  std::uint64_t word = 0;
  while (bytes.size() >= 8) {
    std::memcpy(&word, bytes.data(), 8);
    hash = mix(hash ^ word);
    bytes.remove_prefix(8);
  }
  word = 0;
  if (bytes.size() >= 4) {
    std::uint32_t head = 0;
    std::uint32_t tail = 0;
    std::memcpy(&head, bytes.data(), 4);
    std::memcpy(&tail, bytes.data() + bytes.size() - 4, 4);
    word = std::uint64_t{head} << 32 | tail;
  } else if (!bytes.empty()) {  // 1 to 3 bytes: first, middle and last
    const auto byte = [bytes](std::size_t i) { return std::uint64_t{static_cast<unsigned char>(bytes[i])}; };
    word = byte(0) << 16 | byte(bytes.size() / 2) << 8 | byte(bytes.size() - 1);
  }
  return mix(hash ^ word);
}

void Vocabulary::reserve(std::size_t count, std::size_t id_limit, std::size_t num_bytes) {
  storage_.reserve(num_bytes);
  extents_.resize(std::max(extents_.size(), id_limit));
  grow(by_bytes_, std::bit_ceil(std::max<std::size_t>(count * 8 / 5 + 1, 16)));
}

Vocabulary::Added Vocabulary::add(TokenId id, std::string_view spelled) {
  if (has(id)) return Added::kDuplicateId;
  scratch_.clear();
  const bool byte_level = append_bytes_of(spelled, scratch_);
  const std::string_view bytes = byte_level ? std::string_view(scratch_) : spelled;
  Table& table = byte_level ? by_bytes_ : by_literal_;
  if (!insert(table, bytes, id)) return Added::kDuplicateToken;
  set_bytes(id, bytes);
  return Added::kYes;
}

Vocabulary::Added Vocabulary::add_literal(TokenId id, std::string_view content) {
  const TokenId known = find(content);
  if (known != kNoToken && known != id) return Added::kDuplicateToken;
  if (known == kNoToken && has(id)) return Added::kDuplicateId;
  if (bytes(id) != content || !has(id)) set_bytes(id, content);
  insert(by_literal_, content, id);
  return Added::kYes;
}

TokenId Vocabulary::find(std::string_view spelled) const {
  const TokenId literal = find_in(by_literal_, spelled);
  if (literal != kNoToken) return literal;
  std::string decoded;
  return append_bytes_of(spelled, decoded) ? find_bytes(decoded) : kNoToken;
}

std::string_view Vocabulary::bytes(TokenId id) const noexcept {
  if (!has(id)) return {};
  const Extent& extent = extents_[static_cast<std::size_t>(id)];
  return {storage_.data() + extent.begin, extent.length};
}

TokenId Vocabulary::find_in(const Table& table, std::string_view bytes) const noexcept {
  if (table.slots.empty()) return kNoToken;
  const std::uint64_t hash = hash_bytes(bytes);
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  const std::size_t mask = table.slots.size() - 1;
  for (std::size_t at = hash & mask;; at = (at + 1) & mask) {
    const Slot slot = table.slots[at];
    if (slot.id == kNoToken) return kNoToken;
    if (slot.tag != tag) continue;
    if (this->bytes(slot.id) == bytes) return slot.id;
  }
}

bool Vocabulary::insert(Table& table, std::string_view bytes, TokenId id) {
  if ((table.count + 1) * 8 > table.slots.size() * 5) grow(table, std::max<std::size_t>(16, table.slots.size() * 2));
  const std::uint64_t hash = hash_bytes(bytes);
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  const std::size_t mask = table.slots.size() - 1;
  std::size_t at = hash & mask;
  for (std::size_t probes = 0; table.slots[at].id != kNoToken; at = (at + 1) & mask) {
    if (table.slots[at].tag == tag && this->bytes(table.slots[at].id) == bytes) return false;
    if (++probes > kMaxProbes) throw Error(ErrorCode::kBadFile, "too many tokens hash alike");
  }
  table.slots[at] = {tag, id};
  ++table.count;
  return true;
}

void Vocabulary::grow(Table& table, std::size_t num_slots) {
  std::vector<Slot> old(num_slots);
  old.swap(table.slots);
  table.count = 0;
  for (const Slot& slot : old) {
    if (slot.id != kNoToken) insert(table, bytes(slot.id), slot.id);
  }
}

void Vocabulary::set_bytes(TokenId id, std::string_view bytes) {
  VITRINE_CHECK(id >= 0 && storage_.size() + bytes.size() < UINT32_MAX);
  const auto index = static_cast<std::size_t>(id);
  if (index >= extents_.size()) extents_.resize(index + 1);
  extents_[index] = {static_cast<std::uint32_t>(storage_.size()), static_cast<std::uint32_t>(bytes.size())};
  storage_ += bytes;
}

}  // namespace vitrine
