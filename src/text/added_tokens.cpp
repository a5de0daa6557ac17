// SPDX-License-Identifier: Apache-2.0
#include "text/added_tokens.h"

#include <cstring>

#include "base/unicode.h"

namespace vitrine {
namespace {

bool is_at(std::string_view text, std::size_t pos, unicode::CharFlag flag) {
  return pos < text.size() && (unicode::CharTable::get().flags(unicode::decode(text.data() + pos).value) & flag) != 0;
}

/// Where the character that ends at `pos` begins.
std::size_t previous(std::string_view text, std::size_t pos) {
  do --pos;
  while (pos > 0 && (static_cast<unsigned char>(text[pos]) & 0xC0) == 0x80);
  return pos;
}

}  // namespace

void AddedTokenMatcher::add(const AddedToken& token) {
  std::uint32_t node = 0;
  for (const char c : token.content) {
    const auto byte = static_cast<unsigned char>(c);
    std::uint32_t below = child(node, byte);
    if (below == 0) {
      below = static_cast<std::uint32_t>(nodes_.size());
      nodes_.push_back({0, nodes_[node].first_child, UINT32_MAX, byte});
      nodes_[node].first_child = below;
    }
    node = below;
  }
  if (node == 0) return;
  nodes_[node].token = static_cast<std::uint32_t>(tokens_.size());
  tokens_.push_back({token.id, token.single_word, token.lstrip, token.rstrip});
  const char first = token.content[0];
  if (!starts_[static_cast<unsigned char>(first)]) first_bytes_ += first;
  starts_[static_cast<unsigned char>(first)] = true;
}

bool AddedTokenMatcher::next(std::string_view text, std::size_t from, Match& match) const {
  for (std::size_t pos = next_candidate(text, from); pos < text.size();) {
    std::uint32_t token = UINT32_MAX;
    std::size_t end = pos;
    std::uint32_t node = 0;
    for (std::size_t at = pos; at < text.size();) {
      node = child(node, static_cast<unsigned char>(text[at]));
      if (node == 0) break;
      ++at;
      if (nodes_[node].token != UINT32_MAX) {
        token = nodes_[node].token;
        end = at;
      }
    }
    if (token == UINT32_MAX) {
      pos = next_candidate(text, pos + 1);
      continue;
    }
    const Token& found = tokens_[token];
    if (found.single_word &&
        ((pos > 0 && is_at(text, previous(text, pos), unicode::kWord)) || is_at(text, end, unicode::kWord))) {
      pos = next_candidate(text, end);  // as Hugging Face: nothing inside a refused match is looked at again
      continue;
    }
    match = {found.id, pos, end};
    while (found.lstrip && match.begin > from && is_at(text, previous(text, match.begin), unicode::kSpace)) {
      match.begin = previous(text, match.begin);
    }
    while (found.rstrip && is_at(text, match.end, unicode::kSpace)) {
      match.end += unicode::decode(text.data() + match.end).length;
    }
    return true;
  }
  return false;
}

std::uint32_t AddedTokenMatcher::child(std::uint32_t node, unsigned char byte) const noexcept {
  std::uint32_t at = nodes_[node].first_child;
  while (at != 0 && nodes_[at].byte != byte) at = nodes_[at].sibling;
  return at;
}

std::size_t AddedTokenMatcher::next_candidate(std::string_view text, std::size_t from) const noexcept {
  if (from >= text.size()) return text.size();
  if (first_bytes_.size() == 1) {  // the usual case: all begin with "<"
    const void* at = std::memchr(text.data() + from, first_bytes_[0], text.size() - from);
    return at == nullptr ? text.size() : static_cast<std::size_t>(static_cast<const char*>(at) - text.data());
  }
  while (from < text.size() && !starts_[static_cast<unsigned char>(text[from])]) ++from;
  return from;
}

}  // namespace vitrine
