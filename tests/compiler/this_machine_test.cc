#include "compiler/this_machine.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/cpu_limits.h"
#include "tests/base/temp_folder.h"

namespace coil {
namespace {

void add_cache(const TempFolder& folder, const std::string& index, const std::string& level, const std::string& type, const std::string& size) {
  const std::filesystem::path path = folder.file(index);
  std::filesystem::create_directories(path);
  std::ofstream(path / "level") << level << "\n";
  std::ofstream(path / "type") << type << "\n";
  std::ofstream(path / "size") << size << "\n";
}

TEST(ThisMachine, CachesAreTheKernels) {
  const TempFolder folder;
  add_cache(folder, "index0", "1", "Data", "48K");
  add_cache(folder, "index1", "1", "Instruction", "32M");
  add_cache(folder, "index2", "2", "Unified", "2048K");
  add_cache(folder, "index3", "3", "Unified", "107520K");
  const CpuMachine machine = this_cpu(folder.path());
  EXPECT_EQ(machine.own_cache, 2 << 20);
  EXPECT_EQ(machine.shared_cache, 105 << 20);
  EXPECT_EQ(machine.workers, allowed_cpus());
}

TEST(ThisMachine, WithoutCachesOrWithOddOnesItIsAUsualCpu) {
  const TempFolder folder;
  for (const std::string& path : {folder.path(), folder.file("none")}) {
    EXPECT_EQ(this_cpu(path).own_cache, kUsualCpu.own_cache);
    EXPECT_EQ(this_cpu(path).shared_cache, kUsualCpu.shared_cache);
  }
  add_cache(folder, "index0", "1", "Data", "-48K");
  add_cache(folder, "index1", "x", "Data", "48K");
  add_cache(folder, "index2", "2", "Unified", "99999999999999999999K");
  add_cache(folder, "index3", "3", "Unified", "1Q");
  EXPECT_EQ(this_cpu(folder.path()).own_cache, kUsualCpu.own_cache);
  EXPECT_EQ(this_cpu(folder.path()).shared_cache, kUsualCpu.shared_cache);
}

runtime::CudaDeviceInfo h200() {
  runtime::CudaDeviceInfo d;
  d.name = "NVIDIA H200";
  d.major = 9, d.multiprocessors = 132;
  d.clock_khz = 1980000, d.memory_clock_khz = 3201000, d.memory_bits = 6144;
  return d;
}

TEST(ThisMachine, AnH200IsItsRowOfTheTable) { EXPECT_EQ(machine_of(h200()), cuda_machine(90)); }

TEST(ThisMachine, WhatTheDriverSaysDecides) {
  runtime::CudaDeviceInfo d = h200();
  d.multiprocessors = 78, d.memory_bits = 3072, d.clock_khz = 990000;
  const CudaMachine machine = machine_of(d);
  EXPECT_EQ(machine.multiprocessors, 78);
  EXPECT_DOUBLE_EQ(machine.memory, 1950);
  EXPECT_NEAR(machine.clock, 0.8775, 1e-3);
  d = h200();
  d.clock_khz = d.memory_clock_khz = d.memory_bits = d.multiprocessors = 0;  // a driver that says nothing
  EXPECT_EQ(machine_of(d), cuda_machine(90));
}

}  // namespace
}  // namespace coil
