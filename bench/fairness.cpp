// SPDX-License-Identifier: Apache-2.0
// A long prompt arrives while others decode: how long they wait for a token, and how long it takes. And what a prompt
// costs whose beginning is in the cache. Usage: fairness MODEL [WEIGHTS] [PROMPT_TOKENS] [DECODERS]
#include <vitrine/engine.h>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace {

using vitrine::Engine;
using vitrine::Event;
using vitrine::Request;
using vitrine::TokenId;
using Clock = std::chrono::steady_clock;

double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Request make_request(const Engine& engine, std::int64_t prompt, std::int64_t output, unsigned seed) {
  std::mt19937 random(seed);
  Request request;
  for (std::int64_t i = 0; i < prompt; ++i) {
    request.prompt_ids.push_back(static_cast<TokenId>(random() % static_cast<unsigned>(engine.info().vocab_size)));
  }
  request.sampling.greedy = true;
  request.max_tokens = output;
  request.ignore_eos = true;
  request.speculation = false;
  return request;
}

/// Milliseconds from submitting it to its first token, with what else is in flight.
double first_token_ms(Engine& engine, Request request) {
  const auto start = Clock::now();
  Clock::time_point first;
  request.on_event = [&](const Event&) {
    if (first == Clock::time_point()) first = Clock::now();
  };
  engine.submit(std::move(request));
  while (first == Clock::time_point()) engine.step();
  return ms_between(start, first);
}

void long_prompt_beside_decoders(Engine& engine, std::int64_t prompt, unsigned decoders) {
  Request alone = make_request(engine, prompt, 1, 1);
  alone.prefix_cache = false;
  const double lone_ms = first_token_ms(engine, alone);

  std::vector<Clock::time_point> last(decoders);
  std::vector<double> gaps;
  std::vector<vitrine::RequestId> ids;
  for (unsigned i = 0; i < decoders; ++i) {
    Request request = make_request(engine, 64, 4000, 100 + i);
    request.on_event = [&last, &gaps, i](const Event& event) {
      if (!event.token) return;
      const auto now = Clock::now();
      if (last[i] != Clock::time_point()) gaps.push_back(ms_between(last[i], now));
      last[i] = now;
    };
    ids.push_back(engine.submit(std::move(request)));
  }
  const auto run_until = [&](std::size_t count) {
    while (gaps.size() < count) engine.step();
  };
  run_until(std::size_t{20} * decoders);  // all are past their prompts
  gaps.clear();
  run_until(std::size_t{40} * decoders);
  const double before_ms = median(gaps);
  gaps.clear();
  Request beside = make_request(engine, prompt, 1, 2);
  beside.prefix_cache = false;
  const double beside_ms = first_token_ms(engine, beside);
  run_until(gaps.size() + decoders);
  const double worst_ms = *std::max_element(gaps.begin(), gaps.end());
  for (const auto id : ids) engine.cancel(id);
  while (engine.step()) {
  }
  fmt::print(
      "{} tokens beside {} that decode: their gap {:.1f} ms before, {:.1f} ms median and {:.1f} ms at worst during it "
      "({:.2f} x); it took {:.0f} ms, alone {:.0f} ms ({:.2f} x)\n",
      prompt, decoders, before_ms, median(gaps), worst_ms, worst_ms / before_ms, beside_ms, lone_ms,
      beside_ms / lone_ms);
}

void shared_prefix(Engine& engine, std::int64_t prefix) {
  Request first = make_request(engine, prefix, 1, 7);
  const double cold_ms = first_token_ms(engine, first);
  Request second = first;
  second.prompt_ids.push_back(5);
  second.max_tokens = 33;
  const std::int64_t rows = engine.stats().rows;
  const double warm_ms = first_token_ms(engine, second);
  const std::int64_t computed = engine.stats().rows - rows;
  const auto start = Clock::now();
  int steps = 1;
  while (engine.step()) ++steps;
  const double step_ms = ms_between(start, Clock::now()) / steps;
  fmt::print(
      "{} tokens in common: cold {:.1f} ms, then {} rows and {:.1f} ms to the first token; a step at that depth {:.1f} "
      "ms ({:.2f} steps)\n",
      prefix, cold_ms, computed, warm_ms, step_ms, warm_ms / step_ms);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: fairness MODEL [bf16|int8|int4] [PROMPT_TOKENS] [DECODERS]\n");
    return 2;
  }
  vitrine::EngineOptions options;
  const std::string weights = argc > 2 ? argv[2] : "bf16";
  options.weights = weights == "int8"   ? vitrine::WeightType::kInt8
                    : weights == "int4" ? vitrine::WeightType::kInt4
                                        : vitrine::WeightType::kBF16;
  options.preload = true;
  Engine engine = Engine::load(argv[1], options);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a line when it is known, into a file too
  const std::int64_t prompt = argc > 3 ? std::atoll(argv[3]) : 4000;
  const auto decoders = static_cast<unsigned>(argc > 4 ? std::atoi(argv[4]) : 8);
  fmt::print("{} weights, {} kernels, {} threads\n", weights, engine.info().isa, engine.info().threads);
  for (int round = 0; round < 3; ++round) {
    shared_prefix(engine, 1000);
    engine.clear_prefix_cache();
  }
  for (int round = 0; round < 3; ++round) long_prompt_beside_decoders(engine, prompt, decoders);
}
