// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>

namespace vitrine {

/// The folder of a model given as a path or as a Hub name `ORG/NAME` (looked up, never downloaded, in the
/// Hugging Face cache: HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME/huggingface/hub, else
/// ~/.cache/huggingface/hub). An existing folder wins over the cache. Throws Error(kNotFound) that says where
/// it looked and what to do.
std::filesystem::path resolve_model(std::string_view name_or_path);

}  // namespace vitrine
