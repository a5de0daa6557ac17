// SPDX-License-Identifier: Apache-2.0
// Seeds: tests/data/models/*/config.json and generation_config.json.
#include <vitrine/error.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "checkpoint/config.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const vitrine::ModelConfig config = vitrine::parse_model_config(text, "config.json");
    if (config.layer_windows.size() != static_cast<std::size_t>(config.num_hidden_layers)) std::abort();
    if (config.num_attention_heads % config.num_key_value_heads != 0 || config.head_dim % 2 != 0) std::abort();
  } catch (const vitrine::Error&) {  // refused: fine
  }
  try {
    vitrine::parse_generation_config(text, "generation_config.json");
  } catch (const vitrine::Error&) {  // refused: fine
  }
  return 0;
}
