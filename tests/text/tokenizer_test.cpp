// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <vitrine/tokenizer.h>

#include <random>
#include <thread>

#include "base/sha256.h"
#include "base/unicode.h"
#include "support/bad_tokenizers.h"
#include "support/test_files.h"
#include "text/tokenizer_json.h"

namespace vitrine {
namespace {

using Ids = std::vector<TokenId>;
using nlohmann::json;

/// The real Qwen3 tokenizer, loaded once; null where it is not at hand.
const Tokenizer* qwen3() {
  static const auto tokenizer = [] {
    const auto folder = test::qwen3_tokenizer();
    return folder ? Tokenizer::load(*folder) : nullptr;
  }();
  return tokenizer.get();
}

const Tokenizer& demo() {
  static const auto tokenizer = Tokenizer::load(test::demo_model());
  return *tokenizer;
}

json vectors(const char* file) { return test::read_json(test::data_path("tokenizer") / file); }

#define SKIP_WITHOUT_QWEN3() \
  if (qwen3() == nullptr) GTEST_SKIP() << test::kNoQwen3Tokenizer

TEST(Qwen3Tokenizer, EncodesAsHuggingFace) {
  SKIP_WITHOUT_QWEN3();
  const json file = vectors("qwen3.json");
  ASSERT_GT(file["vectors"].size(), 900u);
  for (const auto& vector : file["vectors"]) {
    const std::string text = vector["text"];
    EXPECT_EQ(qwen3()->encode(text), vector["ids"].get<Ids>()) << vector["group"] << vector["text"].dump();
  }
}

TEST(Qwen3Tokenizer, EncodesAsPlainText) {
  SKIP_WITHOUT_QWEN3();
  const json file = vectors("qwen3.json");
  for (const auto& vector : file["vectors"]) {
    const auto& ids = vector.contains("ids_without_added") ? vector["ids_without_added"] : vector["ids"];
    const auto got = qwen3()->encode(vector["text"].get<std::string>(), SpecialTokens::kText);
    EXPECT_EQ(got, ids.get<Ids>()) << vector["text"].dump();
  }
}

TEST(Qwen3Tokenizer, LongRunsAsHuggingFace) {
  SKIP_WITHOUT_QWEN3();
  const json file = vectors("qwen3.json");
  ASSERT_GT(file["runs"].size(), 20u);
  for (const auto& run : file["runs"]) {
    std::string text;
    for (int i = 0; i < run["count"].get<int>(); ++i) text += run["repeat"].get<std::string>();
    const Ids ids = qwen3()->encode(text);
    std::string bytes;
    for (const TokenId id : ids) {
      for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(id >> shift & 0xFF);
    }
    EXPECT_EQ(ids.size(), run["num_ids"].get<std::size_t>()) << run["repeat"];
    EXPECT_EQ(sha256(bytes), run["sha256"].get<std::string>()) << run["repeat"];
  }
}

TEST(Qwen3Tokenizer, DecodesAsHuggingFace) {
  SKIP_WITHOUT_QWEN3();
  const json file = vectors("decode.json");
  ASSERT_GT(file["vectors"].size(), 150u);
  for (const auto& vector : file["vectors"]) {
    const Ids ids = vector["ids"];
    EXPECT_EQ(qwen3()->decode(ids), vector["text"].get<std::string>()) << vector["ids"];
    const auto& skipped = vector.contains("text_skip_special") ? vector["text_skip_special"] : vector["text"];
    EXPECT_EQ(qwen3()->decode(ids, true), skipped.get<std::string>()) << vector["ids"];
  }
}

TEST(Qwen3Tokenizer, Facts) {
  SKIP_WITHOUT_QWEN3();
  EXPECT_EQ(qwen3()->vocab_size(), 151669);
  EXPECT_EQ(qwen3()->find("<|im_end|>"), 151645);
  EXPECT_EQ(qwen3()->find("Ġworld"), 1879);
  EXPECT_EQ(qwen3()->token_bytes(151643), "<|endoftext|>");
  EXPECT_EQ(qwen3()->token_bytes(11162), " \xF0\x9F");
  for (TokenId id = 151643; id < 151680; ++id) EXPECT_EQ(qwen3()->is_special(id), id <= 151656) << id;
}

TEST(DemoTokenizer, EncodesItsPromptsAsHuggingFace) {
  for (const auto& entry : test::read_json(test::data_path("demo-model/expected.json"))) {
    EXPECT_EQ(demo().encode(entry["prompt"].get<std::string>()), entry["ids"].get<Ids>()) << entry["prompt"];
    if (!entry.contains("greedy_text")) continue;
    const Ids ids = entry["greedy_ids"];
    EXPECT_EQ(demo().decode(ids, true), entry["greedy_text"].get<std::string>());
  }
}

TEST(DemoTokenizer, HeldOutTextComesBack) {
  const std::string text = test::read_file(test::data_path("demo-model/heldout.txt"));
  ASSERT_FALSE(unicode::to_nfc(text).has_value());
  EXPECT_EQ(demo().decode(demo().encode(text)), text);
}

/// Spans tile the text (where it is neither empty nor changed) and hold the tokens' bytes.
void expect_good_spans(const Tokenizer& tokenizer, const std::string& text, SpecialTokens special) {
  const auto spans = tokenizer.encode_spans(text, special);
  Ids ids;
  std::size_t begin = 0;
  for (const auto& span : spans) {
    ids.push_back(span.id);
    ASSERT_LE(span.begin, span.end);
    ASSERT_LE(begin, span.begin);
    begin = span.begin;
  }
  ASSERT_EQ(ids, tokenizer.encode(text, special));
  if (!text.empty()) {
    ASSERT_EQ(spans.front().begin, 0u);
    ASSERT_EQ(spans.back().end, text.size());
  }
  if (!unicode::is_valid_utf8(text) || unicode::to_nfc(text)) return;
  for (const auto& span : spans) {
    ASSERT_EQ(tokenizer.token_bytes(span.id), std::string_view(text).substr(span.begin, span.end - span.begin));
  }
}

TEST(Spans, OfAllVectors) {
  const json file = vectors("qwen3.json");
  for (const auto& vector : file["vectors"]) {
    for (const auto special : {SpecialTokens::kParse, SpecialTokens::kText}) {
      SCOPED_TRACE(vector["text"].dump());
      expect_good_spans(demo(), vector["text"], special);
      if (qwen3() != nullptr) expect_good_spans(*qwen3(), vector["text"], special);
    }
  }
}

TEST(Spans, LeadBackThroughNormalizationRepairAndAddedTokens) {
  const auto tokenizer = make_tokenizer(test::small_tokenizer().dump(), "t");
  // "x", FF, "<|end|>", "e" U+0301, "hello": bytes 0, 1, 2-8, 9-11, 12-16
  const auto spans = tokenizer->encode_spans("x\xFF<|end|>e\u0301hello");
  const TokenSpan expected[] = {{'x', 0, 1}, {0xEF, 1, 2},  {0xBF, 1, 2},  {0xBD, 1, 2},
                                {267, 2, 9}, {0xC3, 9, 12}, {0xA9, 9, 12}, {259, 12, 17}};
  ASSERT_EQ(spans.size(), std::size(expected));
  for (std::size_t i = 0; i < spans.size(); ++i) {
    EXPECT_EQ(spans[i].id, expected[i].id) << i;
    EXPECT_EQ(spans[i].begin, expected[i].begin) << i;
    EXPECT_EQ(spans[i].end, expected[i].end) << i;
  }
}

TEST(Spans, RandomBytes) {
  std::mt19937 random(11);
  const std::string_view bytes = "ab <|im_end|>\xCC\x81\xC3\xA9\xE4\xB8\xAD\xF0\x9F\xA6\x99\xFF\n";
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (auto n = random() % 30; n > 0; --n) {
      const auto at = random() % bytes.size();
      text += bytes.substr(at, random() % 12);
    }
    expect_good_spans(demo(), text, SpecialTokens::kParse);
  }
}

TEST(Tokenizer, NormalizedAddedTokens) {
  json spec = test::small_tokenizer();
  spec["added_tokens"].push_back(
      {{"id", 270}, {"content", "caf\u0065\u0301"}, {"normalized", true}, {"special", false}});
  spec["added_tokens"].push_back(
      {{"id", 271}, {"content", "e\u0301e\u0301"}, {"normalized", false}, {"special", false}});
  const auto tokenizer = make_tokenizer(spec.dump(), "t");
  EXPECT_EQ(tokenizer->encode("acafé"), (Ids{'a', 270}));
  EXPECT_EQ(tokenizer->encode("cafe\u0301"), (Ids{270}));
  EXPECT_EQ(tokenizer->encode("éé"), (Ids{0xC3, 0xA9, 0xC3, 0xA9}));
  EXPECT_EQ(tokenizer->encode("e\u0301e\u0301"), (Ids{271}));
  EXPECT_EQ(tokenizer->encode("cafe\u0301", SpecialTokens::kText), (Ids{'c', 'a', 'f', 0xC3, 0xA9}));
  const auto spans = tokenizer->encode_spans("xcafe\u0301y");
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[1].begin, 1u);
  EXPECT_EQ(spans[1].end, 7u);
}

TEST(Tokenizer, AddedTokensComeBackAsTheyAreWritten) {
  json spec = test::small_tokenizer();
  spec["added_tokens"].push_back({{"id", 270}, {"content", "é Ġ中"}});
  const auto tokenizer = make_tokenizer(spec.dump(), "t");
  EXPECT_EQ(tokenizer->decode(Ids{270, 'a', 270}), "é Ġ中aé Ġ中");
}

TEST(Tokenizer, SeveralThreadsAtOnce) {
  // A fresh one, so that the threads learn about its tokens at the same time.
  const auto tokenizer = Tokenizer::load(test::qwen3_tokenizer().value_or(test::demo_model()));
  const std::string text = test::read_file(test::data_path("demo-model/heldout.txt")).substr(0, 60'000);
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&result, &tokenizer, &text] {
      for (int i = 0; i < 3; ++i) {
        result = tokenizer->encode(text);
        (void)tokenizer->decode(result);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, tokenizer->encode(text));
}

}  // namespace
}  // namespace vitrine
