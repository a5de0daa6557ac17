// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/explain.h>

#include <string>

namespace vitrine::app {

/// The whole explanation on one line; numbers read back as they were. `model`: how the user called it.
std::string json_of(const std::string& model, const Engine& engine, const Explanation& e);

}  // namespace vitrine::app
