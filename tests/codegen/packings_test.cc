// Which packing the CPU wants for a product's weight, and that what a plan says of a packing's size is true.
#include "codegen/packings.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "codegen/constants.h"
#include "codegen/cpu/cpu_kernels.h"
#include "schedule/schedule.h"
#include "templates/packing.h"
#include "tests/schedule/scheduled_program.h"

namespace coil {
namespace {

using PackingsTest = ScheduledProgram;

// Pairs of k are what instructions for bfloat16 read: of other types, of odd depths and for few rows a weight stays in rows.
TEST_F(PackingsTest, WeightsOfBfloat16LieInPairsForManyRows) {
  const Expr many = pool.index(8), few = pool.index(7);
  struct Case {
    Expr rows;
    int64_t depth;
    DType dtype;
    bool pairs;
  };
  const std::vector<Case> cases = {{many, 64, DType::bf16, true},   {few, 64, DType::bf16, false},     {many, 48, DType::bf16, false},
                                   {many, 144, DType::bf16, true},  {many, 64, DType::f16, false},     {many, 64, DType::f32, false},
                                   {batch, 64, DType::bf16, false}, {batch * 8, 64, DType::bf16, true}};
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& [rows, depth, dtype, pairs] = cases[i];
    const std::string number = std::to_string(i);
    const View x = input(("x" + number).c_str(), {rows, pool.index(depth)}, dtype);
    output(gemm(x, constant(("w" + number).c_str(), {depth, 8}, dtype), 8));
  }
  const auto p = schedule(rec.take(), cpu::traits());
  ASSERT_TRUE(p.ok());
  ASSERT_EQ(p.value().constants.size(), cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_EQ(p.value().constants[i].packing, cases[i].pairs ? packings::gemm_b_pairs : packings::gemm_b) << i;
  }
}

// A weight that few rows read in panels is not kept in pairs too.
TEST_F(PackingsTest, AWeightIsKeptOnce) {
  const View w = constant("w", {64, 8}, DType::bf16);
  output(gemm(input("few", {pool.index(2), pool.index(64)}, DType::bf16), w, 8));
  output(gemm(input("many", {pool.index(64), pool.index(64)}, DType::bf16), w, 8));
  const auto p = schedule(rec.take(), cpu::traits());
  ASSERT_TRUE(p.ok());
  ASSERT_EQ(p.value().constants.size(), 1u);
  EXPECT_EQ(p.value().constants[0].packing, packings::gemm_b);
}

TensorData numbers(DType dtype, std::vector<int64_t> sizes) {
  TensorData t;
  t.dtype = dtype, t.sizes = sizes;
  t.strides.resize(sizes.size());
  int64_t step = 1;
  for (size_t i = sizes.size(); i-- > 0; step *= sizes[i]) t.strides[i] = step;
  auto bytes = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(step * byte_size(dtype)));
  t.bytes = *bytes, t.owner = bytes;
  return t;
}

// A plan of one constant.
KernelPlan plan_of(const TensorData& data, DType stored) {
  KernelPlan plan;
  BufferInfo info;
  info.kind = BufferInfo::Kind::constant, info.dtype = stored, info.data = data;
  plan.buffers.push_back({std::move(info), {}});
  return plan;
}

