// SPDX-License-Identifier: Apache-2.0
#include "base/cgroup.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "support/test_files.h"

namespace vitrine::test {
namespace {

namespace fs = std::filesystem;

/// A machine's proc and sys, as far as cgroups go.
class Cgroups : public testing::Test {
 protected:
  void in_groups(const std::string& lines) { write("proc/self/cgroup", lines); }
  void write(const std::string& name, const std::string& text) {
    const fs::path path = root() / name;
    fs::create_directories(path.parent_path());
    write_file(path, text);
  }
  const fs::path& root() const { return folder_.path(); }
  double quota() const { return cgroup_cpu_quota(root()); }

 private:
  TempFolder folder_;
};

TEST_F(Cgroups, NoneAtAllIsNoLimit) {
  EXPECT_EQ(quota(), INFINITY);
  EXPECT_EQ(cgroup_folders(root()), std::vector{root() / "sys/fs/cgroup"});
}

TEST_F(Cgroups, FoldersFromTheProcessUp) {
  in_groups("0::/user.slice/job\n");
  const fs::path mount = root() / "sys/fs/cgroup";
  EXPECT_EQ(cgroup_folders(root()), (std::vector{mount / "user.slice/job", mount / "user.slice", mount}));
}

TEST_F(Cgroups, QuotaOfVersion2) {  // server.md 81
  in_groups("0::/job\n");
  for (const auto& [text, cores] : {std::pair<const char*, double>{"50000 100000\n", 0.5},
                                    {"150000 100000\n", 1.5},
                                    {"max 100000\n", INFINITY},
                                    {"", INFINITY},
                                    {"50000\n", INFINITY},
                                    {"50000 0\n", INFINITY}}) {
    write("sys/fs/cgroup/job/cpu.max", text);
    EXPECT_EQ(quota(), cores) << text;
  }
}

TEST_F(Cgroups, TheLowestQuotaOfAnyLevelCounts) {
  in_groups("0::/a/b\n");
  write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/a/cpu.max", "200000 100000\n");
  EXPECT_EQ(quota(), 2);
  write("sys/fs/cgroup/a/b/cpu.max", "25000 50000\n");
  EXPECT_EQ(quota(), 0.5);
}

TEST_F(Cgroups, QuotaOfVersion1) {
  in_groups("9:name=systemd:/x\n5:cpuset:/y\n3:cpu,cpuacct:/a/b\n0::/\n");
  write("sys/fs/cgroup/cpu/a/b/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(quota(), INFINITY);
  write("sys/fs/cgroup/cpu/a/b/cpu.cfs_quota_us", "50000\n");
  EXPECT_EQ(quota(), 0.5);
  in_groups("5:cpuset:/a/b\n3:cpu,cpuacct:/\n");  // a group of another controller
  EXPECT_EQ(quota(), INFINITY);
}

TEST_F(Cgroups, Version1InAContainerThatSeesTheHostsPath) {
  in_groups("1:cpu:/docker/0123\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(quota(), 2.5);
}

TEST_F(Cgroups, LinesThatMakeNoSenseAreNobodys) {
  in_groups("\n:\nnonsense\n0:\n0::/job");
  write("sys/fs/cgroup/job/cpu.max", "50000 100000");
  EXPECT_EQ(quota(), 0.5);
}

}  // namespace
}  // namespace vitrine::test
