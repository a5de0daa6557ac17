// SPDX-License-Identifier: Apache-2.0
// Many requests at once: in a closed loop, where a request comes when another is done, or in an open one, where they
// come when they like.
#include "bench_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "terminal.h"

namespace vitrine::app {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// Room for all that are under way at once, where the command line does not say how much there is.
EngineOptions options_of(const BenchEngineCommand& o) {
  constexpr std::int64_t kBlock = 32;                       // tokens of the cache that are handed out together
  constexpr std::int64_t kLongest = std::int64_t{1} << 22;  // beyond any context, which check_room() sees
  EngineOptions options = o.model.engine_options();
  options.preload = true;
  options.speculation = o.speculation;
  if (o.shared_prefix == 0) options.prefix_cache_bytes = 0;
  options.max_sequences = o.concurrency;
  options.step_tokens = std::max(options.step_tokens, 2 * o.concurrency);
  const std::int64_t longest = std::min(o.prompt_tokens + o.output_tokens, kLongest);
  const std::int64_t blocks = (longest + kBlock - 1) / kBlock + 1;  // and one to grow
  if (options.cache_bytes == 0 && options.cache_tokens == 0) options.cache_tokens = o.concurrency * blocks * kBlock;
  return options;
}

void check_room(const BenchEngineCommand& o, const EngineInfo& info) {
  const std::int64_t longest = o.prompt_tokens + o.output_tokens;
  const auto check = [&](const char* where, std::int64_t room) {
    if (longest <= room) return;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--prompt-tokens and --output-tokens: expected at most the {} tokens of the {} together, "
                            "found {}",
                            with_commas(room), where, with_commas(longest)));
  };
  check("context", info.context);
  check("KV cache", info.cache_tokens);
}

class EngineBench {
 public:
  EngineBench(const BenchEngineCommand& o, Engine& engine)
      : o_(o), engine_(engine), sent_(static_cast<std::size_t>(o.requests)) {}

  EngineBenchResult run() {
    warm_up();
    const EngineStats before = engine_.stats();
    start_ = Clock::now();
    o_.rate > 0 ? run_open() : run_closed();
    progress_.clear();
    return result(before);
  }

 private:
  /// A request, once it was handed in.
  struct Sent {
    double late_s = 0;  // it came while a step ran
    std::int64_t last_step = -1;
    std::shared_ptr<const Generation> end;
  };

  Request make_request(std::int64_t index) const {
    const std::int64_t vocab_size = engine_.info().vocab_size;
    Request request;
    request.prompt_ids = some_ids(o_.shared_prefix, vocab_size, 0);
    const std::vector<TokenId> own = some_ids(o_.prompt_tokens - o_.shared_prefix, vocab_size, index + 1);
    request.prompt_ids.insert(request.prompt_ids.end(), own.begin(), own.end());
    request.sampling.greedy = true;
    request.max_tokens = o_.output_tokens;
    request.ignore_eos = true;
    request.prefix_cache = o_.shared_prefix > 0;
    request.speculation = o_.speculation;
    return request;
  }

  /// One request that has nothing in common with the others, and leaves nothing to them.
  void warm_up() {
    Request request = make_request(o_.requests);
    request.prompt_ids = some_ids(o_.prompt_tokens, engine_.info().vocab_size, o_.requests + 1);
    check(engine_.generate(std::move(request)));
    engine_.clear_prefix_cache();
  }

  void submit(double late_s) {
    Sent& sent = sent_[static_cast<std::size_t>(num_sent_)];
    sent.late_s = late_s;
    Request request = make_request(num_sent_++);
    request.on_event = [this, &sent](const Event& event) {
      if (event.token && sent.last_step != steps_) {
        sent.last_step = steps_;
        ++batch_;
      }
      if (!event.finished) return;
      sent.end = event.finished;
      last_token_ = Clock::now();
      ++num_done_;
    };
    engine_.submit(std::move(request));
  }

  void step() {
    batch_ = 0;
    engine_.step();
    ++steps_;
    batches_ += batch_;
    batch_max_ = std::max(batch_max_, batch_);
    progress_.update(num_done_, o_.requests);
  }

  void run_closed() {
    while (num_done_ < o_.requests) {
      while (num_sent_ < o_.requests && num_sent_ - num_done_ < o_.concurrency) submit(0);
      step();
    }
  }

  void run_open() {
    const std::vector<double> arrivals = arrival_times(o_.requests, o_.rate);
    while (num_done_ < o_.requests) {
      const double now = seconds_between(start_, Clock::now());
      while (num_sent_ < o_.requests && arrivals[static_cast<std::size_t>(num_sent_)] <= now) {
        submit(now - arrivals[static_cast<std::size_t>(num_sent_)]);
      }
      if (num_sent_ > num_done_) {
        step();
      } else {
        std::this_thread::sleep_for(std::chrono::duration<double>(arrivals[static_cast<std::size_t>(num_sent_)] - now));
      }
    }
  }

  static void check(const Generation& g) {
    if (g.finish_reason == FinishReason::kError) throw Error(ErrorCode::kNumeric, g.error);
  }

  EngineBenchResult result(const EngineStats& before) const {
    EngineBenchResult r{.info = engine_.info(), .concurrency = o_.concurrency, .end = engine_.stats()};
    r.seconds = seconds_between(start_, last_token_);
    std::vector<double> ttft_ms;
    std::vector<double> itl_ms;
    for (const Sent& sent : sent_) {
      check(*sent.end);
      const std::vector<float>& times = sent.end->timings.tokens_s;
      ttft_ms.push_back(1000 * (sent.late_s + static_cast<double>(times.front())));
      for (std::size_t i = 1; i < times.size(); ++i) {
        itl_ms.push_back(1000 * (static_cast<double>(times[i]) - static_cast<double>(times[i - 1])));
      }
    }
    r.ttft_ms = percentiles_of(std::move(ttft_ms));
    r.itl_ms = percentiles_of(std::move(itl_ms));
    r.cached_tokens = r.end.cached_tokens - before.cached_tokens;
    r.preemptions = r.end.preemptions - before.preemptions;
    r.steps = r.end.steps - before.steps;
    r.batch_mean = static_cast<double>(batches_) / static_cast<double>(steps_);
    r.batch_max = batch_max_;
    r.speculation.steps = r.end.speculation.steps - before.speculation.steps;
    r.speculation.drafted = r.end.speculation.drafted - before.speculation.drafted;
    r.speculation.accepted = r.end.speculation.accepted - before.speculation.accepted;
    return r;
  }

  const BenchEngineCommand& o_;
  Engine& engine_;
  std::vector<Sent> sent_;  // all of them from the start: listeners hold references
  std::int64_t num_sent_ = 0, num_done_ = 0;
  std::int64_t steps_ = 0, batch_ = 0, batches_ = 0, batch_max_ = 0;
  Clock::time_point start_, last_token_;
  Progress progress_{"measuring"};
};

}  // namespace

int bench_engine(const BenchEngineCommand& o) {
  if (o.shared_prefix > o.prompt_tokens) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("--shared-prefix: expected at most the {} of --prompt-tokens, "
                                                         "found {}",
                                                         o.prompt_tokens, o.shared_prefix));
  }
  Engine engine = o.model.load(options_of(o));
  check_room(o, engine.info());
  const EngineBenchResult result = EngineBench(o, engine).run();
  o.json ? print_engine_bench_json(o, result) : print_engine_bench_text(o, result);
  return kExitFine;
}

}  // namespace vitrine::app
