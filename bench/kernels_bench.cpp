// SPDX-License-Identifier: Apache-2.0
// Matrix products of every kernel table this machine runs, on one thread, with the shapes of Qwen3-0.6B.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/dispatch.h"

namespace vitrine {
namespace {

/// y = x W^T with W [n, k] in bf16: GFLOP/s for many rows, GB/s of weights for one.
void matmul_bf16(benchmark::State& state, const std::string& isa) {
  const Kernels kernels = select_kernels(isa);
  const std::int64_t m = state.range(0), n = state.range(1), k = state.range(2);
  const std::vector<std::uint16_t> weight(static_cast<std::size_t>(n * k), 0x3C00);
  const std::vector<float> x(static_cast<std::size_t>(m * k), 0.5f);
  std::vector<float> y(static_cast<std::size_t>(m * n));
  for (auto _ : state) {
    kernels.matmul[kStoreBF16]({weight.data(), x.data(), y.data(), m, n, k, k, n, false});
    benchmark::ClobberMemory();
  }
  using benchmark::Counter;
  state.counters["GFLOP/s"] = Counter(2e-9 * static_cast<double>(m * n * k), Counter::kIsIterationInvariantRate);
  state.counters["GB/s"] = Counter(2e-9 * static_cast<double>(n * k), Counter::kIsIterationInvariantRate);
}

}  // namespace
}  // namespace vitrine

int main(int argc, char** argv) {
  for (const vitrine::IsaInfo& choice : vitrine::kernel_choices()) {
    if (!choice.available) continue;
    const std::string isa = choice.name;
    auto* bench = benchmark::RegisterBenchmark(("matmul_bf16/" + isa).c_str(), vitrine::matmul_bf16, isa);
    bench->ArgNames({"m", "n", "k"});
    for (const std::int64_t m : {1, 2, 4, 8, 64, 256}) {
      bench->Args({m, 24, 1024});
      if (m <= 2 || isa != "generic") bench->Args({m, 3072, 1024});
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
