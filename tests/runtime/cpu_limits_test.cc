// How many processors a process counts: affinity and the quotas of cgroups, versions 1 and 2.
#include "base/cpu_limits.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "fixture.h"

namespace coil::runtime_test {
namespace {

class CpuLimits : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = temp_folder() + "/cgroup_" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(root_);
    paths_ = {root_ + "/self", root_};
  }
  void put(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + "/" + name).parent_path());
    std::ofstream(root_ + "/" + name) << text;
  }

  std::string root_;
  CpuLimitPaths paths_;
};

TEST_F(CpuLimits, NoFiles) { EXPECT_EQ(cgroup_cpu_quota(paths_), 0); }

TEST_F(CpuLimits, VersionTwo) {
  put("self", "0::/a/b\n");
  put("a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(paths_), 0);
  put("a/cpu.max", "250000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(paths_), 3);  // 2.5, of the enclosing group
  put("a/b/cpu.max", "100000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(paths_), 1);
}

TEST_F(CpuLimits, RootOfAContainer) {
  put("self", "0::/\n");
  put("cpu.max", "400000 100000\n");
  EXPECT_EQ(cgroup_cpu_quota(paths_), 4);
}

TEST_F(CpuLimits, VersionOne) {
  put("self", "12:memory:/docker/7\n4:cpu,cpuacct:/docker/7\n");
  put("cpu/docker/7/cpu.cfs_quota_us", "150000\n");
  put("cpu/docker/7/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_quota(paths_), 2);
  put("cpu/docker/7/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cgroup_cpu_quota(paths_), 0);
}

TEST_F(CpuLimits, Garbage) {
  put("self", "no colons\n::\n0::relative\n0::/x\n");
  put("x/cpu.max", "-5 0\n");
  EXPECT_EQ(cgroup_cpu_quota(paths_), 0);
}

TEST_F(CpuLimits, Affinity) {
  std::thread([] {
    cpu_set_t set, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++) {
      if (CPU_ISSET(i, &set)) {
        CPU_SET(i, &one);
        break;
      }
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(allowed_cpus(), 1);
  }).join();
}

}  // namespace
}  // namespace coil::runtime_test
