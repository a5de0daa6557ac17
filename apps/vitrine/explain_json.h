// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/explain.h>

#include <string>

#include "json_output.h"

namespace vitrine::app {

/// The whole explanation. `model`: how the user called it.
Json json_of(const std::string& model, const Engine& engine, const Explanation& e);

}  // namespace vitrine::app
