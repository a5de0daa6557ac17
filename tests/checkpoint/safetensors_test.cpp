// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <vitrine/error.h>

#include <utility>

#include "support/bad_files.h"
#include "support/test_files.h"

namespace vitrine {
namespace {

std::vector<StoredTensor> parse(std::string_view file) {
  return parse_safetensors(std::as_bytes(std::span(file.data(), file.size())), "t.safetensors");
}

TEST(Safetensors, ReadsWhatTheHeaderSays) {
  const auto tensors = parse(test::safetensors_bytes(R"({"__metadata__":{"format":"pt"},)"
                                                     R"("b":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]},)"
                                                     R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}   )",
                                                     28));
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].dtype, DType::kBF16);
  EXPECT_EQ(tensors[0].shape, Shape{2});
  EXPECT_EQ(tensors[1].name, "b");
  EXPECT_EQ(tensors[1].shape, (Shape{2, 3}));
  EXPECT_EQ(tensors[0].end, tensors[1].begin);
  EXPECT_EQ(tensors[1].end - tensors[1].begin, 24U);
}

TEST(Safetensors, ReadsEveryDType) {
  for (const char* name : {"F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8", "BOOL",
                           "F8_E4M3", "F8_E5M2"}) {
    const std::string entry = R"({"t":{"dtype":")" + std::string(name) + R"(","shape":[0],"data_offsets":[0,0]}})";
    const auto tensors = parse(test::safetensors_bytes(entry, 0));
    ASSERT_EQ(tensors.size(), 1U);
    EXPECT_EQ(to_string(tensors[0].dtype), name);
  }
}

TEST(Safetensors, AcceptsScalarsEmptyTensorsAndEmptyFiles) {
  EXPECT_TRUE(parse(test::safetensors_bytes("{}", 0)).empty());
  const auto tensors =
      parse(test::safetensors_bytes(R"({"scalar":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                                    R"("none":{"dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[4,4]},)"
                                    R"("nothing":{"dtype":"F32","shape":[3,0],"data_offsets":[0,0]}})",
                                    4));
  EXPECT_EQ(tensors.size(), 3U);
}

TEST(Safetensors, NamesMayHoldAnything) {
  const auto tensors = parse(test::safetensors_bytes(R"({"":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                                     R"("\u0000\n":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                                     2));
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].name, "");
  EXPECT_EQ(tensors[1].name, std::string_view("\0\n", 2));
}

TEST(Safetensors, MessagesHoldNoControlCharacters) {
  try {
    parse(test::safetensors_bytes(R"({"\u001b[2J":{"dtype":"\u009b1m","shape":[1],"data_offsets":[0,1]}})", 1));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    for (const char c : std::string_view(error.what())) EXPECT_GE(static_cast<unsigned char>(c), 0x20);
    EXPECT_EQ(std::string_view(error.what()).find("\u009b"), std::string_view::npos);
  }
}

TEST(Safetensors, EveryTruncationOfARealFileIsRefused) {
  const std::string file = test::read_file(test::data_path("models/qwen3-f32/model.safetensors"));
  const std::size_t header_end = 8 + test::safetensors_header(file).size();
  for (std::size_t size = 0; size < header_end + 64; ++size) {
    EXPECT_THROW(parse(std::string_view(file).substr(0, size)), Error) << size;
  }
  EXPECT_NO_THROW(parse(file));
}

TEST(Safetensors, EveryChangedHeaderByteIsReadOrRefused) {
  // No crash, no other exception, and whatever is accepted stays inside the file.
  std::string file = test::read_file(test::data_path("models/qwen3-f32/model.safetensors"));
  const std::size_t header_end = 8 + test::safetensors_header(file).size();
  for (std::size_t i = 0; i < header_end; ++i) {
    for (const char replacement : {'\0', '9', '"', '\xFF'}) {
      const char original = std::exchange(file[i], replacement);
      try {
        for (const StoredTensor& tensor : parse(file)) {
          EXPECT_LE(header_end, tensor.begin);
          EXPECT_LE(tensor.begin, tensor.end);
          EXPECT_LE(tensor.end, file.size());
        }
      } catch (const Error&) {  // fine
      }
      file[i] = original;
    }
  }
}

}  // namespace
}  // namespace vitrine
