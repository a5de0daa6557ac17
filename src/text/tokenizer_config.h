// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace vitrine {

/// What tokenizer_config.json says beside the tokenizer; absent keys, or an absent file, stay empty.
struct TokenizerConfig {
  std::optional<std::string> eos_token;
};

/// Reads FOLDER/tokenizer_config.json if it is there. Throws Error(kBadFile) naming the file and the key.
TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder);

}  // namespace vitrine