// The blob is laid out by sizes before bytes are made: odd sizes, where panels, pieces and tiles have room behind the last element.
TEST(Packings, SizesAreThoseOfTheBytes) {
  using namespace packings;
  const auto check = [](Packing packing, const TensorData& data, PlanConstant c) {
    c.packing = packing, c.buffer = BufferId(0);
    const KernelPlan plan = plan_of(data, data.dtype);
    EXPECT_EQ(packed_size(plan.buffers[0].info, c), constant_bytes(plan, c).size()) << packing.name() << " of " << name(data.dtype) << " " << data.sizes[0];
  };
  for (const auto& [k, n] : {std::pair<int64_t, int64_t>(1, 1), {37, 33}, {64, 32}, {130, 5}}) {
    PlanConstant c;
    c.k = k, c.n = n, c.row_stride = n, c.col_stride = 1;
    for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i8}) check(gemm_b, numbers(dtype, {k, n}), c);
    check(gemm_b_pairs, numbers(DType::bf16, {k, n}), c);
    for (const Packing p : {gemm_b_4bit, gemm_b_integer, gemm_b_quads, gemm_b_quads_4bit, gemm_b_lines, gemm_b_lines_4bit})
      check(p, numbers(DType::i8, {k, n}), c);
    PlanConstant batches = c;
    batches.batch = 3, batches.batch_stride = k * n;
    check(gemm_b, numbers(DType::f32, {3, k, n}), batches);
    for (const Packing p : {gemm_b_4bit, gemm_b_quads, gemm_b_quads_4bit, gemm_b_codes, gemm_b_quads_codes}) check(p, numbers(DType::i8, {3, k, n}), batches);
    check(gemm_b_pairs, numbers(DType::bf16, {3, k, n}), batches);
    PlanConstant lines;
    lines.k = n, lines.n = k, lines.batch_stride = n + 3;
    check(kPaddedLines, numbers(DType::f32, {k, n}), lines);
    check(kPlain, numbers(DType::f32, {k, n}), c);
  }
  for (const auto& [oc, ic, groups] : {std::tuple<int64_t, int64_t, int64_t>(6, 5, 1), {40, 33, 1}, {64, 16, 2}}) {
    PlanConstant c;
    c.groups = groups;
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const Packing p : {conv_weight, narrow_groups_weight, few_outputs_weight, conv_ohwi}) check(p, numbers(dtype, {oc, ic, 3, 3}), c);
    }
    check(conv_weight_pairs, numbers(DType::bf16, {oc, ic, 3, 3}), c);
    check(conv_weight_integer, numbers(DType::i8, {oc, ic, 3, 3}), c);
    check(depthwise_weight, numbers(DType::f32, {oc, 1, 3, 3}), c);
    for (const Packing p : {winograd_2x2_weight, winograd_4x4_weight}) check(p, numbers(DType::bf16, {oc, ic, 3, 3}), c);
  }
}

// Large matrices are packed some columns at a time, on several threads; in 16 bits where they are stored so.
TEST(Packings, PiecesAreThoseOfTheWhole) {
  constexpr int64_t k = 5000, n = 300;
  TensorData data = numbers(DType::f32, {k, n});
  auto bytes = std::make_shared<std::vector<uint8_t>>(data.bytes.size());
  for (int64_t i = 0; i < k * n; ++i) {
    const auto value = static_cast<float>(i % 251);
    std::memcpy(bytes->data() + i * 4, &value, 4);
  }
  data.bytes = *bytes, data.owner = bytes;
  PlanConstant c;
  c.packing = packings::gemm_b, c.buffer = BufferId(0), c.k = k, c.n = n, c.row_stride = n, c.col_stride = 1;
  const std::vector<std::byte> whole = templates::pack_gemm_b(bytes->data(), 4, k, n, n, 1);
  std::vector<uint8_t> pieces;
  ASSERT_TRUE(constant_pieces(plan_of(data, DType::f32), c, 3, [&](std::span<const uint8_t> piece) {
                pieces.insert(pieces.end(), piece.begin(), piece.end());
                return ok_status();
              }).ok());
  ASSERT_EQ(pieces.size(), whole.size());
  EXPECT_EQ(std::memcmp(pieces.data(), whole.data(), whole.size()), 0);
  const KernelPlan narrow = plan_of(data, DType::f16);
  EXPECT_EQ(constant_bytes(narrow, c).size(), packed_size(narrow.buffers[0].info, c));
  EXPECT_EQ(packed_size(narrow.buffers[0].info, c) * 2, whole.size());
}

TEST(Packings, AnUnknownNameIsNoPacking) {
  PlanConstant c;
  c.packing = Packing("upside_down");
  EXPECT_THROW(packed_size(plan_of(numbers(DType::f32, {2, 2}), DType::f32).buffers[0].info, c), InternalError);
  EXPECT_TRUE(Packing::fits("a_name_of_23_letters_12"));
  EXPECT_FALSE(Packing::fits("a_name_of_24_letters_123"));
  EXPECT_FALSE(Packing::fits(""));
}

}  // namespace
}  // namespace coil
