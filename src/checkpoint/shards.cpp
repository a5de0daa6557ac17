// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shards.h"

#include <vitrine/error.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/json.h"
#include "base/mapped_file.h"
#include "checkpoint/input.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxIndexBytes = std::size_t{64} << 20;
constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kExtension = ".safetensors";

/// Whether there is something of that name, a dangling link included.
bool is_entry(const fs::path& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

fs::path resolved(const fs::path& path) {
  std::error_code error;
  fs::path target = fs::canonical(path, error);
  if (error) throw Error(ErrorCode::kIo, path.string() + ": cannot be resolved: " + error.message());
  return target;
}

/// The folder that weight files must not leave: models--ORG--NAME for a snapshot of the Hugging Face cache.
fs::path boundary_of(const fs::path& folder) {
  const fs::path real = resolved(folder);
  for (fs::path inner = real; inner.has_relative_path(); inner = inner.parent_path()) {
    const fs::path repository = inner.parent_path();
    if (inner.filename() == "snapshots" && repository.filename().string().starts_with("models--")) {
      return repository;
    }
  }
  return real;
}

void check_inside(const fs::path& file, const fs::path& boundary) {
  const fs::path target = resolved(file);
  const auto [rest, unused] = std::mismatch(boundary.begin(), boundary.end(), target.begin(), target.end());
  if (rest != boundary.end()) {
    throw Error(ErrorCode::kBadFile, file.string() + ": expected a file inside " + boundary.string() +
                                         ", found a link to " + target.string() + " (put the file itself there)");
  }
}

/// One name out of weight_map, which must not lead anywhere else.
void check_file_name(const json::Value& value, std::string_view name) {
  const bool plain = name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos &&
                     printable(name) == name && !name.starts_with('.');
  if (!plain || !name.ends_with(kExtension)) value.fail_expected("the plain name of a *.safetensors file");
}

/// Throws one error that lists all of `files` that are not there.
void check_present(const Shards& shards, const fs::path& folder) {
  constexpr std::size_t kMaxListed = 100;
  std::string missing;
  std::size_t count = 0;
  for (const fs::path& file : shards.files) {
    if (is_file(file) || ++count > kMaxListed) continue;
    missing += (missing.empty() ? "" : ", ") + file.filename().string();
  }
  if (count == 0) return;
  if (count > kMaxListed) missing += " and " + std::to_string(count - kMaxListed) + " more";
  std::string message = shards.index.string() + ": weight_map: expected " + std::to_string(shards.files.size()) +
                        " files, " + std::to_string(count) + " missing: " + missing +
                        " (an incomplete download? get them again with `hf download`)";
  if (is_file(folder / kSingleName)) {
    message += "; if the index is a leftover, delete it and model.safetensors is used";
  }
  throw Error(ErrorCode::kNotFound, message);
}

Shards read_index(const fs::path& folder) {
  Shards shards;
  shards.index = folder / kIndexName;
  const json::Document document =
      json::Document::parse(read_text_file(shards.index, kMaxIndexBytes), shards.index.string());
  check_unique_keys(document.root());
  const json::Value map = document.root().at("weight_map");
  check_unique_keys(map);

  std::vector<std::pair<std::string_view, std::string_view>> entries;  // tensor, file
  std::vector<std::string_view> names;
  for (const auto field : map.as_object()) {
    std::string_view name;
    if (field.value.get(name) != simdjson::SUCCESS || names.empty() || names.back() != name) {
      const json::Value value = map.child(printable(field.key), field.value);
      name = value.as_string();
      check_file_name(value, name);
    }
    entries.emplace_back(field.key, name);
    names.push_back(name);
  }
  if (entries.empty()) map.fail("expected tensor names and their files, found an empty object");
  std::sort(entries.begin(), entries.end());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());

  for (const std::string_view name : names) shards.files.push_back(folder / name);
  shards.weight_map.reserve(entries.size());
  for (const auto& [tensor, name] : entries) {
    const auto place = std::lower_bound(names.begin(), names.end(), name) - names.begin();
    shards.weight_map.emplace_back(tensor, static_cast<std::size_t>(place));
  }
  check_present(shards, folder);
  return shards;
}

