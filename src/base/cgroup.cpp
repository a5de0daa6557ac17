// SPDX-License-Identifier: Apache-2.0
#include "base/cgroup.h"

#include <fstream>
#include <string>

namespace vitrine {

std::vector<std::filesystem::path> cgroup_folders() {
  std::string group = "/";
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::")) group = line.substr(3);  // "0::/path" is the one line of v2
  }
  const std::filesystem::path root = "/sys/fs/cgroup";
  std::vector<std::filesystem::path> folders;
  for (std::filesystem::path path = group; path.has_relative_path(); path = path.parent_path()) {
    folders.push_back(root / path.relative_path());
  }
  folders.push_back(root);
  return folders;
}

}  // namespace vitrine
