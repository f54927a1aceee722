// Branches and loops: what they compute, that they print and verify.
#include <gtest/gtest.h>

#include <cstring>

#include "loop/interpret.h"
#include "loop/recorder.h"
#include "tests/loop/recorded_program.h"

namespace coil {
namespace {

std::vector<float> floats(const TensorData& t) {
  std::vector<float> v(t.bytes.size() / sizeof(float));
  std::memcpy(v.data(), t.bytes.data(), t.bytes.size());
  return v;
}

class RegionTest : public RecordedProgram {
 protected:
  View input(Recorder& r, const char* name, DType dtype, std::vector<Expr> s) { return r.input(name, dtype, s, contiguous_strides(p, s)); }
  Expr number(float v) { return p.constant(v, DType::f32); }
  Expr add(Expr a, Expr b) { return p.op(ScalarOp::add, {a, b}); }

  // A part that reads `from` (a buffer of rec's program) and gives f of its elements.
  RegionPart part(BufferId from, const std::function<Expr(Expr)>& f, bool to_bool = false) {
    Recorder inner(pool);
    RegionPart made;
    const BufferId own = inner.capture(rec.program().buffer(from));
    made.captures = {{own, from}};
    const View v = inner.load_of(own);
    const View result = to_bool ? View{DType::boolean, {}, f(inner.at(v, std::vector<Expr>{p.index(0)}))} : View{v.dtype, v.sizes, f(v.body)};
    inner.result(result, result.dtype, result.sizes);
    made.program = std::make_shared<const LoopProgram>(inner.take());
    return made;
  }
  std::vector<TensorData> run(const std::vector<TensorData>& inputs) {
    const Status ok = verify(rec.program());
    EXPECT_TRUE(ok.ok()) << (ok.ok() ? "" : ok.error().message);
    auto r = interpret(rec.program(), inputs);
    EXPECT_TRUE(r.ok()) << (r.ok() ? "" : r.error().message);
    return r.ok() ? std::move(r).value() : std::vector<TensorData>();
  }
  View branch() {
    const View x = input(rec, "x", DType::f32, {p.index(3)}), holds = input(rec, "holds", DType::boolean, {});
    Region r;
    r.predicate = BufferId(holds.body->id);
    const BufferId from(x.body->id);
    r.parts = {part(from, [&](Expr e) { return add(e, number(1)); }), part(from, [&](Expr e) { return p.op(ScalarOp::neg, {e}); })};
    return rec.region("branch", std::move(r), {{DType::f32, x.sizes}})[0];
  }
  // Doubles x while its first element is below 10, at most five times.
  View loop() {
    const View x = input(rec, "x", DType::f32, {p.index(2)});
    Symbol symbol;
    symbol.name = symbol.label = "step";
    symbol.min = 0;
    Region r;
    r.kind = Region::Kind::loop;
    r.step = p.add_symbol(symbol);
    r.steps = p.index(5);
    r.initial = {BufferId(x.body->id)};
    const BufferId from(x.body->id);
    r.parts = {part(from, [&](Expr e) { return add(e, e); }), part(from, [&](Expr e) { return p.op(ScalarOp::lt, {e, number(10)}); }, true)};
    const View v = rec.region("loop", std::move(r), {{DType::f32, x.sizes}})[0];
    for (RegionPart& each : std::get<Region>(rec.program().loops.back().def).parts) each.captures[0].second = BufferId(v.body->id);
    return v;
  }
};

TEST_F(RegionTest, OnePartOfABranchRuns) {
  output(branch());
  const TensorData x = tensor<float>(DType::f32, {3}, {1, 2, -3});
  EXPECT_EQ(floats(run({x, tensor<uint8_t>(DType::boolean, {}, {1})}).at(0)), (std::vector<float>{2, 3, -2}));
  EXPECT_EQ(floats(run({x, tensor<uint8_t>(DType::boolean, {}, {0})}).at(0)), (std::vector<float>{-1, -2, 3}));
}

TEST_F(RegionTest, ALoopEndsByItsConditionOrItsSteps) {
  output(loop());
  EXPECT_EQ(floats(run({tensor<float>(DType::f32, {2}, {3, 1})}).at(0)), (std::vector<float>{12, 4}));
  EXPECT_EQ(floats(run({tensor<float>(DType::f32, {2}, {11, 1})}).at(0)), (std::vector<float>{11, 1}));
  EXPECT_EQ(floats(run({tensor<float>(DType::f32, {2}, {-1, 1})}).at(0)), (std::vector<float>{-32, 32}));
}

TEST_F(RegionTest, TextShowsTheParts) {
  output(branch());
  const std::string text = to_string(rec.program());
  for (const char* piece : {"branch: f32[3] = branch by holds", "where it holds [x = x]", "otherwise [x = x]", "output result"}) {
    EXPECT_NE(text.find(piece), std::string::npos) << piece << " is not in\n" << text;
  }
}

TEST_F(RegionTest, WhatNothingNeedsGoesWithItsParts) {
  branch();
  EXPECT_TRUE(dead_loops(rec.take()).loops.empty());
}

TEST_F(RegionTest, VerifyFindsAPartOfAnotherType) {
  const View v = branch();
  output(v);
  rec.program().buffer(BufferId(v.body->id)).sizes = {p.index(4)};
  rec.program().buffer(BufferId(v.body->id)).strides = {p.index(1)};
  EXPECT_FALSE(verify(rec.program()).ok());
}

TEST_F(RegionTest, ABranchWithoutAPredicateIsAMistake) {
  output(branch());
  std::get<Region>(rec.program().loops.back().def).predicate = BufferId(0);  // x
  EXPECT_FALSE(verify(rec.program()).ok());
}

}  // namespace
}  // namespace coil
