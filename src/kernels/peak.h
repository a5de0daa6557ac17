// SPDX-License-Identifier: Apache-2.0
// Loops that do nothing but the multiply-adds of an instruction set, register to register: the roof above its kernels.
// Plain, since the files behind it are compiled for different instruction sets.
#pragma once

#include <cstdint>

namespace vitrine {

/// Each runs its loop that many times and returns the number of operations (multiplications and additions) done.
struct PeakLoops {
  double (*float_ops)(std::int64_t iterations);
  double (*int8_ops)(std::int64_t iterations);
  bool vnni;  // whether the CPU has the AVX-512 dot product of int8; in, for override_peak_avx512
};

/// The loops of the kernel table of that name, or of the best one this machine runs when it is empty. Throws as
/// select_kernels does.
PeakLoops select_peak_loops(const char* table);

// Each replaces both. Call only where the CPU has the instruction set (peak.cpp asks).
void override_peak_avx2(PeakLoops& loops);
void override_peak_avx512(PeakLoops& loops);
void override_peak_amx(PeakLoops& loops);  // floats: bf16 products on tiles, as the table multiplies them

}  // namespace vitrine
