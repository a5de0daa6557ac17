// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/engine.h>

#include <memory>
#include <string>

#include "base/thread_pool.h"
#include "models/model.h"

namespace vitrine {

/// A model with all that it needs to run, and what is known of it. Immutable but for the pool.
struct LoadedModel {
  std::unique_ptr<ThreadPool> pool;
  Kernels kernels{};
  std::shared_ptr<const Checkpoint> checkpoint;
  std::unique_ptr<PackedWeights> weights;
  std::shared_ptr<const Tokenizer> tokenizer;  // null when there is none
  std::unique_ptr<Model> model;
  KvStorage kv = kKvBF16;
  SamplingParams default_sampling;
  std::int64_t usable_vocab = 0;  // ids from here on are padding of the embedding
  double draft_cost = 0;          // of a guessed row, in units of what a token costs without; 0: measured as it goes
  EngineInfo info;                // what does not depend on the engine's own options
};

/// Opens the folder or Hub name. Throws Error naming file and place, or the option that makes no sense.
LoadedModel load_model(const std::string& name, const EngineOptions& options);

/// An engine for a model that is already there; tests give it scripted ones. Options that say how to load are not used.
Engine make_engine(LoadedModel model, const EngineOptions& options);

/// The value, or `fallback` for 0. Throws Error(kInvalidArgument) naming the option when it is outside 0 to `max`.
std::int64_t option(const char* name, std::int64_t value, std::int64_t max, std::int64_t fallback);

}  // namespace vitrine
