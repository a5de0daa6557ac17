// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "support/bad_files.h"
#include "support/test_files.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

class Identity : public testing::Test {
 protected:
  void SetUp() override {
    fs::copy(test::data_path("models/qwen3-tiny"), temp_.path(), fs::copy_options::recursive);
    fs::permissions(file(), fs::perms::owner_all);
    time_ = fs::last_write_time(file());
  }
  fs::path file() const { return temp_.path() / "model.safetensors"; }
  std::string identity() const { return Checkpoint::open(temp_.path())->identity(); }
  /// Other bytes under the old time.
  void rewrite(const std::string& bytes) const {
    test::write_file(file(), bytes);
    fs::last_write_time(file(), time_);
  }
  test::TempFolder temp_;
  fs::file_time_type time_;
};

TEST_F(Identity, StaysWhileNothingChanges) {
  const std::string first = identity();
  EXPECT_EQ(first.size(), 64U);
  EXPECT_EQ(first.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(identity(), first);
  test::write_file(temp_.path() / "generation_config.json", "{}");  // no weights
  EXPECT_EQ(identity(), first);
  rewrite(test::read_file(file()));
  EXPECT_EQ(identity(), first);
  const fs::path moved = temp_.path() / "moved";
  fs::create_directory(moved);
  for (const char* name : {"config.json", "model.safetensors"}) fs::rename(temp_.path() / name, moved / name);
  EXPECT_EQ(Checkpoint::open(moved)->identity(), first);
}

TEST_F(Identity, ChangesWithTimeNameHeaderAndData) {
  std::set<std::string> seen = {identity()};
  const std::string good = test::read_file(file());
  const std::size_t data_start = safetensors_data_start(std::as_bytes(std::span(good)));
  ASSERT_GT(good.size(), data_start + 8192);

  fs::last_write_time(file(), time_ + std::chrono::microseconds(1));
  EXPECT_TRUE(seen.insert(identity()).second) << "time";
  for (const std::size_t at : {data_start, good.size() - 1}) {
    std::string changed = good;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    rewrite(changed);
    EXPECT_TRUE(seen.insert(identity()).second) << at;
  }
  std::string header = good;
  const std::size_t format = header.find("\"pt\"");
  ASSERT_LT(format, data_start);
  rewrite(header.replace(format, 4, "\"np\""));
  EXPECT_TRUE(seen.insert(identity()).second) << "header";
  rewrite(good);
  fs::rename(file(), temp_.path() / "weights.safetensors");
  EXPECT_TRUE(seen.insert(identity()).second) << "name";
}

TEST_F(Identity, ReleasedPagesComeBack) {
  const auto checkpoint = Checkpoint::open(temp_.path());
  const Tensor& tensor = checkpoint->tensors().back();
  const std::vector<std::byte> before(tensor.data, tensor.data + tensor.num_bytes());
  checkpoint->release_pages();
  EXPECT_TRUE(std::equal(before.begin(), before.end(), tensor.data));
}

TEST_F(Identity, ChangesWithTheShards) {
  std::set<std::string> seen;
  for (const auto& names : {std::vector<std::string>{"a.safetensors"}, {"a.safetensors", "b.safetensors"}}) {
    const test::TempFolder folder;
    test::write_tiny_shards(folder.path(), names, true);
    EXPECT_TRUE(seen.insert(Checkpoint::open(folder.path())->identity()).second);
  }
}

/// 200 pages of data: the first, the last and every third or fourth in between are looked at.
TEST_F(Identity, SamplesLargeFiles) {
  const std::string config = test::read_file(temp_.path() / "config.json");
  const std::string header = R"({"w":{"dtype":"U8","shape":[819200],"data_offsets":[0,819200]}})";
  std::string good(8, '\0');
  good[0] = static_cast<char>(header.size());
  good += header + std::string(819200, 'w');
  rewrite(good);
  const std::string before = identity();
  const std::size_t pages = (good.size() + 4095) / 4096;
  std::size_t noticed = 0;
  for (std::size_t page = 0; page < pages; ++page) {
    std::string changed = good;
    const std::size_t at = std::min(page * 4096 + 4095, good.size() - 1);
    changed[at] = 'x';
    rewrite(changed);
    const bool differs = identity() != before;
    noticed += differs ? 1 : 0;
    EXPECT_TRUE(differs || (page > 0 && page < pages - 1)) << page;
  }
  EXPECT_EQ(noticed, 64U);
}

}  // namespace
}  // namespace vitrine