[[noreturn]] void no_weights(const fs::path& folder, const std::vector<fs::path>& entries) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kOthers = {{{".gguf", "GGUF"},
                                                                                            {".bin", "PyTorch"},
                                                                                            {".pth", "PyTorch"},
                                                                                            {".pt", "PyTorch"},
                                                                                            {".h5", "TensorFlow"},
                                                                                            {".msgpack", "Flax"},
                                                                                            {".onnx", "ONNX"}}};
  for (const fs::path& entry : entries) {
    for (const auto& [extension, format] : kOthers) {
      if (entry.extension() != extension) continue;
      throw Error(ErrorCode::kUnsupported, entry.string() + ": weights in the " + std::string(format) +
                                               " format are not supported: expected model.safetensors");
    }
  }
  throw Error(ErrorCode::kNotFound,
              folder.string() +
                  ": no weights: expected model.safetensors, or model.safetensors.index.json and its shards, "
                  "or other "
                  "*.safetensors files, found none (not a model folder, or an incomplete download)");
}

}  // namespace

Shards find_shards(const fs::path& folder) {
  Shards shards;
  if (is_entry(folder / kIndexName)) {
    shards = read_index(folder);
  } else if (is_entry(folder / kSingleName)) {
    shards.files.push_back(folder / kSingleName);
  } else {
    const std::vector<fs::path> entries = list_folder(folder);
    for (const fs::path& entry : entries) {
      if (entry.extension() == kExtension && !entry.filename().string().starts_with('.')) {
        shards.files.push_back(entry);
      }
    }
    if (shards.files.empty()) no_weights(folder, entries);
  }
  const fs::path boundary = boundary_of(folder);
  for (const fs::path& file : shards.files) {
    if (!is_file(file)) {
      throw Error(ErrorCode::kNotFound, file.string() +
                                            ": expected a file, found a folder, a device or a link to "
                                            "nothing (an incomplete download?)");
    }
    check_inside(file, boundary);
  }
  return shards;
}

void check_shards(const Shards& shards, const std::vector<std::vector<StoredTensor>>& contents) {
  std::vector<std::pair<std::string_view, std::size_t>> found;  // tensor, position of its file
  for (std::size_t i = 0; i < contents.size(); ++i) {
    for (const StoredTensor& tensor : contents[i]) found.emplace_back(tensor.name, i);
  }
  std::sort(found.begin(), found.end());
  for (std::size_t i = 1; i < found.size(); ++i) {
    if (found[i].first != found[i - 1].first) continue;
    throw Error(ErrorCode::kBadFile, shards.files[found[i].second].string() + ": tensor " + printable(found[i].first) +
                                         ": expected in one file, also found in " +
                                         shards.files[found[i - 1].second].filename().string());
  }
  if (shards.index.empty()) return;

  const auto by_name = [](const auto& entry, std::string_view name) { return entry.first < name; };
  for (const auto& [name, file] : shards.weight_map) {
    const auto place = std::lower_bound(found.begin(), found.end(), std::string_view(name), by_name);
    const bool exists = place != found.end() && place->first == name;
    if (exists && place->second == file) continue;
    throw Error(ErrorCode::kBadFile,
                shards.index.string() + ": weight_map: expected tensor " + printable(name) + " in " +
                    shards.files[file].filename().string() + ", found it in " +
                    (exists ? shards.files[place->second].filename().string() : std::string("no file")));
  }
  for (const auto& [name, file] : found) {
    const auto place = std::lower_bound(shards.weight_map.begin(), shards.weight_map.end(), name, by_name);
    if (place != shards.weight_map.end() && place->first == name) continue;
    throw Error(ErrorCode::kBadFile, shards.index.string() + ": weight_map: expected every tensor of the shards, but " +
                                         printable(name) + " of " + shards.files[file].filename().string() +
                                         " is missing");
  }
}

}  // namespace vitrine
