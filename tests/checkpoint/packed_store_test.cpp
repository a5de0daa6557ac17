// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/packed_store.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vitrine/error.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "checkpoint/packed_folder.h"
#include "support/packed_files.h"
#include "support/test_files.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;
using test::make_older;
using test::names_in;
using test::pack_into;
using test::packed_key;
using test::packed_options;
using test::packed_specs;
using test::use_packed;

const int kAll = static_cast<int>(packed_specs().size());

/// Runs `body` in a process of its own and returns its exit status: 0 where all went well, 1 after an exception.
template <class Body>
int in_child(Body body) {
  const pid_t child = ::fork();
  if (child == 0) {
    int status = 0;
    try {
      body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
      status = 1;
    }
    ::_exit(status);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

/// A store that could not keep its file: right bytes, one warning with those words, nothing left in the folder.
void expect_only_in_memory(const PackedStore& store, const std::vector<std::string>& words) {
  EXPECT_EQ(store.file(), "");
  EXPECT_FALSE(store.mapped());
  ASSERT_EQ(store.warnings().size(), 1U);
  for (const std::string& word : words) {
    EXPECT_NE(store.warnings()[0].find(word), std::string::npos) << word << "\n" << store.warnings()[0];
  }
}

TEST(PackedStore, PackedOnceThenMapped) {
  const test::TempFolder temp;
  const fs::path folder = temp.path() / "new" / "folder";
  const PackedKey key = packed_key();
  std::vector<std::int64_t> progress;
  PackedStore::Options options = packed_options(folder);
  options.progress = [&](std::int64_t done, std::int64_t total) {
    EXPECT_EQ(total, 100'000);
    progress.push_back(done);
  };
  PackedStore first(key, options);
  EXPECT_EQ(use_packed(first, key, /*finish=*/false), kAll);
  EXPECT_EQ(first.file(), "");
  EXPECT_FALSE(fs::exists(packed_path(folder, key)));
  first.finish();
  EXPECT_EQ(progress, (std::vector<std::int64_t>{5000, 9096, 9098, 9098, 39098}));
  EXPECT_FALSE(first.mapped());
  EXPECT_EQ(first.file(), packed_path(folder, key));
  EXPECT_TRUE(first.warnings().empty());
  EXPECT_EQ(names_in(folder), std::vector<std::string>{fs::path(first.file()).filename()});
  EXPECT_EQ(fs::status(folder).permissions(), fs::perms::owner_all);

  PackedStore second(key, packed_options(folder));
  EXPECT_TRUE(second.mapped());
  EXPECT_EQ(use_packed(second, key), 0);
  EXPECT_EQ(second.file(), first.file());
  EXPECT_EQ(second.bytes(), static_cast<std::int64_t>(fs::file_size(second.file())));
  std::int64_t read = 0;
  second.populate([&](std::int64_t done, std::int64_t total) {
    EXPECT_EQ(total, second.bytes());
    read = done;
  });
  EXPECT_EQ(read, second.bytes());
}

TEST(PackedStore, ANameIsPackedOnce) {
  const test::TempFolder temp;
  PackedStore store(packed_key(), packed_options(temp.path()));
  int filled = 0;
  const auto fill = [&](std::byte* out) { out[0] = static_cast<std::byte>(++filled); };
  const std::byte* const place = store.get("embed", "int8 [1]", 1, fill);
  EXPECT_EQ(store.get("embed", "int8 [1]", 1, fill), place);
  EXPECT_EQ(filled, 1);
  EXPECT_THROW(store.get("embed", "int4 [1]", 1, fill), Error);
  EXPECT_THROW(store.get("embed", "int8 [1]", 2, fill), Error);
  EXPECT_THROW(store.get("more than expected", "", std::int64_t{1} << 40, fill), Error);
}

TEST(PackedStore, WithoutAFileTheFolderIsLeftAlone) {
  const test::TempFolder temp;
  const PackedKey key = packed_key();
  PackedStore::Options options = packed_options(temp.path() / "cache");
  options.use_file = false;
  PackedStore store(key, options);
  EXPECT_EQ(use_packed(store, key), kAll);
  EXPECT_EQ(store.file(), "");
  EXPECT_TRUE(store.warnings().empty());
  EXPECT_FALSE(fs::exists(temp.path() / "cache"));
}

TEST(PackedStore, TheKeyDecides) {
  const test::TempFolder temp;
  pack_into(temp.path(), packed_key('a'));
  for (const int changed : {0, 1, 2, 3}) {
    PackedKey key = packed_key('a');
    if (changed == 1) key.source[63] = '0';
    if (changed == 2) key.form = "int4";
    if (changed == 3) key.layout_version += 1;
    PackedStore store(key, packed_options(temp.path()));
    EXPECT_EQ(store.mapped(), changed == 0) << changed;
    EXPECT_EQ(use_packed(store, key), changed == 0 ? 0 : kAll) << changed;
    // A new version of the layout takes the place of the old one.
    EXPECT_EQ(names_in(temp.path()).size(), changed == 3 ? 3U : static_cast<std::size_t>(changed) + 1U);
  }
  PackedStore old_version(packed_key('a'), packed_options(temp.path()));
  EXPECT_FALSE(old_version.mapped());
}

TEST(PackedStore, AnotherTagSizeOrNameIsPackedAnewWithTheRest) {
  for (const int changed : {0, 1, 2}) {
    const test::TempFolder temp;
    const PackedKey key = packed_key();
    pack_into(temp.path(), key);
    std::vector<test::PackedSpec> specs = packed_specs();
    if (changed == 0) specs[1].tag = "int4 [64, 64]";
    if (changed == 1) specs[1].bytes += 1;
    if (changed == 2) specs[1].name = "k_proj";
    PackedStore store(key, packed_options(temp.path()));
    EXPECT_TRUE(store.mapped());
    // The first entry was good and is copied, the rest is filled.
    EXPECT_EQ(use_packed(store, key, /*finish=*/true, specs), kAll - 1) << changed;
    EXPECT_FALSE(store.mapped());
    PackedStore again(key, packed_options(temp.path()));
    EXPECT_EQ(use_packed(again, key, /*finish=*/true, specs), 0) << changed;
    EXPECT_EQ(names_in(temp.path()).size(), 1U);
  }
}

TEST(PackedStore, WithoutFinishNothingRemains) {
  const test::TempFolder temp;
  const PackedKey key = packed_key();
  {
    PackedStore store(key, packed_options(temp.path()));
    use_packed(store, key, /*finish=*/false);
    EXPECT_EQ(names_in(temp.path()).size(), 1U);
    EXPECT_TRUE(list_packed(temp.path()).empty());
  }
  EXPECT_TRUE(names_in(temp.path()).empty());
}

TEST(PackedStore, WhatFillThrowsGoesThrough) {
  const test::TempFolder temp;
  const PackedKey key = packed_key();
  PackedStore store(key, packed_options(temp.path()));
  EXPECT_THROW(store.get("embed", packed_specs()[0].tag, 5000,
                         [](std::byte* out) {
                           std::memset(out, 1, 5000);
                           throw Error(ErrorCode::kNumeric, "not a number");
                         }),
               Error);
  EXPECT_EQ(use_packed(store, key), kAll);
  PackedStore again(key, packed_options(temp.path()));
  EXPECT_EQ(use_packed(again, key), 0);
}

TEST(PackedStore, AFileInUseMayGo) {
  const test::TempFolder temp;
  const PackedKey key = packed_key();
  pack_into(temp.path(), key);
  PackedStore store(key, packed_options(temp.path()));
  const std::byte* const place = store.get("embed", packed_specs()[0].tag, 5000, [](std::byte*) { FAIL(); });
  fs::remove(store.file());
  std::vector<std::byte> expected(5000);
  test::fill_packed("embed", key, expected);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), place));
  EXPECT_EQ(use_packed(store, key), 0);
  PackedStore other(key, packed_options(temp.path()));
  EXPECT_EQ(use_packed(other, key), kAll);
}

