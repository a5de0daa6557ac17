// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine::test {

/// A model folder with one fault.
struct BadFile {
  std::string name;                                                // of the case: letters, digits and '_'
  std::function<void(const std::filesystem::path& folder)> write;  // fills an empty folder
  std::vector<std::string> message_contains;                       // file and place
};

/// Faults in safetensors, index, config.json and generation_config.json that opening the checkpoint must
/// find.
std::vector<BadFile> bad_checkpoints();

/// A safetensors file: the length of `header`, the header, `data_bytes` zeros.
std::string safetensors_bytes(std::string_view header, std::size_t data_bytes);
/// The JSON header of a well-formed safetensors file.
std::string safetensors_header(std::string_view file);

/// qwen3-tiny: config.json, generation_config.json, model.safetensors.
void write_tiny_model(const std::filesystem::path& folder);
/// The same tensors dealt out over files of these names in turn; with or without an index.
void write_tiny_shards(const std::filesystem::path& folder, const std::vector<std::string>& names, bool with_index);

}  // namespace vitrine::test
