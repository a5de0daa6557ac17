// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/packed_folder.h"

#include <gtest/gtest.h>
#include <vitrine/error.h>

#include <cstdlib>
#include <ctime>
#include <optional>

#include "support/packed_files.h"
#include "support/test_files.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;
using test::make_older;
using test::names_in;
using test::pack_into;
using test::packed_key;

/// Sets or removes a variable of the environment, until the end of the scope.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1);
  }
  ~Variable() { old_ ? ::setenv(name_, old_->c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST(PackedFolder, TheVariablesCountInTheirOrder) {
  const Variable none[] = {{"HOME", nullptr}, {"XDG_CACHE_HOME", nullptr}, {"VITRINE_CACHE", nullptr}};
  EXPECT_EQ(default_cache_folder(), "");
  ::setenv("HOME", "/home/x", 1);
  EXPECT_EQ(default_cache_folder(), "/home/x/.cache/vitrine");
  ::setenv("XDG_CACHE_HOME", "/caches", 1);
  EXPECT_EQ(default_cache_folder(), "/caches/vitrine");
  ::setenv("VITRINE_CACHE", "~/fast disk", 1);
  EXPECT_EQ(default_cache_folder(), "/home/x/fast disk");
  ::setenv("VITRINE_CACHE", "here", 1);
  EXPECT_EQ(default_cache_folder(), fs::current_path() / "here");
  ::setenv("VITRINE_CACHE", "", 1);
  EXPECT_EQ(default_cache_folder(), "/caches/vitrine");
}

TEST(PackedFolder, Budgets) {
  const std::pair<const char*, std::int64_t> good[] = {{"", 8'000'000'000},
                                                       {"0", 0},
                                                       {"123", 123},
                                                       {"20GB", 20'000'000'000},
                                                       {"500MB", 500'000'000},
                                                       {"1.5gb", 1'500'000'000},
                                                       {"2 KiB", 2048},
                                                       {"1GiB", 1073741824},
                                                       {"0.5 TB", 500'000'000'000},
                                                       {"7B", 7},
                                                       {"9kB", 9000}};
  for (const auto& [text, bytes] : good) {
    const Variable set("VITRINE_CACHE_BUDGET", text);
    EXPECT_EQ(cache_budget(), bytes) << text;
  }
  for (const char* text : {"lots", "GB", "-1", "20 G B", "20GB!", " 5", "1e9", "inf", "nan", "0x10", "99999999TB"}) {
    const Variable set("VITRINE_CACHE_BUDGET", text);
    try {
      ADD_FAILURE() << text << " gave " << cache_budget();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("VITRINE_CACHE_BUDGET: expected a size"), std::string::npos);
    }
  }
  const Variable unset("VITRINE_CACHE_BUDGET", nullptr);
  EXPECT_EQ(cache_budget(), 8'000'000'000);
}

TEST(PackedFolder, SizesInWords) {
  EXPECT_EQ(size_text(0), "0 MB");
  EXPECT_EQ(size_text(1), "1 MB");
  EXPECT_EQ(size_text(300'000'000), "300 MB");
  EXPECT_EQ(size_text(1'000'000'000), "1.00 GB");
  EXPECT_EQ(size_text(12'345'678'901), "12.34 GB");
}

TEST(PackedFolder, NamesAreFitForFiles) {
  const auto name = [](std::string model, std::string form) {
    return packed_path("/c", {.model_name = std::move(model), .source = std::string(64, 'a'), .form = std::move(form)})
        .filename()
        .string();
  };
  EXPECT_TRUE(name("Qwen3-0.6B", "int8").starts_with("Qwen3-0.6B.int8."));
  EXPECT_EQ(name("Qwen3-0.6B", "int8").size(), std::string("Qwen3-0.6B.int8.0123456789ab.packed").size());
  EXPECT_TRUE(name("../a b/ü", "x/y").starts_with("-.-a-b---.x-y."));
  EXPECT_TRUE(name("", "int8").starts_with("model.int8."));
  EXPECT_LT(name(std::string(5000, 'x'), std::string(5000, 'y')).size(), 200U);
  EXPECT_EQ(packed_path("/c", packed_key()).parent_path(), "/c");
  EXPECT_NE(unfinished_path("/c/x").string(), unfinished_path("/c/x").string());
}

TEST(PackedFolder, ListsTheLastUsedFirst) {
  const test::TempFolder temp;
  EXPECT_TRUE(list_packed(temp.path() / "none").empty());
  const fs::path a = pack_into(temp.path(), packed_key('a'));
  const fs::path b = pack_into(temp.path(), packed_key('b'));
  const fs::path c = pack_into(temp.path(), packed_key('c'));
  make_older(a, 100);
  make_older(b, 300);
  make_older(c, 200);
  fs::resize_file(c, 5000);
  make_older(c, 200);
  test::write_file(temp.path() / "notes.packed", "not ours");
  test::write_file(temp.path() / "README", "not ours");
  fs::create_directory(temp.path() / "x.int8.0123456789ab.packed");
  const auto files = list_packed(temp.path());
  ASSERT_EQ(files.size(), 3U);
  EXPECT_EQ(files[0].path, a);
  EXPECT_EQ(files[0].model_name, "Tiny model");
  EXPECT_EQ(files[0].form, "int8");
  EXPECT_EQ(files[0].bytes, static_cast<std::int64_t>(fs::file_size(a)));
  EXPECT_NEAR(static_cast<double>(files[0].last_used), static_cast<double>(std::time(nullptr) - 100), 60);
  EXPECT_TRUE(files[0].valid);
  EXPECT_EQ(files[1].path, c);
  EXPECT_FALSE(files[1].valid);
  EXPECT_EQ(files[1].model_name, c.filename());
  EXPECT_EQ(files[1].bytes, 5000);
  EXPECT_EQ(files[2].path, b);
  EXPECT_THROW(list_packed(temp.path() / "README"), Error);
}

TEST(PackedFolder, ClearTakesOurFilesOnly) {
  const test::TempFolder temp;
  EXPECT_EQ(clear_packed(temp.path() / "none"), 0);
  const fs::path a = pack_into(temp.path(), packed_key('a'));
  const fs::path b = pack_into(temp.path(), packed_key('b'));
  fs::resize_file(b, 100);
  const auto bytes = static_cast<std::int64_t>(fs::file_size(a));
  const fs::path leftover = unfinished_path(a);
  test::write_file(leftover, std::string(8192, 'x'));
  test::write_file(temp.path() / "notes.packed", "not ours");
  test::write_file(temp.path() / ".hidden.part", "not ours");
  PackedStore using_it(packed_key('a'), test::packed_options(temp.path()));
  EXPECT_GE(clear_packed(temp.path()), bytes + 100);
  EXPECT_EQ(names_in(temp.path()), (std::vector<std::string>{".hidden.part", "notes.packed"}));
  EXPECT_EQ(test::use_packed(using_it, packed_key('a')), 0);
}

TEST(PackedFolder, AbandonedFilesGoOnceTheyAreQuiet) {
  const test::TempFolder temp;
  const fs::path young = unfinished_path(packed_path(temp.path(), packed_key('a')));
  const fs::path old = unfinished_path(packed_path(temp.path(), packed_key('b')));
  const fs::path other = temp.path() / ".x.part";
  for (const fs::path& path : {young, old, other}) test::write_file(path, std::string(5000, 'x'));
  make_older(old, 90);
  make_older(other, 1'000'000);
  EXPECT_GE(remove_abandoned(temp.path()), 5000);
  EXPECT_TRUE(fs::exists(young) && !fs::exists(old) && fs::exists(other));
  EXPECT_EQ(remove_abandoned(temp.path() / "none"), 0);
}

TEST(PackedFolder, TrimKeepsWhatIsInUse) {
  const test::TempFolder temp;
  const fs::path a = pack_into(temp.path(), packed_key('a'));
  const fs::path b = pack_into(temp.path(), packed_key('b'));
  const auto size = static_cast<std::int64_t>(fs::file_size(a));
  make_older(a, 100);
  trim_packed(temp.path(), a, 2 * size);
  EXPECT_EQ(names_in(temp.path()).size(), 2U);
  trim_packed(temp.path(), a, size);
  EXPECT_TRUE(fs::exists(a) && !fs::exists(b));
  trim_packed(temp.path(), a, 0);
  EXPECT_TRUE(fs::exists(a));
  trim_packed(temp.path(), "", 0);
  EXPECT_FALSE(fs::exists(a));
  trim_packed(temp.path() / "none", "", 0);
}

}  // namespace
}  // namespace vitrine
