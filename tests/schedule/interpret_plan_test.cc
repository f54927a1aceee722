// The interpreter of kernel plans: what sound plans compute is what their loop programs do, and plans with a planted fault compute something else.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "loop/interpret.h"
#include "schedule/interpret_plan.h"
#include "schedule/schedule.h"
#include "schedule/verify_plan.h"
#include "tests/schedule/scheduled_program.h"

namespace coil {
namespace {

// Constants are dense here, and panels are read from where their numbers come.
std::vector<uint8_t> plain_bytes(const KernelPlan& plan, const PlanConstant& c) {
  const std::span<const uint8_t> bytes = plan.buffer(c.buffer).info.data.bytes;
  return {bytes.begin(), bytes.end()};
}

class InterpretPlan : public ScheduledProgram {
 protected:
  View input(const char* name, std::vector<Expr> s) { return rec.input(name, DType::f32, s, contiguous_strides(pool, s)); }
  View constant(const char* name, const std::vector<int64_t>& sizes) { return rec.constant(name, numbers(sizes, 7)); }
  View unary(const char* name, ScalarOp op, const View& x) {
    return rec.pointwise(name, DType::f32, x.sizes, [&](Coordinates i) { return pool.op(op, {rec.at(x, i)}); });
  }
  View binary(const char* name, ScalarOp op, const View& a, const View& b) {
    return rec.pointwise(name, DType::f32, a.sizes, [&](Coordinates i) { return pool.op(op, {rec.at(a, i), rec.at(b, i)}); });
  }
  View gemm(const View& a, const View& w, int64_t n) {
    Gemm g;
    g.m = {a.sizes[0]}, g.n = {pool.index(n)}, g.k = {a.sizes[1]};
    g.a = {BufferId(a.body->id), {pool.var(0), pool.var(2)}};
    g.b = {BufferId(w.body->id), {pool.var(2), pool.var(1)}};
    return rec.define("mm", DType::f32, {a.sizes[0], pool.index(n)}, g);
  }

  // Numbers between -1 and 1 that repeat late.
  static TensorData numbers(const std::vector<int64_t>& sizes, int64_t seed) {
    TensorData t;
    t.sizes = sizes;
    t.strides.resize(sizes.size());
    int64_t count = 1;
    for (size_t d = sizes.size(); d-- > 0; count *= sizes[d]) t.strides[d] = count;
    const auto bytes = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(count) * 4);
    for (int64_t i = 0; i < count; ++i) {
      const float v = static_cast<float>((i * 37 + seed * 11) % 101) / 50.0f - 1.0f;
      std::memcpy(bytes->data() + i * 4, &v, 4);
    }
    t.bytes = *bytes, t.owner = bytes;
    return t;
  }

  // Takes the program that was recorded. Symbols are `size` in its inputs.
  void take(const TargetTraits& traits, int64_t size = 5) {
    loops_ = rec.take();
    auto r = schedule(loops_, traits);
    ASSERT_TRUE(r.ok());
    plan_ = std::move(r).value();
    const Status sound = verify_at_examples(plan_);
    ASSERT_TRUE(sound.ok()) << sound.error().to_string() << to_string(plan_);
    for (const LoopInput& in : loops_.inputs) {
      std::vector<int64_t> sizes;
      for (Expr e : loops_.buffer(in.buffer).sizes) sizes.push_back(evaluate_index(e, [&](SymbolId) { return size; }));
      inputs_.push_back(numbers(sizes, static_cast<int64_t>(inputs_.size()) + 1));
    }
  }

  // Writes the negative numbers of an input with gaps to it, the last row first if so.
  void write_columns(bool reversed) {
    const View x = rec.input("x", DType::f32, sizes({6, 4}), sizes({20, 3}));
    const View y = rec.pointwise("y", DType::f32, x.sizes, [&](Coordinates i) {
      const std::vector<Expr> at = {reversed ? pool.index(5) - i[0] : i[0], i[1]};
      return pool.op(ScalarOp::neg, {rec.at(x, at)});
    });
    LoopOutput write;
    write.kind = LoopOutput::Kind::input_write, write.name = "x";
    write.source = BufferId(y.body->id), write.target = BufferId(x.body->id);
    rec.program().outputs.push_back(write);
    TargetTraits traits = apart();
    traits.writes_in_place = true;
    take(traits);
  }

