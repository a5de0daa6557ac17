// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weight_scope.h"

#include <vitrine/error.h>

#include <algorithm>

#include "checkpoint/input.h"

namespace vitrine {
namespace {

/// Whether any tensor's name begins with `prefix`.
bool has_prefix(const Checkpoint& checkpoint, std::string_view prefix) {
  const auto& tensors = checkpoint.tensors();
  const auto place = std::lower_bound(tensors.begin(), tensors.end(), prefix,
                                      [](const Tensor& tensor, std::string_view p) { return tensor.name < p; });
  return place != tensors.end() && place->name.starts_with(prefix);
}

/// The deepest prefix of `name` ("model.layers.") that has tensors; empty if none has.
std::string_view known_prefix(const Checkpoint& checkpoint, std::string_view name) {
  while (!name.empty()) {
    if (name.ends_with('.') && has_prefix(checkpoint, name)) return name;
    name.remove_suffix(1);
  }
  return {};
}

/// Of the tensors whose last two parts ("q_proj.weight") are those of `name`, the one that shares the longest
/// ending.
std::string_view same_ending(const Checkpoint& checkpoint, std::string_view name) {
  const std::size_t last = name.rfind('.');
  const std::size_t before =
      last == std::string_view::npos || last == 0 ? std::string_view::npos : name.rfind('.', last - 1);
  const std::string_view tail = before == std::string_view::npos ? name : name.substr(before + 1);
  std::size_t longest = 0;
  std::string_view found;
  for (const Tensor& tensor : checkpoint.tensors()) {
    const std::string_view other = tensor.name;
    if (!other.ends_with(tail) || (other.size() > tail.size() && other[other.size() - tail.size() - 1] != '.'))
      continue;
    const auto end = std::mismatch(other.rbegin(), other.rend(), name.rbegin(), name.rend()).first;
    const auto shared = static_cast<std::size_t>(end - other.rbegin());
    if (shared <= longest) continue;
    longest = shared;
    found = other;
  }
  return found;
}

std::string reason(const Checkpoint& checkpoint, std::string_view why) {
  return why.empty() ? "" : " (" + checkpoint.config().source + ": " + std::string(why) + ")";
}

[[noreturn]] void missing(const Checkpoint& checkpoint, const std::string& name, const Shape& expected,
                          std::string_view why) {
  std::string message = checkpoint.folder().string() + ": tensor " + name + " is missing: expected shape " +
                        to_string(expected) + reason(checkpoint, why);
  const std::string_view prefix = known_prefix(checkpoint, name);
  message += ", found " + std::to_string(checkpoint.tensors().size()) + " other tensors, ";
  message += prefix.empty() ? "none with such a prefix" : "some under " + printable(prefix);
  const std::string_view similar = same_ending(checkpoint, name);
  if (!similar.empty()) message += "; similar: " + printable(similar);
  throw Error(ErrorCode::kBadFile, message);
}

}  // namespace

WeightScope::WeightScope(const Checkpoint& checkpoint)
    : checkpoint_(&checkpoint), taken_(std::make_shared<std::unordered_set<std::string>>()) {}

WeightScope WeightScope::sub(std::string_view name) const {
  WeightScope scope = *this;
  scope.prefix_ += name;
  scope.prefix_ += '.';
  return scope;
}

WeightScope WeightScope::sub(std::string_view name, std::int64_t index) const {
  return sub(name).sub(std::to_string(index));
}

Tensor WeightScope::get(std::string_view name, const Shape& expected, std::string_view why) const {
  const std::string full = prefix_ + std::string(name);
  const Tensor* tensor = checkpoint_->find(full);
  if (tensor == nullptr) missing(*checkpoint_, full, expected, why);
  const std::string where = checkpoint_->file_of(*tensor).string() + ": tensor " + full + ": ";
  if (tensor->shape != expected) {
    throw Error(ErrorCode::kBadFile, where + "expected shape " + to_string(expected) + reason(*checkpoint_, why) +
                                         ", found " + to_string(tensor->shape));
  }
  if (tensor->dtype != DType::kF32 && tensor->dtype != DType::kF16 && tensor->dtype != DType::kBF16) {
    throw Error(ErrorCode::kUnsupported,
                where + "expected dtype F32, F16 or BF16, found " + std::string(to_string(tensor->dtype)));
  }
  taken_->insert(full);
  return *tensor;
}

bool WeightScope::has(std::string_view name) const { return checkpoint_->find(prefix_ + std::string(name)) != nullptr; }

void WeightScope::ignore(std::string_view name) const { taken_->insert(prefix_ + std::string(name)); }

std::vector<std::string> WeightScope::unused() const {
  std::vector<std::string> names;
  for (const Tensor& tensor : checkpoint_->tensors()) {
    std::string name(tensor.name);
    if (!taken_->contains(name)) names.push_back(std::move(name));
  }
  return names;
}

}  // namespace vitrine
