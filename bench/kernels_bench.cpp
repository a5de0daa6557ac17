// SPDX-License-Identifier: Apache-2.0
// Matrix products of every packed type and every kernel table this machine runs, on one thread, with the shapes of
// Qwen3-0.6B. --benchmark_filter=int8/avx512 chooses.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/dispatch.h"
#include "support/packed.h"

namespace vitrine {
namespace {

using benchmark::Counter;

/// y = x W^T with W [n, k]: Gop/s for many rows, GB/s of weights for few. Few rows see a matrix larger than the caches.
void matmul(benchmark::State& state, const std::string& isa, test::PackedKind kind, std::int64_t copies) {
  const Kernels kernels = select_kernels(isa);
  const std::int64_t m = state.range(0), n = state.range(1) * copies, k = state.range(2);
  const std::vector<float> rows(static_cast<std::size_t>(kPanelRows * k), 0.25f);
  const PackedFormat format{kind.type, n, k, kind.group};
  LazyMemory memory(format.bytes(), "weights");
  for (std::int64_t panel = 0; panel < format.panels(); ++panel) {
    pack_panel(format, rows.data(), kPanelRows,
               reinterpret_cast<unsigned char*>(memory.data() + panel * format.panel_bytes()));
  }
  const Linear linear({format, memory.data()});
  Workspace workspace(1 << 28);
  const PackedRows x = take_packed_rows(workspace, linear.operand(kernels), m, k);
  const std::vector<float> row(static_cast<std::size_t>(k), 0.5f);
  for (std::int64_t r = 0; r < m; ++r) store_row(kernels, x, r, row.data(), 0, k);
  const auto y = workspace.matrix<float>(m, n);
  std::byte* scratch = workspace.matrix<std::byte>(1, matmul_scratch_bytes(m, k)).data;
  for (auto _ : state) {
    linear.columns(kernels, x, 0, n, y, scratch);
    benchmark::ClobberMemory();
  }
  state.counters["Gop/s"] = Counter(2e-9 * static_cast<double>(m * n * k), Counter::kIsIterationInvariantRate);
  state.counters["GB/s"] = Counter(1e-9 * static_cast<double>(format.bytes()), Counter::kIsIterationInvariantRate);
}

std::string name_of(const test::PackedKind& kind) {
  static const char* const names[] = {"f32", "bf16", "int8", "int8-g", "int4", "int4-g"};
  return names[kind.type] + (kind.type == kPackedInt4 || kind.group == 0 ? "" : std::to_string(kind.group));
}

}  // namespace
}  // namespace vitrine

int main(int argc, char** argv) {
  using namespace vitrine;
  for (const IsaInfo& isa : kernel_choices()) {
    if (!isa.available || isa.name == "generic") continue;
    for (const test::PackedKind& kind : test::kPackedKinds) {
      const std::string name = name_of(kind) + "/" + isa.name;
      benchmark::RegisterBenchmark((name + "/prefill").c_str(), matmul, isa.name, kind, 1)
          ->Args({512, 3072, 1024})
          ->Args({512, 1024, 3072})
          ->Args({64, 3072, 1024});
      benchmark::RegisterBenchmark((name + "/decode").c_str(), matmul, isa.name, kind, 64)
          ->Args({1, 3072, 1024})
          ->Args({4, 3072, 1024})
          ->Args({8, 3072, 1024})
          ->Args({16, 3072, 1024});
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
