// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensor/paged_kv.h"

namespace vitrine {

/// What the policy of the engine may do with the bytes of a cache: it decides who owns which block and which state, and
/// never looks inside.
class CacheStore {
 public:
  virtual ~CacheStore() = default;
  virtual void copy_block(BlockId from, BlockId to) noexcept = 0;
  virtual void copy_state(StateSlot from, StateSlot to) noexcept = 0;
  /// The state before any token.
  virtual void clear_state(StateSlot slot) noexcept = 0;
};

}  // namespace vitrine
