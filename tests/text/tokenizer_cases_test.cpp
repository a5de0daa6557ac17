// SPDX-License-Identifier: Apache-2.0
// Cases that broke other engines (specs/cases.md, section a), and texts made to be slow.
#include <gtest/gtest.h>
#include <pthread.h>
#include <vitrine/tokenizer.h>

#include <exception>
#include <functional>

#include "support/test_files.h"

namespace vitrine {
namespace {

using Ids = std::vector<TokenId>;

/// The real Qwen3 tokenizer; null where it is not at hand.
std::shared_ptr<const Tokenizer> load_qwen3() {
  static const auto tokenizer = [] {
    const auto folder = test::qwen3_tokenizer();
    return folder ? Tokenizer::load(*folder) : nullptr;
  }();
  return tokenizer;
}

class Cases : public testing::Test {
 protected:
  void SetUp() override {
    tokenizer_ = load_qwen3();
    if (tokenizer_ == nullptr) GTEST_SKIP() << test::kNoQwen3Tokenizer;
  }
  Ids encode(std::string_view text, SpecialTokens special = SpecialTokens::kParse) const {
    return tokenizer_->encode(text, special);
  }
  std::string stream(const Ids& ids) const {
    StreamDecoder decoder(*tokenizer_);
    std::string text;
    for (const TokenId id : ids) {
      const std::string delta = decoder.push(id);
      EXPECT_EQ(delta.find("\uFFFD"), delta.npos);
      text += delta;
    }
    return text + decoder.flush();
  }
  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_F(Cases, A01PunctuationAndDigits) {
  EXPECT_EQ(encode("->"), (Ids{405}));
  EXPECT_EQ(encode("(x):\n"), (Ids{2075, 982}));
  EXPECT_EQ(encode("1234567890"), (Ids{16, 17, 18, 19, 20, 21, 22, 23, 24, 15}));
  EXPECT_EQ(encode("3333+777?"), (Ids{18, 18, 18, 18, 10, 22, 22, 22, 30}));
}

TEST_F(Cases, A02AddedTokenAfterPunctuationAndIndentation) {
  EXPECT_EQ(encode("X.<|im_end|>"), (Ids{55, 13, 151645}));
  EXPECT_EQ(encode("  x"), (Ids{220, 856}));
  EXPECT_EQ(encode("    x = 1\n"), (Ids{262, 856, 284, 220, 16, 198}));
  EXPECT_EQ(encode("a   \n\n\n  b"), (Ids{64, 262, 1406, 220, 293}));
  EXPECT_EQ(encode("  <|im_end|>  "), (Ids{256, 151645, 256}));
}

TEST_F(Cases, A05FrenchAndContractions) {
  EXPECT_EQ(encode("L'été dernier, où étiez-vous ? Cœur, naïve, ça"),
            (Ids{43, 6, 38783, 61791, 11, 38623, 13916, 73366, 44225, 937, 356, 88312, 11, 94880, 586, 11, 37943}));
  EXPECT_EQ(encode("J'ai l'œil"), (Ids{41, 33055, 326, 6, 51722, 321}));
  EXPECT_EQ(encode("I'M don't WE'LL it’s"), (Ids{40, 27603, 1513, 944, 19677, 6, 4086, 432, 748}));
}

TEST_F(Cases, A08SpecialStringsAsTokensOrAsText) {
  const char* text = "<|im_start|>Hello World<|im_end|>";
  EXPECT_EQ(encode(text), (Ids{151644, 9707, 4337, 151645}));
  EXPECT_EQ(encode(text, SpecialTokens::kText),
            (Ids{27, 91, 318, 4906, 91, 29, 9707, 4337, 27, 91, 318, 6213, 91, 29}));
  EXPECT_EQ(encode("<|IM_END|>"), (Ids{27, 91, 1791, 10898, 91, 29}));
  EXPECT_EQ(encode("<|im_end|"), (Ids{27, 91, 318, 6213, 91}));
}

TEST_F(Cases, A10UnicodeClasses) {
  EXPECT_EQ(encode("👩‍👩‍👧‍👦"), (Ids{145233, 378, 235, 145233, 378, 235, 145665, 378, 235, 145988}));
  EXPECT_EQ(encode("🇧🇾"), (Ids{145340, 147720}));
  EXPECT_EQ(encode(" 🇧🇾!"), (Ids{11162, 229, 100, 147720, 0}));
  EXPECT_EQ(encode("👍🏽"), (Ids{144349, 145375}));
  EXPECT_EQ(encode("１２"), (Ids{20109, 24918}));
  EXPECT_EQ(encode("①②"), (Ids{48312, 254, 48312, 94}));
  EXPECT_EQ(encode("½ ² Ⅻ"), (Ids{26062, 220, 29456, 220, 70467, 104}));
}

TEST_F(Cases, A13BytesThatAreNotUtf8) {
  EXPECT_EQ(encode("\xC3"), (Ids{5691}));
  EXPECT_EQ(encode("\xFF\xFE"), encode("\uFFFD\uFFFD"));
  EXPECT_EQ(encode("\xED\xA0\x80"), encode("\uFFFD\uFFFD\uFFFD"));
  EXPECT_EQ(encode("\xC0\xAF"), encode("\uFFFD\uFFFD"));
}

TEST_F(Cases, A14ControlAndSeparatorCharacters) {
  EXPECT_EQ(encode(std::string_view("a\0b\x01\x7F", 5)), (Ids{64, 188, 65, 189, 221}));
  EXPECT_EQ(encode("\uFEFFhi"), (Ids{3225, 6023}));
  EXPECT_EQ(encode("a\u200Bb"), (Ids{64, 15692, 65}));
  EXPECT_EQ(encode("a\u0085b"), (Ids{64, 126, 227, 65}));
  EXPECT_EQ(encode("\u2029 \uA3E4"), (Ids{378, 102, 8620, 237, 97}));
  EXPECT_EQ(encode("a\u00A0b\u3000c"), (Ids{64, 4102, 65, 22441, 66}));
}

TEST_F(Cases, A15PaddingIdsDecodeToNothing) { EXPECT_EQ(tokenizer_->decode(Ids{14990, 151900, 1879}), "hello world"); }

TEST_F(Cases, A16CharactersSplitOverTokensStreamWhole) {
  EXPECT_EQ(stream({26525, 232}), " 😊");
  EXPECT_EQ(stream({1278, 236}), " Ў");
  EXPECT_EQ(stream({61804, 102, 378, 235, 145836}), " 👩‍🚀");
}

TEST_F(Cases, A18EndInsideACharacter) {
  StreamDecoder decoder(*tokenizer_);
  EXPECT_EQ(decoder.push(26525), " ");
  EXPECT_EQ(decoder.flush(), "\uFFFD");
  EXPECT_EQ(decoder.flush(), "");
  EXPECT_EQ(tokenizer_->decode(Ids{26525}), " \uFFFD");
}

TEST_F(Cases, A20IndentedSourceLines) {
  EXPECT_EQ(encode("def f():\r\n\tif x:\r\n\t    return  1  \r\n"),
            (Ids{750, 282, 21128, 743, 856, 2834, 2760, 470, 220, 220, 16, 10419}));
  EXPECT_EQ(encode("\t\n \r\n  x"), (Ids{1572, 2529, 220, 856}));
  EXPECT_EQ(encode("   \n   \n"), (Ids{5872, 5872}));
}

/// Runs `work` on a thread with a stack of 256 KiB.
void on_small_stack(std::function<void()> work) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 256 * 1024), 0);
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    EXPECT_NO_THROW((*static_cast<std::function<void()>*>(argument))());
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &work), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

