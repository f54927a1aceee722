// Bounds hold: what float32 arithmetic gives in any order is allowed, and what is wrong by more than rounding is not.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "expr/scalar_rows.h"
#include "loop/interpret.h"
#include "loop/recorder.h"
#include "reference/accumulator.h"
#include "reference/interpreter.h"
#include "reference/nonfinite.h"
#include "tests/loop/recorded_program.h"

namespace coil {
namespace {

using reference::Num;
using enum ScalarOp;

std::vector<float> random_floats(size_t n, unsigned seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> v(n);
  for (float& x : v) x = normal(random);
  return v;
}

class ReferenceTest : public RecordedProgram {
 protected:
  View input(const char* name, std::vector<int64_t> sizes) {
    std::vector<Expr> s;
    for (int64_t n : sizes) s.push_back(p.index(n));
    return rec.input(name, DType::f32, s, contiguous_strides(p, s));
  }
};

TEST(Numbers, ErrorsGrowAsTheyDo) {
  const Num a{1.0, 0, 1e-3}, b{2.0, 0, 1e-4};
  const auto binary = [&](ScalarOp op) { return reference::apply(op, DType::f32, DType::f32, std::array{a, b}); };
  EXPECT_NEAR(binary(add).e, 1.1e-3, 1e-6);
  EXPECT_NEAR(binary(mul).e, 2 * 1e-3 + 1e-4, 1e-5);
  EXPECT_NEAR(binary(div).e, 1e-3 / 2 + 0.5 * 1e-4 / 2, 1e-4);
  EXPECT_EQ(binary(maximum).e, 1e-3);
  EXPECT_NEAR(reference::apply(exp, DType::f32, DType::f32, std::array{a}).e, std::exp(1.0) * 1e-3, 1e-4);
}

// Every row of scalar_ops.def: operands anywhere within their errors give what the result's error allows.
TEST(Numbers, BoundsHoldForEveryOperation) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal(0, 2);
  std::uniform_real_distribution<double> within(-1, 1);
  int finite = 0;
  scalar::for_each_row([&](auto row) {
    const ScalarOp op = row.kOp;
    if (!row.kForFloats || row.kError == "logic") return;
    const bool boolean = info(op).result == ResultRule::boolean;
    const auto count = static_cast<size_t>(info(op).arity);
    for (int k = 0; k < 300; ++k) {
      std::array<Num, 3> a;
      for (Num& n : a) n = {k % 3 == 0 ? std::round(normal(random)) : normal(random), 0, k % 5 == 0 ? 0 : std::exp2(-8 + within(random) * 8)};
      const Num bound = reference::apply(op, DType::f32, boolean ? DType::boolean : DType::f32, {a.data(), count});
      finite += std::isfinite(bound.e);
      for (int sample = 0; sample < 8; ++sample) {
        std::array<Value, 3> x;
        for (size_t i = 0; i < 3; ++i) {
          const double away = sample < 4 ? (sample >> (i % 2) & 1 ? 0.999 : -0.999) : within(random);
          x[i].f = a[i].e == 0 ? a[i].f : a[i].f + away * a[i].e;
        }
        const Value v = apply_scalar(op, DType::f64, {x.data(), count});
        if (std::isnan(v.f)) continue;  // a function is taken to be defined wherever its operand may be
        EXPECT_TRUE(reference::allows(bound, boolean ? DType::boolean : DType::f32, v.f, v.i))
            << info(op).name << " of " << a[0].f << " +- " << a[0].e << ", " << a[1].f << " +- " << a[1].e << ": " << v.f << v.i << ", allowed " << bound.f
            << bound.i << " +- " << bound.e;
      }
    }
  });
  EXPECT_GT(finite, 8000);  // a bound of infinity allows anything
}

TEST(Numbers, WhatErrorsTurnOverIsUnsure) {
  const Num near{1e-4, 0, 1e-3}, zero{}, far{1, 0, 1e-3};
  EXPECT_EQ(reference::apply(gt, DType::f32, DType::boolean, std::array{near, zero}).e, 1);
  EXPECT_EQ(reference::apply(gt, DType::f32, DType::boolean, std::array{far, zero}).e, 0);
  const Num unsure{0, 1, 1}, sure{0, 1, 0}, one{1, 0, 0}, three{3, 0, 0};
  EXPECT_EQ(reference::apply(select, DType::f32, DType::f32, std::array{unsure, one, three}).e, 2);
  EXPECT_EQ(reference::apply(select, DType::f32, DType::f32, std::array{sure, one, three}).e, 0);
  EXPECT_EQ(reference::apply(floor, DType::f32, DType::f32, std::array{near}).e, 1);
  EXPECT_TRUE(std::isinf(reference::apply(reciprocal, DType::f32, DType::f32, std::array{near}).e));
  EXPECT_EQ(reference::convert_num({2.9999, 0, 1e-3}, DType::f32, DType::i32).e, 1);
}

TEST(Numbers, WhatIsFoundIsAllowedOrNot) {
  const Num v{1, 0, 1e-6};
  EXPECT_TRUE(reference::allows(v, DType::f32, 1 + 1e-6, 0));
  EXPECT_FALSE(reference::allows(v, DType::f32, 1.001, 0));
  EXPECT_TRUE(reference::allows(v, DType::bf16, 1.00390625, 0)) << "half a unit of the last place";
  EXPECT_FALSE(reference::allows(v, DType::bf16, 1.015625, 0));
  EXPECT_FALSE(reference::allows(v, DType::f32, NAN, 0));
  EXPECT_TRUE(reference::allows({NAN, 0, 0}, DType::f32, NAN, 0));
  EXPECT_FALSE(reference::allows({NAN, 0, 0}, DType::f32, 1, 0));
  EXPECT_TRUE(reference::allows({65520, 0, 1}, DType::f16, INFINITY, 0));
  EXPECT_FALSE(reference::allows({0, 7, 0}, DType::i64, 0, 8));
  EXPECT_TRUE(reference::allows({0, 7, 1}, DType::i64, 0, 8));
}

TEST(Numbers, SumsInAnyOrderAreAllowed) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const std::vector<float> x = random_floats(400, seed, seed % 2 ? 1 : 1e4f);
    reference::Accumulator acc(ReduceOp::sum, DType::f32);
    float forward = 0, backward = 0;
    for (float v : x) acc.add({v, 0, 0}), forward += v;
    for (size_t i = x.size(); i-- > 0;) backward += x[i];
    EXPECT_TRUE(reference::allows(acc.result(), DType::f32, forward, 0));
    EXPECT_TRUE(reference::allows(acc.result(), DType::f32, backward, 0));
    EXPECT_FALSE(reference::allows(acc.result(), DType::f32, forward + std::fabs(x[0]) + 0.1, 0)) << "a term twice";
  }
}

