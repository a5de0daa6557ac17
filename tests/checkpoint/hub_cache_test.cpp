// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/hub_cache.h"

#include <gtest/gtest.h>
#include <vitrine/error.h>

#include <chrono>
#include <cstdlib>
#include <map>
#include <optional>

#include "support/test_files.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

/// Runs each test with only the variables it sets, and in a folder without models.
class HubCache : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"}) {
      const char* value = std::getenv(name);
      if (value != nullptr)
        saved_[name] = value;
      else
        saved_[name] = std::nullopt;
      ::unsetenv(name);
    }
    set("HOME", temp_.path() / "home");
  }
  void TearDown() override {
    for (const auto& [name, value] : saved_) {
      if (value)
        ::setenv(name.c_str(), value->c_str(), 1);
      else
        ::unsetenv(name.c_str());
    }
  }
  static void set(const char* name, const fs::path& value) { ::setenv(name, value.c_str(), 1); }

  fs::path write_snapshot(const fs::path& cache, const std::string& commit) {
    const fs::path snapshot = cache / "models--org--tiny" / "snapshots" / commit;
    fs::create_directories(snapshot);
    test::write_file(snapshot / "config.json", "{}");
    return snapshot;
  }
  static void write_ref(const fs::path& cache, const std::string& text) {
    fs::create_directories(cache / "models--org--tiny" / "refs");
    test::write_file(cache / "models--org--tiny" / "refs" / "main", text);
  }
  static void expect_error(std::string_view name, ErrorCode code, const std::vector<std::string>& parts) {
    try {
      ADD_FAILURE() << name << " gave " << resolve_model(name);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      for (const std::string& part : parts) {
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << "\n" << error.what();
      }
    }
  }

  test::TempFolder temp_;

 private:
  std::map<std::string, std::optional<std::string>> saved_;
};

TEST_F(HubCache, AFolderIsItself) {
  EXPECT_EQ(resolve_model(temp_.path().string()), temp_.path());
  EXPECT_EQ(resolve_model("."), ".");
}

TEST_F(HubCache, TheVariablesCountInTheirOrder) {
  const fs::path roots[] = {temp_.path() / "home/.cache/huggingface/hub", temp_.path() / "xdg/huggingface/hub",
                            temp_.path() / "hf/hub", temp_.path() / "direct"};
  const auto expect_root = [&](const fs::path& root) {
    expect_error("org/tiny", ErrorCode::kNotFound, {(root / "models--org--tiny").string(), "hf download org/tiny"});
    const fs::path snapshot = write_snapshot(root, "0123abcd");
    EXPECT_EQ(resolve_model("org/tiny"), snapshot);
  };
  expect_root(roots[0]);
  set("XDG_CACHE_HOME", temp_.path() / "xdg");
  expect_root(roots[1]);
  set("HF_HOME", temp_.path() / "hf");
  expect_root(roots[2]);
  set("HF_HUB_CACHE", temp_.path() / "direct");
  expect_root(roots[3]);
  set("HF_HUB_CACHE", "~/.cache/huggingface/hub");
  EXPECT_EQ(resolve_model("org/tiny").lexically_normal(), (roots[0] / "models--org--tiny/snapshots/0123abcd"));
  set("HF_HUB_CACHE", "");
  EXPECT_EQ(resolve_model("org/tiny"), roots[2] / "models--org--tiny/snapshots/0123abcd");
}

TEST_F(HubCache, RefsMainChoosesTheSnapshot) {
  set("HF_HUB_CACHE", temp_.path());
  const fs::path first = write_snapshot(temp_.path(), "aaaa");
  const fs::path second = write_snapshot(temp_.path(), "bbbb");
  write_ref(temp_.path(), "aaaa");
  EXPECT_EQ(resolve_model("org/tiny"), first);
  write_ref(temp_.path(), "bbbb\n");
  EXPECT_EQ(resolve_model("org/tiny"), second);
  write_ref(temp_.path(), "cccc");
  expect_error("org/tiny", ErrorCode::kNotFound, {"incomplete", "cccc", "hf download org/tiny"});
  for (const char* text : {"", "../../../x", "aaaa bbbb"}) {
    write_ref(temp_.path(), text);
    expect_error("org/tiny", ErrorCode::kBadFile, {"refs/main", "hexadecimal"});
  }
  write_ref(temp_.path(), std::string(5000, 'a'));
  expect_error("org/tiny", ErrorCode::kTooLarge, {"refs/main"});
}

TEST_F(HubCache, WithoutRefsTheNewestSnapshotCounts) {
  set("HF_HUB_CACHE", temp_.path());
  const fs::path first = write_snapshot(temp_.path(), "aaaa");
  const fs::path second = write_snapshot(temp_.path(), "bbbb");
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(first, now);
  fs::last_write_time(second, now - std::chrono::hours(1));
  EXPECT_EQ(resolve_model("org/tiny"), first);
  fs::last_write_time(second, now + std::chrono::hours(1));
  EXPECT_EQ(resolve_model("org/tiny"), second);
}

TEST_F(HubCache, IncompleteSnapshotsAreNamed) {
  set("HF_HUB_CACHE", temp_.path());
  fs::create_directories(temp_.path() / "models--org--tiny" / "blobs");
  expect_error("org/tiny", ErrorCode::kNotFound, {"incomplete", "hf download org/tiny"});
  fs::remove(write_snapshot(temp_.path(), "aaaa") / "config.json");
  expect_error("org/tiny", ErrorCode::kNotFound, {"incomplete", "aaaa/config.json", "hf download org/tiny"});
}

TEST_F(HubCache, OddNamesAreRefused) {
  for (const char* name : {"org/..", "or..g/x", "org/a b", "org/$x", "org/-x", "org/x--y", "-org/x", "org/a\\b",
                           "org/\x1b[2J", "org/mod\xC3\xA8le"}) {
    expect_error(name, ErrorCode::kInvalidArgument, {"ORG/NAME"});
  }
  expect_error("org/" + std::string(97, 'a'), ErrorCode::kInvalidArgument, {"ORG/NAME"});
  expect_error("", ErrorCode::kInvalidArgument, {"ORG/NAME"});
  expect_error(std::string_view("org/x\0y", 7), ErrorCode::kInvalidArgument, {"ORG/NAME"});
  for (const char* path : {"tiny", "/no/such", "../../x", "./x", "~/x", "a/b/c", "org/"}) {
    expect_error(path, ErrorCode::kNotFound, {"no such folder"});
  }
}

TEST_F(HubCache, AFileIsNoModel) {
  test::write_file(temp_.path() / "x.gguf", "GGUF");
  test::write_file(temp_.path() / "config.json", "{}");
  expect_error((temp_.path() / "x.gguf").string(), ErrorCode::kUnsupported, {"x.gguf", "GGUF"});
  expect_error((temp_.path() / "config.json").string(), ErrorCode::kInvalidArgument, {"expected a model folder"});
}

TEST_F(HubCache, WithoutAnyVariableItSaysSo) {
  ::unsetenv("HOME");
  expect_error("org/tiny", ErrorCode::kNotFound, {"HF_HUB_CACHE", "hf download org/tiny"});
}

}  // namespace
}  // namespace vitrine
