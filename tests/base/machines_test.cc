#include "base/machines.h"

#include <gtest/gtest.h>

#include <numeric>

#include <fmt/format.h>

#include "base/json.h"

namespace coil {
namespace {

std::string described(const std::string& machines) { return fmt::format(R"({{"coil_machines": 1, "machines": [{}]}})", machines); }
std::string problem(const std::string& text) {
  const Result<Machines> read = parse_machines(text, "m.json");
  if (read.ok()) return "";
  EXPECT_EQ(read.error().code, ErrorCode::bad_option);
  return read.error().message;
}
// A GPU with another member beside what it needs.
std::string gpu_problem(const std::string& more) { return problem(described(R"({"architecture": "sm_90", "multiprocessors": 78, )" + more + "}")); }

TEST(Machines, ReadsWhatItWrites) {
  for (const CudaMachine& row : kCudaMachines) {
    for (const int multiprocessors : {row.multiprocessors, 1, 78, 1024}) {
      CudaMachine gpu = with_multiprocessors(row, multiprocessors);
      gpu.clock = 1.62, gpu.memory = 4000;
      const CpuMachine cpu = {1 << 20, 36 << 20, 12};
      Json rows = Json::array();
      rows.push_back(machine_json("x86-64", cpu, "a CPU"));
      rows.push_back(machine_json(gpu, "a GPU"));
      const auto read = parse_machines(machines_text(std::move(rows)), "m.json");
      ASSERT_TRUE(read.ok()) << read.error().message;
      ASSERT_NE(read.value().gpu(row.sm), nullptr);
      EXPECT_EQ(*read.value().gpu(row.sm), gpu) << row.sm;
      ASSERT_NE(read.value().cpu("x86-64"), nullptr);
      EXPECT_EQ(*read.value().cpu("x86-64"), cpu);
      EXPECT_EQ(read.value().cpu("aarch64"), nullptr);
      EXPECT_EQ(read.value().gpu(70), nullptr);
    }
  }
}

TEST(Machines, WhatIsLeftOutIsTheArchitectures) {
  const auto read = parse_machines(described(R"({"architecture": "sm_103", "multiprocessors": 148})"), "m.json");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read.value().gpu(103), cuda_machine(103));
}

TEST(Machines, RefusalsNameTheValue) {
  EXPECT_NE(problem("{").find("no description of machines"), std::string::npos);
  EXPECT_NE(problem("[]").find("object"), std::string::npos);
  EXPECT_NE(problem(R"({"coil_machines": 2, "machines": []})").find("coil_machines"), std::string::npos);
  EXPECT_NE(problem(described("")).find("no machine"), std::string::npos);
  EXPECT_NE(problem(described(R"({"architecture": "sm_75", "multiprocessors": 40})")).find("'sm_75'"), std::string::npos);
  EXPECT_NE(problem(described(R"({"architecture": "sm_90a", "multiprocessors": 40})")).find("'sm_90a'"), std::string::npos);
  EXPECT_NE(problem(described(R"({"architecture": "sm_90"})")).find("multiprocessors"), std::string::npos);
  EXPECT_NE(problem(described(R"({"architecture": "riscv", "threads": 1})")).find("'riscv'"), std::string::npos);
  const std::string one = R"({"architecture": "sm_90", "multiprocessors": 78})";
  EXPECT_NE(problem(described(one + "," + one)).find("second time"), std::string::npos);
}

TEST(Machines, NumbersHaveBounds) {
  EXPECT_EQ(gpu_problem(R"("name": "H20")"), "");
  for (const char* more :
       {R"("clock_ghz": 0)", R"("clock_ghz": 1e9)", R"("clock_ghz": "NaN")", R"("clock_ghz": "Infinity")", R"("memory_gb_s": -1)", R"("f32_per_clock": 0)",
        R"("half_per_clock": 1e300)", R"("parts": [])", R"("parts": [39, 40])", R"("parts": [78, 0])", R"("parts": [-1, 79])", R"("shared_bytes": 1)"}) {
    EXPECT_NE(gpu_problem(more), "") << more;
  }
  EXPECT_EQ(gpu_problem(R"("parts": [39, 39])"), "");
  for (const char* count : {"0", "-1", "1025", "1.5", "9223372036854775808", "\"78\""}) {
    EXPECT_NE(problem(described(fmt::format(R"({{"architecture": "sm_90", "multiprocessors": {}}})", count))), "") << count;
  }
  const auto cpu = [](const char* own, const char* shared, const char* threads) {
    return problem(
        described(fmt::format(R"({{"architecture": "aarch64", "own_cache_bytes": {}, "shared_cache_bytes": {}, "threads": {}}})", own, shared, threads)));
  };
  EXPECT_EQ(cpu("1048576", "33554432", "64"), "");
  EXPECT_NE(cpu("0", "33554432", "64"), "");
  EXPECT_NE(cpu("1048576", "99999999999999", "64"), "");
  EXPECT_NE(cpu("1048576", "33554432", "0"), "");
}

TEST(Machines, PartsAddUpAndHoldClusters) {
  for (int count = 1; count <= 400; ++count) {
    const CudaMachine m = with_multiprocessors(cuda_machine(90), count);
    EXPECT_EQ(std::accumulate(m.parts.begin(), m.parts.end(), 0), count);
    for (const int cluster : {1, 2, 4, 8, 16}) {
      const int64_t blocks = cluster_blocks_at_once(m, cluster, 1);
      EXPECT_GE(blocks, cluster);
      EXPECT_LE(blocks, std::max(count, cluster));
    }
    EXPECT_EQ(cluster_blocks_at_once(m, 1, 2), 2 * count);
  }
  EXPECT_EQ(cluster_blocks_at_once(cuda_machine(90), 4, 1), 4 * 30);  // of an H200
}

}  // namespace
}  // namespace coil
