// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace vitrine {

/// A table this machine could use, and if not, why.
struct KernelChoice {
  std::string name;
  bool available;
  std::string reason;  // "needs AVX2, FMA and F16C" where not available
};

/// Every table of this build, slowest first.
std::vector<KernelChoice> kernel_choices();

/// The table called `name`, or the best one this machine runs when `name` is empty.
/// Throws Error(kInvalidArgument) for an unknown name, Error(kUnsupported) for one this CPU lacks.
Kernels select_kernels(const std::string& name);

}  // namespace vitrine
