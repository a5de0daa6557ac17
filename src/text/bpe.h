// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace vitrine {

/// The merges of a BPE model: a pair of neighbouring tokens → its rank (earlier wins) and the token they become.
class MergeTable {
 public:
  static constexpr std::uint32_t kNoRank = UINT32_MAX;
  struct Merge {
    std::uint32_t rank = kNoRank;
    TokenId result = kNoToken;
  };

  void reserve(std::size_t count);
  /// A pair given twice keeps its last rank, as in Hugging Face tokenizers. Throws Error(kBadFile) if the pairs were
  /// chosen so that they all hash alike.
  void add(TokenId left, TokenId right, Merge merge);
  Merge find(TokenId left, TokenId right) const noexcept;
  std::size_t size() const noexcept { return count_; }

 private:
  struct Slot {
    std::uint64_t pair = UINT64_MAX;  // left << 32 | right; ids are below 2^31, so this is no pair
    Merge merge;
  };
  void grow(std::size_t num_slots);
  std::vector<Slot> slots_ = std::vector<Slot>(16);  // a power of two, at most 5/8 full
  std::size_t count_ = 0;
};

/// Byte-pair encoding of one pre-token.
class Bpe {
 public:
  /// A token and where it begins in the piece.
  struct Symbol {
    TokenId id;
    std::uint32_t begin;
  };
  /// Memory that one thread reuses from piece to piece.
  struct Scratch {
    std::vector<std::uint64_t> heap;
    struct Node {
      TokenId id;
      std::uint32_t rank;  // of the pair with the next node
      std::uint32_t previous;
      std::uint32_t next;
    };
    std::vector<Node> nodes;
  };

  Bpe() = default;
  /// Bytes without a token of their own are dropped. `vocabulary` must outlive this.
  Bpe(const Vocabulary& vocabulary, MergeTable merges, bool ignore_merges);

  /// Appends the tokens of `piece` to `out`. O(n log n) for any n. Throws Error(kTooLarge) beyond 4 GiB.
  void encode(std::string_view piece, Scratch& scratch, std::vector<Symbol>& out) const;

 private:
  /// What is known about a token: does merging its own bytes give the token itself?
  enum Whole : std::uint8_t { kUnknown, kYes, kNo };

  void merge(std::string_view piece, Scratch& scratch, std::vector<Symbol>& out) const;
  void merge_short(std::string_view piece, std::vector<Symbol>& out) const;
  void merge_long(std::string_view piece, Scratch& scratch, std::vector<Symbol>& out) const;

  const Vocabulary* vocabulary_ = nullptr;
  MergeTable merges_;
  std::array<TokenId, 256> byte_ids_{};
  bool ignore_merges_ = false;
  // Learnt as texts come: every thread would write the same value, so relaxed order is enough.
  std::unique_ptr<std::atomic<std::uint8_t>[]> whole_;
};

}  // namespace vitrine
