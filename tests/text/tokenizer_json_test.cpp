// SPDX-License-Identifier: Apache-2.0
#include "text/tokenizer_json.h"

#include <gtest/gtest.h>
#include <vitrine/error.h>

#include <cstdlib>

#include "support/bad_tokenizers.h"
#include "support/test_files.h"

namespace vitrine {
namespace {

using nlohmann::json;

std::vector<TokenId> encode(const json& tokenizer, std::string_view text) {
  return make_tokenizer(tokenizer.dump(), "t")->encode(text);
}

TEST(TokenizerJson, SmallOneWorks) {
  const auto tokenizer = make_tokenizer(test::small_tokenizer().dump(), "t");
  EXPECT_EQ(tokenizer->encode("hello world<|end|>aaa"), (std::vector<TokenId>{259, 265, 267, 266, 'a'}));
  EXPECT_EQ(tokenizer->vocab_size(), 270);
  EXPECT_EQ(tokenizer->find("Ġworld"), 265);
  EXPECT_EQ(tokenizer->find("<think>"), 268);
  EXPECT_EQ(tokenizer->find("Ċ"), 10);
  EXPECT_EQ(tokenizer->find("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer->find("中"), std::nullopt);
  EXPECT_EQ(tokenizer->find("\xF0"), std::nullopt);
  EXPECT_EQ(tokenizer->token_bytes(265), " world");
  EXPECT_EQ(tokenizer->token_bytes(270), "");
  EXPECT_EQ(tokenizer->token_bytes(-1), "");
  EXPECT_TRUE(tokenizer->is_special(267));
  EXPECT_FALSE(tokenizer->is_special(268));
  EXPECT_FALSE(tokenizer->is_special(-1));
}

TEST(TokenizerJson, EachFaultIsRefusedNamingFileAndPlace) {
  const auto cases = test::bad_tokenizers();
  EXPECT_GE(cases.size(), 25u);
  for (const auto& fault : cases) {
    SCOPED_TRACE(fault.name);
    const test::TempFolder folder;
    fault.write(folder.path());
    try {
      (void)Tokenizer::load(folder.path());
      ADD_FAILURE() << "was accepted";
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == ErrorCode::kBadFile || error.code() == ErrorCode::kUnsupported) << error.what();
      const std::string message = error.what();
      EXPECT_NE(message.find((folder.path() / "tokenizer.json").string()), message.npos) << message;
      for (const auto& part : fault.message_contains) EXPECT_NE(message.find(part), message.npos) << message;
      EXPECT_LT(message.size(), 500u);
    }
  }
}

TEST(BadTokenizers, WritesThemAllOnRequest) {
  const char* target = std::getenv("VITRINE_DUMP_BAD_FILES");
  if (target == nullptr) GTEST_SKIP() << "set VITRINE_DUMP_BAD_FILES to a folder to get one tokenizer folder a case";
  for (const auto& fault : test::bad_tokenizers()) {
    const std::filesystem::path folder = std::filesystem::path(target) / fault.name;
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    fault.write(folder);
  }
}

TEST(TokenizerJson, MissingFile) {
  const test::TempFolder folder;
  for (const auto& path : {folder.path(), folder.path() / "nowhere", folder.path() / "nowhere.json"}) {
    try {
      (void)Tokenizer::load(path);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNotFound) << error.what();
    }
  }
}

TEST(TokenizerJson, FileOrFolder) {
  const auto from_folder = Tokenizer::load(test::demo_model());
  const auto from_file = Tokenizer::load(test::demo_model() / "tokenizer.json");
  EXPECT_EQ(from_folder->encode("The capital"), from_file->encode("The capital"));
}

TEST(TokenizerJson, FileBeyondTheCap) {
  const test::TempFolder folder;
  test::write_file(folder.path() / "tokenizer.json", "");
  std::filesystem::resize_file(folder.path() / "tokenizer.json", (std::uintmax_t{256} << 20) + 1);  // sparse
  try {
    (void)Tokenizer::load(folder.path());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTooLarge) << error.what();
  }
}

// A07: both spellings of merges give the same tokens.
TEST(TokenizerJson, MergesAsStringsAndAsPairs) {
  json strings = test::small_tokenizer();
  json pairs = strings;
  for (auto& merge : pairs["model"]["merges"]) {
    const auto text = merge.get<std::string>();
    const auto space = text.find(' ');
    merge = json::array({text.substr(0, space), text.substr(space + 1)});
  }
  EXPECT_EQ(encode(strings, "hello world"), encode(pairs, "hello world"));
  EXPECT_EQ(encode(pairs, "hello world"), (std::vector<TokenId>{259, 265}));
}

TEST(TokenizerJson, UnknownFieldsAndOldFormsAreTolerated) {
  json tokenizer = test::small_tokenizer();
  tokenizer["version"] = "9.9";
  tokenizer["novelty"] = {{"a", 1}};
  tokenizer["model"]["novelty"] = 1;
  tokenizer["model"].erase("type");
  tokenizer["model"].erase("byte_fallback");
  tokenizer["model"]["unk_token"] = "<|end|>";  // harmless: every byte has a token
  tokenizer["post_processor"] = {{"type", "TemplateProcessing"},
                                 {"single", json::array({{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}})}};
  tokenizer["normalizer"] = nullptr;
  EXPECT_EQ(encode(tokenizer, "hello world"), (std::vector<TokenId>{259, 265}));
}

TEST(TokenizerJson, NormalizerNullLeavesTheTextAlone) {
  json tokenizer = test::small_tokenizer();
  EXPECT_EQ(encode(tokenizer, "e\u0301"), (std::vector<TokenId>{0xC3, 0xA9}));
  tokenizer["normalizer"] = nullptr;
  EXPECT_EQ(encode(tokenizer, "e\u0301"), (std::vector<TokenId>{'e', 0xCC, 0x81}));
}

TEST(TokenizerJson, ByteLevelAloneUsesGpt2Pattern) {
  json tokenizer = test::small_tokenizer();
  tokenizer["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
  EXPECT_EQ(encode(tokenizer, "aa  aa\n"), (std::vector<TokenId>{266, ' ', ' ', 266, '\n'}));
  tokenizer["pre_tokenizer"]["use_regex"] = false;  // one piece
  EXPECT_EQ(encode(tokenizer, "hello world"), (std::vector<TokenId>{259, 265}));
}

TEST(TokenizerJson, IgnoreMergesTakesAWholePieceFromTheVocabulary) {
  json tokenizer = test::small_tokenizer();
  tokenizer["model"]["vocab"]["llo"] = 300;  // no merge makes it
  EXPECT_EQ(encode(tokenizer, "llo"), (std::vector<TokenId>{257, 'o'}));
  EXPECT_EQ(encode(tokenizer, "llo"), encode(tokenizer, "llo"));
  tokenizer["model"]["ignore_merges"] = true;
  EXPECT_EQ(encode(tokenizer, "llo"), (std::vector<TokenId>{300}));
}

TEST(TokenizerJson, BytesWithoutATokenAreDropped) {
  json tokenizer = test::small_tokenizer();
  tokenizer["model"]["vocab"].erase("z");
  const auto loaded = make_tokenizer(tokenizer.dump(), "t");
  EXPECT_EQ(loaded->encode("azaz"), (std::vector<TokenId>{266}));  // the neighbours meet, as in Hugging Face's
  EXPECT_EQ(loaded->encode("z"), (std::vector<TokenId>{}));
  const auto spans = loaded->encode_spans("azbz");
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[0].end, 2u);
  EXPECT_EQ(spans[1].end, 4u);
  std::string long_piece;
  for (int i = 0; i < 100; ++i) long_piece += "az";
  EXPECT_EQ(loaded->encode(long_piece), std::vector<TokenId>(50, 266));
}

TEST(TokenizerJson, VocabularyEntriesThatAreNotByteLevel) {
  json tokenizer = test::small_tokenizer();
  tokenizer["model"]["vocab"]["中 x"] = 300;
  const auto loaded = make_tokenizer(tokenizer.dump(), "t");
  EXPECT_EQ(loaded->find("中 x"), 300);
  const TokenId ids[] = {300};
  EXPECT_EQ(loaded->decode(ids), "中 x");
  EXPECT_EQ(loaded->encode("中 x").size(), 5u);
}

TEST(TokenizerJson, AddedTokenThatTheVocabularyHasToo) {
  json tokenizer = test::small_tokenizer();
  tokenizer["model"]["vocab"]["<|end|>"] = 267;
  const auto loaded = make_tokenizer(tokenizer.dump(), "t");
  EXPECT_EQ(loaded->encode("a<|end|>"), (std::vector<TokenId>{'a', 267}));
  EXPECT_TRUE(loaded->is_special(267));
}

TEST(TokenizerJson, IdsMayHaveGaps) {
  json tokenizer = test::small_tokenizer();
  tokenizer["model"]["vocab"]["zz"] = 5000;
  const auto loaded = make_tokenizer(tokenizer.dump(), "t");
  EXPECT_EQ(loaded->vocab_size(), 5001);
  const TokenId ids[] = {4000, 5000, 9999, -7, 'a'};
  EXPECT_EQ(loaded->decode(ids), "zza");
}

}  // namespace
}  // namespace vitrine
