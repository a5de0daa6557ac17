// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace vitrine {

/// Cores this process may use: the affinity mask, bounded by the cgroup's CPU quota (rounded up). At least 1.
int usable_cores();
/// With that quota instead of the cgroup's.
int usable_cores(double quota);

/// A fixed set of threads that share the work of one operation after another. The caller is thread 0 and works too.
/// Work is handed out in small chunks, so a thread that lost its core holds up one chunk and not its share, and one that
/// comes too late is not waited for.
/// Between operations the threads spin for a moment, then sleep: an idle pool uses no CPU.
/// Not reentrant: one operation at a time, from one thread at a time.
class ThreadPool {
 public:
  /// `threads` >= 1, the caller included. Throws Error(kIo) when the system refuses some.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const noexcept { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(begin, end, thread) for chunks of at most `grain` that together cover [0, count), each once, in no
  /// particular order; thread is in [0, size()). Returns when all are done. `body` must not throw.
  template <class Body>
  void parallel_for(std::int64_t count, std::int64_t grain, Body&& body) {
    if (count <= 0) return;
    if (workers_.empty() || count <= grain) {
      for (std::int64_t begin = 0; begin < count; begin += grain) {
        body(begin, begin + grain < count ? begin + grain : count, 0);
      }
      return;
    }
    using Stored = std::remove_reference_t<Body>;
    run({[](void* context, std::int64_t begin, std::int64_t end, int thread) {
           (*static_cast<Stored*>(context))(begin, end, thread);
         },
         const_cast<void*>(static_cast<const void*>(&body)), count, grain});
  }

 private:
  struct Job {
    void (*call)(void* context, std::int64_t begin, std::int64_t end, int thread) = nullptr;
    void* context = nullptr;
    std::int64_t count = 0;
    std::int64_t grain = 1;
  };

  void run(const Job& job);
  bool enter() noexcept;
  void work(int thread) noexcept;
  void serve(int thread) noexcept;
  void stop() noexcept;

  static constexpr std::uint32_t kOpen = 1u << 31;

  // Each counter on its own cache line: they are written by different threads at the same time.
  alignas(64) std::atomic<std::uint32_t> epoch_{0};  // one more for each job; idle workers wait for it to change
  alignas(64) std::atomic<std::uint32_t> gate_{0};   // kOpen while a job may be joined, plus the workers inside
  alignas(64) std::atomic<std::int64_t> next_{0};    // first index nobody has taken
  std::atomic<bool> stopping_{false};
  Job job_;
  std::vector<std::thread> workers_;
};

}  // namespace vitrine
