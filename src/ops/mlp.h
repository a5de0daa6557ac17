// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/linear.h"

namespace vitrine {

/// out = silu(x Wg^T) * (x Wu^T), the first half of SwiGLU (Shazeer 2020). `scratch` has the shape of `out`.
void gate_up_silu(const Context& context, MatrixView<const float> x, const Linear& gate, const Linear& up,
                  MatrixView<float> scratch, MatrixView<float> out);

}  // namespace vitrine
