// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer_config.h"

#include "base/json.h"
#include "base/mapped_file.h"

namespace vitrine {

TokenizerConfig read_tokenizer_config(const std::filesystem::path& folder) {
  constexpr std::size_t kMaxBytes = 16 << 20;  // chat templates are long, but not that long
  const std::filesystem::path path = folder / "tokenizer_config.json";
  TokenizerConfig config;
  if (!std::filesystem::exists(path)) return config;
  const auto document = json::Document::parse(read_text_file(path, kMaxBytes), path.string());
  if (const auto eos = document.root().find("eos_token")) {
    // A string, or an added token written out as an object.
    config.eos_token = eos->is_object() ? eos->at("content").as_string() : eos->as_string();
  }
  return config;
}

}  // namespace vitrine
