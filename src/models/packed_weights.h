// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/types.h>

#include <vector>

#include "base/lazy_memory.h"
#include "base/thread_pool.h"
#include "ops/linear.h"

namespace vitrine {

/// Gives a model its weight matrices in the layout of the kernels, quantised as asked.
class PackedWeights {
 public:
  struct Options {
    WeightType type = WeightType::kBF16;
    bool exact = false;  // as stored, F32 or BF16, whatever `type`
  };
  PackedWeights(ThreadPool& pool, Options options) : pool_(pool), options_(options) {}

  /// A matrix between layers.
  PackedMatrix layer(const Tensor& weight);
  /// The embedding or the head, which 4 bits would hurt most.
  PackedMatrix vocabulary(const Tensor& weight);

 private:
  PackedFormat layer_format(const Tensor& weight) const;
  PackedFormat vocabulary_format(const Tensor& weight) const;
  PackedMatrix pack(const Tensor& weight, const PackedFormat& format);

  ThreadPool& pool_;
  Options options_;
  std::vector<LazyMemory> memory_;
};

}  // namespace vitrine
