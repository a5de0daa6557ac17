// SPDX-License-Identifier: Apache-2.0
// The arithmetic of `vitrine bench`: lists, medians, and what a step has to read and to compute.
#pragma once

#include <vitrine/engine.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace vitrine::app {

/// "0,2048": whole numbers from `min` to `max`, each once; an empty text is an empty list. Throws
/// Error(kInvalidArgument) naming the option.
std::vector<std::int64_t> parse_sizes(const std::string& option, const std::string& text, std::int64_t min,
                                      std::int64_t max);

/// What several measurements of one thing say.
struct Figure {
  double median = 0, min = 0, max = 0;
  std::int64_t count = 0;

  /// Half of the range, as a share of the median.
  double spread() const { return median > 0 ? (max - min) / 2 / median : 0; }
};
/// Of an even number of samples the mean of the middle two; no samples give zeros.
Figure figure_of(std::vector<double> samples);

/// How samples are spread: so many percent of them are below.
struct Percentiles {
  double p50 = 0, p90 = 0, p99 = 0;
  std::int64_t count = 0;
};
/// Between two samples on the straight line from one to the other; no samples give zeros.
Percentiles percentiles_of(std::vector<double> samples);

/// Ids that look random and are the same in every run.
std::vector<TokenId> some_ids(std::int64_t count, std::int64_t vocab_size, std::int64_t seed);
/// When requests come that nobody waits for: seconds from 0 on, in order, `rate` a second on average with exponential
/// gaps between. The same in every run.
std::vector<double> arrival_times(std::int64_t count, double rate);

/// What one measurement runs.
enum class BenchKind {
  kPrefill,  ///< a prompt of `size` tokens
  kDecode,   ///< tokens one by one after `size` tokens
  kBatch,    ///< `size` sequences, a token each a step
};
/// "prefill", "decode", "batch": the names of the options' sections and of the JSON keys.
const char* to_string(BenchKind kind) noexcept;

inline constexpr std::int64_t kBatchPrompt = 128;  // tokens that each sequence of a batch starts with

/// Weight and scale bytes that any step reads: all but the rows of the embedding table that no token asks for.
double weight_bytes_per_step(const EngineInfo& info);
/// Keys and values that a token reads which follows `depth` others.
double kv_bytes_at(const EngineInfo& info, std::int64_t depth);

using PartNumbers = std::array<double, kNumStepParts>;
/// Weights, keys and values that each part has to read, in bytes. Zero where activations are all it works on. A step
/// decodes `rows` sequences at that depth; a prompt is cut into steps of `step_tokens`, and each reads the layers again.
PartNumbers bytes_of_step(const EngineInfo& info, std::int64_t rows, std::int64_t depth);
PartNumbers bytes_of_prefill(const EngineInfo& info, std::int64_t tokens, std::int64_t step_tokens);
/// Multiplications and additions of each part. Zero where products are not the work. Of a prompt the head sees the last
/// token alone.
PartNumbers operations_of_step(const EngineInfo& info, std::int64_t rows, std::int64_t depth);
PartNumbers operations_of_prefill(const EngineInfo& info, std::int64_t tokens);

double sum_of(const PartNumbers& numbers);

}  // namespace vitrine::app
