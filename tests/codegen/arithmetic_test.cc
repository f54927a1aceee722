// Which float32 factors CUDA may round to TensorFloat-32 is a name in the plan, which its text keeps and CUDA's templates read.
#include "codegen/cuda/templates/arithmetic.h"

#include <gtest/gtest.h>

#include "codegen/cuda/choices.h"
#include "codegen/cuda/cuda_kernels.h"
#include "schedule/parse_plan.h"
#include "schedule/schedule.h"
#include "tests/schedule/scheduled_program.h"

namespace coil {
namespace {

constexpr Tf32 kAll[] = {{}, {true, false}, {false, true}, {true, true}};

class ArithmeticTest : public ScheduledProgram {
 protected:
  KernelPlan planned(const std::string& arithmetic) {
    TargetTraits traits = cuda::traits({{90}, false});
    traits.arithmetic = arithmetic;
    return schedule(rec.program(), traits).value();
  }
};

TEST_F(ArithmeticTest, APlansTextKeepsTheName) {
  output(gemm(input("x", sizes({64, 128})), constant("w", {128, 256}), 256));
  for (const Tf32 tf32 : kAll) {
    const KernelPlan plan = planned(cuda::arithmetic_of(tf32));
    const std::string text = to_string(plan);
    EXPECT_EQ(text.find("\narithmetic tf32_") != text.npos, tf32.any()) << text;
    const auto again = parse_plan(text);
    ASSERT_TRUE(again.ok()) << again.error().to_string();
    EXPECT_EQ(cuda::tf32_of(again.value()), tf32);
    EXPECT_EQ(to_string(again.value()), text);
  }
}

TEST_F(ArithmeticTest, ProductsReadIt) {
  output(gemm(input("x", sizes({64, 128})), constant("w", {128, 256}), 256));
  for (const Tf32 tf32 : kAll) {
    const KernelPlan plan = planned(cuda::arithmetic_of(tf32));
    EXPECT_TRUE(cuda::problem_text(plan, plan.kernels.at(0)).starts_with(tf32.products ? "gemm tf32 " : "gemm f32 "));
  }
}

TEST_F(ArithmeticTest, NamesOfOthersMeanNothingHereAndStayInTheText) {
  output(gemm(input("x", sizes({64, 128})), constant("w", {128, 256}), 256));
  for (const std::string name : {"tf32_", "tf32_some", "of another", "bf16x3"}) {
    const KernelPlan plan = planned(name);
    EXPECT_EQ(cuda::tf32_of(plan), Tf32());
    EXPECT_EQ(parse_plan(to_string(plan)).value().arithmetic, name);
  }
  EXPECT_FALSE(parse_plan("plan\narithmetic \n").ok());
}

}  // namespace
}  // namespace coil