// ---- Files that are not good ---------------------------------------------------------------------------------------

TEST(PackedStore, TruncatedFilesArePackedAnew) {
  const test::TempFolder temp;
  const PackedKey key = packed_key();
  const fs::path path = pack_into(temp.path(), key);
  const std::string good = test::read_file(path);
  std::vector<std::size_t> lengths = {0, 1, 8, 39, 72, 4095, 4096, 4097, good.size() / 2};
  for (std::size_t i = 1; i < 400; i += 7) lengths.push_back(good.size() - i);
  for (const std::size_t length : lengths) {
    test::write_file(path, good.substr(0, length));
    PackedStore store(key, packed_options(temp.path()));
    ASSERT_FALSE(store.mapped()) << length;
    ASSERT_EQ(use_packed(store, key), kAll);
    ASSERT_EQ(test::read_file(path), good) << length;
  }
  test::write_file(path, good + '\0');
  EXPECT_FALSE(PackedStore(key, packed_options(temp.path())).mapped());
}

TEST(PackedStore, AChangedByteInFrontOrDirectoryIsNoticed) {
  const test::TempFolder temp;
  const PackedKey key = packed_key();
  const fs::path path = pack_into(temp.path(), key);
  const std::string good = test::read_file(path);
  const std::size_t directory = (good.size() - 1) / 4096 * 4096;
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  for (std::size_t i = 0; i < good.size(); i = i == 4095 ? directory : i + 1) {
    const auto put = [&](char byte) { file.seekp(static_cast<std::streamoff>(i)).put(byte).flush(); };
    put(static_cast<char>(good[i] ^ (1 << i % 8)));
    ASSERT_FALSE(PackedStore(key, packed_options(temp.path())).mapped()) << i;
    put(good[i]);
  }
  EXPECT_TRUE(PackedStore(key, packed_options(temp.path())).mapped());
  file.seekp(100).put('x').flush();
  PackedStore store(key, packed_options(temp.path()));
  EXPECT_EQ(use_packed(store, key), kAll);
  EXPECT_TRUE(store.warnings().empty());
  EXPECT_EQ(test::read_file(path), good);
}

