// Names of a program's functions where the digits of texts are equal.
#include <gtest/gtest.h>

#include <unordered_map>

#include "base/hash.h"
#include "codegen/cpu/cpu_kernels.h"
#include "codegen/kernel_text.h"
#include "loop/recorder.h"
#include "schedule/schedule.h"

namespace coil {
namespace {

// Two texts whose hashes end in the same eight digits: among so many there are some.
std::pair<std::string, std::string> colliding() {
  std::unordered_map<uint32_t, int> seen;
  for (int i = 0; i < 1'000'000; ++i) {
    const auto [it, fresh] = seen.try_emplace(static_cast<uint32_t>(hash64(std::string_view("text " + std::to_string(i)))), i);
    if (!fresh) return {"text " + std::to_string(it->second), "text " + std::to_string(i)};
  }
  return {};
}

TEST(FunctionNames, EqualDigits) {
  const auto [a, b] = colliding();
  ASSERT_NE(a, b);
  FunctionNames names;
  const std::string first = names.add("stack", a);
  EXPECT_EQ(first, "stack_" + hex(hash64(std::string_view(a))).substr(8));
  const std::string second = names.add("stack", b);
  EXPECT_EQ(second, "stack_" + hex(hash64(std::string_view(b))));
  EXPECT_NE(names.add("stack", b), second);  // as if all sixteen were equal
  EXPECT_EQ(names.add("cat", b), "cat_" + first.substr(6));
}

// Sums over as many dynamic sizes: kernels that are alike but for the symbol.
cpu::CpuProgram sums_of(int symbols) {
  const auto shared = std::make_shared<ExprPool>();
  ExprPool& pool = *shared;
  Recorder rec{shared};
  for (int i = 0; i < symbols; ++i) {
    const std::string name = std::to_string(i);
    const std::vector<Expr> sizes = {pool.symbol(pool.add_symbol({"s" + name, "size" + name, 1, 64})), pool.index(8)};
    const View x = rec.input("x" + name, DType::f32, sizes, contiguous_strides(pool, sizes));
    const View sum = rec.reduce("sum", ReduceOp::sum, DType::f32, {sizes[1]}, {sizes[0]},
                                [&](Coordinates c, Coordinates r) { return rec.at(x, std::vector<Expr>{r[0], c[0]}); });
    BufferInfo& result = rec.program().buffer(BufferId(sum.body->id));
    result.strides = contiguous_strides(pool, result.sizes);
    LoopOutput out;
    out.source = BufferId(sum.body->id);
    out.name = "out" + name;
    rec.program().outputs.push_back(out);
  }
  const KernelPlan plan = schedule(rec.take(), cpu::traits()).value();
  return cpu::generate_kernels(plan);
}

TEST(FunctionNames, KernelsOfManySymbolsAreOneFunction) {
  EXPECT_EQ(sums_of(20).functions.size(), 20u) << "few symbols have the program's numbers";
  const cpu::CpuProgram many = sums_of(100);
  EXPECT_EQ(many.functions.size(), 1u);
  EXPECT_NE(many.functions[0].text.find("s[0]"), std::string::npos) << many.functions[0].text;
  EXPECT_EQ(many.functions[0].text.find("s[1]"), std::string::npos) << "each kernel has one size: " << many.functions[0].text;
  ASSERT_EQ(many.launches.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(many.launches[static_cast<size_t>(i)].symbols, std::vector<int>{i});
}

}  // namespace
}  // namespace coil
