// SPDX-License-Identifier: Apache-2.0
#include "models/packed_weights.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "quant/pack.h"

namespace vitrine {
namespace {

void pack_all(ThreadPool& pool, const Tensor& weight, const PackedFormat& format, std::byte* out) {
  pool.parallel_for(format.panels(), 1, [&](std::int64_t panel, std::int64_t, int) {
    const std::int64_t first = panel * kPanelRows;
    const std::int64_t count = std::min(kPanelRows, format.n - first);
    std::vector<float> rows(static_cast<std::size_t>(count * format.k));
    load_floats(weight, first * format.k, rows);
    pack_panel(format, rows.data(), count, reinterpret_cast<unsigned char*>(out + panel * format.panel_bytes()));
  });
}

/// Changes with everything that changes the packed bytes of the same weights.
constexpr std::uint32_t kLayoutVersion = 1;
/// Smaller models are packed faster than a file is looked up.
constexpr std::int64_t kSmallestFile = 64 << 20;

std::int64_t in_pages(std::int64_t bytes) {
  return (bytes + kPackedAlignment - 1) / kPackedAlignment * kPackedAlignment;
}

/// "int4 [3072, 1024] group 32"
std::string describe(const PackedFormat& format) {
  static constexpr const char* kNames[] = {"f32", "bf16", "int8", "int8 grouped", "int4", "int4 grouped"};
  return std::string(kNames[format.type]) + " [" + std::to_string(format.n) + ", " + std::to_string(format.k) +
         "] group " + std::to_string(format.group);
}

}  // namespace

PackedWeights::PackedWeights(ThreadPool& pool, const Checkpoint& checkpoint, Options options)
    : pool_(pool), checkpoint_(checkpoint), options_(std::move(options)) {
  const std::int64_t expected = expected_bytes();
  const bool use_file = options_.cache && expected >= kSmallestFile;
  store_.emplace(PackedKey{.model_name = options_.model_name,
                           .source = use_file ? checkpoint.identity() : std::string(64, '0'),
                           .form = options_.exact ? "exact" : to_string(options_.type),
                           .layout_version = kLayoutVersion},
                 PackedStore::Options{.use_file = use_file, .expected_bytes = expected, .progress = options_.progress});
}

void PackedWeights::finish() {
  store_->finish();
  checkpoint_.release_pages();
}

/// Every matrix of the checkpoint, whether the model will ask for it or not.
std::int64_t PackedWeights::expected_bytes() const {
  std::int64_t total = 0;
  for (const Tensor& tensor : checkpoint_.tensors()) {
    if (tensor.shape.size() != 2) continue;
    const bool vocabulary = tensor.shape[0] == checkpoint_.config().vocab_size;
    total += in_pages((vocabulary ? vocabulary_format(tensor) : layer_format(tensor)).bytes());
  }
  return total;
}

PackedFormat PackedWeights::layer_format(const Tensor& weight) const {
  const auto of = [&](PackedType type, std::int64_t group = 0) {
    return PackedFormat{type, weight.shape[0], weight.shape[1], group};
  };
  if (options_.exact) return of(weight.dtype == DType::kBF16 ? kPackedBF16 : kPackedF32);
  switch (options_.type) {
    case WeightType::kBF16:
      return of(kPackedBF16);
    case WeightType::kInt8:
      return of(kPackedInt8);
    case WeightType::kInt8Group32:
      return of(kPackedInt8Grouped, 32);
    case WeightType::kInt8Group128:
      return of(kPackedInt8Grouped, 128);
    case WeightType::kInt4:
      return of(kPackedInt4, kGroup);
    case WeightType::kInt4Group64:
      return of(kPackedInt4Grouped, 64);
    case WeightType::kInt4Group128:
      return of(kPackedInt4Grouped, 128);
  }
  return of(kPackedBF16);
}

PackedFormat PackedWeights::vocabulary_format(const Tensor& weight) const {
  const PackedFormat format = layer_format(weight);
  return format.is_int4() ? PackedFormat{kPackedInt8, format.n, format.k, 0} : format;
}

PackedMatrix PackedWeights::layer(const Tensor& weight) { return pack(weight, layer_format(weight)); }
PackedMatrix PackedWeights::vocabulary(const Tensor& weight) { return pack(weight, vocabulary_format(weight)); }

PackedMatrix PackedWeights::pack(const Tensor& weight, const PackedFormat& format) {
  constexpr std::int64_t kReleaseAfter = 128 << 20;
  const std::byte* data = store_->get(weight.name, describe(format), format.bytes(), [&](std::byte* out) {
    pack_all(pool_, weight, format, out);
    read_bytes_ += weight.num_bytes();
    if (read_bytes_ < kReleaseAfter) return;
    checkpoint_.release_pages();  // else a first start would need room for the weights twice
    read_bytes_ = 0;
  });
  return {format, data};
}

}  // namespace vitrine
