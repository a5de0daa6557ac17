// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/packed_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <vitrine/error.h>

#include <cstring>
#include <limits>
#include <vector>

#include "support/test_files.h"

namespace vitrine {
namespace {

constexpr std::int64_t kPage = 4096;

class PackedMemoryFile : public testing::Test {
 protected:
  void SetUp() override {
    fd_ = ::open((temp_.path() / "file").c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    ASSERT_GE(fd_, 0);
  }
  void TearDown() override { ::close(fd_); }
  void write(std::int64_t offset, std::string_view text) const {
    ASSERT_EQ(::pwrite(fd_, text.data(), text.size(), offset), static_cast<ssize_t>(text.size()));
  }
  test::TempFolder temp_;
  int fd_ = -1;
};

TEST_F(PackedMemoryFile, MemoryFileMemory) {
  constexpr std::int64_t kSize = (std::int64_t{150} << 20) + 3 * kPage + 5;  // several pieces, the last one not whole
  PackedMemory memory(kSize);
  std::byte* const data = memory.data();
  ASSERT_GE(memory.capacity(), kSize);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % (2 << 20), 0U);
  memory.grow(kSize);
  memory.grow(10);  // never back
  EXPECT_EQ(data[kSize - 1], std::byte{0});

  const std::vector<std::int64_t> places = {0, kPage - 1, 64 << 20, (128 << 20) - 1, kSize - 1};
  for (std::size_t i = 0; i < places.size(); ++i) {
    const char letter = static_cast<char>('a' + i);
    data[places[i]] = static_cast<std::byte>(letter);
    write(places[i], {&letter, 1});
  }
  const auto expect_letters = [&] {
    for (std::size_t i = 0; i < places.size(); ++i) {
      ASSERT_EQ(static_cast<char>(data[places[i]]), static_cast<char>('a' + i)) << places[i];
    }
    ASSERT_EQ(data[kPage], std::byte{0});
  };
  ASSERT_TRUE(memory.show_file(fd_, 0, 64 << 20));
  expect_letters();
  ASSERT_TRUE(memory.show_file(fd_, 64 << 20, kSize - (64 << 20)));
  expect_letters();
  write(kPage - 1, "A");
  EXPECT_EQ(data[kPage - 1], std::byte{'A'});
  write(kPage - 1, "b");

  memory.leave_file(fd_, kSize);
  expect_letters();
  EXPECT_EQ(::lseek(fd_, 0, SEEK_END), 0);
  memory.seal(kSize);
  expect_letters();
  EXPECT_EQ(memory.data(), data);
}

TEST_F(PackedMemoryFile, AFileThatCannotBeShownLeavesTheMemory) {
  PackedMemory memory(kPage);
  memory.grow(kPage);
  std::memcpy(memory.data(), "kept", 4);
  EXPECT_FALSE(memory.show_file(-1, 0, kPage));
  EXPECT_EQ(std::memcmp(memory.data(), "kept", 4), 0);
}

TEST(PackedMemory, SizesOutOfReach) {
  EXPECT_THROW(PackedMemory(std::int64_t{1} << 60), Error);
  PackedMemory memory(kPage);
  EXPECT_THROW(memory.grow(std::int64_t{1} << 40), Error);
  memory.seal(0);
}

}  // namespace
}  // namespace vitrine
