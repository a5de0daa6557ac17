// SPDX-License-Identifier: Apache-2.0
// What the operating system says about this process.
#include <vitrine/engine.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>

#include "base/cgroup.h"

namespace vitrine {

namespace {

/// The number after `key` in a file of "key number" lines; 0 when it is not there.
std::int64_t field(const std::filesystem::path& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    std::int64_t value = 0;
    if (word == key && file >> value) return value;
    file.clear();
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return 0;
}

}  // namespace

std::int64_t available_memory() {
  std::int64_t available = field("/proc/meminfo", "MemAvailable:") * 1024;
  for (const std::filesystem::path& folder : cgroup_folders()) {
    std::int64_t limit = 0;  // "max" is not a number and sets no limit
    std::int64_t used = 0;
    if (!(std::ifstream(folder / "memory.max") >> limit) || !(std::ifstream(folder / "memory.current") >> used))
      continue;
    // Files in the page cache count as used, but make room when asked.
    used -= field(folder / "memory.stat", "active_file") + field(folder / "memory.stat", "inactive_file");
    available = std::min(available, std::max<std::int64_t>(0, limit - used));
  }
  return available;
}

std::int64_t peak_memory() {
  // Not getrusage: its peak is inherited from the process that started this one.
  return field("/proc/self/status", "VmHWM:") * 1024;
}

std::filesystem::path demo_model_folder() {
  std::error_code error;
  const auto executable = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return {};
  // Installed: PREFIX/bin beside PREFIX/share. In the source tree: build/PRESET.
  for (const char* up : {"..", "../.."}) {
    auto folder = executable.parent_path() / up / "share/vitrine/demo";
    if (std::filesystem::exists(folder / "config.json", error)) return std::filesystem::weakly_canonical(folder, error);
  }
  return {};
}

}  // namespace vitrine
