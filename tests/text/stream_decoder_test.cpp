// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <vitrine/tokenizer.h>

#include <random>

#include "base/unicode.h"
#include "support/bad_tokenizers.h"
#include "support/test_files.h"
#include "text/tokenizer_json.h"

namespace vitrine {
namespace {

using Ids = std::vector<TokenId>;

std::vector<std::shared_ptr<const Tokenizer>> tokenizers() {
  std::vector<std::shared_ptr<const Tokenizer>> out = {Tokenizer::load(test::demo_model())};
  if (const auto folder = test::qwen3_tokenizer()) out.push_back(Tokenizer::load(*folder));
  return out;
}

TEST(StreamDecoder, EqualsDecodeForAnyIds) {
  for (const auto& tokenizer : tokenizers()) {
    std::mt19937 random(23);
    const auto limit = static_cast<std::uint32_t>(tokenizer->vocab_size()) + 20;
    for (int round = 0; round < 20000; ++round) {
      // Ids below 256 are single bytes in both vocabularies: half characters of all kinds.
      Ids ids;
      for (auto n = random() % 12; n > 0; --n)
        ids.push_back(static_cast<TokenId>(random() % (round % 2 == 0 ? 256 : limit)));
      for (const bool skip_special : {false, true}) {
        StreamDecoder decoder(*tokenizer, skip_special);
        std::string text;
        for (const TokenId id : ids) {
          const std::string delta = decoder.push(id);
          ASSERT_TRUE(unicode::is_valid_utf8(delta));
          text += delta;
        }
        text += decoder.flush();
        ASSERT_EQ(text, tokenizer->decode(ids, skip_special)) << testing::PrintToString(ids);
      }
    }
  }
}

TEST(StreamDecoder, ValidTextNeverShowsAReplacementCharacter) {
  std::string text = test::read_file(test::data_path("demo-model/heldout.txt")).substr(0, 20'000);
  text.resize(text.size() - unicode::incomplete_suffix(text));
  text += "👩‍👩‍👧‍👦 🇧🇾 नमस्ते 你好 𠮷野 \U0010FFFF \u0080";
  for (const auto& tokenizer : tokenizers()) {
    StreamDecoder decoder(*tokenizer);
    std::string out;
    for (const TokenId id : tokenizer->encode(text)) {
      const std::string delta = decoder.push(id);
      ASSERT_EQ(delta.find("\uFFFD"), delta.npos);
      out += delta;
    }
    EXPECT_EQ(decoder.flush(), "");
    EXPECT_EQ(out, text);
  }
}

TEST(StreamDecoder, EmitsAsSoonAsTheCharacterIsWhole) {
  const auto tokenizer = make_tokenizer(test::small_tokenizer().dump(), "t");
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(0x9F), "");
  EXPECT_EQ(decoder.push(0xA6), "");
  EXPECT_EQ(decoder.push(0x99), "🦙");
  EXPECT_EQ(decoder.push(0xE4), "");
  EXPECT_EQ(decoder.push('a'), "\uFFFDa");  // what can't be completed any more comes at once
  EXPECT_EQ(decoder.push(0xFF), "\uFFFD");
  EXPECT_EQ(decoder.push(267), "<|end|>");
  EXPECT_EQ(decoder.push(0xC3), "");
  EXPECT_EQ(decoder.push(9999), "");  // no token: nothing comes between
  EXPECT_EQ(decoder.push(0xA9), "é");
  EXPECT_EQ(decoder.flush(), "");
}

TEST(StreamDecoder, SkippedTokensDoNotBreakACharacter) {
  const auto tokenizer = make_tokenizer(test::small_tokenizer().dump(), "t");
  const Ids ids = {0xC3, 267, 0xA9, 268};
  EXPECT_EQ(tokenizer->decode(ids, true), "é<think>");
  EXPECT_EQ(tokenizer->decode(ids), "\uFFFD<|end|>\uFFFD<think>");
  StreamDecoder decoder(*tokenizer, true);
  std::string text;
  for (const TokenId id : ids) text += decoder.push(id);
  EXPECT_EQ(text + decoder.flush(), "é<think>");
}

}  // namespace
}  // namespace vitrine
