// SPDX-License-Identifier: Apache-2.0
// The engine from many threads at once; run it under the thread sanitizer (./test.sh --tsan --filter Threads).
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <optional>
#include <random>
#include <thread>

#include "support/scripted_model.h"
#include "support/test_files.h"

namespace vitrine::test {
namespace {

using namespace std::chrono_literals;

std::vector<TokenId> ids(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> result;
  for (std::int64_t i = 0; i < count; ++i) result.push_back(static_cast<TokenId>(random() % 8));
  return result;
}

std::int64_t num_threads() {
  const auto tasks = std::filesystem::directory_iterator("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

/// Waits until the engine has nothing in flight.
void wait_until_idle(const Engine& engine) {
  for (;;) {
    const EngineStats stats = engine.stats();
    if (stats.running + stats.waiting == 0 && stats.kv_blocks_live == 0) return;
    std::this_thread::sleep_for(1ms);
  }
}

TEST(Threads, AThousandRequestsFromEightThreads) {  // server.md 71
  const std::int64_t threads_before = num_threads();
  {
    Engine engine = scripted_engine(unguessable, {.engine = {.threads = 2, .cache_tokens = 2048, .step_tokens = 64}});
    engine.start();
    std::atomic<int> finished{0};
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(t);
        for (unsigned i = 0; i < 125; ++i) {
          const auto prompt = ids(1 + static_cast<std::int64_t>(random() % 100), random() % 5);
          const auto expected = continuation(unguessable, prompt, 20);
          Request request = greedy(prompt, 20);
          request.n = random() % 8 == 0 ? 3 : 1;
          const auto check = [&finished, &wrong, expected](const Event& event) {
            if (!event.finished) return;
            ++finished;
            const Generation& g = *event.finished;
            const bool cancelled = g.finish_reason == FinishReason::kCancelled;
            const auto kept = cancelled ? g.output_ids.size() : expected.size();
            if (g.output_ids != std::vector<TokenId>(expected.begin(), expected.begin() + std::ssize(g.output_ids)) ||
                g.output_ids.size() != kept) {
              ++wrong;
            }
          };
          finished -= request.n;  // so that it ends at zero
          if (i % 3 == 0) {       // pulled, often not to the end
            Stream stream = engine.stream(request);
            for (unsigned events = random() % 40; events > 0; --events) {
              const auto event = stream.next();
              if (!event) break;
              check(*event);
            }
            stream.cancel();
            while (const auto event = stream.next()) check(*event);
          } else {
            request.on_event = check;
            const RequestId id = engine.submit(std::move(request));
            if (i % 3 == 1) engine.cancel(id);
            if (i % 16 == 0) engine.clear_prefix_cache();
            if (i % 16 == 1) engine.stats();
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    wait_until_idle(engine);
    EXPECT_EQ(finished, 0) << "each sample says once that it has ended";
    EXPECT_EQ(wrong, 0);
    engine.clear_prefix_cache();
    EXPECT_EQ(engine.stats().kv_blocks_cached, 0);
    EXPECT_EQ(engine.stats().kv_blocks_live, 0);
  }
  EXPECT_EQ(num_threads(), threads_before);
}

TEST(Threads, ManyGenerateAtOnceWithoutAThreadOfTheEngine) {
  Engine engine = scripted_engine(unguessable, {.engine = {.threads = 1}});
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const auto prompt = ids(30, t);
        if (engine.generate(greedy(prompt, 10)).output_ids != continuation(unguessable, prompt, 10)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Threads, StartAndStopLoseNothing) {
  Engine engine = scripted_engine(unguessable, {.engine = {.threads = 1}});
  const auto prompt = ids(30, 1);
  Stream stream = engine.stream(greedy(prompt, 2000));
  std::vector<TokenId> tokens;
  for (std::size_t round = 0; round < 20; ++round) {
    if (round % 2 == 0) engine.start();
    if (round % 2 == 1) engine.stop();
    engine.start();  // twice is once
    while (tokens.size() < 100 * (round + 1)) tokens.push_back(*stream.next()->token);
    engine.stop();
    engine.stop();
  }
  EXPECT_EQ(tokens, continuation(unguessable, prompt, 2000));
  EXPECT_FALSE(stream.next());
}

TEST(Threads, AWaitingStreamSurvivesAStop) {
  Engine engine = scripted_engine(unguessable, {.engine = {.threads = 1}});
  engine.start();
  const auto prompt = ids(10, 1);
  std::thread other([&] { EXPECT_EQ(engine.generate(greedy(prompt, 3000)).output_ids.size(), 3000u); });
  std::this_thread::sleep_for(5ms);
  engine.stop();
  other.join();
}

TEST(Threads, AStreamOutlivesItsEngine) {
  std::optional<Stream> stream;
  {
    Engine engine = scripted_engine(unguessable, {.engine = {.threads = 1}});
    engine.start();
    stream = engine.stream(greedy(ids(10, 1), 8000));
    EXPECT_TRUE(stream->next());
  }
  while (stream->next()) {
  }
  stream->cancel();
}

TEST(Threads, TheEnginesThreadStepsAndNobodyElse) {
  Engine engine = scripted_engine(unguessable, {.engine = {.threads = 1}});
  engine.start();
  EXPECT_THROW(engine.step(), Error);
  engine.stop();
  EXPECT_FALSE(engine.step());
}

TEST(Threads, AListenerOfTheEnginesThreadMayNotWaitForIt) {
  Engine engine = scripted_engine(unguessable, {.engine = {.threads = 1}});
  engine.start();
  std::atomic<int> refused{0};
  Request request = greedy(ids(10, 1), 3);
  request.on_event = [&](const Event&) {
    try {
      engine.generate(greedy({1}, 1));
    } catch (const Error&) {
      ++refused;
    }
    try {
      engine.stop();
    } catch (const Error&) {
      ++refused;
    }
  };
  engine.submit(std::move(request));
  wait_until_idle(engine);
  engine.stop();
  EXPECT_EQ(refused, 6);
}

TEST(Threads, AnIdleEngineSleeps) {
  Engine engine = Engine::load(demo_model().string(), {.threads = 2});
  engine.start();
  Request request = greedy(engine.encode("Once upon a time"), 20);
  engine.generate(request);
  std::this_thread::sleep_for(50ms);  // longer than its threads spin
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(1s);
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.01);
}

}  // namespace
}  // namespace vitrine::test
