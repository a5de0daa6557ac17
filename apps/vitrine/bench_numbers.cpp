// SPDX-License-Identifier: Apache-2.0
#include "bench_numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <random>

#include "terminal.h"

namespace vitrine::app {
namespace {

double bytes_of(const EngineInfo& info, std::string_view name) {
  for (const ModelPart& part : info.parts) {
    if (part.name == name) return static_cast<double>(part.bytes);
  }
  return 0;
}

double& at(PartNumbers& numbers, StepPart part) { return numbers[static_cast<std::size_t>(part)]; }

/// Of the attention's weights, what is q, k and v; the rest is o.
double qkv_share(const EngineInfo& info) {
  const auto q = static_cast<double>(info.query_heads);
  const auto k = static_cast<double>(info.kv_heads);
  return (q + 2 * k) / (2 * q + 2 * k);
}

/// Keys that all layers together look at for a token which follows `depth` others.
double keys_at(const EngineInfo& info, std::int64_t depth) {
  double keys = 0;
  for (const std::int64_t window : info.layer_windows) {
    keys += static_cast<double>(window > 0 ? std::min(window, depth) : depth);
  }
  return keys;
}

/// The same, summed over the tokens of a prompt, each of which sees itself too.
double keys_of_prompt(const EngineInfo& info, std::int64_t tokens) {
  double keys = 0;
  const auto all = static_cast<double>(tokens);
  for (const std::int64_t window : info.layer_windows) {
    const auto seen = static_cast<double>(window > 0 ? std::min(window, tokens) : tokens);
    keys += seen * (seen + 1) / 2 + (all - seen) * seen;
  }
  return keys;
}

/// Bytes of the keys and values that all layers together read in a step whose last token follows `end - 1` others: each
/// once, however many of the step's rows look at it.
double kv_bytes_of_step(const EngineInfo& info, std::int64_t rows, std::int64_t end) {
  double keys = 0;
  for (const std::int64_t window : info.layer_windows) {
    keys += static_cast<double>(window > 0 ? std::min(window + rows - 1, end) : end);
  }
  return static_cast<double>(info.kv_bytes_per_token) / static_cast<double>(info.num_layers) * keys;
}

/// `keys`: how many all rows and layers together look at; `head_rows`: rows that logits are computed for.
PartNumbers operations_of(const EngineInfo& info, std::int64_t rows, double keys, std::int64_t head_rows) {
  const auto hidden = static_cast<double>(info.hidden_size);
  const auto q_width = static_cast<double>(info.query_heads * info.head_dim);
  const auto kv_width = static_cast<double>(info.kv_heads * info.head_dim);
  // A weight is one product and one sum a row.
  const double once = 2 * static_cast<double>(rows) * static_cast<double>(info.num_layers) * hidden;
  PartNumbers operations{};
  at(operations, StepPart::kQkv) = once * (q_width + 2 * kv_width);
  at(operations, StepPart::kOProj) = once * q_width;
  at(operations, StepPart::kAttention) = 4 * q_width * keys;  // a score and a weighted value a key and query head
  at(operations, StepPart::kGateUp) = once * 2 * static_cast<double>(info.intermediate_size);
  at(operations, StepPart::kDownProj) = once * static_cast<double>(info.intermediate_size);
  at(operations, StepPart::kHead) = 2 * static_cast<double>(head_rows) * hidden * static_cast<double>(info.vocab_size);
  return operations;
}

}  // namespace

std::vector<std::int64_t> parse_sizes(const std::string& option, const std::string& text, std::int64_t min,
                                      std::int64_t max) {
  std::vector<std::int64_t> sizes;
  for (std::size_t at = 0; !text.empty() && at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    std::int64_t size = 0;
    const auto [next, error] = std::from_chars(text.data() + at, text.data() + end, size);
    if (error != std::errc() || next != text.data() + end || size < min || size > max) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: expected numbers from {} to {} with commas between, found \"{}\"", option, min, max,
                              cut(visible(text.substr(at, end - at)), 40)));
    }
    if (std::find(sizes.begin(), sizes.end(), size) != sizes.end()) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {} is there twice", option, size));
    }
    sizes.push_back(size);
    at = end + 1;
  }
  return sizes;
}

Figure figure_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const std::size_t half = samples.size() / 2;
  const double median = samples.size() % 2 == 1 ? samples[half] : (samples[half - 1] + samples[half]) / 2;
  return {median, samples.front(), samples.back(), std::ssize(samples)};
}

