// SPDX-License-Identifier: Apache-2.0
// The tile registers of AMX. Wrappers of our own: GCC 12's intrinsics tell the compiler of 8 of the 64 bytes that a
// configuration reads and of no memory that tiles are loaded from, so that stores before them can vanish
// (performance.md 6.2).
#pragma once

#include <cstdint>

namespace vitrine {
namespace {

/// Rows and bytes a row of the eight tiles.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

inline __attribute__((always_inline)) void configure_tiles(const TileConfig& config) {
  asm volatile("ldtilecfg %0" : : "m"(config) : "memory");
}
/// Gives the tiles back, so that a thread that parks has no 8 KB of state to be saved.
inline __attribute__((always_inline)) void release_tiles() { asm volatile("tilerelease" : : : "memory"); }

template <int Tile>
inline __attribute__((always_inline)) void zero_tile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(Tile));
}
template <int Tile>
inline __attribute__((always_inline)) void load_tile(const void* from, std::int64_t stride) {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" : : "i"(Tile), "r"(from), "r"(stride) : "memory");
}
template <int Tile>
inline __attribute__((always_inline)) void store_tile(void* to, std::int64_t stride) {
  asm volatile("tilestored %%tmm%c0, (%1,%2,1)" : : "i"(Tile), "r"(to), "r"(stride) : "memory");
}
/// Sum += A B: pairs of bf16 into float32, denormals taken as zero.
template <int Sum, int A, int B>
inline __attribute__((always_inline)) void add_bf16_products() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sum), "i"(A), "i"(B));
}
/// Sum += A B: fours of signed bytes into int32.
template <int Sum, int A, int B>
inline __attribute__((always_inline)) void add_byte_products() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(Sum), "i"(A), "i"(B));
}

}  // namespace
}  // namespace vitrine
