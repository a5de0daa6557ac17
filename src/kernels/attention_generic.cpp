// SPDX-License-Identifier: Apache-2.0
// The KV cache and attention in plain loops: where an element lies, and in which order a row is summed.
#include "kernels/attention_generic.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/float16.h"

namespace vitrine {
namespace {

template <class T>
T at(const unsigned char* bytes, std::int64_t i) {
  T value;
  std::memcpy(&value, bytes + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}
template <class T>
void put(unsigned char* bytes, std::int64_t i, T value) {
  std::memcpy(bytes + i * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

// ---- Elements: how they are rounded and widened ----

/// A vector rounded to int8: q = round(x * inverse), x = q * scale.
struct Int8Scale {
  float inverse, scale;
};

Int8Scale int8_scale(const float* x, std::int64_t n) {
  float most = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) return {0, NAN};
    most = std::max(most, std::fabs(x[i]));
  }
  if (most < kSmallestMagnitude) return {0, 0};
  return {127.0f / most, most / 127.0f};
}

int to_int8(float x, Int8Scale scale) {
  return scale.inverse == 0 ? 0 : static_cast<int>(std::nearbyint(x * scale.inverse));
}

template <KvStorage>
struct Element;
template <>
struct Element<kKvF32> {
  using T = float;
  static T of(float x) { return x; }
  static float widen(T x) { return x; }
};
template <>
struct Element<kKvBF16> {
  using T = BFloat16;
  static T of(float x) { return to_bfloat16(x); }
  static float widen(T x) { return to_float(x); }
};

// ---- Places: where they lie ----

/// Byte `byte` of a token's keys, in the panel.
std::int64_t key_byte(std::int64_t token, std::int64_t byte) {
  return (byte / 64 * 2 + token / kTileRows) * kTileBytes + byte % 64 / 4 * 64 + token % kTileRows * 4 + byte % 4;
}

/// Element d of a token's values, counted in elements.
template <KvStorage Storage>
std::int64_t value_index(const KvFormat& format, std::int64_t token, std::int64_t d) {
  const std::int64_t tile = d / kTileRows;
  const std::int64_t column = d % kTileRows;
  switch (Storage) {
    case kKvF32:
      return ((token / 16 * format.value_tiles() + tile) * 16 + token % 16) * kTileRows + column;
    case kKvBF16:
      return ((tile * 16 + token / 2) * kTileRows + column) * 2 + token % 2;
    default:
      return (tile * kKvTokens + token) * kTileRows + column;
  }
}

// ---- Storing ----

template <KvStorage Storage>
void store_token(const KvFormat& format, unsigned char* block, std::int64_t token, const float* k, const float* v) {
  using E = Element<Storage>;
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(typename E::T));
  for (std::int64_t d = 0; d < format.key_steps() * 64 / kSize; ++d) {
    put(block + key_byte(token, d * kSize), 0, E::of(d < format.head_dim ? k[d] : 0.0f));
  }
  for (std::int64_t d = 0; d < format.head_dim; ++d) {
    put(block + format.values_offset(), value_index<Storage>(format, token, d), E::of(v[d]));
  }
}

template <>
void store_token<kKvInt8>(const KvFormat& format, unsigned char* block, std::int64_t token, const float* k,
                          const float* v) {
  const Int8Scale k_scale = int8_scale(k, format.head_dim);
  const Int8Scale v_scale = int8_scale(v, format.head_dim);
  put(block + format.key_scales_offset(), token, k_scale.scale);
  put(block + format.value_scales_offset(), token, v_scale.scale);
  for (std::int64_t d = 0; d < format.key_steps() * 64; ++d) {
    const int q = d < format.head_dim ? to_int8(k[d], k_scale) : 0;
    block[key_byte(token, d)] = static_cast<unsigned char>(q);
  }
  for (std::int64_t d = 0; d < format.head_dim; ++d) {
    put(block + format.values_offset(), value_index<kKvInt8>(format, token, d),
        static_cast<std::int8_t>(to_int8(v[d], v_scale)));
  }
}

template <KvStorage Storage>
void store_kv(const StoreKvTask& task) {
  const KvFormat format{Storage, task.head_dim};
  if (task.slot == 0) {
    std::memset(task.block + format.values_offset(), 0,
                static_cast<std::size_t>(format.bytes() - format.values_offset()));
  }
  for (std::int64_t i = 0; i < task.tokens; ++i) {
    store_token<Storage>(format, task.block, task.slot + i, task.k + i * task.k_stride, task.v + i * task.v_stride);
  }
}

// ---- Attention ----

/// q k^T of one row with the tokens of a block, from the panel line by line.
template <KvStorage Storage>
void block_scores(const KvFormat& format, const unsigned char* block, const float* q, float* scores) {
  using E = Element<Storage>;
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(typename E::T));
  std::fill_n(scores, kKvTokens, 0.0f);
  for (std::int64_t d = 0; d < format.head_dim; ++d) {
    for (std::int64_t t = 0; t < kKvTokens; ++t) {
      scores[t] += q[d] * E::widen(at<typename E::T>(block + key_byte(t, d * kSize), 0));
    }
  }
}

/// Integers: the query is rounded as keys are, the sum exact.
template <>
void block_scores<kKvInt8>(const KvFormat& format, const unsigned char* block, const float* q, float* scores) {
  const Int8Scale scale = int8_scale(q, format.head_dim);
  std::int32_t sums[kKvTokens] = {};
  for (std::int64_t d = 0; d < format.head_dim; ++d) {
    const int q8 = to_int8(q[d], scale);
    for (std::int64_t t = 0; t < kKvTokens; ++t) sums[t] += q8 * static_cast<signed char>(block[key_byte(t, d)]);
  }
  for (std::int64_t t = 0; t < kKvTokens; ++t) {
    scores[t] = static_cast<float>(sums[t]) * scale.scale * at<float>(block + format.key_scales_offset(), t);
  }
}

/// out += sum over the first `tokens` tokens, in order, of weights[t] * values[t].
template <KvStorage Storage>
void add_values(const KvFormat& format, const unsigned char* block, const float* weights, std::int64_t first,
                std::int64_t tokens, float* out) {
  for (std::int64_t t = first; t < tokens; ++t) {
    for (std::int64_t d = 0; d < format.head_dim; ++d) {
      const std::int64_t index = value_index<Storage>(format, t, d);
      if constexpr (Storage == kKvInt8) {
        const float weight = weights[t] * at<float>(block + format.value_scales_offset(), t);
        out[d] += weight * static_cast<float>(at<std::int8_t>(block + format.values_offset(), index));
      } else {
        using E = Element<Storage>;
        out[d] += weights[t] * E::widen(at<typename E::T>(block + format.values_offset(), index));
      }
    }
  }
}

/// The positions a row sees.
struct Visible {
  std::int64_t first, last;
};

Visible visible_from(const AttentionTask& task, std::int64_t token) {
  const std::int64_t position = task.position + token;
  return {task.window > 0 ? std::max<std::int64_t>(0, position - task.window + 1) : 0, position};
}

const unsigned char* block_of(const AttentionTask& task, std::int64_t position) {
  return task.cache + task.blocks[position / kKvTokens] * task.block_bytes;
}

/// One row: the softmax so far, its sum and the values weighted with it are carried from block to block, and scaled
/// down whenever a larger score turns up.
template <KvStorage Storage>
void attend(const AttentionTask& task, const Visible& visible, const float* q, float* out) {
  const KvFormat format{Storage, task.head_dim};
  float most = -INFINITY;
  float sum = 0;
  std::fill_n(out, task.head_dim, 0.0f);
  for (std::int64_t start = visible.first / kKvTokens * kKvTokens; start <= visible.last; start += kKvTokens) {
    const unsigned char* block = block_of(task, start);
    const std::int64_t first = std::max<std::int64_t>(visible.first - start, 0);
    const std::int64_t end = std::min(visible.last + 1 - start, kKvTokens);
    float weights[kKvTokens];
    block_scores<Storage>(format, block, q, weights);
    float larger = most;
    for (std::int64_t t = first; t < end; ++t) larger = std::max(larger, weights[t] * task.scale);
    const float correction = std::exp(most - larger);
    most = larger;
    sum *= correction;
    for (std::int64_t d = 0; d < task.head_dim; ++d) out[d] *= correction;
    for (std::int64_t t = first; t < end; ++t) {
      weights[t] = std::exp(weights[t] * task.scale - most);
      sum += weights[t];
    }
    add_values<Storage>(format, block, weights, first, end, out);
  }
  for (std::int64_t d = 0; d < task.head_dim; ++d) out[d] /= sum;
}

template <KvStorage Storage>
void attention(const AttentionTask& task) {
  for (std::int64_t token = 0; token < task.tokens; ++token) {
    for (std::int64_t head = 0; head < task.heads; ++head) {
      attend<Storage>(task, visible_from(task, token), task.q + token * task.q_stride + head * task.head_dim,
                      task.out + token * task.out_stride + head * task.head_dim);
    }
  }
}

template <KvStorage Storage>
void row_weights(const AttentionTask& task, float* weights) {
  const KvFormat format{Storage, task.head_dim};
  const Visible visible = visible_from(task, 0);
  std::fill_n(weights, visible.last + 1, 0.0f);
  for (std::int64_t start = visible.first / kKvTokens * kKvTokens; start <= visible.last; start += kKvTokens) {
    float scores[kKvTokens];
    block_scores<Storage>(format, block_of(task, start), task.q, scores);
    const std::int64_t end = std::min(visible.last + 1 - start, kKvTokens);
    for (std::int64_t t = std::max<std::int64_t>(visible.first - start, 0); t < end; ++t) {
      weights[start + t] = scores[t] * task.scale;
    }
  }
  float most = -INFINITY;
  for (std::int64_t s = visible.first; s <= visible.last; ++s) most = std::max(most, weights[s]);
  float sum = 0;
  for (std::int64_t s = visible.first; s <= visible.last; ++s) sum += weights[s] = std::exp(weights[s] - most);
  for (std::int64_t s = visible.first; s <= visible.last; ++s) weights[s] /= sum;
}

}  // namespace

void add_generic_attention(Kernels& kernels) {
  kernels.store_kv[kKvF32] = store_kv<kKvF32>;
  kernels.store_kv[kKvBF16] = store_kv<kKvBF16>;
  kernels.store_kv[kKvInt8] = store_kv<kKvInt8>;
  kernels.attention[kKvF32] = attention<kKvF32>;
  kernels.attention[kKvBF16] = attention<kKvBF16>;
  kernels.attention[kKvInt8] = attention<kKvInt8>;
}

void attention_weights(KvStorage storage, const AttentionTask& task, float* weights) {
  if (storage == kKvF32) return row_weights<kKvF32>(task, weights);
  if (storage == kKvBF16) return row_weights<kKvBF16>(task, weights);
  row_weights<kKvInt8>(task, weights);
}

}  // namespace vitrine
