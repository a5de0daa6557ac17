// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <vitrine/engine.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <thread>

#include "checkpoint/checkpoint.h"
#include "engine/loaded_model.h"
#include "support/errors.h"
#include "support/stored_tensors.h"
#include "support/test_files.h"

namespace vitrine::test {
namespace {

namespace fs = std::filesystem;

Engine load_demo(EngineOptions options = {}) { return Engine::load(demo_model().string(), std::move(options)); }

Request greedy(const Engine& engine, std::string_view prompt, std::int64_t max_tokens = 16) {
  Request request;
  request.prompt_ids = engine.encode(prompt);
  request.sampling.greedy = true;
  request.max_tokens = max_tokens;
  return request;
}

/// A request whose every token is `id`: how a test scripts the model.
Request always(std::vector<TokenId> prompt, TokenId id, std::int64_t max_tokens = 16) {
  Request request;
  request.prompt_ids = std::move(prompt);
  request.sampling.greedy = true;
  request.sampling.logit_bias = {{id, 1e4f}};
  request.max_tokens = max_tokens;
  return request;
}

/// Replaces one element of a bf16 tensor in a file.
void poison(const fs::path& path, const std::string& tensor, std::size_t element, float value) {
  std::size_t offset = 0;
  {
    const MappedFile file(path);
    for (const StoredTensor& stored : parse_safetensors(file.bytes(), "model")) {
      if (stored.name == tensor) offset = stored.begin + 2 * element;
    }
  }
  ASSERT_NE(offset, 0u);
  std::string bytes = read_file(path);
  const auto bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  std::memcpy(bytes.data() + offset, &bits, 2);
  write_file(path, bytes);
}

void copy_files(const fs::path& from, const fs::path& to) {
  for (const auto& entry : fs::directory_iterator(from)) fs::copy_file(entry.path(), to / entry.path().filename());
}

TEST(Engine, DemoModelReproducesTransformers) {
  const auto cases = read_json(data_path("demo-model/expected.json"));
  Engine engine = load_demo({.threads = 2, .precision = Precision::kExact});
  for (const auto& expected : cases) {
    Request request = greedy(engine, expected["prompt"].get<std::string>(), 48);
    request.top = 5;
    const Generation result = engine.generate(request);
    EXPECT_EQ(result.prompt_ids, expected["ids"].get<std::vector<TokenId>>());
    EXPECT_EQ(result.output_ids, expected["greedy_ids"].get<std::vector<TokenId>>());
    EXPECT_EQ(result.text, expected["greedy_text"].get<std::string>());
    ASSERT_EQ(result.top.size(), 5u);
    for (std::size_t i = 0; i < 5; ++i) {
      const auto& wanted = expected["top"][i];
      EXPECT_EQ(result.top[i].id, wanted["id"].get<TokenId>());
      EXPECT_NEAR(result.top[i].probability, wanted["probability"].get<double>(), 5e-5);
      EXPECT_NEAR(result.top[i].logit, wanted["logit"].get<double>(), 5e-4);
    }
  }
}

TEST(Engine, DefaultPrecisionFollowsTheReferenceUpToNearTies) {  // cases.md C11
  const StoredTensors expected(data_path("demo-model/expected.safetensors"));
  const auto cases = read_json(data_path("demo-model/expected.json"));
  Engine engine = load_demo();
  int same = 0;
  for (const auto& one : cases) {
    Request request = greedy(engine, one["prompt"].get<std::string>(), 1);
    request.top = 2;
    const Generation result = engine.generate(request);
    const double gap = one["top"][0]["logit"].get<double>() - one["top"][1]["logit"].get<double>();
    if (gap > 0.25) {
      EXPECT_EQ(result.output_ids[0], one["greedy_ids"][0].get<TokenId>());
    }
    same += result.output_ids[0] == one["greedy_ids"][0].get<TokenId>();
  }
  EXPECT_GE(same, static_cast<int>(cases.size()) - 2);
}

TEST(Engine, StopsAtEveryEosOfTheUnion) {  // cases.md B08
  Engine engine = load_demo();
  const auto prompt = engine.encode("Once upon a time");
  for (const TokenId eos : {3750, 3748}) {
    const Generation result = engine.generate(always(prompt, eos));
    EXPECT_EQ(result.output_ids, std::vector<TokenId>{eos});
    EXPECT_EQ(result.finish_reason, FinishReason::kStop);
    EXPECT_EQ(result.text, "");
    Request stubborn = always(prompt, eos, 3);
    stubborn.ignore_eos = true;
    EXPECT_EQ(engine.generate(stubborn).output_ids.size(), 3u);
  }
}

TEST(Engine, EosAtTheLimitIsAStop) {  // cases.md F11
  Engine engine = load_demo();
  const Generation result = engine.generate(always(engine.encode("Once"), 3750, 1));
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
}

TEST(Engine, EndsAtTheContextWithoutShifting) {  // cases.md C12, D12, F08
  Engine engine = load_demo({.context = 1024});
  Request request = always(std::vector<TokenId>(900, 271), 268, 512);
  const Generation result = engine.generate(request);
  EXPECT_EQ(result.output_ids.size(), 124u);
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  request.max_tokens = -1;
  EXPECT_EQ(engine.generate(request).output_ids.size(), 124u);
}

TEST(Engine, RefusesWhatMakesNoSense) {
  Engine engine = load_demo({.context = 64});
  const auto submit = [&](Request request) {
    return [&engine, request] {
      Engine& e = engine;
      e.submit(request);
    };
  };
  EXPECT_NE(message_of(submit({}), ErrorCode::kInvalidArgument).find("empty"), std::string::npos);
  EXPECT_NE(message_of(submit(always(std::vector<TokenId>(64, 1), 5)), ErrorCode::kTooLarge).find("64"),
            std::string::npos);
  EXPECT_NE(message_of(submit(always({1, 3840}, 5)), ErrorCode::kInvalidArgument).find("3840"), std::string::npos);
  EXPECT_NE(message_of(submit(always({-1}, 5)), ErrorCode::kInvalidArgument).find("-1"), std::string::npos);
  EXPECT_NE(message_of(submit(always({1}, 5, 0)), ErrorCode::kInvalidArgument).find("max_tokens"), std::string::npos);
  Request hot = always({1}, 5);
  hot.sampling.temperature = -1;
  EXPECT_NE(message_of(submit(hot), ErrorCode::kInvalidArgument).find("temperature"), std::string::npos);
  Request empty_stop = always({1}, 5);
  empty_stop.stop = {""};
  message_of(submit(empty_stop), ErrorCode::kInvalidArgument);
  EXPECT_FALSE(engine.step()) << "a refused request must not be queued";
  message_of([] { load_demo({.context = 1025}); }, ErrorCode::kInvalidArgument);
}

TEST(Engine, PaddingRowsAreAcceptedInAPromptAndNeverChosen) {  // cases.md A15
  Engine engine = load_demo();                                 // 3,757 tokens in 3,840 rows
  Request request = always({271, 3839}, 3800, 4);
  request.ignore_eos = true;
  for (const bool is_greedy : {true, false}) {
    request.sampling.greedy = is_greedy;
    for (const TokenId id : engine.generate(request).output_ids) EXPECT_LT(id, 3757);
  }
  EXPECT_EQ(engine.tokenizer()->decode(std::vector<TokenId>{271, 3800, 268}),
            engine.tokenizer()->decode(std::vector<TokenId>{271, 268}));
}

TEST(Engine, SameSeedSameTextOnAnyThreads) {  // cases.md D09, D11
  std::vector<TokenId> first;
  std::uint64_t drawn_seed = 0;
  for (const int threads : {1, 2, 3}) {
    Engine engine = load_demo({.threads = threads});
    Request request = greedy(engine, "Once upon a time", 40);
    request.sampling = {.temperature = 1.5f, .seed = 42};
    for (int again = 0; again < 2; ++again) {
      const Generation result = engine.generate(request);
      if (first.empty()) first = result.output_ids;
      EXPECT_EQ(result.output_ids, first);
      EXPECT_EQ(result.seed, 42u);
    }
    request.sampling.seed = 7;
    EXPECT_NE(engine.generate(request).output_ids, first);
    request.sampling.seed.reset();
    const Generation unseeded = engine.generate(request);
    drawn_seed = unseeded.seed;
    request.sampling.seed = drawn_seed;
    EXPECT_EQ(engine.generate(request).output_ids, unseeded.output_ids);
  }
}

TEST(Engine, CompanyChangesNobodysBits) {
  Engine engine = load_demo({.threads = 2, .cache_tokens = 4096, .step_tokens = 7});
  const std::string prompts[] = {"The capital of France is", "Once upon a time", "La capitale de la France est",
                                 "<|im_start|>user\nWhat is attention?<|im_end|>\n<|im_start|>assistant\n"};
  std::vector<Generation> alone;
  const auto make = [&](std::size_t i) {
    Request request = greedy(engine, prompts[i % 4], 12 + static_cast<std::int64_t>(i));
    if (i >= 4) request.sampling = {.temperature = 0.9f, .top_k = 20, .seed = i};
    if (i % 2 == 0) request.top = 8;  // so that both ways through the head meet in one step
    return request;
  };
  for (std::size_t i = 0; i < 8; ++i) alone.push_back(engine.generate(make(i)));
  std::vector<Generation> together(8);
  for (std::size_t i = 0; i < 8; ++i) {
    Request request = make(i);
    request.on_event = [&together, i](const Event& event) {
      if (event.finished != nullptr) together[i] = *event.finished;
    };
    engine.submit(std::move(request));
    if (i % 3 == 0) engine.step();
  }
  while (engine.step()) {
  }
  for (std::size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(together[i].output_ids, alone[i].output_ids) << i;
    EXPECT_EQ(together[i].text, alone[i].text) << i;
    ASSERT_EQ(together[i].top.size(), alone[i].top.size());
    for (std::size_t t = 0; t < alone[i].top.size(); ++t) {
      EXPECT_EQ(together[i].top[t].id, alone[i].top[t].id);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(together[i].top[t].logit),
                std::bit_cast<std::uint32_t>(alone[i].top[t].logit));
    }
  }
}

TEST(Engine, GreedyBesideSampledIsArgMax) {  // cases.md D02
  Engine engine = load_demo();
  const Request first = greedy(engine, "The capital of France is");
  Request second = greedy(engine, "Once upon a time");
  second.sampling = {.temperature = 0.8f, .seed = 11};
  const Generation alone[] = {engine.generate(first), engine.generate(second)};
  std::vector<std::shared_ptr<const Generation>> results(2);
  for (std::size_t i = 0; i < 2; ++i) {
    Request request = i == 0 ? first : second;
    request.on_event = [&results, i](const Event& event) { results[i] = event.finished; };
    engine.submit(std::move(request));
  }
  while (engine.step()) {
  }
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(results[i]->output_ids, alone[i].output_ids);
  Request cold = first;
  cold.sampling = {.temperature = 0};
  EXPECT_EQ(engine.generate(cold).output_ids, alone[0].output_ids);
}

TEST(Engine, TheSameSeedTwiceAtOnceIsTheSameTextTwice) {  // cases.md D16
  Engine engine = load_demo();
  Request request = greedy(engine, "Once upon a time", 30);
  request.sampling = {.temperature = 1, .seed = 5};
  const Generation alone = engine.generate(request);
  for (const unsigned strangers : {0u, 6u}) {
    std::vector<std::shared_ptr<const Generation>> twins(2);
    for (unsigned i = 0; i < 2 + strangers; ++i) {
      Request one = request;
      if (i >= 2) one.sampling.seed = 100 + i;
      one.on_event = [&twins, i](const Event& event) {
        if (i < 2) twins[i] = event.finished;
      };
      engine.submit(std::move(one));
    }
    while (engine.step()) {
    }
    for (const auto& twin : twins) EXPECT_EQ(twin->output_ids, alone.output_ids);
  }
}

TEST(Engine, GuessesSaveStepsWhereTheTextRepeatsItself) {
  LoadedModel model = load_model(demo_model().string(), {});
  model.draft_cost = 0.1;  // measured, it would depend on the machine and what else it does
  Engine engine = make_engine(std::move(model), {});
  Request request = greedy(engine, "The capital of France is", 300);
  request.ignore_eos = true;
  const Generation guessed = engine.generate(request);
  request.speculation = false;
  const Generation plain = engine.generate(request);
  EXPECT_EQ(guessed.output_ids, plain.output_ids);
  EXPECT_EQ(guessed.text, plain.text);
  EXPECT_EQ(plain.speculation.steps, 300);
  EXPECT_EQ(guessed.speculation.steps + guessed.speculation.accepted, 300);
  EXPECT_GE(300.0 / static_cast<double>(guessed.speculation.steps), 1.8);
}

TEST(Engine, EventsCarryTheTextOnce) {
  Engine engine = load_demo();
  Request request = greedy(engine, "Once upon a time", 40);
  std::string text;
  std::vector<TokenId> tokens;
  int finished = 0;
  request.on_event = [&](const Event& event) {
    text += event.text;
    if (event.token) tokens.push_back(*event.token);
    finished += event.finished != nullptr;
  };
  const Generation result = engine.generate(request);
  EXPECT_EQ(text, result.text);
  EXPECT_EQ(tokens, result.output_ids);
  EXPECT_EQ(finished, 1);
}

TEST(Engine, StopStringsEndTheTextBeforeThem) {
  Engine engine = load_demo();
  Request request = greedy(engine, "Once upon a time", 48);
  const std::string whole = engine.generate(request).text;
  const std::size_t at = whole.find("curious");
  ASSERT_NE(at, std::string::npos);
  request.stop = {"riou", "never there"};
  const Generation result = engine.generate(request);
  EXPECT_EQ(result.text, whole.substr(0, whole.find("riou")));
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
}

TEST(Engine, CancelEndsWithTheTextSoFar) {
  Engine engine = load_demo();
  Request request = greedy(engine, "Once upon a time", -1);
  request.ignore_eos = true;
  std::optional<Generation> result;
  RequestId id = 0;
  int count = 0;
  request.on_event = [&](const Event& event) {
    if (++count == 5) engine.cancel(id);
    if (event.finished != nullptr) result = *event.finished;
  };
  id = engine.submit(std::move(request));
  engine.cancel(12345);  // nobody's
  while (engine.step()) {
  }
  ASSERT_TRUE(result);
  EXPECT_EQ(result->finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(result->output_ids.size(), 5u);
  EXPECT_FALSE(result->text.empty());

  Request waiting = greedy(engine, "Once", 5);  // before its first step
  waiting.on_event = [&](const Event& event) { result = *event.finished; };
  engine.cancel(engine.submit(std::move(waiting)));
  EXPECT_FALSE(engine.step());
  EXPECT_EQ(result->finish_reason, FinishReason::kCancelled);
  EXPECT_TRUE(result->output_ids.empty());
}

TEST(Engine, CancelReachesEveryoneThoughAListenerThrows) {
  Engine engine = load_demo();
  int ended = 0;
  for (int i = 0; i < 3; ++i) {
    Request request = greedy(engine, "Once", -1);
    request.ignore_eos = true;
    request.on_event = [&](const Event& event) {
      EXPECT_EQ(event.finished->finish_reason, FinishReason::kCancelled);
      if (++ended == 1) throw std::runtime_error("enough");
    };
    engine.cancel(engine.submit(std::move(request)));
  }
  EXPECT_FALSE(engine.step());
  EXPECT_EQ(ended, 3);
}

TEST(Engine, CancelFromAnotherThread) {
  Engine engine = load_demo();
  Request request = always(engine.encode("Once"), 268, -1);
  std::atomic<bool> done{false};
  FinishReason reason = FinishReason::kError;
  request.on_event = [&](const Event& event) {
    if (event.finished != nullptr) reason = event.finished->finish_reason;
  };
  const RequestId id = engine.submit(std::move(request));
  std::thread other([&] {
    engine.cancel(id);
    done = true;
  });
  while (engine.step()) {
  }
  other.join();
  EXPECT_TRUE(reason == FinishReason::kCancelled || reason == FinishReason::kLength);
}

TEST(Engine, AListenerThatThrowsEndsItsRequest) {
  Engine engine = load_demo();
  Request request = greedy(engine, "Once upon a time", 10);
  request.on_event = [](const Event&) { throw std::runtime_error("enough"); };
  EXPECT_THROW(engine.generate(request), std::runtime_error);
  EXPECT_FALSE(engine.step()) << "the request is still there";
  EXPECT_EQ(engine.generate(greedy(engine, "Once upon a time", 2)).output_ids.size(), 2u);
}

TEST(Engine, AListenerThatThrowsHarmsNobodyElse) {
  Engine engine = load_demo({.cache_tokens = 4096});
  const Generation alone = engine.generate(greedy(engine, "Once upon a time", 20));
  Request thrower = greedy(engine, "The capital of France is", 10);
  std::shared_ptr<const Generation> thrown;
  int calls = 0;
  thrower.on_event = [&](const Event& event) {
    if (event.finished) thrown = event.finished;
    if (++calls == 2) throw std::runtime_error("enough");
  };
  Request patient = greedy(engine, "Once upon a time", 20);
  std::shared_ptr<const Generation> result;
  patient.on_event = [&](const Event& event) { result = event.finished; };
  engine.submit(thrower);
  engine.submit(patient);
  while (engine.step()) {
  }
  ASSERT_TRUE(thrown && result);
  EXPECT_EQ(calls, 3) << "the two tokens, and the end";
  EXPECT_EQ(thrown->finish_reason, FinishReason::kError);
  EXPECT_EQ(thrown->error, "on_event threw: enough");
  EXPECT_EQ(result->output_ids, alone.output_ids);
  EXPECT_EQ(engine.stats().kv_blocks_live, 0);
}

TEST(Engine, AListenerMaySubmitButNotStep) {
  Engine engine = load_demo();
  Request request = greedy(engine, "Once upon a time", 3);
  std::vector<std::string> refused;
  request.on_event = [&](const Event& event) {
    if (event.finished) {
      engine.submit(greedy(engine, "Once", 1));
      return;
    }
    refused.push_back(message_of([&] { engine.step(); }, ErrorCode::kInvalidArgument));
    refused.push_back(message_of([&] { engine.stop(); }, ErrorCode::kInvalidArgument));
    refused.push_back(message_of([&] { engine.generate("Once", 1); }, ErrorCode::kInvalidArgument));
  };
  engine.submit(request);
  while (engine.step()) {
  }
  ASSERT_EQ(refused.size(), 6u);
  for (const std::string& message : refused) EXPECT_NE(message.find("on_event"), std::string::npos) << message;
  EXPECT_EQ(engine.stats().output_tokens, 4) << "what the listener submitted has run";
}

TEST(Engine, HugePositionsCostNothingUntilUsed) {
  const TempFolder folder;
  copy_files(demo_model(), folder.path());
  std::string config = read_file(folder.path() / "config.json");
  const std::string old = "\"max_position_embeddings\": 1024";
  config.replace(config.find(old), old.size(), "\"max_position_embeddings\": 134217728");
  write_file(folder.path() / "config.json", config);
  const std::int64_t before = peak_memory();
  Engine engine = Engine::load(folder.path().string());
  EXPECT_EQ(engine.generate(greedy(engine, "The capital of France is", -1)).text, " Paris.");
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // theirs would count too
  EXPECT_LT(peak_memory() - before, 24 << 20);
#else
  EXPECT_GT(before, 0);
#endif
}

TEST(Engine, APoisonedPaddingRowHarmsNobody) {
  const TempFolder folder;
  copy_files(demo_model(), folder.path());
  poison(folder.path() / "model.safetensors", "model.embed_tokens.weight", 3800 * 192, NAN);
  Engine engine = Engine::load(folder.path().string());
  for (const int top : {0, 5}) {
    Request request = greedy(engine, "The capital of France is", 3);
    request.top = top;
    const Generation result = engine.generate(request);
    EXPECT_EQ(result.text, " Paris.") << result.error;
    for (const TokenScore& score : result.top) EXPECT_TRUE(std::isfinite(score.probability));
  }
}

TEST(Engine, OneUnfinishedCharacterBecomesReplacement) {  // cases.md A18
  Engine engine = load_demo();
  const auto ids = engine.encode("ö");  // the demo vocabulary has no such letter: two byte tokens
  ASSERT_EQ(ids.size(), 2u);
  const Generation result = engine.generate(always({271}, ids[0], 1));
  EXPECT_EQ(result.text, "\xEF\xBF\xBD");
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
}

TEST(Engine, NonFiniteLogitsNameTheLayerWhereTheyBegan) {  // server.md 58
  const std::pair<const char*, const char*> cases[] = {
      {"model.layers.1.self_attn.q_proj.weight", "layer 1, attention"},
      {"model.layers.2.mlp.down_proj.weight", "layer 2, feed-forward"},
      {"model.norm.weight", "the final norm"},
  };
  for (const auto& [tensor, place] : cases) {
    const TempFolder folder;
    for (const char* name : {"config.json", "generation_config.json", "model.safetensors"}) {
      fs::copy_file(data_path("models/qwen3-tiny") / name, folder.path() / name);
    }
    poison(folder.path() / "model.safetensors", tensor, 0, NAN);
    Engine engine = Engine::load(folder.path().string());
    for (const bool is_greedy : {true, false}) {
      Request request;
      request.prompt_ids = {1, 2, 3};
      request.sampling.greedy = is_greedy;
      request.max_tokens = 4;
      const Generation result = engine.generate(request);
      EXPECT_EQ(result.finish_reason, FinishReason::kError);
      EXPECT_NE(result.error.find(place), std::string::npos) << result.error;
      EXPECT_TRUE(result.output_ids.empty());
    }
  }
}

TEST(Engine, FolderWithoutTokenizerTakesIds) {
  Engine engine = Engine::load(data_path("models/qwen3-tiny").string());
  EXPECT_EQ(engine.tokenizer(), nullptr);
  EXPECT_NE(message_of([&] { (void)engine.encode("x"); }, ErrorCode::kNotFound).find("tokenizer.json"),
            std::string::npos);
  const Generation result = engine.generate(always({1, 2, 3}, 7, 2));
  EXPECT_EQ(result.output_ids, (std::vector<TokenId>{7, 7}));
  EXPECT_EQ(result.text, "");
}

TEST(Engine, ReadOutOfTheLastResidualIsTheTop) {
  class Last final : public Probe {
   public:
    std::vector<float> row;
    bool wants(ProbePoint point, int layer) const noexcept override {
      return point == ProbePoint::kResidual && layer == 7;
    }
    void record(ProbePoint, int, ProbeMatrix values) override {
      row.assign(values.row(values.rows - 1), values.row(values.rows - 1) + values.cols);
    }
  } probe;
  Engine engine = load_demo();
  Request request = greedy(engine, "The capital of France is", 1);
  request.top = 3;
  request.probe = &probe;
  const Generation result = engine.generate(request);
  const auto top = engine.read_out(probe.row, 3);
  ASSERT_EQ(top.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(top[i].id, result.top[i].id);
    EXPECT_EQ(top[i].logit, result.top[i].logit);
  }
  message_of([&] { engine.read_out(std::vector<float>(3), 1); }, ErrorCode::kInvalidArgument);
}

TEST(Engine, IdleItUsesNoCpu) {  // cases.md G01
  Engine engine = load_demo({.threads = 4});
  engine.generate(greedy(engine, "Once upon a time"));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));  // longer than its threads spin
  const std::clock_t before = std::clock();                    // of this process, whatever else runs
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.03);
}

TEST(Engine, InfoAddsUp) {
  const Engine engine = load_demo();
  const EngineInfo& info = engine.info();
  EXPECT_EQ(info.parameters, 4575424);
  EXPECT_GE(info.weight_bytes, 2 * 4575424);  // as packed: padding, and norms in float32
  EXPECT_LE(info.weight_bytes, 2 * 4575424 + 4575424 / 4);
  std::int64_t bytes = 0;
  for (const ModelPart& part : info.parts) bytes += part.bytes;
  EXPECT_EQ(bytes, info.weight_bytes);
  EXPECT_EQ(info.kv_bytes_per_token, 2 * 8 * 2 * 64 * 2);
  EXPECT_EQ(info.eos_ids, (std::vector<TokenId>{3750, 3748}));
}

}  // namespace
}  // namespace vitrine::test
