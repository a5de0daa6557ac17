// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/packed_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vitrine/error.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <random>
#include <system_error>
#include <utility>

#include "base/mapped_file.h"
#include "base/sha256.h"
#include "checkpoint/input.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kExtension = ".packed";
constexpr std::string_view kUnfinished = ".part";
constexpr std::size_t kHashDigits = 12;
constexpr std::int64_t kDefaultBudget = 8'000'000'000;

/// Letters, digits, '.', '_' and '-' only, nothing hidden, of moderate length: fit for a file name anywhere.
std::string plain_name(std::string_view text) {
  constexpr std::size_t kMaxLength = 60;
  std::string name;
  for (const char c : text.substr(0, kMaxLength)) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
    name += plain && !(name.empty() && c == '.') ? c : '-';
  }
  return name.empty() ? "model" : name;
}

bool is_hex(std::string_view text) { return text.find_first_not_of("0123456789abcdef") == std::string_view::npos; }

/// NAME.FORM.0123456789ab.packed: nobody else's file in a folder that is not ours alone.
bool is_packed_name(std::string_view name) {
  if (name.starts_with('.') || !name.ends_with(kExtension)) return false;
  name.remove_suffix(kExtension.size());
  const std::size_t dot = name.rfind('.');
  return dot != std::string_view::npos && name.size() - dot - 1 == kHashDigits && is_hex(name.substr(dot + 1));
}

/// What unfinished_path makes: .NAME.FORM.0123456789ab.packed.PID-RANDOM.part
bool is_unfinished_name(std::string_view name) {
  if (!name.starts_with('.') || !name.ends_with(kUnfinished)) return false;
  name.remove_prefix(1);
  const std::size_t end = name.rfind(kExtension);
  return end != std::string_view::npos && is_packed_name(name.substr(0, end + kExtension.size()));
}

std::string in_hex(std::uint64_t value) {
  std::string digits;
  for (int shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef"[value >> shift & 0xF];
  return digits;
}

/// Removes an unfinished file unless its writer lives. Returns the bytes freed.
/// The writer holds a lock on it, which ends with the process; process ids would lie where containers or machines share
/// the folder. `quiet`, in seconds without a change, is for file systems whose locks do not reach from one machine to
/// another: a living writer adds to its file all the time.
std::int64_t remove_if_abandoned(const fs::path& path, std::int64_t quiet) {
  constexpr std::int64_t kDay = 24 * 60 * 60;  // in place of `quiet` where there are no locks at all
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
  if (fd < 0) return 0;
  std::int64_t freed = 0;
  struct stat status {};
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) {
    const std::int64_t age = std::time(nullptr) - status.st_mtim.tv_sec;
    const bool locked = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
    const bool busy = !locked && errno == EWOULDBLOCK;
    if (!busy && age >= (locked ? quiet : kDay) && ::unlink(path.c_str()) == 0) freed = status.st_blocks * 512;
  }
  ::close(fd);
  return freed;
}

