// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace vitrine {

/// Walks a checkpoint by name ("cd into a prefix") while a model binds its weights once, checking each shape.
///   WeightScope layer = root.sub("layers", 3);  Tensor w = layer.get("mlp.up_proj.weight", {3072, 1024});
/// Remembers what was taken, so that the rest can be named afterwards.
class WeightScope {
 public:
  explicit WeightScope(const Checkpoint& checkpoint);

  WeightScope sub(std::string_view name) const;
  WeightScope sub(std::string_view name, std::int64_t index) const;

  /// The tensor `name` under this prefix. Throws Error when it is missing, has another shape (the message
  /// names config.json's keys in `why`, if given), or a type that is not F32, F16 or BF16.
  Tensor get(std::string_view name, const Shape& expected, std::string_view why = {}) const;
  /// Whether it exists.
  bool has(std::string_view name) const;
  /// Marks a tensor as known but not used.
  void ignore(std::string_view name) const;

  /// Names of tensors that nobody took or ignored, sorted (whole checkpoint, whatever the prefix).
  std::vector<std::string> unused() const;

 private:
  const Checkpoint* checkpoint_;
  std::string prefix_;
  std::shared_ptr<std::unordered_set<std::string>> taken_;
};

}  // namespace vitrine
