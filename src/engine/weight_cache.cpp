// SPDX-License-Identifier: Apache-2.0
// The public view of the folder of packed weights.
#include <vitrine/engine.h>

#include "checkpoint/packed_folder.h"

namespace vitrine {

std::filesystem::path weight_cache_folder() { return default_cache_folder(); }

std::int64_t weight_cache_budget() { return cache_budget(); }

std::vector<WeightCacheFile> list_weight_cache() {
  std::vector<WeightCacheFile> files;
  const std::filesystem::path folder = default_cache_folder();
  if (folder.empty()) return files;
  for (const PackedFileInfo& file : list_packed(folder)) {
    files.push_back({.path = file.path.string(),
                     .model = file.model_name,
                     .weights = file.valid ? file.form : "",
                     .bytes = file.bytes,
                     .last_used = file.last_used});
  }
  return files;
}

std::int64_t clear_weight_cache() {
  const std::filesystem::path folder = default_cache_folder();
  return folder.empty() ? 0 : clear_packed(folder);
}

}  // namespace vitrine
