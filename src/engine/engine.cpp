// SPDX-License-Identifier: Apache-2.0
#include <vitrine/engine.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <future>
#include <limits>
#include <mutex>
#include <set>
#include <string_view>

#include "checkpoint/hub_cache.h"
#include "engine/finite_probe.h"
#include "engine/scheduler.h"
#include "engine/top_tokens.h"
#include "kernels/dispatch.h"
#include "models/model.h"
#include "text/tokenizer_config.h"

namespace vitrine {
namespace {

/// Logits of that many rows at once: the head's weights are read once for all of them.
constexpr std::int64_t kLogitRows = 8;
/// Block ids are 32 bits wide.
constexpr std::int64_t kMaxCacheTokens = std::numeric_limits<BlockId>::max() * kBlockTokens;
/// Room for that many tokens of a sequence is taken when it is accepted, more as it grows.
constexpr std::int64_t kReservedTokens = 16384;

/// On a thread of its own; where the system has none, when the result is asked for.
constexpr std::launch kBeside = std::launch::async | std::launch::deferred;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

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

/// The value, or `fallback` for 0. Throws Error(kInvalidArgument) when it is outside 0 to `max`.
std::int64_t option(const char* name, std::int64_t value, std::int64_t max, std::int64_t fallback) {
  if (value < 0 || value > max) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(name) + ": expected at most " + std::to_string(max) + ", found " + std::to_string(value));
  }
  return value == 0 ? fallback : value;
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

/// True while it lives.
class Flag {
 public:
  explicit Flag(bool& flag) : flag_(flag) { flag_ = true; }
  ~Flag() { flag_ = false; }
  Flag(const Flag&) = delete;
  Flag& operator=(const Flag&) = delete;

 private:
  bool& flag_;
};

}  // namespace

class Engine::Impl {
 public:
  Impl(const std::string& name, const EngineOptions& options);

  RequestId submit(Request request);
  void cancel(RequestId id) noexcept;
  bool step();
  void abandon(RequestId id) {
    if (Sequence* sequence = scheduler_.find(id)) scheduler_.remove(sequence);
  }
  std::vector<TokenScore> read_out(std::span<const float> residual, int count);
  SamplingParams default_sampling() const;

  EngineInfo info;
  Profile* profile = nullptr;
  const std::shared_ptr<const Tokenizer>& tokenizer() const noexcept { return text_.tokenizer; }

 private:
  TextSide wait_for_text(const EngineOptions& options);
  void fill_info(const EngineOptions& options);
  void take_cancelled();
  void choose(const StepPlan& plan);
  void choose_from_logits(Sequence& sequence, std::span<float> logits);
  TokenId sample(Sequence& sequence, std::span<float> logits);
  void accept(Sequence& sequence, TokenId id);
  void finish(Sequence& sequence, FinishReason reason, std::string_view last_text = {}, std::string error = {});
  std::string explain_non_finite(Sequence& sequence);
  Context context(Probe* probe) { return {pool_, kernels_, workspace_, probe, profile}; }

  Clock::time_point load_started_ = Clock::now();
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::int64_t context_length_;
  std::int64_t step_tokens_;
  Kernels kernels_;
  ThreadPool pool_;
  std::future<TextSide> text_loading_;
  PackedWeights weights_;
  TextSide text_;  // before the model: packing can take seconds, and a broken tokenizer is found sooner
  std::unique_ptr<Model> model_;
  ModelCache cache_;
  Workspace workspace_;
  Scheduler scheduler_;
  std::vector<float> hidden_;  // [step_tokens, hidden_size]: final-normed output rows
  std::vector<float> logits_;  // [kLogitRows, vocab_size]
  std::vector<Head::Best> bests_;
  std::int64_t usable_vocab_ = 0;
  RequestId next_id_ = 1;
  std::mutex cancel_mutex_;
  std::vector<RequestId> cancelled_;
  std::atomic<bool> any_cancelled_{false};  // so that a step need not take the lock
  bool stepping_ = false;
};

