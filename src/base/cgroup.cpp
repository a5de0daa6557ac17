// SPDX-License-Identifier: Apache-2.0
#include "base/cgroup.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>

namespace vitrine {
namespace {

/// This process's group among those of a v1 controller, or of v2 when that is "".
std::string group_of(const std::filesystem::path& root, const std::string& controller) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "4:cpu,cpuacct:/path"; "0::/path" is the one line of v2
    const std::size_t begin = line.find(':') + 1;
    const std::size_t end = line.find(':', begin);
    if (begin == 0 || end == std::string::npos) continue;
    const std::string controllers = "," + line.substr(begin, end - begin) + ",";
    if (controllers.find("," + controller + ",") != std::string::npos) return line.substr(end + 1);
  }
  return "/";
}

std::vector<std::filesystem::path> up_to(const std::filesystem::path& mount, const std::string& group) {
  std::vector<std::filesystem::path> folders;
  for (std::filesystem::path path = group; path.has_relative_path(); path = path.parent_path()) {
    folders.push_back(mount / path.relative_path());
  }
  folders.push_back(mount);
  return folders;
}

/// "50000 100000": microseconds of every 100000, or "max 100000".
double quota_of_v2(const std::filesystem::path& folder) {
  std::ifstream file(folder / "cpu.max");
  std::string limit;
  double period = 0;
  if (!(file >> limit >> period) || limit == "max" || !(period > 0)) return INFINITY;
  return std::strtod(limit.c_str(), nullptr) / period;
}

/// Two files of microseconds; -1 is no limit.
double quota_of_v1(const std::filesystem::path& folder) {
  double limit = 0;
  double period = 0;
  std::ifstream limit_file(folder / "cpu.cfs_quota_us");
  std::ifstream period_file(folder / "cpu.cfs_period_us");
  if (!(limit_file >> limit) || !(period_file >> period) || !(limit > 0) || !(period > 0)) return INFINITY;
  return limit / period;
}

}  // namespace

std::vector<std::filesystem::path> cgroup_folders(const std::filesystem::path& root) {
  return up_to(root / "sys/fs/cgroup", group_of(root, ""));
}

double cgroup_cpu_quota(const std::filesystem::path& root) {
  double cores = INFINITY;
  for (const auto& folder : cgroup_folders(root)) cores = std::min(cores, quota_of_v2(folder));
  // In a container the group's path may be the host's, which is not there; its limit then stands in the mounted root.
  for (const auto& folder : up_to(root / "sys/fs/cgroup/cpu", group_of(root, "cpu"))) {
    cores = std::min(cores, quota_of_v1(folder));
  }
  return cores;
}

}  // namespace vitrine
