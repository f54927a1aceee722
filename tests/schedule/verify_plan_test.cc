// The verifier of kernel plans: each kind of fault, planted into a plan that is sound, is found and named.
#include <algorithm>

#include "schedule/schedule.h"
#include "schedule/verify_plan.h"
#include "tests/schedule/scheduled_program.h"

namespace coil {
namespace {

class VerifyPlan : public ScheduledProgram {
 protected:
  // Each loop a kernel of its own.
  static TargetTraits apart() {
    TargetTraits t;
    t.inline_cost = t.max_inlined_loads = -1;
    t.merges_loops = t.fuse_siblings = t.fuse_epilogues = false;
    return t;
  }
  View input(std::vector<Expr> s) { return rec.input("x", DType::f32, s, contiguous_strides(pool, s)); }
  View unary(const char* name, ScalarOp op, const View& x) {
    return rec.pointwise(name, DType::f32, x.sizes, [&](Coordinates i) { return pool.op(op, {rec.at(x, i)}); });
  }
  View add(const View& a, const View& b) {
    return rec.pointwise("add", DType::f32, a.sizes, [&](Coordinates i) { return pool.op(ScalarOp::add, {rec.at(a, i), rec.at(b, i)}); });
  }
  KernelPlan planned(const TargetTraits& traits) {
    auto r = schedule(rec.take(), traits);
    EXPECT_TRUE(r.ok());
    KernelPlan plan = std::move(r).value();
    const Status sound = verify_at_examples(plan);
    EXPECT_TRUE(sound.ok()) << sound.error().to_string() << to_string(plan);
    return plan;
  }

  // neg, then exp, then their sum: both are needed at the last of three kernels.
  KernelPlan chain(Expr rows) {
    const View a = unary("neg", ScalarOp::neg, input({rows, pool.index(16)}));
    output(add(a, unary("exp", ScalarOp::exp, a)));
    KernelPlan plan = planned(apart());
    EXPECT_EQ(plan.kernels.size(), 3u) << to_string(plan);
    return plan;
  }
  // exp(x) / sum of it, row by row: one kernel of two passes.
  KernelPlan passes() {
    const View x = input({pool.index(8), pool.index(32)});
    const View e = unary("exp", ScalarOp::exp, x);
    const View total = rec.reduce("sum", ReduceOp::sum, DType::f32, {x.sizes[0], pool.index(1)}, {x.sizes[1]},
                                  [&](Coordinates i, Coordinates r) { return rec.at(e, std::vector<Expr>{i[0], r[0]}); });
    output(rec.pointwise("div", DType::f32, x.sizes,
                         [&](Coordinates i) { return pool.op(ScalarOp::div, {rec.at(e, i), rec.at(total, std::vector<Expr>{i[0], pool.index(0)})}); }));
    KernelPlan plan = planned({});
    EXPECT_EQ(plan.kernels.size(), 1u) << to_string(plan);
    return plan;
  }

  static LoopKernel& loop(KernelPlan& plan, size_t n) { return std::get<LoopKernel>(plan.kernels[n].def); }
  static BufferId named(const KernelPlan& plan, const std::string& name) {
    for (size_t b = 0; b < plan.buffers.size(); ++b) {
      if (plan.buffers[b].info.name == name) return BufferId(b);
    }
    ADD_FAILURE() << "no buffer " << name;
    return BufferId();
  }
  static BufferId stored(KernelPlan& plan, size_t n) { return loop(plan, n).stmts.back().buffer; }
  static Kernel mark(ControlMark::Kind kind, BufferId predicate = {}, BufferId scratch = {}) {
    Kernel k;
    k.name = "mark";
    k.def = ControlMark{kind, predicate, {}, {}, scratch};
    return k;
  }
  BufferId add_buffer(KernelPlan& plan, const char* name, DType dtype, std::vector<Expr> sizes) {
    BufferInfo info;
    info.name = name, info.dtype = dtype, info.sizes = sizes, info.strides = contiguous_strides(pool, sizes);
    plan.buffers.push_back({info, {}});
    const BufferId id(plan.buffers.size() - 1);
    plan.buffer(id).placement = {Placement::Kind::arena, id.index, plan.arena_bytes};
    plan.arena_bytes = plan.arena_bytes + product(pool, sizes) * byte_size(dtype) + 64;
    return id;
  }

  static void expect_found(const KernelPlan& plan, const std::string& what) { expect_wrong(verify(plan), what, plan); }
  static void expect_found_at_examples(const KernelPlan& plan, const std::string& what) { expect_wrong(verify_at_examples(plan), what, plan); }
  static void expect_wrong(const Status& status, const std::string& what, const KernelPlan& plan) {
    ASSERT_FALSE(status.ok()) << "nothing is found in\n" << to_string(plan);
    EXPECT_NE(status.error().message.find(what), std::string::npos) << status.error().message;
  }

