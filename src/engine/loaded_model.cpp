// SPDX-License-Identifier: Apache-2.0
#include "engine/loaded_model.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <future>
#include <optional>
#include <set>
#include <string_view>

#include "checkpoint/hub_cache.h"
#include "kernels/dispatch.h"
#include "text/tokenizer_config.h"

namespace vitrine {
namespace {

using Clock = std::chrono::steady_clock;

/// On a thread of its own; where the system has none, when the result is asked for.
constexpr std::launch kBeside = std::launch::async | std::launch::deferred;

std::string chosen_isa(const EngineOptions& options) {
  if (!options.isa.empty()) return options.isa;
  const char* forced = std::getenv("VITRINE_ISA");
  return forced == nullptr ? "" : forced;
}

void add_ids(std::vector<TokenId>& ids, const std::vector<TokenId>& more) {
  for (const TokenId id : more) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  }
}

/// The context of a request, which the model's positions bound.
std::int64_t context_of(const EngineOptions& options, const ModelConfig& config) {
  const std::int64_t most = config.max_position_embeddings;
  if (options.context <= most) return option("context", options.context, most, most);
  throw Error(ErrorCode::kInvalidArgument, "context: expected at most " + std::to_string(most) +
                                               " (max_position_embeddings in " + config.source + "), found " +
                                               std::to_string(options.context));
}

/// Throws Error(kInvalidArgument) where exact arithmetic was asked for together with rounded weights.
PackedWeights::Options weight_options(const std::string& name, const EngineOptions& options) {
  const bool exact = options.precision == Precision::kExact;
  if (exact && options.weights != WeightType::kBF16) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string("weights: exact precision takes them as stored, found ") + to_string(options.weights));
  }
  if (exact && options.kv != KvType::kBF16) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string("kv: exact precision keeps float32, found ") + to_string(options.kv));
  }
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(name, error);
  return {.type = options.weights,
          .exact = exact,
          .cache = options.weight_cache,
          .model_name = is_folder ? std::filesystem::weakly_canonical(name).filename().string() : name,
          .progress = options.progress};
}

/// The wider types that the checkpoint has its matrices in.
std::string types_to_round(const Checkpoint& checkpoint) {
  std::set<std::string_view> names;
  for (const Tensor& tensor : checkpoint.tensors()) {
    const bool wider = tensor.dtype == DType::kF32 || tensor.dtype == DType::kF16;
    if (wider && tensor.shape.size() == 2) names.insert(to_string(tensor.dtype));
  }
  std::string text;
  for (const std::string_view name : names) text.append(text.empty() ? "" : " and ").append(name);
  return text;
}

KvStorage kv_storage(const EngineOptions& options) {
  if (options.precision == Precision::kExact) return kKvF32;
  return options.kv == KvType::kInt8 ? kKvInt8 : kKvBF16;
}

/// What turns text into ids and back. Empty where the folder has no tokenizer.json.
struct TextSide {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::optional<TokenId> eos;  ///< what tokenizer_config.json calls eos_token
};

TextSide load_text_side(const Checkpoint& checkpoint) {
  const std::filesystem::path& folder = checkpoint.folder();
  TextSide text;
  if (!std::filesystem::exists(folder / "tokenizer.json")) return text;
  text.tokenizer = Tokenizer::load(folder);
  const ModelConfig& config = checkpoint.config();
  if (text.tokenizer->vocab_size() > config.vocab_size) {
    throw Error(ErrorCode::kBadFile, config.source + ": vocab_size: expected at least " +
                                         std::to_string(text.tokenizer->vocab_size()) +
                                         " for the ids of tokenizer.json, found " + std::to_string(config.vocab_size));
  }
  if (const auto eos = read_tokenizer_config(folder).eos_token) text.eos = text.tokenizer->find(*eos);
  return text;
}