Engine::Impl::Impl(const std::string& name, const EngineOptions& options)
    : checkpoint_(Checkpoint::open(resolve_model(name))),
      context_length_(context_of(options, checkpoint_->config())),
      step_tokens_(option("step_tokens", options.step_tokens, 65536, EngineOptions{}.step_tokens)),
      kernels_(select_kernels(chosen_isa(options), options.precision == Precision::kExact)),
      pool_(static_cast<int>(option("threads", options.threads, 1024, usable_cores()))),
      text_loading_(std::async(kBeside, [this] { return load_text_side(*checkpoint_); })),
      weights_(pool_, *checkpoint_, weight_options(name, options)),
      text_(wait_for_text(options)),
      model_(make_model(checkpoint_, weights_)),
      cache_(model_->cache_layers(),
             blocks_for(std::max(context_length_, option("cache_tokens", options.cache_tokens, kMaxCacheTokens, 0))),
             kv_storage(options)),
      workspace_(model_->workspace_bytes(step_tokens_, pool_.size()) +
                 model_->head().workspace_bytes(step_tokens_, pool_.size())),
      scheduler_(cache_.num_blocks(), step_tokens_) {
  const ModelConfig& config = checkpoint_->config();
  usable_vocab_ = text_.tokenizer ? text_.tokenizer->vocab_size() : config.vocab_size;
  info.eos_ids = checkpoint_->generation_config().eos_token_ids;
  add_ids(info.eos_ids, config.eos_token_ids);
  if (text_.eos) add_ids(info.eos_ids, {*text_.eos});
  weights_.finish();
  fill_info(options);
}

/// The tokenizer takes longer to read than a file of packed weights to be mapped, so that is done meanwhile.
TextSide Engine::Impl::wait_for_text(const EngineOptions& options) {
  // What does not fit in memory would push itself out again.
  if (options.preload && weights_.store().bytes() < available_memory()) weights_.store().populate(options.progress);
  return text_loading_.get();
}

void Engine::Impl::fill_info(const EngineOptions& options) {
  const ModelConfig& config = checkpoint_->config();
  info.model = checkpoint_->folder().string();
  info.architecture = config.model_type;
  info.parts = model_->parts();
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
  info.context = context_length_;
  info.precision = options.precision;
  info.weights = options.weights;
  const bool is_bf16 = options.precision != Precision::kExact && options.weights == WeightType::kBF16;
  if (is_bf16) info.rounded_from = types_to_round(*checkpoint_);
  info.kv = options.kv;
  info.kv_bytes_per_token = cache_.block_bytes() / kBlockTokens;
  info.workspace_bytes = workspace_.capacity();
  info.threads = pool_.size();
  info.isa = kernels_.name;
  info.isas = kernel_choices();
  info.weight_cache_file = weights_.store().file();
  info.warnings = model_->warnings();
  for (const std::string& warning : weights_.store().warnings()) info.warnings.push_back(warning);
  info.load_s = seconds_between(load_started_, Clock::now());
}

SamplingParams Engine::Impl::default_sampling() const {
  const GenerationConfig& config = checkpoint_->generation_config();
  SamplingParams params;
  params.greedy = !config.do_sample.value_or(false);
  params.temperature = config.temperature.value_or(1.0f);
  params.top_k = config.top_k.value_or(0);
  params.top_p = config.top_p.value_or(1.0f);
  params.min_p = config.min_p.value_or(0.0f);
  params.repetition_penalty = config.repetition_penalty.value_or(1.0f);
  return params;
}

RequestId Engine::Impl::submit(Request request) {
  const auto num_prompt = static_cast<std::int64_t>(request.prompt_ids.size());
  if (num_prompt == 0) throw Error(ErrorCode::kInvalidArgument, "the prompt is empty: expected at least one token");
  for (const TokenId id : request.prompt_ids) {
    if (id >= 0 && id < info.vocab_size) continue;
    throw Error(ErrorCode::kInvalidArgument, "prompt: expected ids from 0 to " + std::to_string(info.vocab_size - 1) +
                                                 ", found " + std::to_string(id));
  }
  const std::int64_t room = context_length_ - num_prompt;
  if (room < 1) {
    throw Error(ErrorCode::kTooLarge, "the prompt has " + std::to_string(num_prompt) + " tokens; the context of " +
                                          std::to_string(context_length_) + " has room for " +
                                          std::to_string(context_length_ - 1) + " and one new one");
  }
  if (request.max_tokens == 0 || request.max_tokens < -1) {
    throw Error(ErrorCode::kInvalidArgument,
                "max_tokens: expected at least 1, or -1 for no limit, found " + std::to_string(request.max_tokens));
  }
  validate(request.sampling, info.vocab_size);
  Sampler sampler(request.sampling, usable_vocab_, request.prompt_ids);
  auto sequence = std::make_unique<Sequence>(next_id_, std::move(request), std::move(sampler));
  sequence->max_output = sequence->request.max_tokens < 0 ? room : std::min(room, sequence->request.max_tokens);
  if (text_.tokenizer) sequence->decoder.emplace(*text_.tokenizer, /*skip_special=*/true);
  sequence->tokens.reserve(static_cast<std::size_t>(num_prompt + std::min(sequence->max_output, kReservedTokens)));
  scheduler_.add(std::move(sequence));
  return next_id_++;
}

