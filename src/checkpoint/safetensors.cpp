// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <vitrine/error.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "base/checked_math.h"
#include "base/json.h"
#include "checkpoint/input.h"

namespace vitrine {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's cap
constexpr std::size_t kMaxRank = 8;
constexpr std::int64_t kMaxInt = std::numeric_limits<std::int64_t>::max();

constexpr DType kDTypes[] = {DType::kF64, DType::kF32, DType::kF16,  DType::kBF16,   DType::kI64,
                             DType::kI32, DType::kI16, DType::kI8,   DType::kU64,    DType::kU32,
                             DType::kU16, DType::kU8,  DType::kBool, DType::kF8E4M3, DType::kF8E5M2};

[[noreturn]] void bad(std::string_view source, const std::string& what) {
  throw Error(ErrorCode::kBadFile, std::string(source) + ": " + what);
}

std::uint64_t stored_length(std::span<const std::byte> file) noexcept {
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) length |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  return length;
}

/// The JSON text between the length and the data.
std::string_view header_text(std::span<const std::byte> file, std::string_view source) {
  if (file.size() < kLengthBytes) {
    bad(source, "header length: expected a file of at least 8 bytes, found " + std::to_string(file.size()));
  }
  const std::uint64_t length = stored_length(file);
  // The size of the file first: a wrong length is more often a broken file than a huge header.
  if (length > file.size() - kLengthBytes) {
    bad(source, "header length: expected at most the " + std::to_string(file.size() - kLengthBytes) +
                    " bytes that follow, found " + std::to_string(length) + " (truncated, or not safetensors)");
  }
  if (length > kMaxHeaderBytes) {
    throw Error(ErrorCode::kTooLarge, std::string(source) + ": header length: expected at most " +
                                          std::to_string(kMaxHeaderBytes) + ", found " + std::to_string(length));
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  if (!text.starts_with('{')) bad(source, "header: expected JSON that starts with '{'");
  return text;
}

/// `__metadata__` is for people and other programs; only its form is checked.
void check_metadata(const json::Value& metadata) {
  check_unique_keys(metadata);
  for (const auto field : metadata.as_object()) {
    if (!field.value.is_string()) metadata.child(printable(field.key), field.value).as_string();
  }
}

/// A tensor's entry in the header, whose parts complain with the tensor's name.
class Entry {
 public:
  Entry(simdjson::dom::key_value_pair field, const std::string& source)
      : name_(field.key), where_("tensor " + printable(name_)), source_(source), value_(field.value, &source, where_) {
    check_unique_keys(value_);
  }

  /// `data_start`, `data_size`: where the data begins in the file, and its bytes.
  StoredTensor parse(std::int64_t data_start, std::int64_t data_size) const {
    StoredTensor tensor{.name = std::string(name_), .dtype = dtype(), .shape = shape()};
    const auto [begin, end] = offsets(data_size);
    check_size(tensor, end - begin);
    tensor.begin = static_cast<std::size_t>(data_start + begin);
    tensor.end = static_cast<std::size_t>(data_start + end);
    return tensor;
  }

 private:
  json::Value part(std::string_view key) const {
    return {value_.at(key).raw(), &source_, where_ + ": " + std::string(key)};
  }

  DType dtype() const {
    const std::string_view found = part("dtype").as_string();
    std::string known;
    for (const DType candidate : kDTypes) {
      if (to_string(candidate) == found) return candidate;
      known += (known.empty() ? "" : ", ") + std::string(to_string(candidate));
    }
    throw Error(ErrorCode::kUnsupported,
                source_ + ": unsupported dtype " + printable(found) + " in " + where_ + ": expected one of " + known);
  }

  Shape shape() const {
    const json::Value value = part("shape");
    Shape shape;
    for (const auto extent : value.as_array()) {
      if (shape.size() == kMaxRank) value.fail("expected at most 8 dimensions, found more");
      shape.push_back(value.child(shape.size(), extent).as_int(0, kMaxInt));
    }
    return shape;
  }

  std::pair<std::int64_t, std::int64_t> offsets(std::int64_t data_size) const {
    const json::Value value = part("data_offsets");
    const auto array = value.as_array();
    if (array.size() != 2) value.fail("expected [begin, end], found " + std::to_string(array.size()) + " values");
    std::int64_t ends[2] = {};
    std::size_t i = 0;
    for (const auto offset : array) {
      ends[i] = value.child(i, offset).as_int(0, kMaxInt);
      ++i;
    }
    const std::string found = ", found [" + std::to_string(ends[0]) + ", " + std::to_string(ends[1]) + "]";
    if (ends[0] > ends[1]) value.fail("expected begin <= end" + found);
    if (ends[1] > data_size) {
      value.fail("expected an end within the data of " + std::to_string(data_size) + " bytes" + found);
    }
    return {ends[0], ends[1]};
  }

  void check_size(const StoredTensor& tensor, std::int64_t found) const {
    // All partial products are checked, so that Tensor::num_elements() cannot overflow later.
    std::optional<std::int64_t> count = 1;
    for (const std::int64_t extent : tensor.shape) {
      if (count) count = checked_mul(*count, extent);
    }
    if (count) count = checked_mul(*count, size_of(tensor.dtype));
    const std::string what = std::string(to_string(tensor.dtype)) + " of shape " + to_string(tensor.shape);
    if (!count) value_.fail("shape: expected a size that fits in 63 bits, found " + what);
    if (*count != found) {
      value_.fail("data_offsets: expected " + std::to_string(*count) + " bytes for " + what + ", found " +
                  std::to_string(found));
    }
  }

  std::string_view name_;
  std::string where_;
  const std::string& source_;
  json::Value value_;
};

/// Sorts by position; every byte of the data must belong to exactly one tensor.
void check_coverage(std::vector<StoredTensor>& tensors, std::size_t data_start, std::size_t file_size,
                    std::string_view source) {
  std::sort(tensors.begin(), tensors.end(), [](const StoredTensor& a, const StoredTensor& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::size_t expected = data_start;
  const StoredTensor* previous = nullptr;
  for (const StoredTensor& tensor : tensors) {
    if (tensor.begin != expected) {
      bad(source, "tensor " + printable(tensor.name) +
                      ": data_offsets: " + (tensor.begin < expected ? "overlap" : "hole") + ": expected to begin at " +
                      std::to_string(expected - data_start) +
                      (previous == nullptr ? "" : ", the end of tensor " + printable(previous->name)) + ", found " +
                      std::to_string(tensor.begin - data_start));
    }
    expected = tensor.end;
    previous = &tensor;
  }
  if (expected != file_size) {
    bad(source, "data: expected " + std::to_string(expected - data_start) + " bytes, the end of the last tensor" +
                    (previous == nullptr ? "" : " " + printable(previous->name)) + ", found " +
                    std::to_string(file_size - data_start));
  }
}

}  // namespace

std::vector<StoredTensor> parse_safetensors(std::span<const std::byte> file, std::string_view source) {
  const std::string_view text = header_text(file, source);
  const std::size_t data_start = kLengthBytes + text.size();
  const std::string file_name(source);
  const std::string where = file_name + ": header";
  const json::Document document = json::Document::parse(std::string(text), where);
  check_unique_keys(document.root());

  std::vector<StoredTensor> tensors;
  for (const auto field : document.root().as_object()) {
    if (field.key == "__metadata__") {
      check_metadata({field.value, &where, "__metadata__"});
      continue;
    }
    tensors.push_back(
        Entry(field, file_name)
            .parse(static_cast<std::int64_t>(data_start), static_cast<std::int64_t>(file.size() - data_start)));
  }
  check_coverage(tensors, data_start, file.size(), source);
  return tensors;
}

std::size_t safetensors_data_start(std::span<const std::byte> file) noexcept {
  return kLengthBytes + static_cast<std::size_t>(stored_length(file));
}

}  // namespace vitrine
