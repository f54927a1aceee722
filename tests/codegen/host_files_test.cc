// Host programs of very many calls are several files.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "codegen/cpu/cpu_kernels.h"
#include "codegen/cpu/host/host_program.h"
#include "loop/recorder.h"
#include "schedule/schedule.h"

namespace coil {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++n;
  return n;
}

// A chain of running sums of a dynamic size: each is a call by itself, and a statement.
// long_offsets: places in the arena are formulas that have functions of their own.
HostText host_of(int calls, bool long_offsets = false) {
  const auto shared = std::make_shared<ExprPool>();
  ExprPool& pool = *shared;
  const Expr batch = pool.symbol(pool.add_symbol({"s0", "batch", 1, 64}));
  Recorder rec{shared};
  const auto size = [&](const char* name) { return pool.symbol(pool.add_symbol({name, name, 1, 64})); };
  const std::vector<Expr> sizes = {batch, long_offsets ? (size("height") + 3) * (size("width") + 5) * (batch + 7) : pool.index(8)};
  View x = rec.input("x", DType::f32, sizes, contiguous_strides(pool, sizes));
  for (int i = 0; i < calls; ++i) x = rec.scan("cumsum", ScanOp::sum, DType::f32, sizes, 0, [&](Coordinates c) { return rec.at(x, c); });
  BufferInfo& last = rec.program().buffer(BufferId(x.body->id));
  last.strides = contiguous_strides(pool, sizes);
  LoopOutput out;
  out.source = BufferId(x.body->id);
  out.name = "out";
  rec.program().outputs.push_back(out);
  const KernelPlan plan = schedule(rec.take(), cpu::traits()).value();
  HostOptions options;
  options.isas = {"v3"};
  return host_program_text(plan, cpu::generate_kernels(plan), options);
}

constexpr const char* kDefined = "__attribute__((noinline, optnone)) ";  // what stands before a function of calls

TEST(HostFiles, FewCallsAreOneFile) {
  const HostText text = host_of(2000);
  EXPECT_TRUE(text.further.empty());
  EXPECT_EQ(count(text.first, "COIL_BEGIN("), 2000u);
}

// What clang has at once does not grow with the program: calls, declarations and tables of other calls.
TEST(HostFiles, ManyCallsAreSeveral) {
  const HostText few = host_of(2400), many = host_of(9600);
  EXPECT_EQ(few.further.size(), 2u);
  EXPECT_EQ(many.further.size(), 5u);
  EXPECT_LT(many.first.size(), 1.5 * few.first.size() + 7200 * 64) << "a line for each kernel's name, no calls";
  size_t calls = count(many.first, "COIL_BEGIN(");
  EXPECT_LT(calls, 256u);
  for (const std::string& file : many.further) {
    EXPECT_LE(count(file, kDefined), 8u);
    EXPECT_LT(file.size(), 1.1 * few.further[0].size());
    calls += count(file, "COIL_BEGIN(");
  }
  EXPECT_EQ(calls, 9600u);
}

TEST(HostFiles, EachFunctionIsDefinedOnce) {
  const HostText text = host_of(2400);
  for (int i = 0; i < 9; ++i) {
    const std::string head = fmt::format("int32_t calls_{}(", i);
    EXPECT_EQ(count(text.first, head), 1u) << "declared";
    EXPECT_EQ(count(text.further[0], head) + count(text.further[1], head), 1u);
  }
  EXPECT_EQ(count(text.first, "kFunctions[1]["), 2u) << "declared and defined";
  EXPECT_EQ(count(text.further[0], "kFunctions[1]["), 1u);
}

TEST(HostFiles, EachFileDefinesTheOffsetsThatItCalls) {
  const HostText text = host_of(2400, true);
  ASSERT_EQ(text.further.size(), 2u);
  std::vector<std::string> files = text.further;
  files.push_back(text.first);
  for (const std::string& file : files) {
    size_t calls = 0;
    for (size_t at = 0; (at = file.find("offset_", at)) != file.npos; ++at) {
      const std::string name = file.substr(at, file.find('(', at) + 1 - at);
      if (file.compare(at + name.size(), 2, "s)") != 0) continue;  // a definition
      EXPECT_EQ(count(file, "static int64_t " + name + "const long* s)"), 1u) << name;
      ++calls;
    }
    EXPECT_GT(calls, 30u);
  }
}

}  // namespace
}  // namespace coil
