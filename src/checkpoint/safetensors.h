// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace vitrine {

/// One entry of a safetensors header.
struct StoredTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::size_t begin = 0, end = 0;  // its bytes, counted from the start of the file
};

/// Reads and checks the header of a safetensors file: u64 little-endian header length, JSON header, data
/// (github.com/huggingface/safetensors, "Format"). Afterwards the ranges cover the data exactly, in the order
/// returned, and each holds exactly its shape's elements. `source` is the file's name for messages.
/// Throws Error: kBadFile; kTooLarge for a header beyond 100 MB; kUnsupported for a dtype this program does
/// not know.
std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> file, std::string_view source);

/// Where the data of a file begin that parse_safetensors accepted.
std::size_t safetensors_data_start(std::span<const std::byte> file) noexcept;

}  // namespace vitrine
