// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "ops/context.h"

namespace vitrine {

/// x[r] = table[ids[r]] widened to float. `table` [vocabulary, hidden]; every id must be a row of it.
void embed(const Context& context, const Tensor& table, std::span<const std::int32_t> ids, MatrixView<float> x);

}  // namespace vitrine
