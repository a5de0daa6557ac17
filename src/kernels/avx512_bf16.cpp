// SPDX-License-Identifier: Apache-2.0
// Compiled for AVX-512 F, BW, VL and DQ; run only where there is AVX512_BF16 too: vdpbf16ps, which multiplies pairs of
// bf16 and sums them in float32. Rounds otherwise than FP32 FMA, so it is a table of its own; faster only on some CPUs.
#include "kernels/simd_avx512.h"
//
#include "kernels/product_rows_body.h"

namespace vitrine {
namespace {

constexpr int kRows = 8;

/// MR rows against a panel. One sum an element, pairs of k ascending.
template <int MR>
void tile(const MatmulTask& task, const unsigned char* panel, std::int64_t column, const BlockRows& block) {
  Simd::F acc[MR][2];
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) acc[m][0] = acc[m][1] = Simd::zero();
  const unsigned char* x = block.tile;
  for (std::int64_t step = 0; step < task.weight.steps; ++step, panel += 2 * kTileBytes, x += block.step_bytes) {
    if (block.row == 0) {
      for (int line = 0; line < 32; ++line) prefetch(panel + line * kLine);
    }
#pragma GCC unroll 1
    for (int q = 0; q < 16; ++q) {
      const Simd::I w0 = Simd::load_bits(panel + q * kLine);
      const Simd::I w1 = Simd::load_bits(panel + kTileBytes + q * kLine);
#pragma GCC unroll 8
      for (int m = 0; m < MR; ++m) {
        std::int32_t pair;
        __builtin_memcpy(&pair, x + m * kLine + 4 * q, sizeof(pair));
        const Simd::I xs = Simd::set_int(pair);
        asm("vdpbf16ps %2, %1, %0" : "+v"(acc[m][0]) : "v"(w0), "v"(xs));
        asm("vdpbf16ps %2, %1, %0" : "+v"(acc[m][1]) : "v"(w1), "v"(xs));
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < MR; ++m) {
    for (int half = 0; half < 2; ++half) write(task, block.row + m, column + half * kTileRows, acc[m][half]);
  }
}

struct Rows {
  const unsigned char* panel;
  template <int MR>
  void run(const MatmulTask& task, std::int64_t column, const BlockRows& block) const {
    tile<MR>(task, panel, column, block);
  }
};

void matmul_bf16(const MatmulTask& task) {
  const unsigned char* panel = task.weight.panels;
  for (std::int64_t column = 0; column < task.n; column += kPanelRows, panel += task.weight.panel_bytes) {
    for (std::int64_t first = 0; first < task.x.rows; first += kTileRows) {
      for_block<kRows>(task, Rows{panel}, column, first);
    }
  }
}

}  // namespace

void override_avx512_bf16(Kernels& kernels) {
  kernels.matmul[kPackedBF16] = matmul_bf16;
  kernels.operand[kPackedBF16] = kOperandBF16;
}

}  // namespace vitrine
