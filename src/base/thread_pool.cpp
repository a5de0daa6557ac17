// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <system_error>

#include "base/cgroup.h"
#include "base/check.h"

namespace vitrine {
namespace {

// A step forks every few dozen microseconds; waking a sleeping thread takes about 25. So spin for a few times that.
constexpr auto kSpin = std::chrono::microseconds(100);
constexpr int kPausesBetweenLooks = 32;

void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Spins until `done()` or the time is up; the last look decides.
template <class Done>
bool spin_until(Done done) noexcept {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesBetweenLooks; ++i) {
      if (done()) return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return done();
}

}  // namespace

int usable_cores(double quota) {
  int cores = static_cast<int>(std::thread::hardware_concurrency());
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) == 0) cores = CPU_COUNT(&allowed);
  if (quota < cores) cores = static_cast<int>(std::ceil(quota));
  return std::max(cores, 1);
}

int usable_cores() { return usable_cores(cgroup_cpu_quota()); }

ThreadPool::ThreadPool(int threads) {
  VITRINE_CHECK(threads >= 1);
  workers_.reserve(static_cast<std::size_t>(threads) - 1);
  try {
    for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { serve(thread); });
  } catch (const std::system_error& error) {
    const std::string started = std::to_string(workers_.size() + 1);
    stop();
    throw Error(ErrorCode::kIo,
                "cannot start " + std::to_string(threads) + " threads, only " + started + ": " + error.what());
  }
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() noexcept {
  stopping_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(const Job& job) {
  job_ = job;  // nobody reads it now: the gate is closed and everyone who came in has left
  next_.store(0, std::memory_order_relaxed);
  gate_.store(kOpen, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  work(0);
  // All chunks are taken. Whoever is not here yet (asleep, or without a core) is not waited for; who is finishes soon.
  gate_.fetch_and(~kOpen, std::memory_order_acq_rel);
  if (spin_until([this] { return gate_.load(std::memory_order_acquire) == 0; })) return;
  for (std::uint32_t inside = gate_.load(std::memory_order_acquire); inside != 0;
       inside = gate_.load(std::memory_order_acquire)) {
    gate_.wait(inside, std::memory_order_acquire);
  }
}

bool ThreadPool::enter() noexcept {
  std::uint32_t gate = gate_.load(std::memory_order_acquire);
  while ((gate & kOpen) != 0) {
    if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire)) return true;
  }
  return false;
}

void ThreadPool::work(int thread) noexcept {
  for (;;) {
    const std::int64_t begin = next_.fetch_add(job_.grain, std::memory_order_relaxed);
    if (begin >= job_.count) return;
    job_.call(job_.context, begin, std::min(begin + job_.grain, job_.count), thread);
  }
}

void ThreadPool::serve(int thread) noexcept {
  std::uint32_t seen = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    if (enter()) {
      seen = epoch_.load(std::memory_order_relaxed);
      work(thread);
      if (gate_.fetch_sub(1, std::memory_order_acq_rel) == 1) gate_.notify_one();  // closed, and the last to leave
    }
    if (!spin_until([&] { return epoch_.load(std::memory_order_acquire) != seen; })) {
      epoch_.wait(seen, std::memory_order_acquire);
    }
    seen = epoch_.load(std::memory_order_acquire);
  }
}

}  // namespace vitrine