TEST(Numbers, PlacesAreSureWhereValuesAreApart) {
  reference::Accumulator acc(ReduceOp::argmax, DType::f32);
  for (double v : {1.0, 5.0, 2.0}) acc.add({v, 0, 0.1});
  EXPECT_EQ(acc.result().i, 1);
  EXPECT_EQ(acc.result().e, 0);
  acc.add({5.1, 0, 0.1});
  EXPECT_TRUE(std::isinf(acc.result().e));
}

// The interpreter that rounds each step is one of the kernels that the bound is for.
TEST_F(ReferenceTest, RoundedProgramsAreWithinTheBound) {
  View x = input("x", {33, 70});
  View e = rec.pointwise("e", DType::f32, x.sizes, [&](Coordinates c) { return p.op(exp, {p.op(mul, {rec.at(x, c), p.constant(0.7, DType::f32)})}); });
  const View s = rec.reduce("s", ReduceOp::sum, DType::f32, {x.sizes[0]}, {x.sizes[1]},
                            [&](Coordinates c, Coordinates r) { return rec.at(e, std::vector<Expr>{c[0], r[0]}); });
  const View y =
      rec.pointwise("y", DType::f32, x.sizes, [&](Coordinates c) { return p.op(div, {p.op(sin, {rec.at(e, c)}), rec.at(s, std::vector<Expr>{c[0]})}); });
  output(y);
  const TensorData data = tensor(DType::f32, {33, 70}, random_floats(33 * 70, 3));
  const auto rounded = interpret(rec.program(), std::vector<TensorData>{data});
  ASSERT_TRUE(rounded.ok());
  reference::Interpreter reference(rec.program(), std::vector<int64_t>(p.num_symbols()));
  reference.set(rec.program().inputs[0].buffer, data);
  const auto computed = reference.compute(rec.program().outputs[0].source);
  ASSERT_TRUE(computed.ok());
  const reference::Tensor found = reference::exact(rounded.value()[0]);
  for (int64_t i = 0; i < 33 * 70; ++i) {
    const Num expected = computed.value()->at(i);
    ASSERT_TRUE(reference::allows(expected, DType::f32, found.at(i).f, 0)) << i;
    EXPECT_LT(expected.e, 1e-4 * std::fabs(expected.f) + 1e-7);
    EXPECT_FALSE(reference::allows(expected, DType::f32, found.at(i).f * 1.01 + 1e-5, 0));
  }
}

TEST_F(ReferenceTest, NanHasAnOrigin) {
  View x = input("x", {3, 4});
  const View low = rec.pointwise("low", DType::f32, x.sizes, [&](Coordinates c) { return p.op(log, {rec.at(x, c)}); });
  const View y = rec.pointwise("y", DType::f32, x.sizes, [&](Coordinates c) { return p.op(sub, {rec.at(low, c), rec.at(low, c)}); });
  output(y);
  reference::Interpreter reference(rec.program(), std::vector<int64_t>(p.num_symbols()));
  reference.set(rec.program().inputs[0].buffer, tensor<float>(DType::f32, {3, 4}, {1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1}));
  const BufferId result = rec.program().outputs[0].source;
  ASSERT_TRUE(reference.compute(result).ok());
  const reference::Origin origin = reference::origin_of_nonfinite(reference, result, {1, 1}, true);
  EXPECT_TRUE(origin.here);
  EXPECT_EQ(origin.text, "-inf - -inf in y");
}

}  // namespace
}  // namespace coil
