// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vitrine {

/// Index of a row of the embedding table.
using TokenId = std::int32_t;

/// Why a generation ended.
enum class FinishReason {
  kStop,       ///< an end-of-sequence id or a stop string
  kLength,     ///< max_tokens or the end of the context
  kCancelled,  ///< the caller cancelled it
  kDeadline,   ///< its time was up
  kError,      ///< it could not go on; see the message beside it
};

/// "stop", "length", "cancelled", "deadline" or "error".
const char* to_string(FinishReason reason) noexcept;

/// How numbers are stored on the way.
enum class Precision {
  kDefault,  ///< weights and cache as WeightType and KvType say; products may round their activations to bf16 or int8
  kExact,    ///< weights as stored, else float32 throughout: greedy tokens equal Hugging Face transformers in float32
};

/// How the weights of the matrix products are stored in memory. Norms and biases stay in float32.
enum class WeightType {
  kBF16,          ///< bfloat16, 2 bytes a weight
  kInt8,          ///< int8, one scale a row: the fastest 8-bit form
  kInt8Group32,   ///< int8, one scale for 32 weights of a row
  kInt8Group128,  ///< int8, one scale for 128 weights of a row
  kInt4,          ///< int4 in groups of 32 with a 4-bit multiplier each and one scale a row; embedding and head int8
  kInt4Group64,   ///< int4 with scale and zero point for 64 weights of a row; embedding and head int8
  kInt4Group128,  ///< int4 with scale and zero point for 128 weights of a row; embedding and head int8
};

/// How keys and values are stored in the cache.
enum class KvType {
  kBF16,  ///< bfloat16
  kInt8,  ///< int8 with one float32 scale a head vector
};

/// "bf16", "int8", "int8-g32", "int8-g128", "int4", "int4-g64", "int4-g128"
const char* to_string(WeightType type) noexcept;
/// "bf16", "int8"
const char* to_string(KvType type) noexcept;

/// How the next token is chosen. The order is that of transformers: logit bias and penalties, then temperature,
/// top_k, top_p, min_p (specs: generation/logits_process.py). A value that means "off" is the default.
struct SamplingParams {
  bool greedy = false;           ///< arg-max after the penalties; everything below `logit_bias` is ignored
  float repetition_penalty = 1;  ///< over prompt and output: logit < 0 is multiplied, else divided; > 0
  float presence_penalty = 0;    ///< subtracted once from ids in the output; -2 to 2
  float frequency_penalty = 0;   ///< subtracted per occurrence in the output; -2 to 2
  std::vector<std::pair<TokenId, float>> logit_bias{};  ///< added to the logits of these ids
  float temperature = 1;                                ///< >= 0; 0 (or so small that the division overflows) is greedy
  std::int64_t top_k = 0;               ///< keep the k largest (and ties with the k-th); <= 0 or >= vocabulary: off
  float top_p = 1;                      ///< keep the smallest set with at least this probability; in (0, 1], 1: off
  float min_p = 0;                      ///< drop what is less likely than min_p times the likeliest; in [0, 1]
  std::optional<std::uint64_t> seed{};  ///< same seed, same text, on any thread count; absent: drawn at random
};

/// What a part of a model weighs.
struct ModelPart {
  std::string name;  ///< "embedding", "attention", "feed-forward", "norms", "head"
  std::int64_t parameters = 0;
  std::int64_t bytes = 0;
};

/// A kernel table of this build.
struct IsaInfo {
  std::string name;
  bool available = false;
  std::string reason;  ///< what the CPU lacks
};

/// One candidate for the next token.
struct TokenScore {
  TokenId id = 0;
  float logit = 0;         ///< raw, as the head gives it
  double probability = 0;  ///< at temperature 1 over the whole vocabulary, where nothing else is said
};

}  // namespace vitrine
