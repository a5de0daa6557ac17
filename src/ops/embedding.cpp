// SPDX-License-Identifier: Apache-2.0
#include "ops/embedding.h"

#include "quant/pack.h"

namespace vitrine {

void embed(const Context& context, const PackedMatrix& table, std::span<const std::int32_t> ids, MatrixView<float> x) {
  const std::int64_t at_once = context.rows_at_once(x.rows);
  const auto* data = reinterpret_cast<const unsigned char*>(table.data);
  context.pool.parallel_for(x.rows, at_once, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      unpack_row(table.format, data, ids[static_cast<std::size_t>(r)], x.row(r));
    }
  });
}

}  // namespace vitrine
