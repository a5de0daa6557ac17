// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

/// No token.
inline constexpr TokenId kNoToken = -1;

/// A well mixed number for short byte strings.
std::uint64_t hash_bytes(std::string_view bytes) noexcept;

/// The tokens of a tokenizer: id → bytes and bytes → id. Texts lie one after the other in one string, the table
/// uses open addressing: two allocations for 151,643 tokens, and a look-up touches two or three cache lines.
class Vocabulary {
 public:
  enum class Added { kYes, kDuplicateToken, kDuplicateId };

  /// Room for `count` tokens with ids below `id_limit` and `num_bytes` bytes in all.
  void reserve(std::size_t count, std::size_t id_limit, std::size_t num_bytes);
  /// A token of the model's vocabulary, spelled as in tokenizer.json. Throws Error(kBadFile) if the tokens were
  /// chosen so that they all hash alike.
  Added add(TokenId id, std::string_view spelled);
  /// An added token: literal text, found by find() only. It may repeat a token of the vocabulary with the same id.
  Added add_literal(TokenId id, std::string_view content);

  /// The id whose bytes these are, among those BPE can produce; kNoToken if there is none.
  TokenId find_bytes(std::string_view bytes) const noexcept { return find_in(by_bytes_, bytes); }
  /// The id whose spelling (valid UTF-8) this is, in the vocabulary or among the added tokens.
  TokenId find(std::string_view spelled) const;
  bool has(TokenId id) const noexcept {
    return id >= 0 && static_cast<std::size_t>(id) < extents_.size() &&
           extents_[static_cast<std::size_t>(id)].present();
  }
  /// Empty for ids without a token.
  std::string_view bytes(TokenId id) const noexcept;
  /// One past the largest id.
  std::size_t id_limit() const noexcept { return extents_.size(); }

 private:
  struct Extent {
    std::uint32_t begin = 0;
    std::uint32_t length = UINT32_MAX;
    bool present() const noexcept { return length != UINT32_MAX; }
  };
  struct Slot {
    std::uint32_t tag = 0;  // upper half of the hash: spares most comparisons
    TokenId id = kNoToken;
  };
  struct Table {
    std::vector<Slot> slots;  // a power of two, at most 5/8 full: 151,643 tokens take 2 MB and not 4
    std::size_t count = 0;
  };

  TokenId find_in(const Table& table, std::string_view bytes) const noexcept;
  /// False if they are there already.
  bool insert(Table& table, std::string_view bytes, TokenId id);
  void grow(Table& table, std::size_t num_slots);
  void set_bytes(TokenId id, std::string_view bytes);

  std::string storage_;
  std::vector<Extent> extents_;  // by id
  Table by_bytes_;
  Table by_literal_;     // added tokens, and vocabulary entries that are not byte-level spellings
  std::string scratch_;  // of add()
};

}  // namespace vitrine
