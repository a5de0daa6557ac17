// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hub_cache.h"

#include <vitrine/error.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/mapped_file.h"
#include "checkpoint/input.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

std::optional<fs::path> cache_root() {
  if (auto folder = folder_from_environment("HF_HUB_CACHE")) return folder;
  if (auto folder = folder_from_environment("HF_HOME")) return *folder / "hub";
  if (auto folder = folder_from_environment("XDG_CACHE_HOME")) return *folder / "huggingface" / "hub";
  if (auto folder = folder_from_environment("HOME")) return *folder / ".cache" / "huggingface" / "hub";
  return std::nullopt;
}

/// What the Hub allows in ORG and in NAME; it also keeps the cache folder's name unambiguous and inside the
/// cache.
bool is_hub_part(std::string_view part) {
  constexpr std::size_t kMaxLength = 96;
  const auto is_alnum = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 && (c & 0x80) == 0; };
  const auto is_allowed = [&](char c) { return is_alnum(c) || c == '-' || c == '_' || c == '.'; };
  return !part.empty() && part.size() <= kMaxLength && std::all_of(part.begin(), part.end(), is_allowed) &&
         (is_alnum(part.front()) || part.front() == '_') && part.find("..") == std::string_view::npos &&
         part.find("--") == std::string_view::npos;
}

/// The commit that refs/main names, if there is one.
std::optional<std::string> main_commit(const fs::path& repository) {
  constexpr std::size_t kMaxRefBytes = 1024;
  const fs::path ref = repository / "refs" / "main";
  std::error_code error;
  if (!fs::exists(ref, error)) return std::nullopt;
  std::string commit = read_text_file(ref, kMaxRefBytes);
  while (!commit.empty() && std::isspace(static_cast<unsigned char>(commit.back())) != 0) commit.pop_back();
  const auto is_hex = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
  if (commit.empty() || !std::all_of(commit.begin(), commit.end(), is_hex)) {
    throw Error(ErrorCode::kBadFile, ref.string() + ": expected a commit in hexadecimal, found " + printable(commit));
  }
  return commit;
}

/// The snapshot of refs/main, else the newest; nothing when there is none.
std::optional<fs::path> find_snapshot(const fs::path& repository) {
  const fs::path snapshots = repository / "snapshots";
  std::error_code error;
  if (const auto commit = main_commit(repository)) return snapshots / *commit;
  std::optional<fs::path> newest;
  fs::file_time_type newest_time;
  for (const fs::path& entry : list_folder(snapshots)) {
    if (!fs::is_directory(entry, error)) continue;
    const auto time = fs::last_write_time(entry, error);
    if (error || (newest && time < newest_time)) continue;
    newest = entry;
    newest_time = time;
  }
  return newest;
}

fs::path find_in_cache(std::string_view org, std::string_view name) {
  const std::string hub_name = std::string(org) + "/" + std::string(name);
  const std::string advice = "; fetch it with `hf download " + hub_name + "`";
  const auto root = cache_root();
  if (!root) {
    throw Error(ErrorCode::kNotFound, hub_name +
                                          ": no such folder, and no Hugging Face cache: none of HF_HUB_CACHE, "
                                          "HF_HOME, XDG_CACHE_HOME and HOME is set" +
                                          advice);
  }
  const fs::path repository = *root / ("models--" + std::string(org) + "--" + std::string(name));
  std::error_code error;
  if (!fs::is_directory(repository, error)) {
    throw Error(ErrorCode::kNotFound, hub_name + ": no such folder, and not in the Hugging Face cache (looked for " +
                                          repository.string() + ")" + advice);
  }
  const auto snapshot = find_snapshot(repository);
  const fs::path config = snapshot.value_or(repository / "snapshots") / "config.json";
  if (!fs::exists(config, error)) {
    throw Error(ErrorCode::kNotFound, hub_name + ": incomplete in the Hugging Face cache: expected " + config.string() +
                                          ", found none" + advice);
  }
  return *snapshot;
}

}  // namespace

fs::path resolve_model(std::string_view name_or_path) {
  const std::string shown = printable(name_or_path);
  if (name_or_path.empty() || name_or_path.find('\0') != std::string_view::npos) {
    throw Error(ErrorCode::kInvalidArgument,
                "model: expected a folder or a Hub name ORG/NAME, found \"" + shown + "\"");
  }
  const fs::path path(name_or_path);
  std::error_code error;
  if (fs::is_directory(path, error)) return path;
  if (fs::exists(path, error)) {
    const bool gguf = path.extension() == ".gguf";
    throw Error(gguf ? ErrorCode::kUnsupported : ErrorCode::kInvalidArgument,
                shown + ": expected a model folder, found a file" + (gguf ? " (GGUF is not supported)" : ""));
  }
  const std::size_t slash = name_or_path.find('/');
  const bool is_path = slash == std::string_view::npos || name_or_path.find('/', slash + 1) != std::string_view::npos ||
                       name_or_path.starts_with('/') || name_or_path.starts_with('.') ||
                       name_or_path.starts_with('~') || name_or_path.ends_with('/');
  if (is_path) {
    throw Error(ErrorCode::kNotFound, shown + ": no such folder (a model on the Hub is named ORG/NAME)");
  }
  const std::string_view org = name_or_path.substr(0, slash);
  const std::string_view name = name_or_path.substr(slash + 1);
  if (!is_hub_part(org) || !is_hub_part(name)) {
    throw Error(ErrorCode::kInvalidArgument,
                shown +
                    ": no such folder, and not a Hub name: expected ORG/NAME of letters, digits, '-', '_' and '.', "
                    "without \"..\" or \"--\"");
  }
  return find_in_cache(org, name);
}

}  // namespace vitrine
