// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/input.h"

#include <vitrine/error.h>

#include <algorithm>
#include <cstdlib>

namespace vitrine {

namespace fs = std::filesystem;

std::string printable(std::string_view text) {
  constexpr std::size_t kMaxShown = 200;
  std::string shown(text.substr(0, kMaxShown));
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const auto byte = static_cast<unsigned char>(shown[i]);
    // U+0080 to U+009F are control characters too; in UTF-8 they are C2 80 to C2 9F.
    const bool is_c1 = byte == 0xC2 && i + 1 < shown.size() && static_cast<unsigned char>(shown[i + 1]) < 0xA0;
    if (is_c1) shown.replace(i, 2, "?");
    if (byte < 0x20 || byte == 0x7F) shown[i] = '?';
  }
  if (text.size() <= kMaxShown) return shown;
  while (!shown.empty() && (static_cast<unsigned char>(shown.back()) & 0xC0) == 0x80) shown.pop_back();
  if (!shown.empty() && static_cast<unsigned char>(shown.back()) >= 0xC0) shown.pop_back();
  return shown + "…";
}

void check_unique_keys(const json::Value& object) {
  std::vector<std::string_view> keys;
  for (const auto field : object.as_object()) keys.push_back(field.key);
  std::sort(keys.begin(), keys.end());
  const auto twin = std::adjacent_find(keys.begin(), keys.end());
  if (twin != keys.end()) object.fail("the key \"" + printable(*twin) + "\" occurs twice");
}

std::vector<fs::path> list_folder(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  while (!error && entry != fs::directory_iterator()) {
    entries.push_back(entry->path());
    entry.increment(error);
  }
  if (error == std::errc::no_such_file_or_directory) return {};
  if (error) throw Error(ErrorCode::kIo, folder.string() + ": cannot be listed: " + error.message());
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::optional<fs::path> folder_from_environment(const char* variable) {
  const char* value = std::getenv(variable);
  if (value == nullptr || *value == '\0') return std::nullopt;
  const char* home = std::getenv("HOME");
  if (std::string_view(value).starts_with("~/") && home != nullptr) return fs::path(home) / (value + 2);
  return fs::path(value);
}

}  // namespace vitrine
