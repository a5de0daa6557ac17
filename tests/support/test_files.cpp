// SPDX-License-Identifier: Apache-2.0
#include "support/test_files.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace vitrine::test {

namespace fs = std::filesystem;

fs::path data_path(std::string_view name) { return fs::path(VITRINE_SOURCE_DIR) / "tests" / "data" / name; }

fs::path demo_model() { return fs::path(VITRINE_SOURCE_DIR) / "share" / "vitrine" / "demo"; }

std::optional<fs::path> qwen3_tokenizer() {
  fs::path folder = fs::path(VITRINE_SOURCE_DIR) / ".." / "shared" / "data" / "qwen3-tokenizer";
  if (const char* variable = std::getenv("VITRINE_QWEN3_DIR"); variable != nullptr && *variable != '\0') {
    folder = variable;
  }
  if (!fs::exists(folder / "tokenizer.json")) return std::nullopt;
  return folder;
}

nlohmann::json read_json(const fs::path& path) { return nlohmann::json::parse(read_file(path)); }

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const fs::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

TempFolder::TempFolder() {
  std::string pattern = (fs::temp_directory_path() / "vitrine-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = pattern;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace vitrine::test
