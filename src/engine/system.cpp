// SPDX-License-Identifier: Apache-2.0
// What the operating system says about this process.
#include <sys/resource.h>
#include <vitrine/engine.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace vitrine {

const char* to_string(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "error";
}

std::int64_t available_memory() {
  std::int64_t available = std::numeric_limits<std::int64_t>::max();
  std::ifstream meminfo("/proc/meminfo");
  for (std::string key; meminfo >> key;) {
    std::int64_t kilobytes = 0;
    if (key == "MemAvailable:" && meminfo >> kilobytes) available = kilobytes * 1024;
    meminfo.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  // cgroup v2; "max" fails to parse as a number and leaves the bound as it is.
  std::int64_t limit = 0;
  std::int64_t used = 0;
  std::ifstream limit_file("/sys/fs/cgroup/memory.max");
  std::ifstream used_file("/sys/fs/cgroup/memory.current");
  if (limit_file >> limit && used_file >> used)
    available = std::min(available, std::max<std::int64_t>(0, limit - used));
  return available;
}

std::int64_t peak_memory() {
  struct rusage usage {};
  ::getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
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
