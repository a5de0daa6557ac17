// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "checkpoint/safetensors.h"

namespace vitrine::test {

/// The reference values of a fixture: any safetensors file, by name.
class StoredTensors {
 public:
  explicit StoredTensors(const std::filesystem::path& path);
  bool has(const std::string& name) const { return tensors_.contains(name); }
  Shape shape(const std::string& name) const { return tensors_.at(name).shape; }
  /// An F32 tensor.
  std::vector<float> floats(const std::string& name) const;
  /// An I64 tensor of token ids.
  std::vector<std::int32_t> ids(const std::string& name) const;

 private:
  MappedFile file_;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace vitrine::test
