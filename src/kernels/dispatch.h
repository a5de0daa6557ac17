// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/types.h>

#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace vitrine {

/// Every table of this build, slowest first.
std::vector<IsaInfo> kernel_choices();

/// The table called `name`, or the best one this machine runs when `name` is empty.
/// Throws Error(kInvalidArgument) for an unknown name, Error(kUnsupported) for one this CPU lacks.
Kernels select_kernels(const std::string& name);

}  // namespace vitrine
