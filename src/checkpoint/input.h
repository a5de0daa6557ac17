// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace vitrine {

/// A name out of a file, fit for a message on a terminal: control characters become '?', very long ones are
/// cut.
std::string printable(std::string_view text);

/// Throws Error(kBadFile) when `object` is not an object or has a key twice: readers disagree on which one
/// counts.
void check_unique_keys(const json::Value& object);

/// The entries of a folder, sorted; none if it does not exist. Throws Error(kIo) when it cannot be read.
std::vector<std::filesystem::path> list_folder(const std::filesystem::path& folder);

/// A folder from an environment variable; empty counts as unset, "~/" is the home folder (as huggingface_hub
/// has it).
std::optional<std::filesystem::path> folder_from_environment(const char* variable);

}  // namespace vitrine
