// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <vitrine/engine.h>

#include <set>
#include <string>

#include "support/test_files.h"

namespace vitrine::test {
namespace {

Request some_tokens(std::int64_t max_tokens) {
  Request request;
  request.prompt_ids = {271, 268, 267};
  request.sampling.greedy = true;
  request.ignore_eos = true;
  request.max_tokens = max_tokens;
  return request;
}

TEST(Profile, EveryPartOfEveryStepIsTimed) {
  Engine engine = Engine::load(demo_model().string());
  Profile profile;
  engine.set_profile(&profile);
  engine.generate(some_tokens(4));
  const std::int64_t layers = engine.info().num_layers;
  EXPECT_EQ(profile[StepPart::kEmbedding].calls, 4);
  EXPECT_EQ(profile[StepPart::kNorm].calls, 4 * (2 * layers + 1));
  for (const StepPart part : {StepPart::kAttention, StepPart::kGateUp, StepPart::kDownProj}) {
    EXPECT_EQ(profile[part].calls, 4 * layers) << to_string(part);
  }
  EXPECT_EQ(profile[StepPart::kOProj].calls, 4 * layers);
  EXPECT_EQ(profile[StepPart::kQkv].calls, 4 * (layers + 1));  // the angles are computed once for all layers
  EXPECT_EQ(profile[StepPart::kHead].calls, 4);
  EXPECT_EQ(profile[StepPart::kSampling].calls, 4);
  for (const Profile::Entry& entry : profile.parts) EXPECT_GE(entry.seconds, 0);
}

TEST(Profile, DrawnTokensAreTimedToo) {
  Engine engine = Engine::load(demo_model().string());
  Profile profile;
  engine.set_profile(&profile);
  Request request = some_tokens(3);
  request.sampling = {.seed = 1};
  engine.generate(std::move(request));
  EXPECT_EQ(profile[StepPart::kHead].calls, 3);
  EXPECT_EQ(profile[StepPart::kSampling].calls, 3);
}

TEST(Profile, ChangesNothingAndEndsWithNull) {
  Engine engine = Engine::load(demo_model().string());
  const std::vector<TokenId> plain = engine.generate(some_tokens(8)).output_ids;
  Profile profile;
  engine.set_profile(&profile);
  EXPECT_EQ(engine.generate(some_tokens(8)).output_ids, plain);
  engine.set_profile(nullptr);
  const std::int64_t calls = profile[StepPart::kHead].calls;
  EXPECT_EQ(engine.generate(some_tokens(8)).output_ids, plain);
  EXPECT_EQ(profile[StepPart::kHead].calls, calls);
}

TEST(Profile, PartsHaveNamesOfTheirOwn) {
  std::set<std::string> names;
  for (std::size_t i = 0; i < kNumStepParts; ++i) names.insert(to_string(static_cast<StepPart>(i)));
  EXPECT_EQ(names.size(), kNumStepParts);
}

TEST(PeakRates, OfEveryTableThisCpuRuns) {
  const Engine engine = Engine::load(demo_model().string());
  for (const IsaInfo& isa : engine.info().isas) {
    if (!isa.available) continue;
    const PeakRates rates = measure_peak_rates(isa.name, 2);
    EXPECT_GT(rates.float_gflops, 0) << isa.name;
    EXPECT_GT(rates.int8_gops, 0) << isa.name;
  }
  EXPECT_GT(measure_peak_rates("").float_gflops, 0);
  EXPECT_THROW(measure_peak_rates("abacus"), Error);
}

}  // namespace
}  // namespace vitrine::test