  Expr batch = pool.symbol(pool.add_symbol({"s77", "batch", 1, 64}));
};

TEST_F(VerifyPlan, BuffersThatDoNotExist) {
  KernelPlan plan = chain(pool.index(8));
  loop(plan, 0).stmts.back().buffer = BufferId(99);
  expect_found(plan, "mentions buffer 99 of");
}

TEST_F(VerifyPlan, ReadsBeforeWrites) {
  KernelPlan plan = chain(pool.index(8));
  std::swap(plan.kernels[0], plan.kernels[1]);
  expect_found(plan, "before anything is written there");
}

TEST_F(VerifyPlan, OutputsThatNobodyWrites) {
  KernelPlan plan = chain(pool.index(8));
  plan.kernels.pop_back();
  expect_found(plan, "is never written");
}

TEST_F(VerifyPlan, BuffersWithoutAPlace) {
  KernelPlan plan = chain(pool.index(8));
  plan.buffer(stored(plan, 0)).placement = {};
  expect_found(plan, "which has no place");
}

TEST_F(VerifyPlan, PlacesThatDoNotExist) {
  KernelPlan plan = chain(pool.index(8));
  plan.buffer(named(plan, "x")).placement.index = 1;
  expect_found(plan, "'x' has a place that does not exist");
}

TEST_F(VerifyPlan, OutputsInOtherMemory) {
  KernelPlan plan = chain(pool.index(8));
  plan.buffer(plan.outputs[0].source).placement = {Placement::Kind::arena, plan.outputs[0].source.index, plan.arena_bytes};
  plan.arena_bytes = plan.arena_bytes + 4096;
  expect_found(plan, "is not in the memory of output 0");
}

TEST_F(VerifyPlan, StoresToConstants) {
  KernelPlan plan = chain(pool.index(8));
  plan.buffer(stored(plan, 0)).info.kind = BufferInfo::Kind::constant;
  expect_found(plan, "writes to the constant");
}

TEST_F(VerifyPlan, VariablesWithoutAnAxis) {
  KernelPlan plan = chain(pool.index(8));
  loop(plan, 0).stmts.back().offset = pool.var(7);
  expect_found(plan, "mentions variable 7");
}

TEST_F(VerifyPlan, InnerVariablesOutside) {
  KernelPlan plan = passes();
  for (Stmt& s : loop(plan, 0).stmts) s.inner = s.inner && s.kind == Stmt::Kind::reduce;
  expect_found(plan, "kernel 0");
}

TEST_F(VerifyPlan, AxesThatDependOnPoints) {
  KernelPlan plan = chain(pool.index(8));
  loop(plan, 0).axes[0].size = pool.var(0);
  expect_found(plan, "an axis that depends on a point");
}

TEST_F(VerifyPlan, LoadsAtCoordinates) {
  KernelPlan plan = chain(pool.index(8));
  Stmt& s = loop(plan, 0).stmts.back();
  s.value = pool.op(ScalarOp::neg, {pool.load(named(plan, "x"), DType::f32, {pool.var(0), pool.var(0)})});
  expect_found(plan, "not at one linear offset");
}

TEST_F(VerifyPlan, LoadsOfOtherTypes) {
  KernelPlan plan = chain(pool.index(8));
  plan.buffer(named(plan, "x")).info.dtype = DType::f64;
  expect_found(plan, "loads f64 as f32");
}

TEST_F(VerifyPlan, StoresOfOtherTypes) {
  KernelPlan plan = chain(pool.index(8));
  loop(plan, 0).stmts.back().dtype = DType::i64;
  expect_found(plan, "stores i64 to");
}

TEST_F(VerifyPlan, TempsBeforeTheyAreComputed) {
  KernelPlan plan = passes();
  auto& stmts = loop(plan, 0).stmts;
  const auto reduce = std::find_if(stmts.begin(), stmts.end(), [](const Stmt& s) { return s.kind == Stmt::Kind::reduce; });
  ASSERT_NE(reduce, stmts.end());
  stmts.erase(reduce);
  expect_found(plan, "before it is computed");
}

TEST_F(VerifyPlan, SumsThatAreNotComplete) {
  KernelPlan plan = passes();
  for (Stmt& s : loop(plan, 0).stmts) s.phase = 0;
  expect_found(plan, "where it is not complete");
}

TEST_F(VerifyPlan, TempsThatAreComputedTwice) {
  KernelPlan plan = passes();
  auto& stmts = loop(plan, 0).stmts;
  stmts.insert(stmts.begin(), stmts.front());
  expect_found(plan, "twice");
}

TEST_F(VerifyPlan, MarksThatDoNotNest) {
  KernelPlan plan = chain(pool.index(8));
  plan.kernels.push_back(mark(ControlMark::Kind::end));
  expect_found(plan, "is a mark without a beginning");
  const BufferId predicate = add_buffer(plan, "predicate", DType::boolean, {}), scratch = add_buffer(plan, "memory", DType::u8, {pool.index(64)});
  plan.buffer(predicate).info.kind = BufferInfo::Kind::state;
  plan.buffer(predicate).placement = {Placement::Kind::state, -1, pool.index(0)};
  plan.state_bytes = 64;
  plan.kernels.back() = mark(ControlMark::Kind::branch, predicate, scratch);
  expect_found(plan, "has no end");
  plan.kernels.back() = mark(ControlMark::Kind::otherwise);
  expect_found(plan, "is a mark without a beginning");
}

// What one way alone writes is not there behind the branch.
TEST_F(VerifyPlan, ReadsOfWhatOneWayWrites) {
  KernelPlan plan = chain(pool.index(8));
  const BufferId predicate = add_buffer(plan, "predicate", DType::boolean, {}), scratch = add_buffer(plan, "memory", DType::u8, {pool.index(64)});
  plan.buffer(predicate).info.kind = BufferInfo::Kind::state;
  plan.buffer(predicate).placement = {Placement::Kind::state, -1, pool.index(0)};
  plan.state_bytes = 64;
  const Kernel first = plan.kernels[0];
  const auto at = [&](long n) { return plan.kernels.begin() + n; };
  plan.kernels.insert(at(0), mark(ControlMark::Kind::branch, predicate, scratch));
  plan.kernels.insert(at(2), {mark(ControlMark::Kind::otherwise), first, mark(ControlMark::Kind::end)});
  EXPECT_TRUE(verify_at_examples(plan).ok()) << verify_at_examples(plan).error().to_string();
  plan.kernels.erase(at(3));
  expect_found(plan, "before anything is written there");
}

TEST_F(VerifyPlan, PlacesOfKnownSizesThatOverlap) {
  KernelPlan plan = chain(pool.index(8));
  const BufferId neg = stored(plan, 0), exp = stored(plan, 1);
  plan.buffer(exp).placement.offset = plan.buffer(neg).placement.offset;
  plan.buffer(exp).placement.index = std::min(neg.index, exp.index);
  plan.buffer(neg).placement.index = std::min(neg.index, exp.index);
  expect_found(plan, "are both needed at kernel 1");
}

TEST_F(VerifyPlan, PlacesOutsideOfTheArena) {
  KernelPlan plan = chain(pool.index(8));
  plan.arena_bytes = plan.arena_bytes - 4;
  expect_found(plan, "is not within");
}

// By examples of the sizes: a formula that is too small by one row, from the second row on.
TEST_F(VerifyPlan, PlacesOfDynamicSizesThatOverlap) {
  KernelPlan plan = chain(batch);
  const BufferId exp = stored(plan, 1);
  ASSERT_FALSE(plan.buffer(exp).placement.offset->is_constant()) << to_string(plan);
  plan.buffer(exp).placement.offset = plan.buffer(exp).placement.offset - 64;
  EXPECT_TRUE(verify(plan).ok()) << "sizes are not computed there";
  expect_found_at_examples(plan, "overlap");
}

TEST_F(VerifyPlan, StatesThatOverlap) {
  KernelPlan plan = chain(pool.index(8));
  for (const char* name : {"a", "b"}) {
    const BufferId id = add_buffer(plan, name, DType::f32, {pool.index(16)});
    plan.buffer(id).info.kind = BufferInfo::Kind::state;
    plan.buffer(id).placement = {Placement::Kind::state, -1, pool.index(name[0] == 'a' ? 0 : 32)};
  }
  plan.state_bytes = 128;
  expect_found(plan, "the states 'a' and 'b' overlap");
}

// A new value may lie where the old one was if each point reads the element that it writes, and no other one.
TEST_F(VerifyPlan, ResultsOverOperands) {
  output(unary("tanh", ScalarOp::tanh, unary("exp", ScalarOp::exp, unary("neg", ScalarOp::neg, input({pool.index(8), pool.index(16)})))));
  KernelPlan plan = planned(apart());
  ASSERT_EQ(plan.kernels.size(), 3u) << to_string(plan);
  const BufferId old = stored(plan, 0), made = stored(plan, 1);
  plan.buffer(made).placement = plan.buffer(old).placement;
  LoopKernel& k = loop(plan, 1);
  k.stmts.erase(k.stmts.begin(), k.stmts.end() - 1);
  k.stmts[0].value = pool.op(ScalarOp::exp, {pool.load(old, DType::f32, {pool.var(0)})});
  EXPECT_TRUE(verify(plan).ok()) << verify(plan).error().to_string();
  k.stmts[0].value = pool.op(ScalarOp::exp, {pool.load(old, DType::f32, {pool.index(127) - pool.var(0)})});
  expect_found(plan, "are both needed at kernel 1");
}

TEST_F(VerifyPlan, KernelsBesideWhatTheyRead) {
  KernelPlan plan = chain(pool.index(8));
  plan.kernels[1].beside = true;
  expect_found(plan, "at the same time");
  plan.kernels[1].beside = false;
  plan.kernels[0].beside = true;
  expect_found(plan, "runs beside nothing");
}

TEST_F(VerifyPlan, StoresOutsideOfTheirBuffers) {
  KernelPlan plan = chain(pool.index(8));
  Stmt& s = loop(plan, 0).stmts.back();
  s.offset = s.offset + 1;
  EXPECT_TRUE(verify(plan).ok());
  expect_found_at_examples(plan, "stores element 128 of");
}

}  // namespace
}  // namespace coil
