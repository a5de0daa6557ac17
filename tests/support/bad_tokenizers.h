// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace vitrine::test {

/// A valid byte-level BPE tokenizer.json: the 256 bytes (ids 0 to 255 by byte), a dozen merges (ids from 256 on) with
/// " hello" and " world" at their end, and the added tokens <|end|> (special), <think> and </think>.
nlohmann::json small_tokenizer();

/// A tokenizer.json with one fault.
struct BadTokenizer {
  std::string name;
  std::function<void(const std::filesystem::path& folder)> write;  ///< makes FOLDER/tokenizer.json
  std::vector<std::string> message_contains;                       ///< what the Error has to say
};

std::vector<BadTokenizer> bad_tokenizers();

}  // namespace vitrine::test
