// SPDX-License-Identifier: Apache-2.0
// The peak of AMX tiles: run only where they are, and granted.
#include <cstdint>

#include "kernels/amx_tiles.h"
#include "kernels/peak.h"

namespace vitrine {
namespace {

constexpr int kProducts = 4;  // independent sums, as in the products' loops

void configure_full_tiles() {
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    config.rows[i] = 16;
    config.row_bytes[i] = 64;
  }
  configure_tiles(config);
}

/// Products of bf16: 32 multiply-adds for each of the 16 x 16 sums.
double bf16_ops(std::int64_t iterations) {
  configure_full_tiles();
  for (std::int64_t n = 0; n < iterations; ++n) {
    add_bf16_products<0, 4, 6>();
    add_bf16_products<1, 4, 7>();
    add_bf16_products<2, 5, 6>();
    add_bf16_products<3, 5, 7>();
  }
  release_tiles();
  return static_cast<double>(iterations) * kProducts * 16 * 16 * 32 * 2;
}

double byte_ops(std::int64_t iterations) {
  configure_full_tiles();
  for (std::int64_t n = 0; n < iterations; ++n) {
    add_byte_products<0, 4, 6>();
    add_byte_products<1, 4, 7>();
    add_byte_products<2, 5, 6>();
    add_byte_products<3, 5, 7>();
  }
  release_tiles();
  return static_cast<double>(iterations) * kProducts * 16 * 16 * 64 * 2;
}

}  // namespace

void override_peak_amx(PeakLoops& loops) {
  loops.float_ops = bf16_ops;
  loops.int8_ops = byte_ops;
}

}  // namespace vitrine
