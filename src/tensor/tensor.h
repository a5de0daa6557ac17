// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace vitrine {

/// Element types a checkpoint can hold. Only F32, F16 and BF16 can be weights; the others are known so that a file
/// with an unused tensor of another type still loads (names: the safetensors format).
enum class DType : std::uint8_t {
  kF64,
  kF32,
  kF16,
  kBF16,
  kI64,
  kI32,
  kI16,
  kI8,
  kU64,
  kU32,
  kU16,
  kU8,
  kBool,
  kF8E4M3,
  kF8E5M2
};

/// Bytes of one element.
std::int64_t size_of(DType dtype) noexcept;
/// The name as safetensors spells it: "BF16".
std::string_view to_string(DType dtype) noexcept;

using Shape = std::vector<std::int64_t>;
/// "[151936, 1024]"
std::string to_string(const Shape& shape);

/// A read-only view of a stored weight, row-major. The bytes belong to the mapped checkpoint and need not be aligned.
struct Tensor {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  std::string_view name;

  std::int64_t num_elements() const noexcept;
  std::int64_t num_bytes() const noexcept { return num_elements() * size_of(dtype); }
};

/// Elements [first, first + out.size()) widened to float. F32, F16 and BF16 only.
void load_floats(const Tensor& tensor, std::int64_t first, std::span<float> out);

/// Activations: a typed view of `rows` rows of `cols` elements, `stride` elements apart.
template <class T>
struct MatrixView {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  T* row(std::int64_t r) const noexcept { return data + r * stride; }
  MatrixView rows_from(std::int64_t begin, std::int64_t count) const noexcept {
    return {row(begin), count, cols, stride};
  }
  operator MatrixView<const T>() const noexcept  // NOLINT: views of mutable data serve as views of const data
      requires(!std::is_const_v<T>) {
    return {data, rows, cols, stride};
  }
};

}  // namespace vitrine
