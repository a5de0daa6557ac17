// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vitrine/engine.h>

#include <nlohmann/json.hpp>
#include <string>

namespace vitrine::app {

using Json = nlohmann::ordered_json;

/// The value on one line. Numbers read back as they were; what is not UTF-8 (a path from the command line) becomes
/// U+FFFD.
std::string json_line(const Json& value);
/// Writes the value as the one line of JSON a script reads.
void write_json(const Json& value);
/// What guessing ahead brought.
Json speculation_json(const Speculation& speculation);

}  // namespace vitrine::app