void fill_info(LoadedModel& loaded, const EngineOptions& options) {
  const Checkpoint& checkpoint = *loaded.checkpoint;
  const ModelConfig& config = checkpoint.config();
  EngineInfo& info = loaded.info;
  info.model = checkpoint.folder().string();
  info.architecture = config.model_type;
  info.parts = loaded.model->parts();
  for (const ModelPart& part : info.parts) {
    info.parameters += part.parameters;
    info.weight_bytes += part.bytes;
  }
  info.vocab_size = config.vocab_size;
  info.hidden_size = config.hidden_size;
  info.intermediate_size = config.intermediate_size;
  info.num_layers = config.num_hidden_layers;
  info.query_heads = config.num_attention_heads;
  info.kv_heads = config.num_key_value_heads;
  info.head_dim = config.head_dim;
  info.layer_windows = config.layer_windows;
  info.max_position_embeddings = config.max_position_embeddings;
  info.context = context_of(options, config);
  info.precision = options.precision;
  info.weights = options.weights;
  const bool is_bf16 = options.precision != Precision::kExact && options.weights == WeightType::kBF16;
  if (is_bf16) info.rounded_from = types_to_round(checkpoint);
  info.kv = options.kv;
  info.weight_cache_file = loaded.weights->store().file();
  info.warnings = loaded.model->warnings();
  for (const std::string& warning : loaded.weights->store().warnings()) info.warnings.push_back(warning);
  info.eos_ids = checkpoint.generation_config().eos_token_ids;
  add_ids(info.eos_ids, config.eos_token_ids);
}

SamplingParams default_sampling(const GenerationConfig& config) {
  SamplingParams params;
  params.greedy = !config.do_sample.value_or(false);
  params.temperature = config.temperature.value_or(1.0f);
  params.top_k = config.top_k.value_or(0);
  params.top_p = config.top_p.value_or(1.0f);
  params.min_p = config.min_p.value_or(0.0f);
  params.repetition_penalty = config.repetition_penalty.value_or(1.0f);
  return params;
}

}  // namespace

std::int64_t option(const char* name, std::int64_t value, std::int64_t max, std::int64_t fallback) {
  if (value < 0 || value > max) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(name) + ": expected at most " + std::to_string(max) + ", found " + std::to_string(value));
  }
  return value == 0 ? fallback : value;
}

LoadedModel load_model(const std::string& name, const EngineOptions& options) {
  const auto started = Clock::now();
  LoadedModel loaded;
  loaded.checkpoint = Checkpoint::open(resolve_model(name));
  const ModelConfig& config = loaded.checkpoint->config();
  context_of(options, config);  // before anything that takes long
  loaded.kernels = select_kernels(chosen_isa(options), options.precision == Precision::kExact);
  loaded.pool =
      std::make_unique<ThreadPool>(static_cast<int>(option("threads", options.threads, 1024, usable_cores())));
  // The tokenizer takes longer to read than a file of packed weights to be mapped, so that is done meanwhile.
  auto text_loading = std::async(kBeside, [&] { return load_text_side(*loaded.checkpoint); });
  loaded.weights = std::make_unique<PackedWeights>(*loaded.pool, *loaded.checkpoint, weight_options(name, options));
  PackedWeights& weights = *loaded.weights;
  // What does not fit in memory would push itself out again.
  if (options.preload && weights.store().bytes() < available_memory()) weights.store().populate(options.progress);
  const TextSide text =
      text_loading.get();  // before the model: packing can take seconds, a broken tokenizer is found sooner
  loaded.tokenizer = text.tokenizer;
  loaded.model = make_model(loaded.checkpoint, weights);
  weights.finish();
  loaded.kv = kv_storage(options);
  loaded.default_sampling = default_sampling(loaded.checkpoint->generation_config());
  loaded.usable_vocab = text.tokenizer ? text.tokenizer->vocab_size() : config.vocab_size;
  fill_info(loaded, options);
  if (text.eos) add_ids(loaded.info.eos_ids, {*text.eos});
  loaded.info.load_s = std::chrono::duration<double>(Clock::now() - started).count();
  return loaded;
}

}  // namespace vitrine
