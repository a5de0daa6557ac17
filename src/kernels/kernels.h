// SPDX-License-Identifier: Apache-2.0
// The table of kernels: one function pointer an operation, chosen once at load for the instruction set at hand.
// Plain structs only, since the files behind the table are compiled for different instruction sets.
#pragma once

#include <cstdint>

namespace vitrine {

/// How the elements of a weight or of the KV cache are stored; indexes the arrays of Kernels.
enum StorageType : std::uint8_t { kStoreF32, kStoreF16, kStoreBF16, kNumStorageTypes };

/// y[m][n] (+)= sum over k of x[m][k] * weight[n][k].
/// The order of the sum depends on k alone, so a row of y has the same bits whatever m and n it is computed with.
struct MatmulTask {
  const void* weight;  // [n, k] row-major, any alignment
  const float* x;      // [m, k]
  float* y;            // [m, n]
  std::int64_t m, n, k;
  std::int64_t x_stride, y_stride;  // floats from row to row
  bool accumulate;                  // y += instead of y =
};

/// scores[h][t] = scale * q[h] . keys[t]: the query heads of one token that share a KV head, against one block.
struct ScoresTask {
  const float* q;    // [heads, head_dim]
  const void* keys;  // [tokens, head_dim] contiguous
  float* scores;     // [heads, tokens]
  std::int64_t heads, tokens, head_dim;
  std::int64_t q_stride, scores_stride;
  float scale;
};

/// out[h] += sum over t, in order, of weights[h][t] * values[t].
struct ValuesTask {
  const float* weights;  // [heads, tokens]
  const void* values;    // [tokens, head_dim] contiguous
  float* out;            // [heads, head_dim]
  std::int64_t heads, tokens, head_dim;
  std::int64_t weights_stride, out_stride;
};

struct Kernels {
  const char* name;

  void (*matmul[kNumStorageTypes])(const MatmulTask& task);
  /// dst[i] = src[i] as float
  void (*load[kNumStorageTypes])(const void* src, float* dst, std::int64_t n);
  /// dst[i] = src[i] rounded to nearest even
  void (*store[kNumStorageTypes])(const float* src, void* dst, std::int64_t n);

  void (*attention_scores[kNumStorageTypes])(const ScoresTask& task);
  void (*attention_values[kNumStorageTypes])(const ValuesTask& task);

  /// y = weight * (x / sqrt(mean(x^2) + eps)); y may be x
  void (*rms_norm)(const float* x, const float* weight, std::int64_t n, float eps, float* y);
  /// Rotates the pairs (i, i + n/2) of one head in place by the angles whose cosines and sines are given, [n/2] each.
  void (*rope)(float* x, const float* cosines, const float* sines, std::int64_t n);
  /// x = exp(x - max(x)) / sum; -infinity counts as masked
  void (*softmax)(float* x, std::int64_t n);
  /// out = gate / (1 + exp(-gate)) * up; out may be gate
  void (*silu_mul)(const float* gate, const float* up, std::int64_t n, float* out);
};

/// The scalar table: tutorial and oracle.
Kernels generic_kernels();
// Each replaces what its instruction set does better. Call only where the CPU has it (dispatch.cpp asks).
void override_avx2(Kernels& kernels);
void override_avx512(Kernels& kernels);

}  // namespace vitrine
