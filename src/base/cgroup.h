// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <vector>

namespace vitrine {

/// The folders of this process's cgroup (v2) and of those above it, where their limits are written; a limit may stand at
/// any level. Inside a container the path seen is its own root. `root` is the folder that holds proc and sys.
std::vector<std::filesystem::path> cgroup_folders(const std::filesystem::path& root = "/");

/// The cores whose time this process's cgroups (v2 and v1) allow it, which may be a fraction; infinity: no limit.
double cgroup_cpu_quota(const std::filesystem::path& root = "/");

}  // namespace vitrine