Percentiles percentiles_of(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const auto below = [&](double share) {
    const double place = share * static_cast<double>(samples.size() - 1);
    const auto left = static_cast<std::size_t>(place);
    const std::size_t right = std::min(left + 1, samples.size() - 1);
    return std::lerp(samples[left], samples[right], place - static_cast<double>(left));
  };
  return {below(0.5), below(0.9), below(0.99), std::ssize(samples)};
}

std::vector<TokenId> some_ids(std::int64_t count, std::int64_t vocab_size, std::int64_t seed) {
  std::vector<TokenId> ids;
  ids.reserve(static_cast<std::size_t>(count));
  std::uint64_t state = static_cast<std::uint64_t>(seed) + 1;
  for (std::int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;  // Knuth's linear congruential generator
    ids.push_back(static_cast<TokenId>((state >> 33) % static_cast<std::uint64_t>(vocab_size)));
  }
  return ids;
}

std::vector<double> arrival_times(std::int64_t count, double rate) {
  std::vector<double> times;
  std::mt19937_64 random(1);
  double now = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    times.push_back(now);
    const double uniform = static_cast<double>(random() >> 11) * 0x1p-53;  // below 1
    now -= std::log1p(-uniform) / rate;
  }
  return times;
}

const char* to_string(BenchKind kind) noexcept {
  return kind == BenchKind::kPrefill ? "prefill" : kind == BenchKind::kDecode ? "decode" : "batch";
}

double weight_bytes_per_step(const EngineInfo& info) {
  double bytes = 0;
  bool has_head = false;
  for (const ModelPart& part : info.parts) {
    if (part.name == "embedding") continue;
    bytes += static_cast<double>(part.bytes);
    has_head = has_head || part.name == "head";
  }
  const double embedding = bytes_of(info, "embedding");  // the head's table too, where there is no other
  return bytes + (has_head ? embedding / static_cast<double>(info.vocab_size) : embedding);
}

double kv_bytes_at(const EngineInfo& info, std::int64_t depth) {
  return static_cast<double>(info.kv_bytes_per_token) / static_cast<double>(info.num_layers) * keys_at(info, depth);
}

PartNumbers bytes_of_step(const EngineInfo& info, std::int64_t rows, std::int64_t depth) {
  const double attention = bytes_of(info, "attention");
  const double feed_forward = bytes_of(info, "feed-forward");
  const double head = bytes_of(info, "head");
  PartNumbers bytes{};
  at(bytes, StepPart::kQkv) = attention * qkv_share(info);
  at(bytes, StepPart::kOProj) = attention * (1 - qkv_share(info));
  at(bytes, StepPart::kAttention) = static_cast<double>(rows) * kv_bytes_at(info, depth);
  at(bytes, StepPart::kGateUp) = feed_forward * 2 / 3;
  at(bytes, StepPart::kDownProj) = feed_forward / 3;
  at(bytes, StepPart::kHead) = head > 0 ? head : bytes_of(info, "embedding");
  return bytes;
}

PartNumbers bytes_of_prefill(const EngineInfo& info, std::int64_t tokens, std::int64_t step_tokens) {
  PartNumbers bytes = bytes_of_step(info, 1, 0);
  const std::int64_t steps = (tokens + step_tokens - 1) / step_tokens;
  for (const StepPart part : {StepPart::kQkv, StepPart::kOProj, StepPart::kGateUp, StepPart::kDownProj}) {
    at(bytes, part) *= static_cast<double>(steps);
  }
  for (std::int64_t first = 0; first < tokens; first += step_tokens) {
    const std::int64_t rows = std::min(step_tokens, tokens - first);
    at(bytes, StepPart::kAttention) += kv_bytes_of_step(info, rows, first + rows);
  }
  return bytes;
}

PartNumbers operations_of_step(const EngineInfo& info, std::int64_t rows, std::int64_t depth) {
  return operations_of(info, rows, static_cast<double>(rows) * keys_at(info, depth), rows);
}

PartNumbers operations_of_prefill(const EngineInfo& info, std::int64_t tokens) {
  return operations_of(info, tokens, keys_of_prompt(info, tokens), 1);
}

double sum_of(const PartNumbers& numbers) { return std::accumulate(numbers.begin(), numbers.end(), 0.0); }

}  // namespace vitrine::app
