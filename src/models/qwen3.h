// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "models/model.h"

namespace vitrine {

/// Qwen3 dense (transformers models/qwen3/modeling_qwen3.py): pre-norm blocks of grouped-query attention with normed
/// queries and keys, and SwiGLU.
std::unique_ptr<Model> make_qwen3(std::shared_ptr<const Checkpoint> checkpoint, PackedWeights& weights);

}  // namespace vitrine