  // How far the plan's results are from the loop program's; infinity for NaN.
  double difference(int64_t workers = 3) {
    const auto expected = interpret(loops_, inputs_);
    EXPECT_TRUE(expected.ok());
    PlanInterpreter interpreter(plan_, {workers, plain_bytes});
    const auto found = interpreter.run(inputs_);
    EXPECT_TRUE(found.ok()) << found.error().to_string();
    if (!expected.ok() || !found.ok()) return -1;
    double most = 0;
    for (size_t i = 0; i < expected.value().size(); ++i) most = std::max(most, most_apart(expected.value()[i], found.value()[i]));
    return most;
  }
  void expect_same() {
    for (int64_t workers : {1, 3, 16}) EXPECT_LE(difference(workers), 1e-5) << to_string(plan_);
  }

  // Kernel 1 stores to `old`, where it reads: how far the result is from that of storing to memory of its own.
  double moved_and_in_place(BufferId old) {
    KernelPlan other = plan_;
    const BufferId own(other.buffers.size());
    other.buffers.push_back(other.buffer(old));
    other.buffer(own).placement = {Placement::Kind::arena, own.index, other.arena_bytes};
    other.arena_bytes = other.arena_bytes + 64 * 16 * 4;
    std::get<LoopKernel>(other.kernels[1].def).stmts[0].buffer = own;
    for (Stmt& s : std::get<LoopKernel>(other.kernels[2].def).stmts) {
      s.value = rewrite(s.value, [&](Expr e) { return e->kind == ExprKind::load && e->id == old.index ? pool.load(own, DType::f32, e->args) : Expr(); });
    }
    const auto found = PlanInterpreter(plan_, {3, plain_bytes}).run(inputs_), expected = PlanInterpreter(other, {3, plain_bytes}).run(inputs_);
    EXPECT_TRUE(found.ok() && expected.ok());
    return found.ok() && expected.ok() ? most_apart(expected.value()[0], found.value()[0]) : -1;
  }

  // The largest difference of two numbers; infinity where the second one is NaN.
  static double most_apart(const TensorData& a, const TensorData& b) {
    EXPECT_EQ(a.sizes, b.sizes);
    double most = 0;
    const size_t count = a.bytes.size() / 4;  // it is dense, and row-major
    for (size_t number = 0; number < count; ++number) {
      size_t rest = number, place = 0;  // where b has this element: an input that is written to may have gaps
      for (size_t d = b.sizes.size(); d-- > 0; rest /= static_cast<size_t>(b.sizes[d]))
        place += rest % static_cast<size_t>(b.sizes[d]) * static_cast<size_t>(b.strides[d]);
      if (place * 4 + 4 > b.bytes.size()) return INFINITY;
      float x, y;
      std::memcpy(&x, a.bytes.data() + number * 4, 4), std::memcpy(&y, b.bytes.data() + place * 4, 4);
      most = std::isnan(y) ? INFINITY : std::max(most, std::fabs(static_cast<double>(x) - y));
    }
    return most;
  }

  static TargetTraits apart() {
    TargetTraits t;
    t.inline_cost = t.max_inlined_loads = -1;
    t.merges_loops = t.fuse_siblings = t.fuse_epilogues = false;
    return t;
  }
  LoopKernel& loop(size_t n) { return std::get<LoopKernel>(plan_.kernels[n].def); }

