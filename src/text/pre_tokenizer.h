// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>
#include <variant>
#include <vector>

#include "text/known_splits.h"
#include "text/regex_splitter.h"

namespace vitrine {

/// Cuts a text into the pieces that BPE works on, in one or more steps: each step cuts the pieces of the one before.
class PreTokenizer {
 public:
  enum class Engine { kFastest, kRegex };

  /// One more step: `Split` by a regular expression, behaviour `Isolated`. The well-known patterns are run by a
  /// scanner of their own unless `engine` says otherwise (tests compare the two).
  /// Throws Error as RegexSplitter's constructor does.
  void add_split(std::string_view pattern, Engine engine = Engine::kFastest);

  /// Where each piece of `text` (valid UTF-8) ends; replaces what `ends` held.
  void split(std::string_view text, std::vector<std::size_t>& ends) const;

 private:
  using Step = std::variant<const KnownSplit*, RegexSplitter>;
  std::vector<Step> steps_;
};

}  // namespace vitrine
