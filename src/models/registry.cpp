// SPDX-License-Identifier: Apache-2.0
#include <vitrine/error.h>

#include "models/model.h"
#include "models/qwen3.h"

namespace vitrine {
namespace {

using Factory = std::unique_ptr<Model> (*)(std::shared_ptr<const Checkpoint>, PackedWeights&);

struct Family {
  const char* model_type;
  Factory make;
};

// A new family: its file in this folder, a line here, its model_type in checkpoint/config.cpp.
constexpr Family kFamilies[] = {
    {"qwen3", make_qwen3},
};

}  // namespace

std::unique_ptr<Model> make_model(std::shared_ptr<const Checkpoint> checkpoint, PackedWeights& weights) {
  for (const Family& family : kFamilies) {
    if (checkpoint->config().model_type == family.model_type) return family.make(std::move(checkpoint), weights);
  }
  const ModelConfig& config = checkpoint->config();
  throw Error(ErrorCode::kUnsupported, config.source + ": model_type: \"" + config.model_type + "\" is not supported");
}

}  // namespace vitrine
