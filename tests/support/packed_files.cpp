// SPDX-License-Identifier: Apache-2.0
#include "support/packed_files.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace vitrine::test {

namespace fs = std::filesystem;

const std::vector<PackedSpec>& packed_specs() {
  static const std::vector<PackedSpec> specs = {{"embed", "int8 [5, 1000]", 5000},
                                                {"q_proj", "int8 [64, 64]", 4096},
                                                {"one", "bf16 [1]", 2},
                                                {"none", "int8 [0]", 0},
                                                {"down", "int8 [300, 100]", 30000}};
  return specs;
}

PackedKey packed_key(char digit) {
  return {.model_name = "Tiny model", .source = std::string(64, digit), .form = "int8", .layout_version = 3};
}

void fill_packed(const std::string& name, const PackedKey& key, std::span<std::byte> out) {
  std::uint32_t state = static_cast<std::uint32_t>(name.size() * 977 + static_cast<unsigned char>(name[0]) * 31 +
                                                   static_cast<unsigned char>(key.source[0]));
  for (std::byte& byte : out) {
    state = state * 1664525 + 1013904223;
    byte = static_cast<std::byte>(state >> 24);
  }
}

int use_packed(PackedStore& store, const PackedKey& key, bool finish, const std::vector<PackedSpec>& specs) {
  int filled = 0;
  std::vector<const std::byte*> places;
  for (const PackedSpec& spec : specs) {
    places.push_back(store.get(spec.name, spec.tag, spec.bytes, [&](std::byte* out) {
      ++filled;
      const std::span<std::byte> bytes(out, static_cast<std::size_t>(spec.bytes));
      if (std::any_of(bytes.begin(), bytes.end(), [](std::byte b) { return b != std::byte{0}; })) {
        throw std::runtime_error(spec.name + ": memory that is not zero");
      }
      fill_packed(spec.name, key, bytes);
    }));
  }
  if (finish) store.finish();
  // Afterwards, so that what happened in between has not moved or changed them.
  for (std::size_t i = 0; i < specs.size(); ++i) {
    std::vector<std::byte> expected(static_cast<std::size_t>(specs[i].bytes));
    fill_packed(specs[i].name, key, expected);
    if (!std::equal(expected.begin(), expected.end(), places[i])) throw std::runtime_error(specs[i].name + ": bytes");
    if (reinterpret_cast<std::uintptr_t>(places[i]) % kPackedAlignment != 0) {
      throw std::runtime_error(specs[i].name + ": not aligned");
    }
  }
  return filled;
}

PackedStore::Options packed_options(const fs::path& folder, std::int64_t budget) {
  return {.folder = folder, .budget_bytes = budget, .expected_bytes = 100'000};
}

fs::path pack_into(const fs::path& folder, const PackedKey& key) {
  PackedStore store(key, packed_options(folder));
  use_packed(store, key);
  return store.file();
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void make_older(const fs::path& file, int seconds) {
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::seconds(seconds));
}

}  // namespace vitrine::test
