// SPDX-License-Identifier: Apache-2.0
// The public face: Engine and Stream, as thin as they can be.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "checkpoint/hub_cache.h"
#include "engine/engine_impl.h"

namespace vitrine {
namespace {

/// From the engine's listener to whoever pulls.
class Channel {
 public:
  void push(const Event& event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
    changed_.notify_one();
  }
  void close() noexcept {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_one();
  }
  std::optional<Event> pop() {
    const std::lock_guard lock(mutex_);
    if (events_.empty()) return std::nullopt;
    std::optional<Event> event = std::move(events_.front());
    events_.pop_front();
    return event;
  }
  /// Nothing more will come.
  bool is_over() const {
    const std::lock_guard lock(mutex_);
    return closed_ && events_.empty();
  }
  /// Until there is an event or no more to come, or for a moment: the engine's thread may have been stopped meanwhile.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(50), [this] { return closed_ || !events_.empty(); });
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;
  bool closed_ = false;
};

/// Closes a channel when the request that writes to it is gone: finished, or with the engine.
struct Writer {
  explicit Writer(std::shared_ptr<Channel> to) : channel(std::move(to)) {}
  ~Writer() { channel->close(); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  std::shared_ptr<Channel> channel;
};

}  // namespace

class Stream::Impl {
 public:
  Impl(std::weak_ptr<Engine::Impl> engine, std::shared_ptr<Channel> channel)
      : engine_(std::move(engine)), channel_(std::move(channel)) {}
  ~Impl() { cancel(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  std::optional<Event> next() {
    for (;;) {
      if (auto event = channel_->pop()) return event;
      if (channel_->is_over()) return std::nullopt;
      const auto engine = engine_.lock();
      if (!engine) return std::nullopt;
      engine->refuse_listener("next()");
      if (engine->has_thread()) {
        channel_->wait();
      } else {
        engine->step();
      }
    }
  }

  void cancel() noexcept {
    if (channel_->is_over()) return;
    if (const auto engine = engine_.lock()) engine->cancel(id);
  }

  RequestId id = 0;

 private:
  std::weak_ptr<Engine::Impl> engine_;
  std::shared_ptr<Channel> channel_;
};

Stream::Stream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Stream::Stream(Stream&&) noexcept = default;
Stream& Stream::operator=(Stream&&) noexcept = default;
Stream::~Stream() = default;

RequestId Stream::id() const noexcept { return impl_->id; }
std::optional<Event> Stream::next() { return impl_->next(); }
void Stream::cancel() noexcept { impl_->cancel(); }

Engine::Engine(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;
Engine::~Engine() {
  if (impl_) impl_->stop();
}

Engine make_engine(LoadedModel model, const EngineOptions& options) {
  return Engine(std::make_shared<Engine::Impl>(std::move(model), options));
}

Engine Engine::load(const std::string& model, const EngineOptions& options) {
  return make_engine(load_model(model, options), options);
}

std::filesystem::path find_model(const std::string& model) {
  std::error_code error;
  return std::filesystem::is_regular_file(model, error) ? std::filesystem::path(model) : resolve_model(model);
}

const EngineInfo& Engine::info() const noexcept { return impl_->info; }
const std::shared_ptr<const Tokenizer>& Engine::tokenizer() const noexcept { return impl_->tokenizer(); }
SamplingParams Engine::default_sampling() const { return impl_->default_sampling(); }
RequestId Engine::submit(Request request) { return impl_->submit(std::move(request)); }
RequestId Engine::fork(RequestId id, std::int64_t position, Request request) {
  return impl_->fork(id, position, std::move(request));
}
void Engine::cancel(RequestId id) noexcept { impl_->cancel(id); }
bool Engine::step() { return impl_->step(); }
void Engine::start() { impl_->start(); }
void Engine::stop() { impl_->stop(); }
EngineStats Engine::stats() const { return impl_->stats(); }
void Engine::clear_prefix_cache() { impl_->clear_prefix_cache(); }
void Engine::set_profile(Profile* profile) { impl_->set_profile(profile); }
std::vector<TokenScore> Engine::read_out(std::span<const float> residual, int count) {
  return impl_->read_out(residual, count);
}

std::vector<TokenId> Engine::encode(std::string_view prompt, SpecialTokens special) const {
  if (!impl_->tokenizer()) {
    throw Error(ErrorCode::kNotFound, impl_->info.model + "/tokenizer.json: not there; give the prompt as ids");
  }
  return impl_->tokenizer()->encode(prompt, special);
}

Stream Engine::stream(Request request) {
  auto channel = std::make_shared<Channel>();
  auto stream = std::make_unique<Stream::Impl>(impl_, channel);
  const auto writer = std::make_shared<Writer>(channel);
  request.on_event = [writer](const Event& event) { writer->channel->push(event); };
  stream->id = impl_->submit(std::move(request));
  return Stream(std::move(stream));
}

std::vector<Generation> Engine::generate_all(Request request) {
  impl_->refuse_listener("generate()");
  const auto listener = std::move(request.on_event);
  std::vector<Generation> results(static_cast<std::size_t>(std::max(0, request.n)));
  Stream events = stream(std::move(request));
  while (const auto event = events.next()) {
    if (event->finished) results[static_cast<std::size_t>(event->sample)] = *event->finished;
    if (listener) listener(*event);
  }
  return results;
}

Generation Engine::generate(Request request) {
  if (request.n != 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "n: expected 1, found " + std::to_string(request.n) + "; generate_all() gives all samples");
  }
  return std::move(generate_all(std::move(request)).front());
}

Generation Engine::generate(std::string_view prompt, std::int64_t max_tokens) {
  Request request;
  request.prompt_ids = encode(prompt);
  request.sampling = default_sampling();
  request.max_tokens = max_tokens;
  return generate(std::move(request));
}

}  // namespace vitrine
