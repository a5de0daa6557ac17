// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/types.h>

#include <functional>
#include <optional>
#include <string>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/packed_store.h"
#include "ops/linear.h"

namespace vitrine {

/// Gives a model its weight matrices in the layout of the kernels, quantised as asked: packed now, or mapped from the
/// file that an earlier start left. The matrices live as long as this.
class PackedWeights {
 public:
  struct Options {
    WeightType type = WeightType::kBF16;
    bool exact = false;      ///< as stored, F32 or BF16, whatever `type`
    bool cache = false;      ///< keep large models in a file
    std::string model_name;  ///< for people who list the cache
    PackedStore::Progress progress;
  };
  /// The checkpoint must outlive this.
  PackedWeights(ThreadPool& pool, const Checkpoint& checkpoint, Options options);

  /// A matrix between layers.
  PackedMatrix layer(const Tensor& weight);
  /// The embedding or the head, which 4 bits would hurt most.
  PackedMatrix vocabulary(const Tensor& weight);

  /// After the last matrix: the file is completed, and the checkpoint's pages are let go.
  void finish();

  const PackedStore& store() const noexcept { return *store_; }

 private:
  PackedFormat layer_format(const Tensor& weight) const;
  PackedFormat vocabulary_format(const Tensor& weight) const;
  std::int64_t expected_bytes() const;
  PackedMatrix pack(const Tensor& weight, const PackedFormat& format);

  ThreadPool& pool_;
  const Checkpoint& checkpoint_;
  Options options_;
  std::optional<PackedStore> store_;
  std::int64_t read_bytes_ = 0;  // of the checkpoint, since its pages were let go
};

}  // namespace vitrine
