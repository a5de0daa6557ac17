// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ops/linear.h"

namespace vitrine {

/// out = silu(x Wg^T) * (x Wu^T), the first half of SwiGLU (Shazeer 2020), packed for the product that follows.
void gate_up_silu(const Context& context, const PackedRows& x, const Linear& gate, const Linear& up,
                  const PackedRows& out);

/// Upper bound of what that takes from the workspace, for x [rows, k] and out [rows, n].
std::int64_t gate_up_workspace_bytes(std::int64_t rows, std::int64_t k, std::int64_t n, int threads);

}  // namespace vitrine
