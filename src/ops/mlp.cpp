// SPDX-License-Identifier: Apache-2.0
#include "ops/mlp.h"

namespace vitrine {

void gate_up_silu(const Context& context, MatrixView<const float> x, const Linear& gate, const Linear& up,
                  MatrixView<float> scratch, MatrixView<float> out) {
  const std::int64_t grain = gate.grain(x.rows);
  context.pool.parallel_for(gate.out_features(), grain, [&](std::int64_t begin, std::int64_t end, int) {
    const MatrixView<float> gated{out.data + begin, x.rows, end - begin, out.stride};
    const MatrixView<float> raised{scratch.data + begin, x.rows, end - begin, scratch.stride};
    gate.columns(context.kernels, x, begin, end, gated);
    up.columns(context.kernels, x, begin, end, raised);
    for (std::int64_t r = 0; r < x.rows; ++r) {
      context.kernels.silu_mul(gated.row(r), raised.row(r), end - begin, gated.row(r));
    }
  });
}

}  // namespace vitrine
