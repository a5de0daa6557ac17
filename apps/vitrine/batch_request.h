// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/engine.h>

#include <optional>
#include <string>

#include "commands.h"
#include "json_output.h"

namespace vitrine::app {

/// A line of `run --batch`: a JSON object with a request's fields where it begins with "{", else the prompt itself.
/// `defaults` is what the command line says, and holds where the line says nothing. `id` is set as soon as it is known.
/// Throws Error(kInvalidArgument) naming the field, or kNotFound for a text without a tokenizer.
Request read_batch_request(const std::string& line, const RunCommand& defaults, const Engine& engine,
                           std::optional<Json>& id);

}  // namespace vitrine::app
