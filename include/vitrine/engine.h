// SPDX-License-Identifier: Apache-2.0
// START HERE. Engine::load opens a model folder; generate() turns a prompt into text; submit() and step() are the same
// thing one token at a time, for several requests at once.
#pragma once

#include <vitrine/error.h>
#include <vitrine/probe.h>
#include <vitrine/profile.h>
#include <vitrine/tokenizer.h>
#include <vitrine/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

struct EngineOptions {
  int threads = 0;                 ///< at most 1024; 0: the usable cores, by affinity and cgroup quota
  std::int64_t context = 0;        ///< longest prompt plus output of a request; 0: max_position_embeddings
  std::int64_t cache_tokens = 0;   ///< tokens the KV cache holds over all requests; 0: `context`. A request that may
                                   ///< grow to the end of the context reserves that much, and others wait for it
  std::int64_t step_tokens = 256;  ///< most tokens one step computes (prompts are cut into such chunks), to 65,536
  Precision precision = Precision::kDefault;
  WeightType weights = WeightType::kBF16;  ///< quantised at load where it is not bf16; not with Precision::kExact
  KvType kv = KvType::kBF16;               ///< not with Precision::kExact, which keeps float32
  bool weight_cache = true;  ///< keep packed weights in a file and map it at the next start (large models only)
  std::string isa;           ///< kernel table; empty: VITRINE_ISA, else the best this CPU has
  bool preload = false;      ///< read all weights into memory now, if they fit, and not at their first use
  std::function<void(std::int64_t done, std::int64_t total)> progress;  ///< of preloading, in bytes
};

using RequestId = std::int64_t;
struct Generation;

/// What a step did for one request.
struct Event {
  RequestId request = 0;
  std::optional<TokenId> token;          ///< the new token; the end-of-sequence id too
  std::string_view text;                 ///< text that may be shown now: whole characters, never part of a stop string
  const Generation* finished = nullptr;  ///< set on the last event of a request, valid during the call
};

/// One prompt and how to continue it.
struct Request {
  std::vector<TokenId> prompt_ids;
  SamplingParams sampling;
  std::int64_t max_tokens = -1;   ///< -1: to the end of the context
  std::vector<std::string> stop;  ///< ends before the first of these strings
  bool ignore_eos = false;
  int top = 0;                                 ///< fill Generation::top and candidates with that many entries
  Probe* probe = nullptr;                      ///< watches this request's steps, which then run without company
  std::function<void(const Event&)> on_event;  ///< called from step(), on its thread; may call submit, cancel and
                                               ///< read_out, not step or generate
};

/// A finished request.
struct Generation {
  std::vector<TokenId> prompt_ids;
  std::vector<TokenId> output_ids;  ///< with the end-of-sequence id that ended it
  std::string text;                 ///< without special tokens and stop strings
  FinishReason finish_reason = FinishReason::kStop;
  std::string error;                   ///< for FinishReason::kError
  std::uint64_t seed = 0;              ///< the seed that repeats it
  std::vector<TokenScore> top;         ///< the model's own distribution at the first new position, likeliest first
  std::vector<TokenScore> candidates;  ///< what the sampler drew the first token from, likeliest first
  std::int64_t num_candidates = 0;     ///< how many there were; `candidates` holds the first Request::top of them
  double prefill_s = 0;                ///< from the start of the prompt to the first new token
  double decode_s = 0;                 ///< from there to the last one
};

struct EngineInfo {
  std::string model;         ///< folder
  std::string architecture;  ///< model_type of config.json
  std::vector<ModelPart> parts;
  std::int64_t parameters = 0, weight_bytes = 0;
  std::int64_t vocab_size = 0, hidden_size = 0, intermediate_size = 0, num_layers = 0;
  std::int64_t query_heads = 0, kv_heads = 0, head_dim = 0;
  std::vector<std::int64_t> layer_windows;  ///< keys that each layer sees, 0: all
  std::int64_t max_position_embeddings = 0, context = 0;
  std::int64_t kv_bytes_per_token = 0;
  std::int64_t workspace_bytes = 0;
  std::vector<TokenId> eos_ids;
  Precision precision = Precision::kDefault;
  WeightType weights = WeightType::kBF16;
  std::string rounded_from;  ///< what bf16 weights were rounded from: "F32", "F16", "F16 and F32"; empty: not rounded
  KvType kv = KvType::kBF16;
  std::string weight_cache_file;  ///< where the packed weights are kept; empty: only in memory
  int threads = 0;
  std::string isa;
  std::vector<IsaInfo> isas;
  std::vector<std::string> warnings;  ///< surprises in the checkpoint that do not keep it from working
  double load_s = 0;
};

