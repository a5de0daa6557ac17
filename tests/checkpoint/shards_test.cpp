// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/shards.h"

#include <gtest/gtest.h>
#include <vitrine/error.h>

#include <cstring>

#include "checkpoint/checkpoint.h"
#include "support/bad_files.h"
#include "support/test_files.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

void expect_same_tensors(const Checkpoint& a, const Checkpoint& b) {
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (std::size_t i = 0; i < a.tensors().size(); ++i) {
    const Tensor& x = a.tensors()[i];
    const Tensor& y = b.tensors()[i];
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.dtype, y.dtype);
    ASSERT_EQ(x.shape, y.shape);
    EXPECT_EQ(std::memcmp(x.data, y.data, static_cast<std::size_t>(x.num_bytes())), 0) << x.name;
  }
}

TEST(Shards, AllLayoutsGiveTheSameTensors) {
  const auto reference = Checkpoint::open(test::data_path("models/qwen3-tiny"));
  ASSERT_EQ(reference->tensors().size(), 35U);
  const struct {
    std::vector<std::string> names;
    bool with_index;
  } layouts[] = {
      {{"model.safetensors"}, false},
      {{"model.safetensors"}, true},
      {{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}, true},
      {{"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}, false},
      {{"model.safetensors-00001-of-00002.safetensors", "model.safetensors-00002-of-00002.safetensors"}, true},
      {{"weights.safetensors"}, false},
      {{"zebra.safetensors", "Ape.safetensors", "ähre.safetensors"}, true},
  };
  for (const auto& layout : layouts) {
    const test::TempFolder folder;
    test::write_tiny_shards(folder.path(), layout.names, layout.with_index);
    SCOPED_TRACE(layout.names[0] + (layout.with_index ? " with index" : ""));
    expect_same_tensors(*reference, *Checkpoint::open(folder.path()));
  }
}

TEST(Shards, TheIndexDecidesWhichFilesCount) {
  const test::TempFolder folder;
  test::write_tiny_shards(folder.path(), {"a.safetensors", "b.safetensors"}, true);
  test::write_file(folder.path() / "model.safetensors", "not read");
  test::write_file(folder.path() / "c.safetensors", "not read");
  EXPECT_EQ(find_shards(folder.path()).files.size(), 2U);
  EXPECT_NO_THROW(Checkpoint::open(folder.path()));
}

TEST(Shards, WithoutIndexTheSingleFileCounts) {
  const auto shards = find_shards(test::data_path("models/qwen3-tiny"));  // expected.safetensors lies beside it
  ASSERT_EQ(shards.files.size(), 1U);
  EXPECT_EQ(shards.files[0].filename(), "model.safetensors");
}

TEST(Shards, HiddenFilesDoNotCount) {
  const test::TempFolder folder;
  test::write_tiny_shards(folder.path(), {"a.safetensors"}, false);
  test::write_file(folder.path() / "._a.safetensors", "a leftover of a file manager");
  EXPECT_EQ(find_shards(folder.path()).files.size(), 1U);
}

TEST(Shards, LinksInsideTheFolderAreFine) {
  const test::TempFolder folder;
  test::write_tiny_model(folder.path());
  fs::create_directory(folder.path() / "data");
  fs::rename(folder.path() / "model.safetensors", folder.path() / "data" / "blob");
  fs::create_symlink("data/blob", folder.path() / "model.safetensors");
  EXPECT_NO_THROW(Checkpoint::open(folder.path()));
}

TEST(Shards, ALinkToTheFolderIsFine) {
  const test::TempFolder folder;
  fs::create_directory(folder.path() / "model");
  test::write_tiny_model(folder.path() / "model");
  fs::create_symlink("model", folder.path() / "link");
  EXPECT_NO_THROW(Checkpoint::open(folder.path() / "link"));
}

TEST(Shards, AFolderWhoseNameBeginsAlikeIsOutside) {
  const test::TempFolder folder;
  for (const char* name : {"model", "model-secret"}) {
    fs::create_directory(folder.path() / name);
    test::write_tiny_model(folder.path() / name);
  }
  fs::remove(folder.path() / "model" / "model.safetensors");
  fs::create_symlink("../model-secret/model.safetensors", folder.path() / "model" / "model.safetensors");
  EXPECT_THROW(Checkpoint::open(folder.path() / "model"), Error);
}

/// CACHE/models--org--tiny with the weights of `blob` linked into a snapshot.
fs::path write_snapshot(const fs::path& cache, const std::string& blob) {
  const fs::path snapshot = cache / "models--org--tiny" / "snapshots" / "0123abcd";
  fs::create_directories(snapshot);
  fs::create_directories(cache / "models--org--tiny" / "blobs");
  test::write_tiny_shards(snapshot, {"model-00001-of-00001.safetensors"}, true);
  fs::rename(snapshot / "model-00001-of-00001.safetensors", snapshot / blob);
  fs::create_symlink(blob, snapshot / "model-00001-of-00001.safetensors");
  return snapshot;
}

TEST(Shards, SnapshotsOfTheHubCacheMayLinkToBlobs) {
  const test::TempFolder cache;
  EXPECT_NO_THROW(Checkpoint::open(write_snapshot(cache.path(), "../../blobs/deadbeef")));
}

TEST(Shards, SnapshotsOfTheHubCacheMayNotLinkElsewhere) {
  const test::TempFolder cache;
  fs::create_directories(cache.path() / "models--org--other" / "blobs");
  try {
    Checkpoint::open(write_snapshot(cache.path(), "../../../models--org--other/blobs/deadbeef"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadFile);
    EXPECT_NE(std::string(error.what()).find("expected a file inside"), std::string::npos) << error.what();
  }
}

TEST(Shards, AllMissingFilesAreListed) {
  const test::TempFolder folder;
  test::write_tiny_shards(folder.path(), {"a.safetensors", "b.safetensors", "c.safetensors"}, true);
  fs::remove(folder.path() / "a.safetensors");
  fs::remove(folder.path() / "c.safetensors");
  try {
    find_shards(folder.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kNotFound);
    EXPECT_NE(std::string(error.what()).find("a.safetensors, c.safetensors"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace vitrine
