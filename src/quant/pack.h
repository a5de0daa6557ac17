// SPDX-License-Identifier: Apache-2.0
// Weights into packed panels and back: the reference of every packed type.
#pragma once

#include <cstdint>

#include "quant/packed.h"

namespace vitrine {

/// Packs one panel: `rows` is [count, format.k] floats, count <= 32 rows from row 32 * panel on; missing rows are zero.
/// `out` has format.panel_bytes() zeroed bytes. Rounds to nearest even for bf16; for integers as the comments at the
/// definitions say. The same bytes on every machine.
void pack_panel(const PackedFormat& format, const float* rows, std::int64_t count, unsigned char* out);

/// Row n of a packed matrix as the products mean it, [format.k] floats. `data` is the first panel.
void unpack_row(const PackedFormat& format, const unsigned char* data, std::int64_t n, float* out);

}  // namespace vitrine
