// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/tokenizer.h>

#include <memory>
#include <string>
#include <vector>

#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/pre_tokenizer.h"
#include "text/vocabulary.h"

namespace vitrine {

/// What a tokenizer.json says, checked and in the form that encoding needs.
struct TokenizerParts {
  Vocabulary vocabulary;  // added tokens included
  MergeTable merges;
  bool ignore_merges = false;
  bool nfc = false;
  PreTokenizer pre_tokenizer;
  std::vector<AddedToken> added_tokens;
};

/// Reads the text of a tokenizer.json; `source` names it in messages.
/// Throws Error (kBadFile, kUnsupported) naming source and field.
TokenizerParts parse_tokenizer_json(std::string text, const std::string& source);

/// Tokenizer::load for a text in memory.
std::shared_ptr<const Tokenizer> make_tokenizer(std::string json, const std::string& source);

}  // namespace vitrine