TEST(PackedStore, SomethingElseOfThatName) {
  const test::TempFolder temp;
  const PackedKey key = packed_key();
  const fs::path path = packed_path(temp.path(), key);
  fs::create_directories(path / "not empty");
  PackedStore store(key, packed_options(temp.path()));
  EXPECT_EQ(use_packed(store, key), kAll);
  expect_only_in_memory(store, {path.string(), "put in place"});
  EXPECT_EQ(names_in(temp.path()).size(), 1U);
}

// ---- Several at once -----------------------------------------------------------------------------------------------

TEST(PackedStore, ThreadsPackTheSameAtTheSameTime) {
  const test::TempFolder temp;
  const PackedKey key = packed_key();
  std::vector<std::thread> threads;
  std::vector<std::string> problems(4);
  for (std::string& problem : problems) {
    threads.emplace_back([&] {
      try {
        for (int round = 0; round < 10; ++round) {
          PackedStore store(key, packed_options(temp.path()));
          const int filled = use_packed(store, key);
          require(filled == (store.mapped() ? 0 : kAll), "half a file");
          require(store.warnings().empty() && !store.file().empty(), "no file");
          if (round % 3 == 0) ::unlink(store.file().c_str());
        }
      } catch (const std::exception& error) {
        problem = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& problem : problems) EXPECT_EQ(problem, "");
  EXPECT_LE(names_in(temp.path()).size(), 1U);
}

TEST(PackedStore, ProcessesPackTheSameAtTheSameTime) {
  const test::TempFolder temp;
  const PackedKey key = packed_key();
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      int status = 0;
      for (int round = 0; round < 5 && status == 0; ++round) {
        status = in_child([&] {
          PackedStore store(key, packed_options(temp.path()));
          require(use_packed(store, key) == (store.mapped() ? 0 : kAll), "half a file");
          require(store.warnings().empty(), "a warning");
          if (round % 2 == 0) ::unlink(store.file().c_str());
        });
      }
      ::_exit(status);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  // _exit() runs no destructors, but every file had been given its name.
  PackedStore store(key, packed_options(temp.path()));
  use_packed(store, key);
  EXPECT_EQ(names_in(temp.path()).size(), 1U);
}

TEST(PackedStore, AKilledWriterLeavesNothingThatCounts) {
  const test::TempFolder temp;
  const PackedKey key = packed_key();
  const int status = in_child([&] {
    PackedStore store(key, packed_options(temp.path()));
    store.get("embed", packed_specs()[0].tag, 5000, [](std::byte*) {});
    store.get("q_proj", packed_specs()[1].tag, 4096, [](std::byte*) { ::_exit(7); });
  });
  ASSERT_EQ(status, 7);
  ASSERT_EQ(names_in(temp.path()).size(), 1U);
  const fs::path leftover = temp.path() / names_in(temp.path())[0];
  EXPECT_TRUE(list_packed(temp.path()).empty());
  {
    // Young: it could belong to another machine.
    PackedStore store(key, packed_options(temp.path()));
    EXPECT_FALSE(store.mapped());
    EXPECT_TRUE(fs::exists(leftover));
  }
  make_older(leftover, 100);
  PackedStore store(key, packed_options(temp.path()));
  EXPECT_EQ(use_packed(store, key), kAll);
  EXPECT_EQ(names_in(temp.path()), std::vector<std::string>{fs::path(store.file()).filename()});
}

TEST(PackedStore, ALivingWriterKeepsItsFileHoweverOld) {
  const test::TempFolder temp;
  const PackedKey key = packed_key();
  PackedStore slow(key, packed_options(temp.path()));
  use_packed(slow, key, /*finish=*/false);
  const fs::path unfinished = temp.path() / names_in(temp.path()).at(0);
  make_older(unfinished, 1'000'000);
  EXPECT_EQ(remove_abandoned(temp.path()), 0);
  EXPECT_EQ(clear_packed(temp.path()), 0);
  EXPECT_TRUE(fs::exists(unfinished));
  slow.finish();
  EXPECT_EQ(PackedStore(key, packed_options(temp.path())).mapped(), true);
}

// ---- Disks and folders that refuse ---------------------------------------------------------------------------------

TEST(PackedStore, AFolderThatCannotBe) {
  const test::TempFolder temp;
  test::write_file(temp.path() / "file", "");
  const PackedKey key = packed_key();
  for (const fs::path& folder : {temp.path() / "file", temp.path() / "file" / "below", fs::path("/proc/vitrine")}) {
    PackedStore store(key, packed_options(folder));
    EXPECT_EQ(use_packed(store, key), kAll);
    expect_only_in_memory(store, {folder.string(), "cannot be created"});
  }
}

TEST(PackedStore, AFolderThatMayOnlyBeRead) {
  const test::TempFolder temp;
  const PackedKey key = packed_key('a');
  pack_into(temp.path(), key);
  fs::permissions(temp.path(), fs::perms(0555));
  const int status = in_child([&] {
    if (::geteuid() == 0) require(::setuid(65534) == 0, "setuid");  // root may write anywhere
    PackedStore old(key, packed_options(temp.path()));
    require(use_packed(old, key) == 0 && old.warnings().empty(), "what is there serves");
    PackedStore store(packed_key('b'), packed_options(temp.path()));
    require(use_packed(store, packed_key('b')) == kAll, "not packed");
    require(store.file().empty() && store.warnings().size() == 1, "one warning");
    require(store.warnings()[0].find("Permission denied") != std::string::npos, "words");
  });
  fs::permissions(temp.path(), fs::perms::owner_all);
  EXPECT_EQ(status, 0);
}

TEST(PackedStore, NoFolderAtAll) {
  EXPECT_EQ(in_child([] {
              for (const char* name : {"VITRINE_CACHE", "XDG_CACHE_HOME", "HOME"}) ::unsetenv(name);
              const PackedKey key = packed_key();
              PackedStore store(key, packed_options({}));
              require(use_packed(store, key) == kAll, "not packed");
              require(store.file().empty() && store.warnings().size() == 1, "no warning");
              require(store.warnings()[0].find("VITRINE_CACHE") != std::string::npos, "words");
            }),
            0);
}

/// The limit can lie anywhere: in the first page, between entries, within one, in the directory.
TEST(PackedStore, FilesMayOnlyGrowToALimit) {
  const test::TempFolder temp;
  const PackedKey key = packed_key();
  const auto whole = static_cast<rlim_t>(fs::file_size(pack_into(temp.path() / "whole", key)));
  const fs::path folder = temp.path() / "limited";
  for (rlim_t limit = 0; limit <= whole + 3000; limit += 2999) {
    const int status = in_child([&] {
      const struct rlimit wanted { limit, limit };
      require(::setrlimit(RLIMIT_FSIZE, &wanted) == 0, "setrlimit");
      PackedStore store(key, packed_options(folder));
      require(use_packed(store, key) == kAll, "not packed");
      require(store.file().empty() == (limit < whole), "file");
      require(store.warnings().size() == (limit < whole ? 1 : 0), "warnings");
      require(limit >= whole || names_in(folder).empty(), "something left");
    });
    EXPECT_EQ(status, 0) << limit << " of " << whole;
    if (limit >= whole) break;
  }
}

class SmallDisk : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = temp_.path() / "disk";
    fs::create_directory(folder_);
    mounted_ = ::mount("vitrine-test", folder_.c_str(), "tmpfs", 0, "size=64k") == 0;
    if (!mounted_) GTEST_SKIP() << "no small disk to fill: mount: " << std::strerror(errno);
  }
  void TearDown() override {
    if (mounted_) ::umount2(folder_.c_str(), MNT_DETACH);
  }
  test::TempFolder temp_;
  fs::path folder_;
  bool mounted_ = false;
};

TEST_F(SmallDisk, FullWhilePacking) {
  const PackedKey key = packed_key();
  std::vector<test::PackedSpec> specs = packed_specs();
  specs.push_back({"late", "int8 [1]", 60'000});
  PackedStore::Options options = packed_options(folder_);
  options.expected_bytes = 1000;  // so that it begins
  PackedStore store(key, options);
  EXPECT_EQ(use_packed(store, key, /*finish=*/false, specs), kAll + 1);
  // The disk is free again while the store lives.
  EXPECT_TRUE(names_in(folder_).empty());
  EXPECT_EQ(fs::space(folder_).free, 65536U);
  EXPECT_EQ(use_packed(store, key, /*finish=*/true, specs), 0);
  expect_only_in_memory(store, {folder_.string(), "the disk is full"});
}

TEST_F(SmallDisk, FullAtTheEnd) {
  const PackedKey key = packed_key();
  test::write_file(folder_ / "other", std::string(4096, 'x'));
  PackedStore::Options options = packed_options(folder_);
  options.expected_bytes = 1000;
  PackedStore store(key, options);
  use_packed(store, key, /*finish=*/false);
  test::write_file(folder_ / "more", "");
  std::string rest(fs::space(folder_).free, 'x');
  if (!rest.empty()) test::write_file(folder_ / "more", rest);
  store.finish();
  expect_only_in_memory(store, {folder_.string(), "the disk is full"});
  EXPECT_EQ(use_packed(store, key, /*finish=*/true, {}), 0);
  EXPECT_EQ(names_in(folder_), (std::vector<std::string>{"more", "other"}));
}

TEST_F(SmallDisk, KnownToBeTooSmall) {
  const PackedKey key = packed_key();
  PackedStore store(key, packed_options(folder_));
  EXPECT_EQ(use_packed(store, key), kAll);
  expect_only_in_memory(store, {folder_.string(), "expected 1 MB of free space"});
  EXPECT_TRUE(names_in(folder_).empty());
}

TEST_F(SmallDisk, ReadOnly) {
  if (::mount(nullptr, folder_.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
    GTEST_SKIP() << "no read-only disk: mount: " << std::strerror(errno);
  }
  const PackedKey key = packed_key();
  PackedStore store(key, packed_options(folder_));
  EXPECT_EQ(use_packed(store, key), kAll);
  expect_only_in_memory(store, {folder_.string(), "Read-only file system"});
}

// ---- The budget ----------------------------------------------------------------------------------------------------

TEST(PackedStore, TheLeastRecentlyUsedGoes) {
  const test::TempFolder temp;
  const fs::path a = pack_into(temp.path(), packed_key('a'));
  const fs::path b = pack_into(temp.path(), packed_key('b'));
  const auto size = static_cast<std::int64_t>(fs::file_size(a));
  make_older(a, 2000);
  make_older(b, 1000);
  {
    PackedStore use_a(packed_key('a'), packed_options(temp.path()));  // makes it the last used
    use_packed(use_a, packed_key('a'));
  }
  PackedStore third(packed_key('c'), packed_options(temp.path(), std::max<std::int64_t>(size * 2 + 100, 100'000)));
  use_packed(third, packed_key('c'));
  EXPECT_TRUE(fs::exists(a));
  EXPECT_FALSE(fs::exists(b));
  EXPECT_TRUE(fs::exists(third.file()));
  // A smaller budget counts at the next start, whatever it does.
  PackedStore::Options options = packed_options(temp.path(), size + 100);
  options.expected_bytes = 39098;
  PackedStore again(packed_key('c'), options);
  EXPECT_EQ(use_packed(again, packed_key('c')), 0);
  EXPECT_FALSE(fs::exists(a));
  EXPECT_TRUE(fs::exists(again.file()));
}

TEST(PackedStore, MoreThanTheBudgetIsNotKept) {
  const test::TempFolder temp;
  const PackedKey key = packed_key();
  for (const std::int64_t expected : {39098, 100}) {  // known before, and noticed at the end
    PackedStore::Options options = packed_options(temp.path(), 30'000);
    options.expected_bytes = expected;
    PackedStore store(key, options);
    EXPECT_EQ(use_packed(store, key), kAll);
    expect_only_in_memory(store, {"VITRINE_CACHE_BUDGET", "found 1 MB"});
    EXPECT_TRUE(names_in(temp.path()).empty());
  }
}

}  // namespace
}  // namespace vitrine
