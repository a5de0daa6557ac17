// SPDX-License-Identifier: Apache-2.0
// START HERE. Engine::load opens a model folder; generate() turns a prompt into text; submit() and stream() are for many
// requests at once (request.h says what one may ask for): drive them with step(), or let start() do it.
#pragma once

#include <vitrine/error.h>
#include <vitrine/probe.h>
#include <vitrine/profile.h>
#include <vitrine/request.h>
#include <vitrine/tokenizer.h>
#include <vitrine/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

struct LoadedModel;

struct EngineOptions {
  int threads = 0;           ///< at most 1024; 0: the usable cores, by affinity and cgroup quota
  std::int64_t context = 0;  ///< longest prompt plus output of a request; 0: max_position_embeddings
  std::int64_t cache_tokens =
      0;  ///< tokens the KV cache holds over all requests, which share it; 0: as cache_bytes says
  std::int64_t cache_bytes = 0;  ///< the same in bytes; 0: room for `context` tokens, or 16,384 where that
  ///< is more. Memory is taken as it is used
  std::int64_t prefix_cache_bytes = std::int64_t{1} << 30;  ///< of these, kept for later requests with the same
                                                            ///< beginning; 0: none
  std::int64_t max_sequences = 64;                          ///< samples that run at once, at most 4096; more wait
  std::int64_t step_tokens = 256;  ///< most tokens one step computes (prompts are cut into such chunks), to 65,536
  bool speculation = true;         ///< guess ahead from the text so far where that is faster; Request can say no
  Precision precision = Precision::kDefault;
  WeightType weights = WeightType::kBF16;  ///< quantised at load where it is not bf16; not with Precision::kExact
  KvType kv = KvType::kBF16;               ///< not with Precision::kExact, which keeps float32
  bool weight_cache = true;  ///< keep packed weights in a file and map it at the next start (large models only)
  std::string isa;           ///< kernel table; empty: VITRINE_ISA, else the best this CPU has
  bool preload = false;      ///< read all weights into memory now, if they fit, and not at their first use
  std::function<void(std::int64_t done, std::int64_t total)> progress;  ///< of preloading, in bytes
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
  std::int64_t cache_tokens = 0;         ///< what the KV cache holds over all requests
  std::int64_t prefix_cache_tokens = 0;  ///< of these, at most so many wait for later requests
  std::int64_t max_sequences = 0;
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

/// What the engine has done, and holds now.
struct EngineStats {
  std::int64_t waiting = 0, running = 0;  ///< samples
  std::int64_t steps = 0;                 ///< forward passes
  std::int64_t rows = 0;                  ///< tokens they computed
  std::int64_t output_tokens = 0;
  std::int64_t cached_tokens = 0;  ///< of prompts: not computed, but found in the cache
  std::int64_t preemptions = 0;
  Speculation speculation;
  std::int64_t kv_blocks = 0;         ///< of the whole cache; a block holds 32 tokens
  std::int64_t kv_blocks_live = 0;    ///< held by requests in flight
  std::int64_t kv_blocks_cached = 0;  ///< kept for later requests; taken away when memory is needed
  std::int64_t kv_blocks_peak = 0;    ///< the most that were live at once
  std::int64_t max_batch = 0;         ///< the most samples in one step
};

/// The events of a request, pulled. Cancels the request when it goes. For one thread at a time; may outlive the engine.
class Stream {
 public:
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;
  ~Stream();

  RequestId id() const noexcept;
  /// Waits for the next event; nothing after the last one, or when the engine is gone. Runs steps itself where no
  /// thread of the engine does.
  std::optional<Event> next();
  void cancel() noexcept;

 private:
  friend class Engine;
  class Impl;
  explicit Stream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// A loaded model and the requests in flight. Every function may be called from any thread; what needs the model waits
/// for the step that runs.
class Engine {
 public:
  /// `model`: a folder as published on the Hub, or a Hub name "ORG/NAME" present in the Hugging Face cache.
  /// Throws Error naming the file and the place.
  static Engine load(const std::string& model, const EngineOptions& options = {});
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;
  /// Ends the requests in flight without a word to their listeners. Not from one.
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
  /// The same, its events to be pulled; Request::on_event is not used.
  Stream stream(Request request);
  /// A new request that goes on from the first `position` tokens (prompt and output) of sample 0 of one in flight, then
  /// from request.prompt_ids, which may be empty. What both have in common is computed and stored once; salt and use of
  /// the prefix cache are the first one's. Throws Error: kNotFound when it is not in flight, else as submit().
  RequestId fork(RequestId id, std::int64_t position, Request request);
  /// Ends all samples of a request before the next step, with FinishReason::kCancelled. Unknown ids are ignored.
  void cancel(RequestId id) noexcept;

  /// One forward pass for as many requests as fit, and their listeners. False when there is nothing left to do.
  /// Throws Error(kInvalidArgument) from a listener, and while the engine has a thread of its own.
  bool step();
  /// Starts a thread that steps while there is something to do, and sleeps otherwise. Nothing if it runs already.
  void start();
  /// Ends that thread after the step it is in; requests in flight stay. Throws Error(kInvalidArgument) from a listener.
  void stop();

  /// Runs a request with n = 1 to its end. on_event is called on this thread, and what it throws comes out.
  Generation generate(Request request);
  /// The same for a text, with default_sampling().
  Generation generate(std::string_view prompt, std::int64_t max_tokens = -1);
  /// All samples of a request, in order.
  std::vector<Generation> generate_all(Request request);

  /// What the model would say if it stopped at this residual stream [hidden_size]: final norm, head, the `count`
  /// likeliest tokens.
  std::vector<TokenScore> read_out(std::span<const float> residual, int count);

  EngineStats stats() const;
  /// Forgets what is kept for later requests; those in flight keep theirs.
  void clear_prefix_cache();
  /// Adds the time of each part of a step to `profile` from now on; null ends that.
  void set_profile(Profile* profile);

  /// The inside, for the library's own files.
  class Impl;

 private:
  friend Engine make_engine(struct LoadedModel model, const EngineOptions& options);
  explicit Engine(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
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
