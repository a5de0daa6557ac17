// SPDX-License-Identifier: Apache-2.0
// Attention of all layers of Qwen3-0.6B, for every kernel table this machine runs and every storage of the KV cache:
// one token at a depth, a prompt from its start, and storing keys and values. Times are of the whole model.
#include <benchmark/benchmark.h>

#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cache/model_cache.h"
#include "kernels/dispatch.h"
#include "ops/attention.h"

namespace vitrine {
namespace {

constexpr std::int64_t kLayers = 28;
constexpr AttentionShape kShape{.query_heads = 16, .kv_heads = 8, .head_dim = 128};
constexpr std::int64_t kQ = 16 * 128, kKv = 8 * 128;
constexpr std::int64_t kStep = 512;  // rows of a step

/// A sequence of `tokens` in a cache of its own.
class Sequence {
 public:
  Sequence(const std::string& isa, KvStorage storage, std::int64_t tokens, int threads)
      : kernels_(select_kernels(isa)),
        pool_(threads),
        workspace_(attention_workspace_bytes(kShape, 0, threads)),
        cache_(std::vector<LayerCacheSpec>(kLayers, {8, 128}), (tokens + kBlockTokens - 1) / kBlockTokens, storage),
        positions_(static_cast<std::size_t>(tokens)),
        table_(static_cast<std::size_t>(cache_.num_blocks())) {
    std::iota(positions_.begin(), positions_.end(), 0);
    std::iota(table_.begin(), table_.end(), 0);
    std::shuffle(table_.begin(), table_.end(), random_);
    std::normal_distribution<float> normal;
    for (std::vector<float>* values : {&q_, &k_, &v_}) {
      values->resize(static_cast<std::size_t>(kStep * (values == &q_ ? kQ : kKv)));
      for (float& value : *values) value = normal(random_);
    }
    out_.resize(q_.size());
    for (std::int64_t first = 0; first < tokens; first += kStep) store(first, std::min(kStep, tokens - first));
  }

  void store(std::int64_t first, std::int64_t rows) {
    step(first, rows, [&](const Batch& batch, std::int64_t layer) {
      store_kv(context_.kernels, batch, 0, {k_.data(), rows, kKv, kKv}, {v_.data(), rows, kKv, kKv}, 128, 0,
               cache_.layer(layer));
    });
  }
  void attend(std::int64_t first, std::int64_t rows) {
    step(first, rows, [&](const Batch& batch, std::int64_t layer) {
      attention(context_, kShape, batch, {q_.data(), rows, kQ, kQ}, cache_.layer(layer), {out_.data(), rows, kQ, kQ});
    });
    benchmark::ClobberMemory();
  }

 private:
  template <class Op>
  void step(std::int64_t first, std::int64_t rows, Op op) {
    const auto positions =
        std::span(positions_).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows));
    const SequenceSlice slice{0, rows, table_};
    const Batch batch{positions, positions, {&slice, 1}, {}};
    for (std::int64_t layer = 0; layer < kLayers; ++layer) op(batch, layer);
  }

  Kernels kernels_;
  ThreadPool pool_;
  Workspace workspace_;
  ModelCache cache_;
  std::vector<std::int32_t> positions_;
  std::vector<BlockId> table_;
  std::mt19937 random_{1};
  std::vector<float> q_, k_, v_, out_;
  Context context_{pool_, kernels_, workspace_};
};

void decode(benchmark::State& state, const std::string& isa, KvStorage storage) {
  const std::int64_t depth = state.range(0);
  Sequence sequence(isa, storage, depth, static_cast<int>(state.range(1)));
  for (auto _ : state) sequence.attend(depth - 1, 1);
  const double bytes = static_cast<double>(kLayers * 8 * KvFormat{storage, 128}.bytes() * depth / kBlockTokens);
  state.counters["GB/s"] = benchmark::Counter(bytes * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void prefill(benchmark::State& state, const std::string& isa, KvStorage storage) {
  const std::int64_t tokens = state.range(0);
  Sequence sequence(isa, storage, tokens, static_cast<int>(state.range(1)));
  for (auto _ : state) {
    for (std::int64_t first = 0; first < tokens; first += kStep) {
      sequence.attend(first, std::min(kStep, tokens - first));
    }
  }
  const double flops = 2.0 * static_cast<double>(tokens * tokens * 128 * 16 * kLayers);
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void store(benchmark::State& state, const std::string& isa, KvStorage storage) {
  Sequence sequence(isa, storage, kStep, static_cast<int>(state.range(1)));
  for (auto _ : state) sequence.store(kStep - state.range(0), state.range(0));
}

void add(const std::string& name, void (*run)(benchmark::State&, const std::string&, KvStorage), const std::string& isa,
         KvStorage storage, std::initializer_list<std::int64_t> sizes) {
  auto* bench = benchmark::RegisterBenchmark(name.c_str(), run, isa, storage);
  bench->ArgNames({"tokens", "threads"})->Unit(benchmark::kMillisecond)->UseRealTime();
  for (const std::int64_t size : sizes) {
    for (const std::int64_t threads : {1, 2}) bench->Args({size, threads});
  }
}

}  // namespace
}  // namespace vitrine

int main(int argc, char** argv) {
  using namespace vitrine;
  for (const IsaInfo& choice : kernel_choices()) {
    if (!choice.available || choice.name == "generic") continue;
    for (const KvStorage storage : {kKvF32, kKvBF16, kKvInt8}) {
      const std::string name = "/" + choice.name +
                               (storage == kKvF32    ? "/f32"
                                : storage == kKvBF16 ? "/bf16"
                                                     : "/int8");
      add("decode" + name, decode, choice.name, storage, {512, 2048});
      add("prefill" + name, prefill, choice.name, storage, {512, 4096});
      add("store" + name, store, choice.name, storage, {1, 512});
    }
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
