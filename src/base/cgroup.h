// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

namespace vitrine {

/// The folders of this process's cgroup (v2) and of those above it, where their limits are written; a limit may stand at
/// any level. Inside a container the path seen is its own root.
std::vector<std::filesystem::path> cgroup_folders();

}  // namespace vitrine
