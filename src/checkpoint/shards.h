// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/safetensors.h"

namespace vitrine {

/// The weight files of a model folder.
struct Shards {
  std::vector<std::filesystem::path> files;  // all exist, sorted by name
  std::filesystem::path index;               // model.safetensors.index.json; empty when there is none
  std::vector<std::pair<std::string, std::size_t>> weight_map;  // the index: tensor, position in files; by name
};

/// Finds them: what model.safetensors.index.json names when it is there, else model.safetensors, else every
/// *.safetensors. A file must lie in the folder, or, for a snapshot of the Hugging Face cache, in its
/// models--ORG--NAME folder (where snapshots link to blobs). Throws Error: kNotFound when there are none or
/// some are missing (all are listed), kUnsupported when there are only weights of another format, kBadFile
/// for a wrong index or a link outwards.
Shards find_shards(const std::filesystem::path& folder);

/// Checks that no tensor is in two files and that files and index agree; `contents[i]` is what files[i]
/// holds. Throws Error(kBadFile).
void check_shards(const Shards& shards, const std::vector<std::vector<StoredTensor>>& contents);

}  // namespace vitrine
