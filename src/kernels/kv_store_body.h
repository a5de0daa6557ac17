// SPDX-License-Identifier: Apache-2.0
// Writing keys and values into a block of the cache, in the words of Simd: the bytes of attention_generic.cpp. Included
// by an instruction set's file after its simd_*.h.
#pragma once

#include <cstdint>

#include "kernels/attention_float_body.h"

namespace vitrine {
namespace {

VITRINE_INLINE Simd::F load_padded(const float* x, std::int64_t i, std::int64_t n) {
  return i < n ? Simd::load(x + i, smaller(n - i, Simd::kLanes)) : Simd::zero();
}

/// 64 bytes of a token's keys to where its lane of a panel's lines is, `panel` being the step's two tiles.
VITRINE_INLINE void scatter_line(const unsigned char* line, unsigned char* panel, std::int64_t token) {
  unsigned char* to = panel + token / kTileRows * kTileBytes + token % kTileRows * 4;
  for (int q = 0; q < 16; ++q) __builtin_memcpy(to + q * kLine, line + 4 * q, 4);
}

struct StoreF32 {
  static KvPlaces places(std::int64_t head_dim) { return KvF32::places(head_dim); }

  static VITRINE_INLINE void store(const StoreKvTask& task, const KvPlaces& places, std::int64_t token, const float* k,
                                   const float* v) {
    alignas(64) unsigned char line[64];
    for (std::int64_t step = 0; step < places.key_steps; ++step) {
      for (std::int64_t i = 0; i < 16; i += Simd::kLanes) {
        Simd::store(reinterpret_cast<float*>(line) + i, load_padded(k, step * 16 + i, task.head_dim));
      }
      scatter_line(line, task.block + step * 2 * kTileBytes, token);
    }
    unsigned char* values = task.block + places.values + token / 16 * places.value_tiles * kTileBytes;
    for (std::int64_t d = 0; d < places.value_tiles * 16; d += Simd::kLanes) {
      auto* to = reinterpret_cast<float*>(values + d / 16 * kTileBytes + token % 16 * kLine) + d % 16;
      Simd::store(to, load_padded(v, d, task.head_dim));
    }
  }
};

struct StoreBF16 {
  static KvPlaces places(std::int64_t head_dim) { return KvBF16::places(head_dim); }

  static VITRINE_INLINE void store(const StoreKvTask& task, const KvPlaces& places, std::int64_t token, const float* k,
                                   const float* v) {
    alignas(64) unsigned char line[64];
    for (std::int64_t step = 0; step < places.key_steps; ++step) {
      for (std::int64_t i = 0; i < 32; i += Simd::kLanes) {
        Simd::store_bf16(line + 2 * i, load_padded(k, step * 32 + i, task.head_dim));
      }
      scatter_line(line, task.block + step * 2 * kTileBytes, token);
    }
    unsigned char* values = task.block + places.values + token / 2 * kLine;
    const Simd::I high = Simd::set_int(static_cast<std::int32_t>(0xFFFF0000));
    for (std::int64_t d = 0; d < places.value_tiles * 16; d += Simd::kLanes) {
      unsigned char* to = values + d / 16 * kTileBytes + d % 16 * 4;
      const Simd::I bits = Simd::bf16_bits(load_padded(v, d, task.head_dim));
      // The first of a pair clears what stands in the other's place.
      const Simd::I first = Simd::template shift_right<16>(bits);
      if (token % 2 == 0) {
        Simd::store_bits(to, first);
      } else {
        const Simd::I before = Simd::and_int(Simd::load_bits(to), Simd::set_int(0xFFFF));
        Simd::store_bits(to, Simd::or_int(before, Simd::and_int(bits, high)));
      }
    }
  }
};

struct StoreInt8 {
  static KvPlaces places(std::int64_t head_dim) { return int8_places(head_dim); }

  static VITRINE_INLINE void store(const StoreKvTask& task, const KvPlaces& places, std::int64_t token, const float* k,
                                   const float* v) {
    const Int8Scale k_scale = int8_scale(k, task.head_dim);
    const Int8Scale v_scale = int8_scale(v, task.head_dim);
    reinterpret_cast<float*>(task.block + places.key_scales)[token] = k_scale.scale;
    reinterpret_cast<float*>(task.block + places.value_scales)[token] = v_scale.scale;
    alignas(64) unsigned char line[64];
    for (std::int64_t step = 0; step < places.key_steps; ++step) {
      for (std::int64_t i = 0; i < 64; i += Simd::kLanes) {
        Simd::store_as_bytes(line + i, to_int8(load_padded(k, step * 64 + i, task.head_dim), k_scale));
      }
      scatter_line(line, task.block + step * 2 * kTileBytes, token);
    }
    unsigned char* values = task.block + places.values + token * kTileRows;
    for (std::int64_t d = 0; d < places.value_tiles * 16; d += Simd::kLanes) {
      Simd::store_as_bytes(values + d / 16 * kKvTokens * kTileRows + d % 16,
                           to_int8(load_padded(v, d, task.head_dim), v_scale));
    }
  }
};

template <class Store>
void store_kv(const StoreKvTask& task) {
  const KvPlaces places = Store::places(task.head_dim);
  if (task.slot == 0) {
    for (std::int64_t i = places.values; i < places.bytes; i += 4 * Simd::kLanes) {
      Simd::store_bits(task.block + i, Simd::zero_int());
    }
  }
  for (std::int64_t i = 0; i < task.tokens; ++i) {
    Store::store(task, places, task.slot + i, task.k + i * task.k_stride, task.v + i * task.v_stride);
  }
}

void override_store_kv(Kernels& kernels) {
  kernels.store_kv[kKvF32] = store_kv<StoreF32>;
  kernels.store_kv[kKvBF16] = store_kv<StoreBF16>;
  kernels.store_kv[kKvInt8] = store_kv<StoreInt8>;
}

}  // namespace
}  // namespace vitrine
