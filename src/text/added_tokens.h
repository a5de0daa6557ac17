// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

/// An entry of `added_tokens` in tokenizer.json.
struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool single_word = false;  ///< not next to a word character
  bool lstrip = false;       ///< swallows the white space before it
  bool rstrip = false;       ///< and after it
  bool normalized = false;   ///< looked for in the normalised text, not in the raw one
  bool special = false;
};

/// Finds added tokens in a text: leftmost, then longest, without overlap.
class AddedTokenMatcher {
 public:
  struct Match {
    TokenId id = 0;
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  void add(const AddedToken& token);
  bool empty() const noexcept { return tokens_.empty(); }

  /// The first match at or after `from`; false if there is none. `text` is valid UTF-8. White space swallowed by
  /// lstrip belongs to the match but never reaches back beyond `from`. Time: the text times the longest content that
  /// matches so far, in practice linear.
  bool next(std::string_view text, std::size_t from, Match& match) const;

 private:
  struct Token {
    TokenId id;
    bool single_word, lstrip, rstrip;
  };
  /// A trie; children are a list.
  struct Node {
    std::uint32_t first_child = 0;  // 0, the root, is nobody's child
    std::uint32_t sibling = 0;
    std::uint32_t token = UINT32_MAX;  // index into tokens_
    unsigned char byte = 0;
  };
  std::uint32_t child(std::uint32_t node, unsigned char byte) const noexcept;
  std::size_t next_candidate(std::string_view text, std::size_t from) const noexcept;

  std::vector<Token> tokens_;
  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::array<bool, 256> starts_{};
  std::string first_bytes_;
};

}  // namespace vitrine
