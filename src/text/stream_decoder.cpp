// SPDX-License-Identifier: Apache-2.0
#include <vitrine/tokenizer.h>

#include "base/unicode.h"

namespace vitrine {

std::string StreamDecoder::push(TokenId id) {
  if (skip_special_ && tokenizer_.is_special(id)) return {};
  pending_ += tokenizer_.token_bytes(id);
  const std::size_t ready = pending_.size() - unicode::incomplete_suffix(pending_);
  std::string text = unicode::replace_invalid_utf8(std::string_view(pending_).substr(0, ready));
  pending_.erase(0, ready);
  return text;
}

std::string StreamDecoder::flush() {
  std::string text = unicode::replace_invalid_utf8(pending_);
  pending_.clear();
  return text;
}

}  // namespace vitrine
