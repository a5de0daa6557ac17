// SPDX-License-Identifier: Apache-2.0
#include "support/bad_files.h"

#include <gtest/gtest.h>
#include <vitrine/error.h>

#include <cstdio>
#include <cstdlib>
#include <unordered_set>

#include "checkpoint/checkpoint.h"
#include "support/test_files.h"

namespace vitrine {
namespace {

class BadCheckpoint : public testing::TestWithParam<test::BadFile> {};

TEST_P(BadCheckpoint, IsRefusedWithFileAndPlace) {
  const test::TempFolder folder;
  GetParam().write(folder.path());
  try {
    Checkpoint::open(folder.path());
    FAIL() << "opened";
  } catch (const Error& error) {
    const std::string message = error.what();
    for (const std::string& part : GetParam().message_contains) {
      EXPECT_NE(message.find(part), std::string::npos) << "expected: " << part << "\nfound: " << message;
    }
    EXPECT_EQ(message.rfind(folder.path().string(), 0), 0U) << message;  // begins with the file's full path
    EXPECT_NE(error.code(), ErrorCode::kInternal) << message;
    EXPECT_LT(message.size(), 2000U) << message;
    if (std::getenv("VITRINE_SHOW_MESSAGES") != nullptr) {
      std::string shown = message;  // for reading them all at once
      for (std::size_t at; (at = shown.find(folder.path().string())) != std::string::npos;) {
        shown.replace(at, folder.path().string().size(), "DIR");
      }
      std::printf("%-34s %s\n", GetParam().name.c_str(), shown.c_str());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, BadCheckpoint, testing::ValuesIn(test::bad_checkpoints()),
                         [](const auto& test_case) { return test_case.param.name; });

TEST(BadFiles, NamesAreUnique) {
  std::unordered_set<std::string> names;
  for (const test::BadFile& file : test::bad_checkpoints()) EXPECT_TRUE(names.insert(file.name).second) << file.name;
  EXPECT_GE(names.size(), 60U);
}

TEST(BadFiles, GoodModelsTheyStartFromOpen) {
  const test::TempFolder single;
  test::write_tiny_model(single.path());
  EXPECT_NO_THROW(Checkpoint::open(single.path()));
  const test::TempFolder sharded;
  test::write_tiny_shards(sharded.path(), {"a.safetensors", "b.safetensors"}, true);
  EXPECT_NO_THROW(Checkpoint::open(sharded.path()));
}

TEST(BadFiles, WritesThemAllOnRequest) {
  const char* target = std::getenv("VITRINE_DUMP_BAD_FILES");
  if (target == nullptr) GTEST_SKIP() << "set VITRINE_DUMP_BAD_FILES to a folder to get one model folder a case";
  for (const test::BadFile& file : test::bad_checkpoints()) {
    const std::filesystem::path folder = std::filesystem::path(target) / file.name;
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    file.write(folder);
  }
}

}  // namespace
}  // namespace vitrine
