// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

namespace vitrine::app {

using Json = nlohmann::ordered_json;

/// Writes the value as the one line of JSON a script reads. Numbers read back as they were; what is not UTF-8 (a path
/// from the command line) becomes U+FFFD.
void write_json(const Json& value);

}  // namespace vitrine::app
