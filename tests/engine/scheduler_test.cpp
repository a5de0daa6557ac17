// SPDX-License-Identifier: Apache-2.0
// The scheduler and the allocator without a model.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace vitrine {
namespace {

std::unique_ptr<Sequence> make_sequence(RequestId id, std::int64_t prompt, std::int64_t output) {
  Request request;
  request.prompt_ids.assign(static_cast<std::size_t>(prompt), 1);
  Sampler sampler(SamplingParams{.greedy = true}, 10, request.prompt_ids);
  auto sequence = std::make_unique<Sequence>(id, std::move(request), std::move(sampler));
  sequence->max_output = output;
  return sequence;
}

TEST(BlockAllocator, HandsOutEachBlockOnceAndNoMoreThanReserved) {
  BlockAllocator blocks(10);
  EXPECT_TRUE(blocks.reserve(4));
  EXPECT_TRUE(blocks.reserve(6));
  EXPECT_FALSE(blocks.reserve(1));
  std::vector<BlockId> a, b;
  for (int i = 0; i < 4; ++i) a.push_back(blocks.take());
  for (int i = 0; i < 6; ++i) b.push_back(blocks.take());
  std::set<BlockId> all(a.begin(), a.end());
  all.insert(b.begin(), b.end());
  EXPECT_EQ(all.size(), 10u);
  EXPECT_EQ(a[0], 0);
  EXPECT_THROW(blocks.take(), Error);
  blocks.release(4, a);
  EXPECT_TRUE(a.empty());
  EXPECT_EQ(blocks.num_free(), 4);
  EXPECT_TRUE(blocks.reserve(1));
  EXPECT_EQ(blocks.take(), 0) << "a used block goes before a new one";
}

TEST(BlockAllocator, BlocksNotTakenAreGivenBackToo) {
  BlockAllocator blocks(std::int64_t{1} << 26);  // costs nothing until used
  EXPECT_TRUE(blocks.reserve(1 << 26));
  std::vector<BlockId> table = {blocks.take()};
  EXPECT_EQ(blocks.num_taken(), 1);
  blocks.release(1 << 26, table);
  EXPECT_EQ(blocks.num_free(), 1 << 26);
  EXPECT_EQ(blocks.num_taken(), 0);
}

TEST(Scheduler, PropertiesHoldForRandomLoads) {
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round) {
    const std::int64_t num_blocks = 4 + static_cast<std::int64_t>(random() % 20);
    const std::int64_t step_tokens = 1 + static_cast<std::int64_t>(random() % 50);
    Scheduler scheduler(num_blocks, step_tokens);
    std::map<RequestId, std::int64_t> left;  // output still to come
    RequestId next = 1;
    RequestId expected_admission = 1;
    for (int step = 0; step < 300; ++step) {
      if (random() % 4 == 0) {
        const std::int64_t room = num_blocks * kBlockTokens;
        const std::int64_t prompt = 1 + static_cast<std::int64_t>(random() % (room / 2));
        const std::int64_t output = 1 + static_cast<std::int64_t>(random() % (room / 2));
        scheduler.add(make_sequence(next, prompt, output));
        left[next++] = output;
      }
      const StepPlan& plan = scheduler.plan();
      ASSERT_EQ(plan.empty(), scheduler.idle()) << "work waits but nothing runs";
      ASSERT_LE(std::ssize(plan.token_ids), step_tokens);
      ASSERT_EQ(plan.token_ids.size(), plan.positions.size());
      std::set<BlockId> owned;
      std::vector<Sequence*> finished;
      for (std::size_t i = 0; i < plan.slices.size(); ++i) {
        Sequence& sequence = *plan.sequences[i];
        if (sequence.num_computed == 0 && sequence.id >= expected_admission) {
          ASSERT_EQ(sequence.id, expected_admission++) << "overtaken";
        }
        const SequenceSlice& slice = plan.slices[i];
        ASSERT_EQ(plan.positions[static_cast<std::size_t>(slice.first_row)], sequence.num_computed);
        ASSERT_GE(std::ssize(slice.block_table) * kBlockTokens, sequence.num_computed + slice.num_rows);
        for (const BlockId block : slice.block_table) ASSERT_TRUE(owned.insert(block).second) << "shared block";
        sequence.num_computed += slice.num_rows;
      }
      for (Sequence* sequence : plan.sampled) {
        ASSERT_EQ(sequence->num_pending(), 0);
        sequence->tokens.push_back(2);
        if (--left[sequence->id] == 0) finished.push_back(sequence);
      }
      for (Sequence* sequence : finished) scheduler.remove(sequence);
    }
    while (!scheduler.idle()) {
      const StepPlan& plan = scheduler.plan();
      ASSERT_FALSE(plan.empty());
      for (std::size_t i = 0; i < plan.slices.size(); ++i) plan.sequences[i]->num_computed += plan.slices[i].num_rows;
      const std::vector<Sequence*> sampled = plan.sampled;
      for (Sequence* sequence : sampled) {
        sequence->tokens.push_back(2);
        if (--left[sequence->id] == 0) scheduler.remove(sequence);
      }
    }
    ASSERT_EQ(scheduler.num_free_blocks(), num_blocks) << "reservations leaked";
    ASSERT_EQ(scheduler.num_taken_blocks(), 0) << "blocks leaked";
  }
}

TEST(Scheduler, RunningSequencesGoBeforePrompts) {
  Scheduler scheduler(100, 8);
  scheduler.add(make_sequence(1, 2, 10));
  const StepPlan& plan = scheduler.plan();
  plan.sequences[0]->num_computed = 2;
  plan.sequences[0]->tokens.push_back(3);
  scheduler.add(make_sequence(2, 100, 10));
  const StepPlan& mixed = scheduler.plan();
  ASSERT_EQ(mixed.slices.size(), 2u);
  EXPECT_EQ(mixed.sequences[0]->id, 1);
  EXPECT_EQ(mixed.slices[0].num_rows, 1);
  EXPECT_EQ(mixed.slices[1].num_rows, 7);
  EXPECT_EQ(mixed.sampled.size(), 1u);
}

}  // namespace
}  // namespace vitrine
