// Layouts, fusion, kernels and memory, on small loop programs made with the recorder.
#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "schedule/schedule.h"
#include "tests/schedule/scheduled_program.h"

namespace coil {
namespace {

class ScheduleTest : public ScheduledProgram {
 protected:
  View unary(const char* name, ScalarOp op, const View& x) {
    return rec.pointwise(name, DType::f32, x.sizes, [&](Coordinates i) { return pool.op(op, {rec.at(x, i)}); });
  }
  View add(const View& a, const View& b) {
    return rec.pointwise("add", DType::f32, a.sizes, [&](Coordinates i) { return pool.op(ScalarOp::add, {rec.at(a, i), rec.at(b, i)}); });
  }
  // Rows of x reduced to size 1.
  View rows(const char* name, ReduceOp op, const View& x) {
    return rec.reduce(name, op, DType::f32, {x.sizes[0], pool.index(1)}, {x.sizes[1]},
                      [&](Coordinates i, Coordinates r) { return rec.at(x, std::vector<Expr>{i[0], r[0]}); });
  }
  KernelPlan plan(const TargetTraits& traits = {}) {
    auto r = schedule(rec.take(), traits);
    EXPECT_TRUE(r.ok());
    return std::move(r).value();
  }
};

TEST_F(ScheduleTest, SoftmaxIsOneKernelOfThreePasses) {
  const View x = input("x", {batch, pool.index(128)});
  const View top = rows("max", ReduceOp::max, x);
  const View e = rec.pointwise("exp", DType::f32, x.sizes, [&](Coordinates i) {
    return pool.op(ScalarOp::exp, {pool.op(ScalarOp::sub, {rec.at(x, i), rec.at(top, std::vector<Expr>{i[0], pool.index(0)})})});
  });
  const View total = rows("sum", ReduceOp::sum, e);
  output(rec.pointwise("div", DType::f32, x.sizes,
                       [&](Coordinates i) { return pool.op(ScalarOp::div, {rec.at(e, i), rec.at(total, std::vector<Expr>{i[0], pool.index(0)})}); }));
  const KernelPlan p = plan();
  ASSERT_EQ(p.kernels.size(), 1u);
  const auto& k = std::get<LoopKernel>(p.kernels[0].def);
  EXPECT_EQ(k.num_outer, 1);
  EXPECT_EQ(k.axes.size(), 2u);
  EXPECT_EQ(k.num_phases, 3);
  EXPECT_TRUE(p.arena_bytes == pool.index(0)) << to_string(p);
}

TEST_F(ScheduleTest, ExpensiveValueIsKeptBetweenPasses) {
  const View x = input("x", {batch, pool.index(128)});
  const View g = unary("erf", ScalarOp::erf, x);
  const View total = rows("sum", ReduceOp::sum, g);
  output(rec.pointwise("div", DType::f32, x.sizes,
                       [&](Coordinates i) { return pool.op(ScalarOp::div, {rec.at(g, i), rec.at(total, std::vector<Expr>{i[0], pool.index(0)})}); }));
  const KernelPlan p = plan();
  ASSERT_EQ(p.kernels.size(), 1u);
  const auto& k = std::get<LoopKernel>(p.kernels[0].def);
  ASSERT_EQ(k.scratch.size(), 1u);
  EXPECT_EQ(evaluate_index(p.arena_bytes, [&](SymbolId id) { return id == p.workers ? 3 : 64; }), 3 * 128 * 4);
}

// As of channels that lie last: the elements of a reduced row are far apart, and those of its neighbours beside them.
TEST_F(ScheduleTest, NothingIsKeptOfRowsThatLieAcross) {
  const View x = input("x", {pool.index(128), batch});
  const View g = unary("erf", ScalarOp::erf, x);
  const View total = rec.reduce("sum", ReduceOp::sum, DType::f32, {batch}, {pool.index(128)},
                                [&](Coordinates i, Coordinates r) { return rec.at(g, std::vector<Expr>{r[0], i[0]}); });
  output(
      rec.pointwise("div", DType::f32, x.sizes, [&](Coordinates i) { return pool.op(ScalarOp::div, {rec.at(g, i), rec.at(total, std::vector<Expr>{i[1]})}); }));
  const KernelPlan p = plan();
  ASSERT_EQ(p.kernels.size(), 1u);
  EXPECT_TRUE(std::get<LoopKernel>(p.kernels[0].def).scratch.empty());
}

TEST_F(ScheduleTest, BiasAndActivationRunInTheEpilogue) {
  const View x = input("x", {batch, pool.index(16)});
  const View bias = constant("bias", {8});
  const View y = gemm(x, constant("w", {16, 8}), 8);
  const View biased =
      rec.pointwise("bias", DType::f32, y.sizes, [&](Coordinates i) { return pool.op(ScalarOp::add, {rec.at(y, i), rec.at(bias, i.subspan(1))}); });
  output(unary("tanh", ScalarOp::tanh, biased));
  const KernelPlan p = plan();
  ASSERT_EQ(p.kernels.size(), 1u);
  const auto& k = std::get<TemplateKernel>(p.kernels[0].def);
  EXPECT_EQ(k.epilogue.size(), 1u);
  ASSERT_EQ(p.constants.size(), 2u);
  EXPECT_EQ(p.constants[0].packing, kPlain);  // no target has another one
}

// A target says how a product's weight lies: to the plan it is a name, with the weight's place in the program beside it.
TEST_F(ScheduleTest, WeightsLieAsTheTargetSays) {
  TargetTraits traits;
  std::vector<int64_t> depths;
  std::vector<size_t> present;
  traits.packings.product = [&](const WeightUse& use) -> std::optional<Packing> {
    depths.push_back(use.place.k), present.push_back(use.present.size());
    if (use.place.k == 48) return std::nullopt;
    return use.place.k == 32 ? kPlain : Packing(use.other == DType::f16 ? "halves" : "panels");
  };
  const View w = constant("w", {64, 8});
  output(gemm(input("x", {batch, pool.index(64)}), w, 8));
  output(gemm(input("y", {pool.index(3), pool.index(64)}), w, 8));
  output(gemm(input("z", {batch, pool.index(64)}, DType::f16), constant("h", {64, 8}, DType::f16), 8));
  output(gemm(input("left", {batch, pool.index(48)}), constant("l", {48, 8}), 8));
  output(gemm(input("ready", {batch, pool.index(32)}), constant("r", {32, 8}), 8));
  const KernelPlan p = plan(traits);
  EXPECT_EQ(depths, (std::vector<int64_t>{64, 64, 64, 48, 32}));
  EXPECT_EQ(present, (std::vector<size_t>{0, 1, 0, 0, 0}));
  std::map<std::string, std::string> packings;
  for (const PlanConstant& c : p.constants) packings[p.buffer(c.buffer).info.name] = c.packing.name();
  EXPECT_EQ(packings, (std::map<std::string, std::string>{{"w", "panels"}, {"h", "halves"}, {"l", "plain"}, {"r", "plain"}}));
  EXPECT_EQ(p.constants.size(), 4u);  // the packed weight is there once
}

// The factor and offset of a batch norm whose statistics are data: an epilogue would take the root for each point. A cheap vector is computed there.
TEST_F(ScheduleTest, DearVectorsAreStoredForTheEpilogue) {
  const View x = input("x", {pool.index(64), pool.index(16)}), w = input("w", {pool.index(16), pool.index(8)});
  const View variance = input("variance", {pool.index(8)}), bias = input("bias", {pool.index(8)});
  const auto scaled = [&](const View& y, const View& by) {
    return rec.pointwise("scale", DType::f32, y.sizes, [&](Coordinates i) { return pool.op(ScalarOp::mul, {rec.at(y, i), rec.at(by, i.subspan(1))}); });
  };
  const View factor = unary("factor", ScalarOp::rsqrt, variance);
  const View offset = unary("cheap", ScalarOp::neg, bias);
  output(scaled(scaled(gemm(x, w, 8), factor), offset));
  TargetTraits traits;
  traits.inline_cost = 12;
  const KernelPlan p = plan(traits);
  ASSERT_EQ(p.kernels.size(), 2u);
  EXPECT_EQ(p.kernels[0].name, "factor");
  const auto& k = std::get<TemplateKernel>(p.kernels[1].def);
  ASSERT_EQ(k.epilogue.size(), 1u);
  EXPECT_FALSE(any_of(k.epilogue[0].value, [](Expr e) { return e->is_op(ScalarOp::rsqrt); }));
  EXPECT_TRUE(any_of(k.epilogue[0].value, [](Expr e) { return e->is_op(ScalarOp::neg); }));
  EXPECT_TRUE(std::any_of(p.not_fused.begin(), p.not_fused.end(), [](const FusionNote& n) { return n.reason.find("for each point") != std::string::npos; }));
}

// Of as many points as the template's result there is nothing to be saved, nor where few of them read an element.
TEST_F(ScheduleTest, DearMatricesAreComputedInTheEpilogue) {
  for (const int64_t rows : {8, 64}) {
    const int64_t read = rows == 8 ? 1 : rows;
    const View x = input("x", {pool.index(rows), pool.index(16)}), w = input("w", {pool.index(16), pool.index(8)});
    const View root = unary("root", ScalarOp::rsqrt, input("other", {pool.index(read), pool.index(8)})), y = gemm(x, w, 8);
    output(rec.pointwise("scale", DType::f32, y.sizes, [&](Coordinates i) {
      return pool.op(ScalarOp::mul, {rec.at(y, i), rec.at(root, std::vector<Expr>{read == 1 ? pool.index(0) : i[0], i[1]})});
    }));
  }
  TargetTraits traits;
  traits.inline_cost = 12;
  EXPECT_EQ(plan(traits).kernels.size(), 2u);
}

// Gradients of weights: their epilogues are written last in the program, their operands need not be in memory until then.
TEST_F(ScheduleTest, ResultsThatNobodyReadsAreMadeAsSoonAsTheyCan) {
  const View x = input("x", {pool.index(64), pool.index(16)}), v = input("v", {pool.index(16), pool.index(16)}),
             w = input("w", {pool.index(16), pool.index(8)});
  std::vector<View> gradients;
  View h = unary("tanh", ScalarOp::tanh, x);
  for (int layer = 0; layer < 3; ++layer) {
    gradients.push_back(gemm(h, w, 8));
    h = unary("exp", ScalarOp::exp, gemm(h, v, 16));
  }
  for (const View& g : gradients) output(unary("neg", ScalarOp::neg, g));
  output(h);
  const KernelPlan p = plan();
  std::vector<std::string> names;
  for (const Kernel& k : p.kernels) names.push_back(k.name);
  EXPECT_EQ(names, (std::vector<std::string>{"tanh", "mm_neg", "mm_exp", "mm_neg", "mm_exp", "mm_neg", "mm_exp"}));
  EXPECT_EQ(typical(p.arena_bytes), 2 * 64 * 16 * 4);
}

// Updates of parameters, each of which needs a number that is counted before: behind all of these, where they are neighbours.
TEST_F(ScheduleTest, UpdatesRunBehindTheStepsThatTheyNeed) {
  for (const char* name : {"a", "b", "c"}) {
    const View step = unary("exp", ScalarOp::exp, input((std::string(name) + "_step").c_str(), {}));
    const View parameter = input(name, {pool.index(64), pool.index(16)});
    output(step);
    output(rec.pointwise("mul", DType::f32, parameter.sizes, [&](Coordinates i) { return pool.op(ScalarOp::mul, {rec.at(parameter, i), rec.at(step, {})}); }));
  }
  const KernelPlan p = plan();
  std::vector<std::string> names;
  for (const Kernel& k : p.kernels) names.push_back(k.name);
  EXPECT_EQ(names, (std::vector<std::string>{"exp", "exp", "exp", "mul", "mul", "mul"}));
}

// Two templates meet in one sum: it can run in one epilogue only, and the other's result is stored.
TEST_F(ScheduleTest, OneEpiloguePerSum) {
  const View x = input("x", {batch, pool.index(16)});
  const View a = gemm(x, constant("w", {16, 8}), 8), b = gemm(x, constant("v", {16, 8}), 8);
  output(add(a, b));
  const KernelPlan p = plan();
  ASSERT_EQ(p.kernels.size(), 2u);
  EXPECT_TRUE(std::get<TemplateKernel>(p.kernels[0].def).epilogue.empty());
  EXPECT_EQ(std::get<TemplateKernel>(p.kernels[1].def).epilogue.size(), 1u);
  EXPECT_FALSE(p.not_fused.empty());
}

TEST_F(ScheduleTest, ArenaIsAFormulaAndSlotsAreReused) {
  const View x = input("x", {batch, pool.index(16)});
  View y = x;
  for (int i = 0; i < 4; ++i) y = gemm(y, constant("w", {16, 16}), 16);
  output(y);
  const KernelPlan p = plan();
  ASSERT_EQ(p.kernels.size(), 4u);
  // Three intermediates, two alive at a time.
  EXPECT_TRUE(p.arena_bytes == batch * (2 * 16 * 4)) << to_string(p.arena_bytes);
}

TEST_F(ScheduleTest, ReadingElsewhereIsNotFusedAndSaysWhy) {
  const View x = input("x", sizes({64, 64}));
  const View s = rows("sum", ReduceOp::sum, x);
  // The column's total is read by rows of another order.
  output(rec.pointwise("outer", DType::f32, x.sizes, [&](Coordinates i) {
    return pool.op(ScalarOp::mul, {rec.at(s, std::vector<Expr>{i[0], pool.index(0)}), rec.at(s, std::vector<Expr>{i[1], pool.index(0)})});
  }));
  const KernelPlan p = plan();
  EXPECT_EQ(p.kernels.size(), 2u);
  ASSERT_FALSE(p.not_fused.empty());
  EXPECT_FALSE(p.not_fused[0].reason.empty());
}

TEST_F(ScheduleTest, FewCheapPiecesAreChosenByTheirReader) {
  for (const int pieces : {0, 2}) {
    Recorder recorder{shared};
    const std::vector<Expr> half = sizes({8, 4}), whole = sizes({8, 8});
    const View x = recorder.input("x", DType::f32, half, contiguous_strides(pool, half));
    const View y = recorder.pointwise("neg", DType::f32, half, [&](Coordinates i) { return pool.op(ScalarOp::neg, {recorder.at(x, i)}); });
    const View joined = recorder.concat("cat", DType::f32, whole, 1, {y, x});
    const View twice = recorder.pointwise("exp", DType::f32, whole, [&](Coordinates i) { return pool.op(ScalarOp::exp, {recorder.at(joined, i)}); });
    LoopOutput out;
    out.source = BufferId(twice.body->id);
    out.name = "out";
    recorder.program().buffer(out.source).strides = contiguous_strides(pool, whole);
    recorder.program().outputs.push_back(out);
    TargetTraits traits;
    traits.select_pieces = pieces;
    const auto plan = schedule(recorder.take(), traits);
    ASSERT_TRUE(plan.ok());
    EXPECT_EQ(plan.value().kernels.size(), pieces ? 1u : 3u) << to_string(plan.value());
  }
}

// Pieces and what else does not need them run beside each other; memory is free again only after all of them.
TEST_F(ScheduleTest, NeighboursThatDoNotNeedEachOtherRunBeside) {
  for (const int most : {1, 2, 8}) {
    Recorder recorder{shared};
    const std::vector<Expr> half = sizes({8, 4}), whole = sizes({8, 8});
    const auto result = [&](const View& v) {
      LoopOutput out;
      out.source = BufferId(v.body->id);
      out.name = "out";
      recorder.program().buffer(out.source).strides = contiguous_strides(pool, v.sizes);
      recorder.program().outputs.push_back(out);
    };
    const View x = recorder.input("x", DType::f32, half, contiguous_strides(pool, half));
    const View joined = recorder.concat("cat", DType::f32, whole, 1, {x, x});
    result(joined);
    result(recorder.pointwise("exp", DType::f32, half, [&](Coordinates i) { return pool.op(ScalarOp::exp, {recorder.at(x, i)}); }));
    result(recorder.pointwise("turned", DType::f32, whole,
                              [&](Coordinates i) { return pool.op(ScalarOp::exp, {recorder.at(joined, std::vector<Expr>{i[1], i[0]})}); }));
    TargetTraits traits;
    traits.most_beside = most;
    const auto plan = schedule(recorder.take(), traits);
    ASSERT_TRUE(plan.ok());
    std::string marks;
    for (const Kernel& k : plan.value().kernels) marks += k.name + (k.beside ? "+ " : " ");
    // The two pieces, one that needs neither, and one that reads both.
    EXPECT_EQ(marks, most == 1 ? "cat cat exp turned " : most == 2 ? "cat cat+ exp turned+ " : "cat cat+ exp+ turned ") << to_string(plan.value());
  }
}

// Sums of so many inputs each, which do not need each other.
static KernelPlan sums_of_many(int sums, int terms, const TargetTraits& traits) {
  Recorder recorder{std::make_shared<ExprPool>()};
  ExprPool& pool = *recorder.program().pool;
  for (int s = 0; s < sums; ++s) {
    const std::vector<Expr> n = {pool.index(8 + s)};  // of other sizes: no two of them are one kernel
    std::vector<View> values;
    for (int i = 0; i < terms; ++i)
      values.push_back(recorder.input("x" + std::to_string(s) + "_" + std::to_string(i), DType::f32, n, contiguous_strides(pool, n)));
    while (values.size() > 1) {
      std::vector<View> pairs;
      for (size_t i = 0; i + 1 < values.size(); i += 2) {
        const View a = values[i], b = values[i + 1];
        pairs.push_back(
            recorder.pointwise("add", DType::f32, n, [&](Coordinates c) { return pool.op(ScalarOp::add, {recorder.at(a, c), recorder.at(b, c)}); }));
      }
      if (values.size() % 2) pairs.push_back(values.back());
      values = pairs;
    }
    LoopOutput out;
    out.source = BufferId(values[0].body->id);
    out.name = "out" + std::to_string(s);
    recorder.program().buffer(out.source).strides = contiguous_strides(pool, n);
    recorder.program().outputs.push_back(out);
  }
  auto plan = schedule(recorder.take(), traits);
  EXPECT_TRUE(plan.ok());
  return std::move(plan).value();
}

TEST_F(ScheduleTest, BodiesReadAsManyValuesAsATargetsRegistersHold) {
  for (const int most : {8, 16}) {
    TargetTraits traits;
    traits.most_loads = most, traits.merges_loops = false;
    const KernelPlan plan = sums_of_many(1, 64, traits);
    EXPECT_LE(plan.kernels.size(), static_cast<size_t>(64 / most * 2)) << to_string(plan);
    for (const Kernel& k : plan.kernels) {
      int loads = 0;
      for (const Stmt& stmt : std::get<LoopKernel>(k.def).stmts) {
        if (stmt.value) visit(stmt.value, [&](Expr e) { loads += e->kind == ExprKind::load; });
      }
      EXPECT_LE(loads, most);
    }
  }
  EXPECT_EQ(sums_of_many(1, 64, TargetTraits{}).kernels.size(), 1u);
}

// NVRTC took more than linear time for what 16 long kernels are together.
TEST_F(ScheduleTest, LongKernelsAreLaunchesOfTheirOwn) {
  TargetTraits traits;
  traits.most_beside = 16;
  const auto launches = [&](int terms) {
    const KernelPlan plan = sums_of_many(32, terms, traits);
    EXPECT_EQ(plan.kernels.size(), 32u);
    return std::count_if(plan.kernels.begin(), plan.kernels.end(), [](const Kernel& k) { return !k.beside; });
  };
  EXPECT_EQ(launches(4), 2);
  EXPECT_GE(launches(64), 6);
}

TEST_F(ScheduleTest, ConvolutionsAreChannelsLast) {
  const View x = input("x", {batch, pool.index(8), pool.index(10), pool.index(10)});
  const View w = constant("w", {16, 8, 3, 3});
  Conv2d c;
  c.x = {BufferId(x.body->id), {pool.var(0), pool.var(1), pool.var(2), pool.var(3)}};
  c.x_sizes = x.sizes;
  c.weight = BufferId(w.body->id);
  c.kernel = {3, 3};
  c.stride = c.dilation = {1, 1};
  const View y = rec.define("conv", DType::f32, {batch, pool.index(16), pool.index(8), pool.index(8)}, c);
  const LoopProgram program = choose_layouts(rec.take(), TargetTraits{});
  EXPECT_TRUE(program.buffer(BufferId(y.body->id)).strides[1] == pool.index(1));
  // The input is not channels-last: it is copied so.
  EXPECT_EQ(program.loops.size(), 2u);
  EXPECT_EQ(program.loops[0].op, "copy");
}

// A layer norm's input: what has its channels last by its own order has them side by side.
TEST_F(ScheduleTest, TurnedImagesKeepTheirChannelsTogether) {
  const View x = input("x", sizes({2, 8, 10, 10}));
  Conv2d c;
  c.x = {BufferId(x.body->id), {pool.var(0), pool.var(1), pool.var(2), pool.var(3)}};
  c.x_sizes = x.sizes;
  c.weight = BufferId(constant("w", {8, 8, 1, 1}).body->id);
  c.kernel = c.stride = c.dilation = {1, 1};
  const View y = rec.define("conv", DType::f32, x.sizes, c);
  const View turned = rec.pointwise("turned", DType::f32, sizes({2, 10, 10, 8}),
                                    [&](Coordinates i) { return pool.op(ScalarOp::exp, {rec.at(y, std::vector<Expr>{i[0], i[3], i[1], i[2]})}); });
  const View back = rec.pointwise("back", DType::f32, x.sizes, [&](Coordinates i) {
    return pool.op(ScalarOp::add, {rec.at(y, i), rec.at(turned, std::vector<Expr>{i[0], i[2], i[3], i[1]})});
  });
  const LoopProgram program = choose_layouts(rec.take(), TargetTraits{});
  EXPECT_EQ(program.buffer(BufferId(turned.body->id)).strides, sizes({800, 80, 8, 1}));
  EXPECT_EQ(program.buffer(BufferId(back.body->id)).strides, sizes({800, 1, 80, 8}));
}

TEST_F(ScheduleTest, RowsThatWouldMeetInTheCacheHaveALineBetweenThem) {
  for (const bool read_elsewhere : {false, true}) {
    Recorder recorder{shared};
    std::swap(recorder, rec);
    const View wide = gemm(input("x", {batch, pool.index(16)}), constant("w", {16, 512}), 512);
    output(gemm(wide, constant("v", {512, 8}), 8));
    if (read_elsewhere) output(unary("exp", ScalarOp::exp, wide));
    TargetTraits traits;
    traits.colliding_row_bytes = 2048;
    const auto plan = schedule(rec.take(), traits);
    ASSERT_TRUE(plan.ok());
    EXPECT_TRUE(plan.value().arena_bytes == batch * (read_elsewhere ? 2048 : 2048 + 64)) << to_string(plan.value().arena_bytes);
  }
}

TEST_F(ScheduleTest, ContiguousAxesMerge) {
  const View x = input("x", {batch, pool.index(7), pool.index(9)});
  output(unary("sin", ScalarOp::sin, x));
  const KernelPlan p = plan();
  const auto& k = std::get<LoopKernel>(p.kernels[0].def);
  ASSERT_EQ(k.axes.size(), 1u);
  EXPECT_TRUE(k.axes[0].size == batch * 63);
}

TEST_F(ScheduleTest, MergedStride) {
  const Expr offset = pool.var(0) * 12 + pool.var(1) * 4 + pool.var(2);
  const std::vector<Expr> two = sizes({5, 3}), wrong = sizes({5, 2});
  ASSERT_TRUE(merged_stride(offset, 0, two).has_value());
  EXPECT_TRUE(*merged_stride(offset, 0, two) == pool.index(4));
  EXPECT_FALSE(merged_stride(offset, 0, wrong).has_value());
}

}  // namespace
}  // namespace coil
