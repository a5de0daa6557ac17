// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <vitrine/engine.h>

#include <algorithm>
#include <ctime>

#include "commands.h"
#include "json_output.h"
#include "terminal.h"

namespace vitrine::app {
namespace {

std::string local_time(std::int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  char text[32];
  if (::localtime_r(&time, &parts) == nullptr || std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M", &parts) == 0) {
    return std::to_string(seconds);
  }
  return text;
}

std::int64_t total_bytes(const std::vector<WeightCacheFile>& files) {
  std::int64_t total = 0;
  for (const WeightCacheFile& file : files) total += file.bytes;
  return total;
}

void print_json(const std::vector<WeightCacheFile>& files) {
  Json list = Json::array();
  for (const WeightCacheFile& file : files) {
    list.push_back({{"path", file.path},
                    {"model", file.model},
                    {"weights", file.weights},
                    {"bytes", file.bytes},
                    {"last_used", file.last_used}});
  }
  write_json(Json::object({{"folder", weight_cache_folder().string()},
                           {"budget_bytes", weight_cache_budget()},
                           {"total_bytes", total_bytes(files)},
                           {"files", list}}));
}

void print_table(const std::vector<WeightCacheFile>& files) {
  int model_width = 5;
  int weights_width = 7;
  const auto weights = [](const WeightCacheFile& file) { return file.weights.empty() ? "damaged" : file.weights; };
  for (const WeightCacheFile& file : files) {
    model_width = std::max(model_width, display_width(visible(file.model)));
    weights_width = std::max(weights_width, display_width(visible(weights(file))));
  }
  const auto line = [&](const std::string& model, const std::string& form, const std::string& size,
                        const std::string& used, const std::string& path) {
    write_out(fmt::format("{}  {}  {:>9}  {:<16}  {}\n", fit(visible(model), model_width),
                          fit(visible(form), weights_width), size, used, visible(path)));
  };
  line("Model", "Weights", "Size", "Last used", "File");
  for (const WeightCacheFile& file : files) {
    line(file.model, weights(file), short_bytes(file.bytes), local_time(file.last_used), file.path);
  }
}

int list(const CacheCommand& o) {
  const std::vector<WeightCacheFile> files = list_weight_cache();
  if (o.json) {
    print_json(files);
    return kExitFine;
  }
  const std::string folder = visible(weight_cache_folder().string());
  const std::string budget = short_bytes(weight_cache_budget());
  if (folder.empty()) {
    write_out("No packed weights are kept: none of VITRINE_CACHE, XDG_CACHE_HOME and HOME is set.\n");
  } else if (files.empty()) {
    write_out(fmt::format("No packed weights in {} (room for {}).\n", folder, budget));
  } else {
    print_table(files);
    write_out(fmt::format("{} of {} in {}\n", short_bytes(total_bytes(files)), budget, folder));
  }
  return kExitFine;
}

}  // namespace

int cache(const CacheCommand& o) {
  if (!o.clear) return list(o);
  const std::string folder = visible(weight_cache_folder().string());
  const std::int64_t freed = clear_weight_cache();
  write_out(freed > 0 ? fmt::format("{} freed in {}\n", short_bytes(freed), folder)
                      : fmt::format("Nothing to remove{}{}.\n", folder.empty() ? "" : " in ", folder));
  return kExitFine;
}

}  // namespace vitrine::app