/// A loaded model and the requests in flight. Not thread-safe: one thread at a time calls it; cancel() and the
/// tokenizer may be used from any thread.
class Engine {
 public:
  /// `model`: a folder as published on the Hub, or a Hub name "ORG/NAME" present in the Hugging Face cache.
  /// Throws Error naming the file and the place.
  static Engine load(const std::string& model, const EngineOptions& options = {});
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  ~Engine();

  const EngineInfo& info() const noexcept;
  /// Null when the folder has no tokenizer.json.
  const std::shared_ptr<const Tokenizer>& tokenizer() const noexcept;
  /// The ids of a prompt. Throws Error(kNotFound) without a tokenizer.
  std::vector<TokenId> encode(std::string_view prompt, SpecialTokens special = SpecialTokens::kParse) const;
  /// What generation_config.json asks for; greedy where it says do_sample false or is absent.
  SamplingParams default_sampling() const;

  /// Queues a request. Throws Error (kInvalidArgument, kTooLarge) naming what is wrong with it; nothing is queued then.
  RequestId submit(Request request);
  /// Ends a request at the next step, with FinishReason::kCancelled. Unknown ids are ignored. From any thread.
  void cancel(RequestId id) noexcept;
  /// One forward pass for as many requests as fit. False when there is nothing left to do.
  bool step();
  /// Adds the time of each part of a step to `profile` from now on; null ends that. Not while a step runs.
  void set_profile(Profile* profile) noexcept;

  /// submit() and step() until it is finished.
  Generation generate(Request request);
  /// The same for a text, with default_sampling().
  Generation generate(std::string_view prompt, std::int64_t max_tokens = -1);

  /// What the model would say if it stopped at this residual stream [hidden_size]: final norm, head, the `count`
  /// likeliest tokens. Not while a step runs.
  std::vector<TokenScore> read_out(std::span<const float> residual, int count);

 private:
  class Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Where a model is: an existing folder or file as it is, else the Hub name "ORG/NAME" looked up in the Hugging Face
/// cache. Throws Error(kNotFound).
std::filesystem::path find_model(const std::string& model);
/// A file of packed weights in the cache.
struct WeightCacheFile {
  std::string path, model;
  std::string weights;  ///< what they were packed as; empty: damaged or of another version, packed anew when needed
  std::int64_t bytes = 0;
  std::int64_t last_used = 0;  ///< seconds since 1970
};
/// Where packed weights are kept: VITRINE_CACHE, else XDG_CACHE_HOME/vitrine, else ~/.cache/vitrine; empty when none of
/// the variables is set, and nothing is kept then.
std::filesystem::path weight_cache_folder();
/// Bytes the files there may take together: VITRINE_CACHE_BUDGET ("20GB", "500MB"), else 8 GB. Throws
/// Error(kInvalidArgument) when the variable is not a size.
std::int64_t weight_cache_budget();
/// The files there, the last used first. Throws Error(kIo) when the folder cannot be read.
std::vector<WeightCacheFile> list_weight_cache();
/// Removes them all and returns the bytes freed; engines that use them are not disturbed. Throws Error(kIo) when one
/// cannot be removed.
std::int64_t clear_weight_cache();
/// Bytes this process may still use: MemAvailable, bounded by the cgroup's limit.
std::int64_t available_memory();
/// The largest resident size of this process so far, in bytes.
std::int64_t peak_memory();
/// The folder of the demo model that ships with the program, relative to the executable; empty if it is not there.
std::filesystem::path demo_model_folder();

}  // namespace vitrine
