// SPDX-License-Identifier: Apache-2.0
#include <vitrine/profile.h>

#include <algorithm>
#include <barrier>
#include <thread>
#include <vector>

#include "kernels/peak.h"

namespace vitrine {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Operations a second: the best of some runs of about 2 ms each, for all time lost is lost to others.
double best_rate(double (*loop)(std::int64_t)) {
  constexpr int kRuns = 24;
  constexpr double kSeconds = 0.002;
  std::int64_t iterations = 1000;
  double best = 0;
  for (int run = 0; run < kRuns;) {
    const auto start = Clock::now();
    const double operations = loop(iterations);
    const double seconds = seconds_since(start);
    if (seconds < kSeconds) {
      iterations *= 2;
      continue;
    }
    best = std::max(best, operations / seconds);
    ++run;
  }
  return best;
}

}  // namespace

PeakRates measure_peak_rates(const std::string& isa, int threads) {
  const PeakLoops loops = select_peak_loops(isa.c_str());
  std::vector<PeakRates> rates(static_cast<std::size_t>(std::max(threads, 1)));
  std::barrier together(std::ssize(rates));
  const auto measure = [&](PeakRates& rate) {
    together.arrive_and_wait();
    rate.float_gflops = best_rate(loops.float_ops) * 1e-9;
    together.arrive_and_wait();
    rate.int8_gops = best_rate(loops.int8_ops) * 1e-9;
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < rates.size(); ++i) others.emplace_back(measure, std::ref(rates[i]));
    measure(rates[0]);
  }
  PeakRates sum;
  for (const PeakRates& rate : rates) {
    sum.float_gflops += rate.float_gflops;
    sum.int8_gops += rate.int8_gops;
  }
  return sum;
}

}  // namespace vitrine