void Engine::Impl::cancel(RequestId id) noexcept {
  const std::lock_guard lock(cancel_mutex_);
  if (std::find(cancelled_.begin(), cancelled_.end(), id) == cancelled_.end()) cancelled_.push_back(id);
  any_cancelled_ = true;
}

void Engine::Impl::take_cancelled() {
  if (!any_cancelled_.exchange(false)) return;
  {
    const std::lock_guard lock(cancel_mutex_);
    for (const RequestId id : cancelled_) {
      if (Sequence* sequence = scheduler_.find(id)) sequence->cancelled = true;
    }
    cancelled_.clear();
  }
  while (Sequence* sequence = scheduler_.find_cancelled()) {
    any_cancelled_ = true;  // should the listener throw, the next step looks for the others
    finish(*sequence, FinishReason::kCancelled);
  }
}

/// Schedule, one ragged batch through the model, choose: everything the engine does, once per token.
bool Engine::Impl::step() {
  if (stepping_) throw Error(ErrorCode::kInvalidArgument, "step() and generate() may not be called from on_event");
  const Flag stepping(stepping_);
  take_cancelled();
  const StepPlan& plan = scheduler_.plan();
  if (plan.empty()) return false;
  const std::int64_t hidden_size = model_->hidden_size();
  const auto outputs = static_cast<std::int64_t>(plan.output_rows.size());
  hidden_.resize(static_cast<std::size_t>(outputs * hidden_size));
  model_->forward(context(plan.sequences[0]->request.probe), plan.batch(), cache_,
                  {hidden_.data(), outputs, hidden_size, hidden_size});
  // A sequence that is about to get a token is computed once it has it: should a listener throw before its turn, it
  // does its last rows again in the next step.
  for (std::size_t i = 0; i < plan.slices.size(); ++i) {
    Sequence& sequence = *plan.sequences[i];
    if (plan.slices[i].num_rows < sequence.num_pending()) sequence.num_computed += plan.slices[i].num_rows;
  }
  if (outputs > 0) choose(plan);
  return !scheduler_.idle();
}

void Engine::Impl::choose(const StepPlan& plan) {
  const std::int64_t hidden_size = model_->hidden_size();
  const auto outputs = static_cast<std::int64_t>(plan.sampled.size());
  const MatrixView<const float> hidden{hidden_.data(), outputs, hidden_size, hidden_size};
  const auto needs_logits = [](const Sequence* s) {
    return !s->sampler.is_plain_argmax() || (s->request.top > 0 && s->num_output() == 0);
  };
  if (std::none_of(plan.sampled.begin(), plan.sampled.end(), needs_logits)) {
    bests_.resize(static_cast<std::size_t>(outputs));
    model_->head().argmax(context(nullptr).timed(StepPart::kHead), hidden, usable_vocab_, bests_);
    for (std::size_t i = 0; i < plan.sampled.size(); ++i) {
      Sequence& sequence = *plan.sampled[i];
      if (!bests_[i].finite) {
        finish(sequence, FinishReason::kError, {}, explain_non_finite(sequence));
        continue;
      }
      {
        const PartTimer timer(profile, StepPart::kSampling);
        sequence.sampler.accept(bests_[i].id);
      }
      accept(sequence, bests_[i].id);
    }
    return;
  }
  logits_.resize(static_cast<std::size_t>(std::min(outputs, kLogitRows) * info.vocab_size));
  for (std::int64_t first = 0; first < outputs; first += kLogitRows) {
    const std::int64_t rows = std::min(kLogitRows, outputs - first);
    const MatrixView<float> logits{logits_.data(), rows, info.vocab_size, info.vocab_size};
    model_->head().logits(context(nullptr).timed(StepPart::kHead), hidden.rows_from(first, rows), logits);
    for (std::int64_t r = 0; r < rows; ++r) {
      choose_from_logits(*plan.sampled[static_cast<std::size_t>(first + r)],
                         {logits.row(r), static_cast<std::size_t>(info.vocab_size)});
    }
  }
}

