// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

/// A regular expression of tokenizer.json in PCRE2's dialect with the same meaning: the file's dialect is Oniguruma's.
/// `\s` becomes White_Space (PCRE2's own holds U+180E too), and what the two read differently or what could make a
/// match unbounded is refused. Throws Error(kUnsupported) with a message that has no file name.
std::string translate_regex(std::string_view pattern);

/// The text cut at the matches of a regular expression (`Split` with behaviour `Isolated`). Immutable: any number of
/// threads may split at once.
class RegexSplitter {
 public:
  /// Throws Error (kBadFile: not a regular expression; kUnsupported), with a message that has no file name.
  explicit RegexSplitter(std::string_view pattern);

  /// Appends to `ends` where each piece of `text` ends: matches and what lies between them, in order; the last is
  /// text.size(). `text` is valid UTF-8. Throws Error(kTooLarge) when the pattern takes more steps or memory than any
  /// honest one does; never gives a wrong split.
  void split(std::string_view text, std::vector<std::size_t>& ends) const;

 private:
  struct Code;  // what PCRE2 compiled
  std::shared_ptr<const Code> code_;
};

}  // namespace vitrine
