// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "checkpoint/config.h"
#include "tensor/tensor.h"

namespace vitrine {

/// A model folder as published on the Hub: config.json, generation_config.json, model.safetensors or its
/// shards. The weights stay in the mapped files. Immutable; shared by everything that views its tensors.
class Checkpoint {
 public:
  /// Throws Error naming the file, tensor or JSON field.
  static std::shared_ptr<const Checkpoint> open(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const noexcept { return folder_; }
  const ModelConfig& config() const noexcept { return config_; }
  const GenerationConfig& generation_config() const noexcept { return generation_config_; }
  /// The tensor of that name, or null.
  const Tensor* find(std::string_view name) const noexcept;
  /// All tensors, sorted by name.
  const std::vector<Tensor>& tensors() const noexcept { return tensors_; }
  /// The weight file that holds this checkpoint's tensor, for messages.
  const std::filesystem::path& file_of(const Tensor& tensor) const noexcept;
  /// Bytes of all mapped weight files.
  std::int64_t file_bytes() const noexcept;
  /// 64 hexadecimal digits that change when the weights do: of each weight file in turn its name, size, time of the
  /// last change, header, and a sample of its data. Made when asked for; reads some hundred kilobytes and releases all
  /// pages, so ask before populate().
  std::string identity() const;
  /// The weight files' pages no longer count as this process's memory, until they are touched again: for when the
  /// weights have been packed into another layout.
  void release_pages() const noexcept;
  /// Reads the weight files into the page cache, reporting (bytes done, bytes in all) now and then.
  void populate(const std::function<void(std::int64_t, std::int64_t)>& progress) const;

 private:
  Checkpoint() = default;
  std::filesystem::path folder_;
  ModelConfig config_;
  GenerationConfig generation_config_;
  std::vector<MappedFile> files_;
  std::vector<std::string> names_;  // sorted; the storage behind Tensor::name, never changed after open()
  std::vector<Tensor> tensors_;     // in the order of names_
};

}  // namespace vitrine
