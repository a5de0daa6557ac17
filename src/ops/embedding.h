// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "ops/linear.h"

namespace vitrine {

/// x[r] = table[ids[r]] in float. `table` [vocabulary, hidden], the same packed matrix as a tied head; every id must be
/// a row of it.
void embed(const Context& context, const PackedMatrix& table, std::span<const std::int32_t> ids, MatrixView<float> x);

}  // namespace vitrine
