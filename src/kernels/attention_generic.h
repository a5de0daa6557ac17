// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/kernels.h"

namespace vitrine {

/// Fills in store_kv and attention in plain loops: what they mean.
void add_generic_attention(Kernels& kernels);

/// The softmax of one row alone, weights [position + 1]: what attention multiplies the values with. For showing it.
void attention_weights(KvStorage storage, const AttentionTask& task, float* weights);

}  // namespace vitrine