std::string repeat(std::string_view piece, std::size_t count) {
  std::string text;
  text.reserve(piece.size() * count);
  for (std::size_t i = 0; i < count; ++i) text += piece;
  return text;
}

TEST_F(Cases, A11LongRunsOnASmallStack) {
  on_small_stack([&] {
    EXPECT_EQ(encode(std::string(100'000, 'a')), Ids(12'500, 69440));
    Ids spaces(781, 56940);
    spaces.push_back(786);
    EXPECT_EQ(encode(std::string(100'000, ' ')), spaces);
    EXPECT_EQ(encode(std::string(100'000, '^')), Ids(25'000, 61724));
    EXPECT_EQ(encode(repeat("é", 50'000)), Ids(50'000, 963));
  });
}

// Nothing here asserts a time: what is quadratic does not end within the test's time-out.
void expect_end(const Tokenizer& tokenizer, std::string_view piece, std::size_t bytes) {
  SCOPED_TRACE(testing::PrintToString(piece));
  const std::string text = repeat(piece, bytes / piece.size());
  on_small_stack([&] {
    const Ids ids = tokenizer.encode(text);
    EXPECT_FALSE(ids.empty());
    const bool changes = piece == "\xFF" || piece == "a\u0301";
    EXPECT_TRUE(changes || tokenizer.decode(ids) == text);
  });
}

std::shared_ptr<const Tokenizer> load_demo() { return Tokenizer::load(test::demo_model()); }

TEST(LongTexts, TenMegabytes) {
  const auto tokenizer = load_qwen3() != nullptr ? load_qwen3() : load_demo();
  for (const auto piece : {" ", "\n", "a", "  a", "\n "}) expect_end(*tokenizer, piece, 10'000'000);
}

TEST(LongTexts, AMegabyteOfAnything) {
  const std::string_view pieces[] = {" \n",        "\r\n",    "\t",      "1",      "!",   "<",       "<|",
                                     "<|im_start", "' ",      "'s",      "\u3000", "é",   "\u00A0x", "中",
                                     "🦙",       "a\u0301", " \u0301", "ab",     "\xFF"};
  for (const auto piece : pieces) {
    expect_end(*load_demo(), piece, 1'000'000);
    if (load_qwen3() != nullptr) expect_end(*load_qwen3(), piece, 1'000'000);
  }
}

TEST(LongTexts, AMillionCombiningMarks) {
  const auto tokenizer = load_demo();
  on_small_stack([&] {
    EXPECT_FALSE(tokenizer->encode(repeat("\u0301\u0323", 500'000)).empty());
    EXPECT_FALSE(tokenizer->encode_spans("a" + repeat("\u0301\u0323", 500'000)).empty());
  });
}

}  // namespace
}  // namespace vitrine