/// The entries of a folder that cannot be listed are nobody's.
std::vector<fs::path> list_quietly(const fs::path& folder) {
  try {
    return list_folder(folder);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

fs::path default_cache_folder() {
  fs::path folder;
  if (const auto own = folder_from_environment("VITRINE_CACHE")) {
    folder = *own;
  } else if (const auto caches = folder_from_environment("XDG_CACHE_HOME")) {
    folder = *caches / "vitrine";
  } else if (const auto home = folder_from_environment("HOME")) {
    folder = *home / ".cache" / "vitrine";
  } else {
    return {};
  }
  std::error_code error;  // no current folder: the path as it is
  const fs::path absolute = fs::absolute(folder, error);
  return error ? folder : absolute;
}

std::int64_t cache_budget() {
  const char* text = std::getenv("VITRINE_CACHE_BUDGET");
  if (text == nullptr || *text == '\0') return kDefaultBudget;
  return parse_size(text, "VITRINE_CACHE_BUDGET");
}

std::int64_t parse_size(std::string_view text, std::string_view what) {
  static constexpr std::array<std::pair<std::string_view, double>, 10> kUnits = {{{"", 1},
                                                                                  {"b", 1},
                                                                                  {"kb", 1e3},
                                                                                  {"mb", 1e6},
                                                                                  {"gb", 1e9},
                                                                                  {"tb", 1e12},
                                                                                  {"kib", 1024.0},
                                                                                  {"mib", 1048576.0},
                                                                                  {"gib", 1073741824.0},
                                                                                  {"tib", 1099511627776.0}}};
  double number = -1;
  const char* const end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  while (rest != end && *rest == ' ') ++rest;
  std::string unit(rest, end);
  for (char& c : unit) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  const auto* const known =
      std::find_if(kUnits.begin(), kUnits.end(), [&](const auto& candidate) { return candidate.first == unit; });
  const double bytes = known == kUnits.end() ? -1 : number * known->second;
  // The comparison is false for what is not a number, too.
  if (error != std::errc() || !(number >= 0 && bytes >= 0 && bytes < 9e18)) {
    throw Error(ErrorCode::kInvalidArgument, std::string(what) +
                                                 ": expected a size such as 20GB, 500MB or 1000000 (bytes), found \"" +
                                                 printable(text) + "\"");
  }
  return static_cast<std::int64_t>(bytes);
}

std::string size_text(std::int64_t bytes) {
  if (bytes < 1'000'000'000) return std::to_string((bytes + 999'999) / 1'000'000) + " MB";
  const std::string hundredths = std::to_string(bytes / 10'000'000);
  return hundredths.substr(0, hundredths.size() - 2) + "." + hundredths.substr(hundredths.size() - 2) + " GB";
}

fs::path packed_path(const fs::path& folder, const PackedKey& key) {
  const std::string hash = sha256(key.source + " " + key.form).substr(0, kHashDigits);
  std::string name = plain_name(key.model_name) + "." + plain_name(key.form) + "." + hash;
  return folder / name.append(kExtension);
}

fs::path unfinished_path(const fs::path& path) {
  std::random_device random;
  const std::uint64_t number = std::uint64_t{random()} << 32 | random();
  std::string name = "." + path.filename().string() + "." + std::to_string(::getpid()) + "-" + in_hex(number);
  return path.parent_path() / name.append(kUnfinished);
}

std::vector<PackedFileInfo> list_packed(const fs::path& folder) {
  std::vector<PackedFileInfo> files;
  for (const fs::path& path : list_folder(folder)) {
    struct stat status {};
    if (!is_packed_name(path.filename().string()) || ::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
      continue;
    }
    PackedFileInfo info{.path = path,
                        .model_name = path.filename().string(),
                        .bytes = status.st_size,
                        .last_used = status.st_mtim.tv_sec};
    try {
      const MappedFile file(path);
      if (auto directory = parse_packed(file.bytes())) {
        info.model_name = std::move(directory->key.model_name);
        info.form = std::move(directory->key.form);
        info.valid = true;
      }
    } catch (const Error&) {  // not to be opened, or gone by now: not valid
    }
    files.push_back(std::move(info));
  }
  std::stable_sort(files.begin(), files.end(),
                   [](const PackedFileInfo& a, const PackedFileInfo& b) { return a.last_used > b.last_used; });
  return files;
}

std::int64_t clear_packed(const fs::path& folder) {
  std::int64_t freed = 0;
  std::string failure;
  for (const PackedFileInfo& file : list_packed(folder)) {
    if (::unlink(file.path.c_str()) == 0) {
      freed += file.bytes;
    } else if (errno != ENOENT && failure.empty()) {
      failure = file.path.string() + ": cannot be removed: " + std::strerror(errno);
    }
  }
  freed += remove_abandoned(folder, 0);
  if (!failure.empty()) throw Error(ErrorCode::kIo, failure);
  return freed;
}

void trim_packed(const fs::path& folder, const fs::path& keep, std::int64_t budget) {
  std::vector<std::pair<fs::path, struct stat>> others;
  std::int64_t total = 0;
  for (const fs::path& path : list_quietly(folder)) {
    struct stat status {};
    if (!is_packed_name(path.filename().string()) || ::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
      continue;
    }
    total += status.st_size;
    if (path != keep) others.emplace_back(path, status);
  }
  const auto used_at = [](const struct stat& s) { return std::pair(s.st_mtim.tv_sec, s.st_mtim.tv_nsec); };
  std::sort(others.begin(), others.end(),
            [&](const auto& a, const auto& b) { return used_at(a.second) < used_at(b.second); });
  for (const auto& [path, status] : others) {
    if (total <= budget) return;
    if (::unlink(path.c_str()) == 0 || errno == ENOENT) total -= status.st_size;
  }
}

std::int64_t remove_abandoned(const fs::path& folder, std::int64_t quiet) {
  std::int64_t freed = 0;
  for (const fs::path& path : list_quietly(folder)) {
    if (is_unfinished_name(path.filename().string())) freed += remove_if_abandoned(path, quiet);
  }
  return freed;
}

void mark_used(const fs::path& path) noexcept { ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0); }

}  // namespace vitrine
