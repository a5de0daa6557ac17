// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cache/model_cache.h"
#include "checkpoint/checkpoint.h"
#include "models/packed_weights.h"
#include "ops/context.h"
#include "ops/head.h"

namespace vitrine {

/// A decoder with its weights bound. Immutable; all that changes lives in the cache and the workspace.
class Model {
 public:
  virtual ~Model() = default;

  /// One step: reads the batch's rows, extends the cache, and writes the final-normed hidden state of each output row
  /// to `hidden` [batch.output_rows.size(), hidden_size]. One call serves prefill, decode and both mixed.
  virtual void forward(const Context& context, const Batch& batch, ModelCache& cache,
                       MatrixView<float> hidden) const = 0;

  virtual const Head& head() const noexcept = 0;
  /// Final norm of `residual` rows, as forward applies it before the head.
  virtual void final_norm(const Context& context, MatrixView<const float> residual, MatrixView<float> out) const = 0;

  virtual std::vector<LayerCacheSpec> cache_layers() const = 0;
  virtual std::int64_t hidden_size() const noexcept = 0;
  /// Upper bound of what forward takes from the workspace.
  virtual std::int64_t workspace_bytes(std::int64_t max_rows, int threads) const = 0;
  virtual std::vector<ModelPart> parts() const = 0;
  /// Notes for the user: surprises in the checkpoint that do not keep it from working.
  virtual const std::vector<std::string>& warnings() const noexcept = 0;
};

/// The model that config.json's model_type names, its weights bound and checked. Throws Error naming what is missing.
/// `weights` must outlive it.
std::unique_ptr<Model> make_model(std::shared_ptr<const Checkpoint> checkpoint, PackedWeights& weights);

}  // namespace vitrine
