// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <vitrine/error.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <ctime>
#include <numeric>
#include <set>
#include <vector>

namespace vitrine {
namespace {

TEST(ThreadPool, EveryIndexExactlyOnce) {
  for (const int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (const std::int64_t count : {0, 1, 2, 5, 64, 1000}) {
      for (const std::int64_t grain : {1, 3, 64, 5000}) {
        std::vector<int> seen(static_cast<std::size_t>(count), 0);
        pool.parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end, int thread) {
          EXPECT_LE(end - begin, grain);
          EXPECT_LT(thread, threads);
          for (std::int64_t i = begin; i < end; ++i) ++seen[static_cast<std::size_t>(i)];
        });
        for (const int times : seen) ASSERT_EQ(times, 1);
      }
    }
  }
}

TEST(ThreadPool, ResultsAreVisibleToTheCaller) {
  ThreadPool pool(3);
  std::vector<std::int64_t> values(257);
  for (std::int64_t round = 0; round < 2000; ++round) {
    pool.parallel_for(257, 4, [&](std::int64_t begin, std::int64_t end, int) {
      for (std::int64_t i = begin; i < end; ++i) values[static_cast<std::size_t>(i)] = round + i;
    });
    ASSERT_EQ(std::accumulate(values.begin(), values.end(), std::int64_t{0}), 257 * round + 256 * 257 / 2);
  }
}

TEST(ThreadPool, WakesAfterSleeping) {
  ThreadPool pool(2);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than the workers spin
    std::atomic<int> done{0};
    pool.parallel_for(8, 1, [&](std::int64_t, std::int64_t, int) { ++done; });
    ASSERT_EQ(done, 8);
  }
}

TEST(ThreadPool, MoreThreadsThanCoresFinish) {
  ThreadPool pool(4 * usable_cores());
  std::atomic<std::int64_t> sum{0};
  for (int round = 0; round < 200; ++round) {
    pool.parallel_for(100, 1, [&](std::int64_t begin, std::int64_t, int) { sum += begin; });
  }
  EXPECT_EQ(sum, 200 * 99 * 100 / 2);
}

TEST(ThreadPool, IdleItUsesNoCpu) {  // cases.md G01
  ThreadPool pool(4);
  std::atomic<int> done{0};
  for (int round = 0; round < 100; ++round) pool.parallel_for(8, 1, [&](std::int64_t, std::int64_t, int) { ++done; });
  std::this_thread::sleep_for(
      std::chrono::milliseconds(50));        // longer than they spin, even without a core of their own
  const std::clock_t before = std::clock();  // of this process, whatever else runs
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.03);  // one that spins would use 0.3
  EXPECT_EQ(done, 800);
}

TEST(ThreadPool, RefusedThreadsAreAnError) {
  // A stack larger than the address space: no thread can be made.
  pthread_attr_t old;
  ASSERT_EQ(pthread_getattr_default_np(&old), 0);
  pthread_attr_t huge = old;
  ASSERT_EQ(pthread_attr_setstacksize(&huge, std::size_t{1} << 50), 0);
  if (pthread_setattr_default_np(&huge) != 0) GTEST_SKIP() << "the system does not let the default stack grow";
  EXPECT_THROW(ThreadPool(3), Error);
  ASSERT_EQ(pthread_setattr_default_np(&old), 0);
}

TEST(UsableCores, AtLeastOneAndNotMoreThanThereAre) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), static_cast<int>(std::thread::hardware_concurrency()));
}

TEST(UsableCores, AllOfTheAffinityMask) {  // cases.md G03
  // A mask belongs to a thread: this one's is not the test's.
  std::thread([] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
    for (int cores = CPU_COUNT(&mask); cores > 0; --cores) {
      ASSERT_EQ(sched_setaffinity(0, sizeof(mask), &mask), 0);
      EXPECT_EQ(usable_cores(INFINITY), cores);
      int last = CPU_SETSIZE - 1;
      while (!CPU_ISSET(last, &mask)) --last;
      CPU_CLR(last, &mask);
    }
  }).join();
}

TEST(UsableCores, NoMoreThanTheQuotaPays) {  // server.md 81
  for (const double quota : {0.0, 0.01, 0.5, 1.0}) EXPECT_EQ(usable_cores(quota), 1) << quota;
  const int cores = usable_cores(INFINITY);
  EXPECT_EQ(usable_cores(1.5), std::min(cores, 2));
  EXPECT_EQ(usable_cores(cores + 0.5), cores);
  EXPECT_EQ(usable_cores(1e9), cores);
}

}  // namespace
}  // namespace vitrine
