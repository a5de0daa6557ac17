// SPDX-License-Identifier: Apache-2.0
// Seeds: tests/data/models/*/model*.safetensors. Any exception but vitrine::Error, and any finding of the
// sanitizers, is a bug.
#include <vitrine/error.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "checkpoint/safetensors.h"

namespace {

void parse(std::span<const std::byte> file) {
  try {
    for (const vitrine::StoredTensor& tensor : vitrine::parse_safetensors(file, "fuzz.safetensors")) {
      const vitrine::Tensor view{
          .data = file.data() + tensor.begin, .dtype = tensor.dtype, .shape = tensor.shape, .name = tensor.name};
      const auto size = static_cast<std::int64_t>(tensor.end - tensor.begin);
      if (tensor.begin > tensor.end || tensor.end > file.size() || view.num_bytes() != size) std::abort();
    }
  } catch (const vitrine::Error&) {  // refused: fine
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  parse(std::as_bytes(std::span(data, size)));
  if (size < 1) return 0;
  // Once more with a right length in front and some data behind, to get past the first check more often.
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>((size - 1) >> (8 * i) & 0xFF);
  file.append(reinterpret_cast<const char*>(data) + 1, size - 1);
  file.append(data[0], '\0');
  parse(std::as_bytes(std::span(file.data(), file.size())));
  return 0;
}
