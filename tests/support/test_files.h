// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace vitrine::test {

/// tests/data/NAME
std::filesystem::path data_path(std::string_view name);
/// The shipped demo model's folder.
std::filesystem::path demo_model();
/// The folder with the real Qwen3 tokenizer.json: VITRINE_QWEN3_DIR, else ../shared/data/qwen3-tokenizer beside the
/// source tree. Absent: the test says GTEST_SKIP() << kNoQwen3Tokenizer.
std::optional<std::filesystem::path> qwen3_tokenizer();
inline constexpr const char* kNoQwen3Tokenizer =
    "needs the real Qwen3 tokenizer.json: set VITRINE_QWEN3_DIR to a folder that holds it";

nlohmann::json read_json(const std::filesystem::path& path);
std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, std::string_view bytes);

/// An empty folder of its own, removed at the end.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace vitrine::test
