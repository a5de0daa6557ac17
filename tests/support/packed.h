// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/lazy_memory.h"
#include "ops/linear.h"
#include "quant/pack.h"

namespace vitrine::test {

/// A weight matrix of a test, packed from rows of floats [n, k].
class TestMatrix {
 public:
  TestMatrix(const PackedFormat& format, const std::vector<float>& rows)
      : memory_(std::max<std::int64_t>(1, format.bytes()), "a test's weights"), matrix_{format, memory_.data()} {
    for (std::int64_t panel = 0; panel < format.panels(); ++panel) {
      const std::int64_t first = panel * kPanelRows;
      pack_panel(format, rows.data() + first * format.k, std::min(kPanelRows, format.n - first),
                 reinterpret_cast<unsigned char*>(memory_.data() + panel * format.panel_bytes()));
    }
  }

  const PackedMatrix& packed() const { return matrix_; }
  Linear linear() const { return Linear(matrix_); }
  /// The rows as the products mean them, [n, k].
  std::vector<float> rows() const {
    std::vector<float> out(static_cast<std::size_t>(matrix_.format.n * matrix_.format.k));
    for (std::int64_t n = 0; n < matrix_.format.n; ++n) {
      unpack_row(matrix_.format, reinterpret_cast<const unsigned char*>(matrix_.data), n,
                 out.data() + n * matrix_.format.k);
    }
    return out;
  }

 private:
  LazyMemory memory_;
  PackedMatrix matrix_;
};

/// Every packed type with every group it knows.
struct PackedKind {
  PackedType type;
  std::int64_t group;
  bool is_float() const { return type == kPackedF32 || type == kPackedBF16; }
};
inline constexpr PackedKind kPackedKinds[] = {
    {kPackedF32, 0},           {kPackedBF16, 0},      {kPackedInt8, 0},         {kPackedInt8Grouped, 32},
    {kPackedInt8Grouped, 128}, {kPackedInt4, kGroup}, {kPackedInt4Grouped, 64}, {kPackedInt4Grouped, 128},
};

}  // namespace vitrine::test
