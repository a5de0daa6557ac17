// SPDX-License-Identifier: Apache-2.0
// Every kernel of every table on every kind of thread. A tile register is state that the system gives to a process when
// asked and to a thread at its first use, and that a compiler may believe it need not set up (cases.md I01).
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/dispatch.h"
#include "support/model_runner.h"
#include "support/packed.h"

namespace vitrine::test {
namespace {

using Values = std::vector<float>;

/// The same mixture of values each time.
Values waves(std::int64_t count) {
  Values values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i) * 0.7f + 1);
  return values;
}

void add_products(const Kernels& kernels, const PackedKind& kind, Workspace& workspace, Values& out) {
  constexpr std::int64_t kK = 192, kColumns = 70;
  const TestMatrix weight({kind.type, kColumns, kK, kind.group}, waves(kColumns * kK));
  const Linear linear = weight.linear();
  for (const std::int64_t rows : {1, 4, 20}) {  // decoding, a few, a prompt: a table has a path for each
    const WorkspaceScope scope(workspace);
    const Values x = waves(rows * kK);
    const PackedRows operand = take_packed_rows(workspace, linear.operand(kernels), rows, kK);
    for (std::int64_t r = 0; r < rows; ++r) store_row(kernels, operand, r, x.data() + r * kK, 0, kK);
    std::byte* scratch = workspace.matrix<std::byte>(1, matmul_scratch_bytes(rows, kK)).data;
    Values y(static_cast<std::size_t>(rows * kColumns));
    linear.columns(kernels, operand, 0, kColumns, {y.data(), rows, kColumns, kColumns}, scratch, false);
    out.insert(out.end(), y.begin(), y.end());
  }
}

void add_attention(const Kernels& kernels, KvStorage storage, Workspace& workspace, Values& out) {
  constexpr std::int64_t kTokens = 40, kHeads = 2, kDim = 64, kBlocks = (kTokens + kKvTokens - 1) / kKvTokens;
  const WorkspaceScope scope(workspace);
  const std::int64_t block_bytes = (KvFormat{storage, kDim}.bytes() + 63) / 64 * 64;
  auto* cache = reinterpret_cast<unsigned char*>(workspace.matrix<std::byte>(kBlocks, block_bytes).data);
  const Values q = waves(kTokens * kHeads * kDim), k = waves(kTokens * kDim), v = waves(kTokens * kDim);
  std::vector<std::int32_t> blocks(kBlocks);
  std::iota(blocks.begin(), blocks.end(), 0);
  for (std::int64_t first = 0; first < kTokens; first += kKvTokens) {
    kernels.store_kv[storage]({.k = k.data() + first * kDim,
                               .v = v.data() + first * kDim,
                               .k_stride = kDim,
                               .v_stride = kDim,
                               .tokens = std::min(kKvTokens, kTokens - first),
                               .head_dim = kDim,
                               .block = cache + first / kKvTokens * block_bytes,
                               .slot = 0});
  }
  for (const std::int64_t count : {std::int64_t{1}, kTokens}) {  // of the last tokens
    Values result(static_cast<std::size_t>(count * kHeads * kDim));
    AttentionTask task{};
    task.q = q.data() + (kTokens - count) * kHeads * kDim;
    task.out = result.data();
    task.q_stride = task.out_stride = kHeads * kDim;
    task.tokens = count;
    task.heads = kHeads;
    task.head_dim = kDim;
    task.position = kTokens - count;
    task.scale = 0.125f;
    task.cache = cache;
    task.block_bytes = block_bytes;
    task.blocks = blocks.data();
    task.scratch = reinterpret_cast<unsigned char*>(workspace.matrix<std::byte>(1, attention_scratch_bytes(kDim)).data);
    kernels.attention[storage](task);
    out.insert(out.end(), result.begin(), result.end());
  }
}

/// What all kernels with an instruction set to themselves make of the same input.
Values results_of(const Kernels& kernels) {
  Workspace workspace(1 << 22);
  Values out;
  for (const PackedKind& kind : kPackedKinds) add_products(kernels, kind, workspace, out);
  for (const KvStorage storage : {kKvF32, kKvBF16, kKvInt8}) add_attention(kernels, storage, workspace, out);
  return out;
}

bool same_bits(const Values& a, const Values& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class KernelThreads : public testing::TestWithParam<std::string> {};

TEST_P(KernelThreads, AFreshProcessBeginsOnAThreadThatNeverRan) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the program is started anew
  EXPECT_EXIT(
      {
        Values there;
        std::thread([&] { there = results_of(select_kernels(GetParam())); }).join();
        std::exit(same_bits(there, results_of(select_kernels(GetParam()))) ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST_P(KernelThreads, AForkedProcessMayGoOn) {
  GTEST_FLAG_SET(death_test_style, "fast");  // the process is forked
  const Kernels table = select_kernels(GetParam());
  const Values expected = results_of(table);
  EXPECT_EXIT(std::exit(same_bits(results_of(table), expected) ? 0 : 1), testing::ExitedWithCode(0), "");
}

TEST_P(KernelThreads, EveryWorkerOfAPoolComputesTheSame) {
  constexpr int kThreads = 4;
  const Kernels table = select_kernels(GetParam());
  ThreadPool pool(kThreads);
  std::vector<Values> results(kThreads);
  std::barrier all_are_here(kThreads);
  for (int round = 0; round < 2; ++round) {
    // One chunk each: nobody goes on before everyone has one.
    pool.parallel_for(kThreads, 1, [&](std::int64_t, std::int64_t, int thread) {
      all_are_here.arrive_and_wait();
      results[static_cast<std::size_t>(thread)] = results_of(table);
    });
    const Values expected = results_of(table);
    for (int thread = 0; thread < kThreads; ++thread) {
      EXPECT_TRUE(same_bits(results[static_cast<std::size_t>(thread)], expected)) << "thread " << thread;
      results[static_cast<std::size_t>(thread)].clear();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, KernelThreads, testing::ValuesIn(runnable_isas()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace vitrine::test
