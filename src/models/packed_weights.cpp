// SPDX-License-Identifier: Apache-2.0
#include "models/packed_weights.h"

#include <algorithm>

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

}  // namespace

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
  LazyMemory& memory = memory_.emplace_back(format.bytes(), "packed weights");
  pack_all(pool_, weight, format, memory.data());
  return {format, memory.data()};
}

}  // namespace vitrine
