// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weight_scope.h"

#include <gtest/gtest.h>
#include <vitrine/error.h>

#include "support/bad_files.h"
#include "support/errors.h"
#include "support/test_files.h"

namespace vitrine {
namespace {

void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) EXPECT_NE(message.find(part), std::string::npos) << part << "\n" << message;
}

class WeightScopeTest : public testing::Test {
 protected:
  std::shared_ptr<const Checkpoint> checkpoint_ = Checkpoint::open(test::data_path("models/qwen3-tiny"));
  WeightScope root_{*checkpoint_};
};

TEST_F(WeightScopeTest, WalksByName) {
  const WeightScope layer = root_.sub("model").sub("layers", 2);
  const Tensor weight = layer.sub("self_attn").get("q_proj.weight", {128, 64});
  EXPECT_EQ(weight.name, "model.layers.2.self_attn.q_proj.weight");
  EXPECT_EQ(weight.dtype, DType::kBF16);
  EXPECT_EQ(weight.num_bytes(), 128 * 64 * 2);
  EXPECT_TRUE(layer.has("mlp.up_proj.weight"));
  EXPECT_FALSE(layer.has("mlp.up_proj.bias"));
  EXPECT_FALSE(root_.has("lm_head.weight"));
}

TEST_F(WeightScopeTest, MissingTensorsAreExplained) {
  const auto get = [&](const std::string& prefix, const std::string& name, const char* why) {
    return test::message_of([&] { root_.sub(prefix).get(name, {64}, why); }, ErrorCode::kBadFile);
  };
  expect_parts(get("model.layers.3", "input_layernorm.weight", "num_hidden_layers, hidden_size"),
               {"qwen3-tiny", "model.layers.3.input_layernorm.weight is missing", "[64]",
                "config.json: num_hidden_layers, hidden_size", "under model.layers.",
                "similar: model.layers.0.input_layernorm.weight"});
  expect_parts(get("language_model.model", "norm.weight", ""),
               {"none with such a prefix", "similar: model.norm.weight"});
  EXPECT_EQ(get("lm_head", "weight", "").find("similar"), std::string::npos);
}

TEST_F(WeightScopeTest, ShapeClashesNameBothSides) {
  expect_parts(test::message_of([&] { root_.get("model.norm.weight", {65}, "hidden_size"); }, ErrorCode::kBadFile),
               {"qwen3-tiny/model.safetensors: tensor model.norm.weight: expected shape [65]",
                "qwen3-tiny/config.json: hidden_size", "found [64]"});
  expect_parts(test::message_of([&] { root_.get("model.norm.weight", {64, 1}); }, ErrorCode::kBadFile), {"[64, 1]"});
}

TEST_F(WeightScopeTest, RemembersWhatNobodyTook) {
  EXPECT_EQ(root_.unused().size(), checkpoint_->tensors().size());
  const WeightScope model = root_.sub("model");
  for (const Tensor& tensor : checkpoint_->tensors()) {
    if (tensor.name != "model.norm.weight" && tensor.name != "model.embed_tokens.weight") {
      root_.get(tensor.name, tensor.shape);
    }
  }
  EXPECT_EQ(root_.unused(), (std::vector<std::string>{"model.embed_tokens.weight", "model.norm.weight"}));
  model.ignore("norm.weight");
  model.ignore("not_there.weight");
  EXPECT_EQ(model.unused(), std::vector<std::string>{"model.embed_tokens.weight"});
  // A tensor that was refused stays unused.
  EXPECT_THROW(model.get("embed_tokens.weight", {1}), Error);
  EXPECT_EQ(model.unused().size(), 1U);
}

TEST(WeightScope, OtherTypesLoadButAreNoWeights) {
  const test::TempFolder folder;
  test::write_tiny_model(folder.path());
  test::write_file(folder.path() / "model.safetensors",
                   test::safetensors_bytes(R"({"a":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
                                           R"("b":{"dtype":"BOOL","shape":[3],"data_offsets":[8,11]},)"
                                           R"("c":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[11,12]},)"
                                           R"("d":{"dtype":"F16","shape":[0],"data_offsets":[12,12]}})",
                                           12));
  const auto checkpoint = Checkpoint::open(folder.path());
  const WeightScope root(*checkpoint);
  expect_parts(test::message_of([&] { root.get("c", {1}); }, ErrorCode::kUnsupported),
               {"model.safetensors: tensor c", "F32, F16 or BF16", "F8_E5M2"});
  EXPECT_NO_THROW(root.get("d", {0}));
}

TEST(Checkpoint, FindsNamesFilesAndSizes) {
  const auto checkpoint = Checkpoint::open(test::data_path("models/qwen3-untied-sharded"));
  const Tensor* head = checkpoint->find("lm_head.weight");
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(head->shape, (Shape{256, 64}));
  EXPECT_EQ(checkpoint->file_of(*head).filename(), "model-00003-of-00003.safetensors");
  EXPECT_EQ(checkpoint->find("lm_head"), nullptr);
  EXPECT_EQ(checkpoint->find(""), nullptr);
  EXPECT_EQ(checkpoint->find("zzz"), nullptr);
  for (std::size_t i = 1; i < checkpoint->tensors().size(); ++i) {
    EXPECT_LT(checkpoint->tensors()[i - 1].name, checkpoint->tensors()[i].name);
  }
  std::int64_t last = 0, total = 0;
  checkpoint->populate([&](std::int64_t done, std::int64_t all) {
    EXPECT_GT(done, last);
    last = done;
    total = all;
  });
  EXPECT_EQ(last, checkpoint->file_bytes());
  EXPECT_EQ(total, checkpoint->file_bytes());
  EXPECT_NO_THROW(checkpoint->populate({}));
}

TEST(Checkpoint, OutlivesReplacedFiles) {
  const test::TempFolder folder;
  test::write_tiny_model(folder.path());
  const auto checkpoint = Checkpoint::open(folder.path());
  const Tensor& tensor = *checkpoint->find("model.norm.weight");
  const auto first = *tensor.data;
  test::write_file(folder.path() / "new", "x");
  std::filesystem::rename(folder.path() / "new", folder.path() / "model.safetensors");
  EXPECT_EQ(*tensor.data, first);
}

TEST(Checkpoint, NeedsAFolder) {
  expect_parts(test::message_of([] { Checkpoint::open("/no/such"); }, ErrorCode::kNotFound),
               {"/no/such", "found nothing"});
  expect_parts(test::message_of([] { Checkpoint::open(test::data_path("models/qwen3-tiny/config.json")); },
                                ErrorCode::kNotFound),
               {"config.json", "found a file"});
}

}  // namespace
}  // namespace vitrine
