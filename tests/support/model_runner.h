// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/model.h"

namespace vitrine::test {

/// Drives a model below the engine, so that every row's hidden state and logits can be looked at.
class ModelRunner {
 public:
  struct Options {
    KvStorage kv = kKvF32;
    bool exact = true;
    WeightType weights = WeightType::kBF16;  // where not exact
    int threads = 1;
    std::string isa;
    std::int64_t blocks = 16;
  };
  ModelRunner(const std::filesystem::path& folder, Options options);

  const Model& model() const { return *model_; }
  Context context(Probe* probe = nullptr) { return {pool_, kernels_, workspace_, probe}; }
  ModelCache& cache() { return cache_; }

  /// Final-normed hidden states [T, H] of all ids, fed in chunks of these sizes (the last one repeats).
  std::vector<float> hidden(std::span<const TokenId> ids, std::span<const std::int64_t> chunks, Probe* probe = nullptr);
  /// Logits [T, V] of them.
  std::vector<float> logits(std::span<const float> hidden);

 private:
  Kernels kernels_;
  ThreadPool pool_;
  std::shared_ptr<const Checkpoint> checkpoint_;
  PackedWeights weights_;
  std::unique_ptr<Model> model_;
  ModelCache cache_;
  Workspace workspace_;
};

/// Names of the kernel tables that this machine can run.
std::vector<std::string> runnable_isas();

}  // namespace vitrine::test