void Engine::Impl::choose_from_logits(Sequence& sequence, std::span<float> logits) {
  const auto usable = logits.first(static_cast<std::size_t>(usable_vocab_));
  if (!std::all_of(usable.begin(), usable.end(), [](float logit) { return std::isfinite(logit); })) {
    finish(sequence, FinishReason::kError, {}, explain_non_finite(sequence));
    return;
  }
  if (sequence.request.top > 0 && sequence.num_output() == 0) {
    sequence.result.top = top_tokens(logits, sequence.request.top);
    std::vector<float> copy(logits.begin(), logits.end());
    const auto candidates = sequence.sampler.distribution(copy);
    sequence.result.num_candidates = static_cast<std::int64_t>(candidates.size());
    for (const Sampler::Candidate& candidate : candidates) {
      if (std::ssize(sequence.result.candidates) == sequence.request.top) break;
      sequence.result.candidates.push_back(
          {candidate.id, logits[static_cast<std::size_t>(candidate.id)], candidate.probability});
    }
  }
  accept(sequence, sample(sequence, logits));
}

TokenId Engine::Impl::sample(Sequence& sequence, std::span<float> logits) {
  const PartTimer timer(profile, StepPart::kSampling);
  return sequence.sampler.sample(logits);
}

/// Takes the chosen token into the sequence, tells the listener, and ends the request where it is time.
void Engine::Impl::accept(Sequence& sequence, TokenId id) {
  const auto now = Clock::now();
  if (sequence.num_output() == 0) sequence.first_token = now;
  sequence.num_computed = static_cast<std::int64_t>(sequence.tokens.size());
  sequence.tokens.push_back(id);
  const bool is_eos =
      !sequence.request.ignore_eos && std::find(info.eos_ids.begin(), info.eos_ids.end(), id) != info.eos_ids.end();
  std::string text;
  if (sequence.decoder && !is_eos) text = sequence.stop.feed(sequence.decoder->push(id));
  if (is_eos || sequence.stop.stopped()) {
    finish(sequence, FinishReason::kStop, text);
  } else if (sequence.num_output() >= sequence.max_output) {
    finish(sequence, FinishReason::kLength, text);
  } else {
    sequence.result.text += text;
    if (sequence.request.on_event) sequence.request.on_event({sequence.id, id, text, nullptr});
  }
}

void Engine::Impl::finish(Sequence& sequence, FinishReason reason, std::string_view last_text, std::string error) {
  Generation& result = sequence.result;
  std::string text(last_text);
  if (sequence.decoder && !sequence.stop.stopped()) {
    text += sequence.stop.feed(sequence.decoder->flush());
    if (!sequence.stop.stopped()) text += sequence.stop.flush();
  }
  result.text += text;
  result.prompt_ids = sequence.request.prompt_ids;
  result.output_ids.assign(sequence.tokens.begin() + sequence.num_prompt(), sequence.tokens.end());
  result.finish_reason = reason;
  result.error = std::move(error);
  if (!result.output_ids.empty()) {
    result.prefill_s = seconds_between(sequence.started, sequence.first_token);
    result.decode_s = seconds_between(sequence.first_token, Clock::now());
  }
  // Out of the scheduler first, so that the listener may submit again.
  const std::unique_ptr<Sequence> owned = scheduler_.remove(&sequence);
  if (!owned->request.on_event) return;
  const bool has_token = reason == FinishReason::kStop || reason == FinishReason::kLength;
  owned->request.on_event({owned->id, has_token ? std::optional(owned->tokens.back()) : std::nullopt, text, &result});
}

