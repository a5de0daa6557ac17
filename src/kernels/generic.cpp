// SPDX-License-Identifier: Apache-2.0
// What every kernel means, in plain loops. The fast twins in avx2.cpp and avx512.cpp are tested against these.
#include <cmath>
#include <cstring>

#include "base/float16.h"
#include "kernels/kernels.h"

namespace vitrine {
namespace {

/// Element i of an array of T at any alignment: tensors of a mapped file start where the file says.
template <class T>
float at(const void* array, std::int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(array) + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return to_float(value);
}

template <class T>
void matmul(const MatmulTask& task) {
  for (std::int64_t m = 0; m < task.m; ++m) {
    for (std::int64_t n = 0; n < task.n; ++n) {
      float sum = 0;
      for (std::int64_t k = 0; k < task.k; ++k) {
        sum += task.x[m * task.x_stride + k] * at<T>(task.weight, n * task.k + k);
      }
      float& y = task.y[m * task.y_stride + n];
      y = task.accumulate ? y + sum : sum;
    }
  }
}

template <class T>
void load(const void* src, float* dst, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) dst[i] = at<T>(src, i);
}

void store_f32(const float* src, void* dst, std::int64_t n) {
  std::memcpy(dst, src, static_cast<std::size_t>(n) * sizeof(float));
}

void store_bf16(const float* src, void* dst, std::int64_t n) {
  auto* out = static_cast<BFloat16*>(dst);
  for (std::int64_t i = 0; i < n; ++i) out[i] = to_bfloat16(src[i]);
}

template <class T>
void attention_scores(const ScoresTask& task) {
  for (std::int64_t h = 0; h < task.heads; ++h) {
    for (std::int64_t t = 0; t < task.tokens; ++t) {
      float sum = 0;
      for (std::int64_t d = 0; d < task.head_dim; ++d) {
        sum += task.q[h * task.q_stride + d] * at<T>(task.keys, t * task.head_dim + d);
      }
      task.scores[h * task.scores_stride + t] = sum * task.scale;
    }
  }
}

template <class T>
void attention_values(const ValuesTask& task) {
  for (std::int64_t h = 0; h < task.heads; ++h) {
    for (std::int64_t t = 0; t < task.tokens; ++t) {
      const float weight = task.weights[h * task.weights_stride + t];
      for (std::int64_t d = 0; d < task.head_dim; ++d) {
        task.out[h * task.out_stride + d] += weight * at<T>(task.values, t * task.head_dim + d);
      }
    }
  }
}

void rms_norm(const float* x, const float* weight, std::int64_t n, float eps, float* y) {
  float sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  const float scale = 1.0f / std::sqrt(sum / static_cast<float>(n) + eps);
  for (std::int64_t i = 0; i < n; ++i) y[i] = weight[i] * (x[i] * scale);
}

void rope(float* x, const float* cosines, const float* sines, std::int64_t n) {
  const std::int64_t half = n / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = x[i];
    const float b = x[i + half];
    x[i] = a * cosines[i] - b * sines[i];
    x[i + half] = b * cosines[i] + a * sines[i];
  }
}

void softmax(float* x, std::int64_t n) {
  float max = -INFINITY;
  for (std::int64_t i = 0; i < n; ++i) max = x[i] > max ? x[i] : max;
  float sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    x[i] = std::exp(x[i] - max);
    sum += x[i];
  }
  for (std::int64_t i = 0; i < n; ++i) x[i] /= sum;
}

void silu_mul(const float* gate, const float* up, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

}  // namespace

Kernels generic_kernels() {
  return {
      .name = "generic",
      .matmul = {matmul<float>, matmul<Float16>, matmul<BFloat16>},
      .load = {load<float>, load<Float16>, load<BFloat16>},
      .store = {store_f32, nullptr, store_bf16},
      .attention_scores = {attention_scores<float>, nullptr, attention_scores<BFloat16>},
      .attention_values = {attention_values<float>, nullptr, attention_values<BFloat16>},
      .rms_norm = rms_norm,
      .rope = rope,
      .softmax = softmax,
      .silu_mul = silu_mul,
  };
}

}  // namespace vitrine
