// SPDX-License-Identifier: Apache-2.0
#include "support/stored_tensors.h"

#include <cstring>

#include "base/check.h"

namespace vitrine::test {

StoredTensors::StoredTensors(const std::filesystem::path& path) : file_(path) {
  for (StoredTensor& tensor : parse_safetensors(file_.bytes(), path.string())) {
    const std::string name = tensor.name;
    tensors_.emplace(name, std::move(tensor));
  }
}

std::vector<float> StoredTensors::floats(const std::string& name) const {
  const StoredTensor& tensor = tensors_.at(name);
  VITRINE_CHECK(tensor.dtype == DType::kF32);
  std::vector<float> values((tensor.end - tensor.begin) / sizeof(float));
  std::memcpy(values.data(), file_.bytes().data() + tensor.begin, tensor.end - tensor.begin);
  return values;
}

std::vector<std::int32_t> StoredTensors::ids(const std::string& name) const {
  const StoredTensor& tensor = tensors_.at(name);
  VITRINE_CHECK(tensor.dtype == DType::kI64);
  std::vector<std::int64_t> values((tensor.end - tensor.begin) / sizeof(std::int64_t));
  std::memcpy(values.data(), file_.bytes().data() + tensor.begin, tensor.end - tensor.begin);
  return {values.begin(), values.end()};
}

}  // namespace vitrine::test