/// Runs the sequence once more from its start with a probe, and says where the numbers went wrong.
std::string Engine::Impl::explain_non_finite(Sequence& sequence) {
  FiniteProbe probe;
  std::vector<std::int32_t> positions;
  const auto total = static_cast<std::int64_t>(sequence.tokens.size());
  for (std::int64_t first = 0; first < total && !probe.where(); first += step_tokens_) {
    const std::int64_t rows = std::min(step_tokens_, total - first);
    positions.resize(static_cast<std::size_t>(rows));
    for (std::int64_t r = 0; r < rows; ++r)
      positions[static_cast<std::size_t>(r)] = static_cast<std::int32_t>(first + r);
    const SequenceSlice slice{0, rows, sequence.block_table};
    const std::int32_t last = static_cast<std::int32_t>(rows - 1);
    std::vector<float> hidden(static_cast<std::size_t>(model_->hidden_size()));
    const std::span tokens(sequence.tokens);
    model_->forward(context(&probe),
                    {tokens.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows)),
                     positions,
                     {&slice, 1},
                     {&last, 1}},
                    cache_, {hidden.data(), 1, model_->hidden_size(), model_->hidden_size()});
  }
  return "the logits are not finite: NaN or infinity first appears in " + probe.where().value_or("the head");
}

std::vector<TokenScore> Engine::Impl::read_out(std::span<const float> residual, int count) {
  const std::int64_t hidden_size = model_->hidden_size();
  if (static_cast<std::int64_t>(residual.size()) != hidden_size) {
    throw Error(ErrorCode::kInvalidArgument, "residual: expected " + std::to_string(hidden_size) + " numbers, found " +
                                                 std::to_string(residual.size()));
  }
  std::vector<float> normed(residual.size());
  const MatrixView<float> row{normed.data(), 1, hidden_size, hidden_size};
  model_->final_norm(context(nullptr), {residual.data(), 1, hidden_size, hidden_size}, row);
  std::vector<float> logits(static_cast<std::size_t>(info.vocab_size));
  model_->head().logits(context(nullptr), row, {logits.data(), 1, info.vocab_size, info.vocab_size});
  return top_tokens(logits, count);
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() = default;

Engine Engine::load(const std::string& model, const EngineOptions& options) {
  return Engine(std::make_unique<Impl>(model, options));
}

std::filesystem::path find_model(const std::string& model) {
  std::error_code error;
  return std::filesystem::is_regular_file(model, error) ? std::filesystem::path(model) : resolve_model(model);
}

const EngineInfo& Engine::info() const noexcept { return impl_->info; }
const std::shared_ptr<const Tokenizer>& Engine::tokenizer() const noexcept { return impl_->tokenizer(); }
SamplingParams Engine::default_sampling() const { return impl_->default_sampling(); }
RequestId Engine::submit(Request request) { return impl_->submit(std::move(request)); }
void Engine::cancel(RequestId id) noexcept { impl_->cancel(id); }
bool Engine::step() { return impl_->step(); }
void Engine::set_profile(Profile* profile) noexcept { impl_->profile = profile; }

std::vector<TokenId> Engine::encode(std::string_view prompt, SpecialTokens special) const {
  if (!impl_->tokenizer()) {
    throw Error(ErrorCode::kNotFound, impl_->info.model + "/tokenizer.json: not there; give the prompt as ids");
  }
  return impl_->tokenizer()->encode(prompt, special);
}

std::vector<TokenScore> Engine::read_out(std::span<const float> residual, int count) {
  return impl_->read_out(residual, count);
}

Generation Engine::generate(Request request) {
  Generation result;
  auto listener = std::move(request.on_event);
  bool finished = false;
  request.on_event = [&](const Event& event) {
    if (listener) listener(event);
    if (event.finished == nullptr) return;
    result = *event.finished;
    finished = true;
  };
  const RequestId id = submit(std::move(request));
  try {
    while (!finished) step();
  } catch (...) {  // a listener threw: nothing may call it again, since what it refers to is going away
    impl_->abandon(id);
    throw;
  }
  return result;
}

Generation Engine::generate(std::string_view prompt, std::int64_t max_tokens) {
  Request request;
  request.prompt_ids = encode(prompt);
  request.sampling = default_sampling();
  request.max_tokens = max_tokens;
  return generate(std::move(request));
}

}  // namespace vitrine
