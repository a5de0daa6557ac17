// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/types.h>

#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace vitrine {

/// Every table of this build, from the plainest on.
std::vector<IsaInfo> kernel_choices();

/// The table called `name`, or the best one this machine runs when `name` is empty.
/// `exact`: products take float32 activations, whatever the table rounds them to otherwise.
/// Throws Error(kInvalidArgument) for an unknown name, Error(kUnsupported) for one this machine lacks.
Kernels select_kernels(const std::string& name, bool exact = false);

}  // namespace vitrine
