// How generated programs write a kernel's choice: the numbers have the names that tuning records have, of each kind of kernel its own.
#include "codegen/choice.h"

#include <gtest/gtest.h>

#include "codegen/cpu/choice_types.h"
#include "codegen/cuda/choices.h"
#include "codegen/cuda/loop_way.h"

namespace coil {
namespace {

TEST(ChoiceTest, ARowIsDeclaredByItsNames) {
  EXPECT_EQ(declare_choice(templates::CudaWay::kNames, "kChoices[2]"), "    const auto& [kind, rows, columns, split] = kChoices[2];\n");
  EXPECT_EQ(declare_choice(cpu::AttentionChoice::kNames, "t"), "    const auto& [unused_0, block_tiles, block_panels, threads] = t;\n");
}

TEST(ChoiceTest, WhatIsDeclaredIsComparedByName) {
  EXPECT_EQ(is_declared(templates::CudaWay::kNames, choice_of(templates::CudaWay{2, 64, 32, 1})), "kind == 2 && rows == 64 && columns == 32 && split == 1");
  EXPECT_EQ(is_declared(cuda::LoopWay::kNames, choice_of(cuda::LoopWay{cuda::kTilesWay, 0, 32})), "way == 2 && threads == 0 && points == 32");
  EXPECT_EQ(is_declared(cuda::UserChoice::kNames, choice_of(cuda::UserChoice{.config = 3})), "config == 3");
  EXPECT_EQ(is_declared(cpu::AttentionChoice::kNames, choice_of(cpu::AttentionChoice{.threads = 1})), "block_tiles == 0 && block_panels == 0 && threads == 1");
}

}  // namespace
}  // namespace coil