  LoopProgram loops_;
  KernelPlan plan_;
  std::vector<TensorData> inputs_;
  Expr batch = pool.symbol(pool.add_symbol({"s77", "batch", 1, 64}));
};

TEST_F(InterpretPlan, PassesAndWhatIsKeptBetweenThem) {
  const View x = input("x", {batch, pool.index(128)});
  const View e = unary("erf", ScalarOp::erf, x);
  const View total = rec.reduce("sum", ReduceOp::sum, DType::f32, {x.sizes[0], pool.index(1)}, {x.sizes[1]},
                                [&](Coordinates i, Coordinates r) { return rec.at(e, std::vector<Expr>{i[0], r[0]}); });
  output(rec.pointwise("div", DType::f32, x.sizes,
                       [&](Coordinates i) { return pool.op(ScalarOp::div, {rec.at(e, i), rec.at(total, std::vector<Expr>{i[0], pool.index(0)})}); }));
  take({});
  ASSERT_EQ(loop(0).scratch.size(), 1u) << to_string(plan_);
  for (int64_t workers : {1, 3}) EXPECT_LE(difference(workers), 1e-3);
  loop(0).stmts.back().phase = 1;
  loop(0).stmts.back().offset = loop(0).stmts.back().offset * 0;
  EXPECT_GT(difference(), 1e-3) << "all of the results are stored to one element";
}

TEST_F(InterpretPlan, ProductsWithPackedWeightsAndEpilogues) {
  const View x = input("x", {batch, pool.index(16)});
  const View y = gemm(x, constant("w", {16, 8}), 8);
  const View bias = constant("bias", {8});
  output(unary("tanh", ScalarOp::tanh,
               rec.pointwise("bias", DType::f32, y.sizes, [&](Coordinates i) { return pool.op(ScalarOp::add, {rec.at(y, i), rec.at(bias, i.subspan(1))}); })));
  TargetTraits packs;
  packs.packings.product = [](const WeightUse&) { return Packing("panels"); };  // how these look is nothing to an interpreter
  take(packs);
  ASSERT_EQ(plan_.kernels.size(), 1u) << to_string(plan_);
  expect_same();
  for (PlanConstant& c : plan_.constants) std::swap(c.row_stride, c.col_stride);
  EXPECT_GT(difference(), 1e-3) << "the weight is packed as if it were turned";
}

TEST_F(InterpretPlan, ValuesThatAreOverwrittenTooEarly) {
  const View a = unary("neg", ScalarOp::neg, input("x", {batch, pool.index(16)}));
  output(binary("add", ScalarOp::add, a, unary("exp", ScalarOp::exp, a)));
  take(apart());
  ASSERT_EQ(plan_.kernels.size(), 3u) << to_string(plan_);
  expect_same();
  plan_.buffer(loop(1).stmts.back().buffer).placement.offset = plan_.buffer(loop(0).stmts.back().buffer).placement.offset;
  EXPECT_GT(difference(), 1e-3);
}

TEST_F(InterpretPlan, ValuesThatNobodyComputed) {
  const View a = unary("neg", ScalarOp::neg, input("x", {batch, pool.index(16)}));
  output(unary("exp", ScalarOp::exp, a));
  take(apart());
  expect_same();
  plan_.kernels.erase(plan_.kernels.begin());
  EXPECT_EQ(difference(), INFINITY) << "memory begins as NaN";
}

// A kernel whose points read what others of its points write finds the new values: it runs in parts, the last ones first.
TEST_F(InterpretPlan, PointsThatReadWhatOthersHaveWritten) {
  output(unary("exp", ScalarOp::exp, unary("neg", ScalarOp::neg, input("x", {pool.index(64), pool.index(16)}))));
  take(apart());
  ASSERT_EQ(plan_.kernels.size(), 2u) << to_string(plan_);
  Stmt move = loop(0).stmts.back();
  const BufferId old = move.buffer;
  move.value = pool.load(old, DType::f32, {pool.var(0)});
  Kernel kernel;
  kernel.name = "move";
  kernel.def = loop(0);
  plan_.kernels.insert(plan_.kernels.begin() + 1, kernel);
  loop(1).stmts = {move};
  EXPECT_LE(difference(), 1e-5) << "each element to where it is";
  loop(1).stmts[0].value = pool.load(old, DType::f32, {index_min(pool.var(0) + 100, pool.index(1023))});
  EXPECT_GT(moved_and_in_place(old), 1e-3);
}

// Of columns of a wider matrix, which the program writes to: where they lie if each element's new value needs that element alone, else from memory of its own.
TEST_F(InterpretPlan, InputsWithGapsAreWrittenInPlace) {
  write_columns(false);
  EXPECT_TRUE(std::holds_alternative<LoopKernel>(plan_.kernels.back().def)) << to_string(plan_);
  expect_same();
}

TEST_F(InterpretPlan, InputsWithGapsAreWrittenElementByElement) {
  write_columns(true);
  const auto* copy = std::get_if<CopyKernel>(&plan_.kernels.back().def);
  EXPECT_TRUE(copy && copies_elements(plan_, *copy)) << to_string(plan_);
  expect_same();
}

TEST_F(InterpretPlan, StoresOutsideOfTheirBuffers) {
  output(unary("exp", ScalarOp::exp, input("x", {pool.index(4), pool.index(16)})));
  take({});
  loop(0).stmts.back().offset = loop(0).stmts.back().offset + 1;
  PlanInterpreter interpreter(plan_, {3, plain_bytes});
  const auto found = interpreter.run(inputs_);
  ASSERT_FALSE(found.ok());
  EXPECT_NE(found.error().message.find("kernel 0 'exp'"), std::string::npos) << found.error().message;
  EXPECT_NE(found.error().message.find("a store to element 64 of 64"), std::string::npos) << found.error().message;
}

TEST_F(InterpretPlan, ImageByImage) {
  View x = input("x", {pool.index(7), pool.index(8), pool.index(8), pool.index(8)});
  for (int i = 0; i < 3; ++i) {
    Conv2d c;
    c.x = {BufferId(x.body->id), {pool.var(0), pool.var(1), pool.var(2), pool.var(3)}};
    c.x_sizes = x.sizes;
    c.weight = BufferId(constant("w", {8, 8, 1, 1}).body->id);
    c.kernel = c.stride = c.dilation = {1, 1};
    x = rec.define("conv", DType::f32, x.sizes, c);
    if (i == 0) x = unary("tanh", ScalarOp::tanh, x);
  }
  output(x);
  TargetTraits traits = apart();
  traits.kept_bytes = 1;
  take(traits);
  const auto images = [](const Kernel& k) {
    const auto* mark = std::get_if<ControlMark>(&k.def);
    return mark && mark->kind == ControlMark::Kind::images;
  };
  const auto found = std::find_if(plan_.kernels.begin(), plan_.kernels.end(), images);
  ASSERT_NE(found, plan_.kernels.end()) << to_string(plan_);
  for (int64_t workers : {1, 3, 16}) EXPECT_LE(difference(workers), 1e-3) << to_string(plan_);
  for (PlanBuffer& b : plan_.buffers) {
    if (b.placement.kind == Placement::Kind::part) b.placement.offset = pool.index(0);
  }
  EXPECT_GT(difference(), 1e-3) << "all values of an image in one place";
}

TEST_F(InterpretPlan, AttentionOverPastKeys) {
  const auto rows = [&](const char* name, int64_t n) { return input(name, {batch, pool.index(4), pool.index(n), pool.index(8)}); };
  const View q = rows("q", 1), past_k = rows("past_k", 100), past_v = rows("past_v", 100), new_k = rows("new_k", 1), new_v = rows("new_v", 1);
  const auto joined = [&](const char* name, const View& a, const View& b) {
    std::vector<Expr> sizes = a.sizes;
    sizes[2] = sizes[2] + b.sizes[2];
    return rec.concat(name, DType::f32, sizes, 2, {a, b});
  };
  const View k = joined("k", past_k, new_k), v = joined("v", past_v, new_v);
  Attention a;
  a.batch = batch, a.heads = a.kv_heads = pool.index(4);
  a.q_len = pool.index(1), a.kv_len = pool.index(101), a.dim = a.v_dim = pool.index(8);
  a.q = rec.operand(q), a.k = rec.operand(k), a.v = rec.operand(v);
  output(rec.define("attention", DType::f32, q.sizes, a));
  output(k);
  TargetTraits traits;
  traits.joins_keys = true;
  take(traits);
  const auto* t = std::get_if<TemplateKernel>(&plan_.kernels.back().def);
  for (const Kernel& kernel : plan_.kernels) {
    if (const auto* other = std::get_if<TemplateKernel>(&kernel.def)) t = other;
  }
  ASSERT_TRUE(t && t->past && t->past->keep_k && !t->past->keep_v) << to_string(plan_);
  expect_same();
  const_cast<TemplateKernel*>(t)->past->keep_k = false;
  EXPECT_EQ(difference(), INFINITY) << "the past is missing in the result";
}

TEST_F(InterpretPlan, SortsKeepTheirOrder) {
  const View x = input("x", {batch, pool.index(24)});
  output(rec.sort("sort", x, 1, pool.index(5), true).first);
  take({});
  expect_same();
}

}  // namespace
}  // namespace coil
