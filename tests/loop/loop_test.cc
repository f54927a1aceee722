// Loop programs made with the recorder: text, verification, folding, and the interpreter against plain loops.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "loop/interpret.h"
#include "ops/memory.h"
#include "loop/recorder.h"
#include "tests/loop/recorded_program.h"

namespace coil {
namespace {

using enum ScalarOp;

template <class T>
std::vector<T> values(const TensorData& t) {
  std::vector<T> v(t.bytes.size() / sizeof(T));
  if (!v.empty()) std::memcpy(v.data(), t.bytes.data(), t.bytes.size());
  return v;
}

class LoopTest : public RecordedProgram {
 protected:
  std::vector<Expr> sizes(std::initializer_list<int64_t> list) {
    std::vector<Expr> r;
    for (int64_t s : list) r.push_back(p.index(s));
    return r;
  }
  View input(const char* name, DType dtype, std::vector<Expr> s) { return rec.input(name, dtype, s, contiguous_strides(p, s)); }
  std::vector<TensorData> run(const std::vector<TensorData>& inputs) {
    const Status ok = verify(rec.program());
    EXPECT_TRUE(ok.ok()) << (ok.ok() ? "" : ok.error().message);
    auto r = interpret(rec.program(), inputs);
    EXPECT_TRUE(r.ok()) << (r.ok() ? "" : r.error().message);
    return r.ok() ? std::move(r).value() : std::vector<TensorData>(rec.program().outputs.size());
  }
};

TEST_F(LoopTest, TextShowsSizesBodiesAndOutputs) {
  Expr batch = p.symbol(p.add_symbol({"s0", "batch", 1, 64}));
  View x = input("x", DType::f32, {batch, p.index(4)});
  View t = rec.view(x, {p.index(4), batch}, [](Coordinates c) { return std::vector<Expr>{c[1], c[0]}; });
  View e = rec.pointwise("exp", DType::f32, t.sizes, [&](Coordinates c) { return p.op(exp, {rec.at(t, c)}); });
  View s = rec.reduce("sum", ReduceOp::sum, DType::f32, {p.index(4)}, {batch},
                      [&](Coordinates c, Coordinates r) { return rec.at(e, std::vector<Expr>{c[0], r[0]}); });
  output(s);
  EXPECT_EQ(to_string(rec.program()),
            "size batch = s0 in 1 to 64\n"
            "input x: f32[batch, 4]\n"
            "exp: f32[4, batch] = [i0, i1] exp(load(x, i1, i0))\n"
            "sum: f32[4] = sum over [batch] [i0 | i1] load(exp, i0, i1)\n"
            "output sum\n");
  EXPECT_TRUE(verify(rec.program()).ok());
}

TEST_F(LoopTest, PointwiseThroughAViewWithADynamicSize) {
  Expr batch = p.symbol(p.add_symbol({"s0", "batch", 1, 64}));
  View x = input("x", DType::f32, {batch, p.index(3)});
  output(rec.pointwise("twice", DType::f32, {p.index(3), batch},
                       [&](Coordinates c) { return p.op(mul, {rec.at(x, std::vector<Expr>{c[1], c[0]}), p.constant(2, DType::f32)}); }));
  for (int64_t n : {1, 2, 700}) {  // the last is more than one block
    const std::vector<float> v = counted(n * 3);
    const std::vector<float> got = values<float>(run({tensor(DType::f32, {n, 3}, v)})[0]);
    ASSERT_EQ(got.size(), v.size());
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < 3; ++j) EXPECT_EQ(got[static_cast<size_t>(j * n + i)], 2 * v[static_cast<size_t>(i * 3 + j)]);
    }
  }
}

TEST_F(LoopTest, MaskedLoadsDoNotHappenOutside) {
  View x = input("x", DType::f32, sizes({5}));
  output(rec.pointwise("shifted", DType::f32, sizes({5}), [&](Coordinates c) {
    Expr at = c[0] - 2, inside = p.op(ge, {at, p.index(0)});
    return p.op(masked, {inside, rec.at(x, std::vector<Expr>{at}), p.constant(-1, DType::f32)});
  }));
  EXPECT_EQ(values<float>(run({tensor<float>(DType::f32, {5}, {1, 2, 3, 4, 5})})[0]), (std::vector<float>{-1, -1, 1, 2, 3}));
}

TEST_F(LoopTest, ALoadOutsideItsBufferIsABug) {
  View x = input("x", DType::f32, sizes({5}));
  output(rec.pointwise("bad", DType::f32, sizes({5}), [&](Coordinates c) { return rec.at(x, std::vector<Expr>{c[0] + 1}); }));
  const std::vector<TensorData> in{tensor<float>(DType::f32, {5}, {1, 2, 3, 4, 5})};
  EXPECT_THROW((void)interpret(rec.program(), in), InternalError);
}

TEST_F(LoopTest, AnIndexFromDataIsChecked) {
  View x = input("x", DType::f32, sizes({3})), i = input("i", DType::i64, sizes({2}));
  output(
      rec.pointwise("gather", DType::f32, sizes({2}), [&](Coordinates c) { return rec.at(x, std::vector<Expr>{p.checked_index(rec.at(i, c), p.index(3))}); }));
  const TensorData data = tensor<float>(DType::f32, {3}, {10, 20, 30});
  EXPECT_EQ(values<float>(run({data, tensor<int64_t>(DType::i64, {2}, {2, 0})})[0]), (std::vector<float>{30, 10}));
  for (int64_t wrong : {int64_t{-1}, int64_t{3}, std::numeric_limits<int64_t>::min()}) {
    const std::vector<TensorData> in{data, tensor<int64_t>(DType::i64, {2}, {0, wrong})};
    auto r = interpret(rec.program(), in);
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().code, ErrorCode::input_value);
  }
}

// The numbers of the elements that are not 0, in blocks of 4.
struct Kept {
  SymbolId size;
  View positions;
};

Kept kept_numbers(ExprPool& p, Recorder& rec, const View& x, Expr limit) {
  Symbol symbol;
  symbol.name = symbol.label = "u0";
  symbol.from_data = true;
  const SymbolId size = p.add_symbol(symbol);
  const Expr one = p.constant_int(1, DType::i64), zero = p.constant_int(0, DType::i64);
  const auto keep = [&](Expr b, Expr j) { return p.op(ScalarOp::ne, {rec.at(x, std::vector<Expr>{b * 4 + j}), p.constant(0, DType::f32)}); };
  const View counts = rec.reduce("count", ReduceOp::sum, DType::i64, {p.index(2)}, {p.index(4)},
                                 [&](Coordinates c, Coordinates j) { return p.select(keep(c[0], j[0]), one, zero); });
  const View ends = rec.scan("ends", ScanOp::sum, DType::i64, {p.index(2)}, 0, [&](Coordinates c) { return rec.at(counts, c); });
  rec.read_size(size, rec.at(ends, std::vector<Expr>{p.index(1)}), limit);
  const View positions = rec.compact(
      "positions", p.symbol(size), p.index(2), p.index(4), [&](Coordinates c) { return keep(c[0], c[1]); },
      [&](Expr b) { return p.op(ScalarOp::sub, {rec.at(ends, std::vector<Expr>{b}), rec.at(counts, std::vector<Expr>{b})}); },
      [&](Coordinates c) { return p.cast(c[0] * 4 + c[1], DType::i64); });
  return {size, positions};
}

TEST_F(LoopTest, WhatIsKeptHasASizeFromData) {
  const View x = input("x", DType::f32, sizes({8}));
  const Kept kept = kept_numbers(p, rec, x, p.index(8));
  output(rec.pointwise("twice", DType::i64, {p.symbol(kept.size)}, [&](Coordinates c) {
    const Expr v = rec.at(kept.positions, c);
    return p.op(ScalarOp::add, {v, v});
  }));
  const auto twice = [&](std::vector<float> in) {
    const TensorData out = run({tensor<float>(DType::f32, {8}, in)})[0];
    EXPECT_EQ(out.sizes, (std::vector<int64_t>{static_cast<int64_t>(values<int64_t>(out).size())}));
    return values<int64_t>(out);
  };
  EXPECT_EQ(twice({0, 1, 0, 2, 3, 0, 0, 4}), (std::vector<int64_t>{2, 6, 8, 14}));
  EXPECT_EQ(twice(std::vector<float>(8, 0)), std::vector<int64_t>());
  EXPECT_EQ(twice(std::vector<float>(8, 1)).size(), 8u);
  const std::string text = to_string(rec.program());
  EXPECT_NE(text.find("u0: i64[] = read u0 from u0_value, at most 8"), std::string::npos) << text;
  EXPECT_NE(text.find("compact blocks 2 of 4"), std::string::npos) << text;
  EXPECT_EQ(dead_loops(rec.program()).data_sizes.size(), 1u);
}

TEST_F(LoopTest, ASizeFromDataIsChecked) {
  const View x = input("x", DType::f32, sizes({8}));
  const Kept kept = kept_numbers(p, rec, x, p.index(5));
  output(kept.positions);
  rec.program().checks.push_back({Condition::compare(Condition::Kind::less_equal, p.symbol(kept.size), p.index(3)), "at most three", "", false});
  const auto message = [&](int ones) {
    std::vector<float> in(8, 0);
    std::fill_n(in.begin(), ones, 1.0f);
    auto r = interpret(rec.program(), std::vector{tensor<float>(DType::f32, {8}, in)});
    EXPECT_TRUE(r.ok() || r.error().code == ErrorCode::runtime_assert);
    return r.ok() ? "" : r.error().message;
  };
  EXPECT_EQ(message(3), "");
  EXPECT_EQ(message(4), "assertion failed: at most three");
  EXPECT_EQ(message(6), "assertion failed: at most three");  // the program's words before ours
  rec.program().checks.clear();
  EXPECT_EQ(message(5), "");
  EXPECT_EQ(message(6), "the size 'u0' that the program reads from data is 6, not in 0..5");
}

TEST_F(LoopTest, ASizeThatNothingReadsIsAMistake) {
  Symbol symbol;
  symbol.name = symbol.label = "u7";
  symbol.from_data = true;
  output(rec.pointwise("ones", DType::f32, {p.symbol(p.add_symbol(symbol))}, [&](Coordinates) { return p.constant(1, DType::f32); }));
  EXPECT_FALSE(verify(rec.program()).ok());
}

TEST_F(LoopTest, ReductionsPropagateNaNAndCountFromTheFirst) {
  View x = input("x", DType::f32, sizes({3, 4}));
  for (ReduceOp op : {ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min}) {
    output(rec.reduce("r", op, DType::f32, sizes({3}), sizes({4}), [&](Coordinates c, Coordinates r) { return rec.at(x, std::vector<Expr>{c[0], r[0]}); }));
  }
  for (ReduceOp op : {ReduceOp::argmax, ReduceOp::argmin}) {
    output(rec.reduce("r", op, DType::i64, sizes({3}), sizes({4}), [&](Coordinates c, Coordinates r) { return rec.at(x, std::vector<Expr>{c[0], r[0]}); }));
  }
  const float nan = std::nanf("");
  const std::vector<TensorData> r = run({tensor<float>(DType::f32, {3, 4}, {1, 5, 5, -2, 1, nan, 3, nan, -1, -1, -3, -3})});
  EXPECT_EQ(values<float>(r[0])[0], 9);
  EXPECT_EQ(values<float>(r[1])[0], -50);
  EXPECT_EQ(values<float>(r[2])[0], 5);
  EXPECT_EQ(values<float>(r[3])[2], -3);
  for (int k = 0; k < 4; ++k) EXPECT_TRUE(std::isnan(values<float>(r[static_cast<size_t>(k)])[1]));
  EXPECT_EQ(values<int64_t>(r[4]), (std::vector<int64_t>{1, 1, 0}));
  EXPECT_EQ(values<int64_t>(r[5]), (std::vector<int64_t>{3, 1, 2}));
}

TEST_F(LoopTest, AnEmptyDomainGivesTheIdentity) {
  View x = input("x", DType::f32, sizes({2, 0}));
  auto read = [&](Coordinates c, Coordinates r) { return rec.at(x, std::vector<Expr>{c[0], r[0]}); };
  output(rec.reduce("s", ReduceOp::sum, DType::f32, sizes({2}), sizes({0}), read));
  output(rec.reduce("m", ReduceOp::max, DType::f32, sizes({2}), sizes({0}), read));
  const std::vector<TensorData> r = run({tensor<float>(DType::f32, {2, 0}, {})});
  EXPECT_EQ(values<float>(r[0]), (std::vector<float>{0, 0}));
  EXPECT_EQ(values<float>(r[1])[1], -std::numeric_limits<float>::infinity());
}

TEST_F(LoopTest, ScanConcatAndSort) {
  View x = input("x", DType::i32, sizes({3, 2}));
  output(rec.scan("cumsum", ScanOp::sum, DType::i64, x.sizes, 0, [&](Coordinates c) { return p.cast(rec.at(x, c), DType::i64); }));
  output(rec.concat("cat", DType::i32, sizes({3, 4}), 1, {x, x}));
  auto [sorted, order] = rec.sort("sort", x, 0, p.index(2), true);
  output(sorted);
  output(order);
  const std::vector<TensorData> r = run({tensor<int32_t>(DType::i32, {3, 2}, {3, 1, 5, 1, 3, 2})});
  EXPECT_EQ(values<int64_t>(r[0]), (std::vector<int64_t>{3, 1, 8, 2, 11, 4}));
  EXPECT_EQ(values<int32_t>(r[1]), (std::vector<int32_t>{3, 1, 3, 1, 5, 1, 5, 1, 3, 2, 3, 2}));
  EXPECT_EQ(values<int32_t>(r[2]), (std::vector<int32_t>{5, 2, 3, 1}));
  EXPECT_EQ(values<int64_t>(r[3]), (std::vector<int64_t>{1, 2, 0, 0}));  // equal values keep their order
}

TEST_F(LoopTest, GemmWithTransposedOperandAndTwoRowDimensions) {
  View a = input("a", DType::f32, sizes({2, 3, 4})), w = input("w", DType::f32, sizes({5, 4}));
  Gemm g;
  g.m = sizes({2, 3});
  g.n = sizes({5});
  g.k = sizes({4});
  g.a = {BufferId(a.body->id), {p.var(0), p.var(1), p.var(3)}};
  g.b = {BufferId(w.body->id), {p.var(2), p.var(3)}};
  output(rec.define("linear", DType::f32, sizes({2, 3, 5}), g));
  const std::vector<float> av = counted(24), wv = counted(20, 0.5f);
  const std::vector<float> got = values<float>(run({tensor(DType::f32, {2, 3, 4}, av), tensor(DType::f32, {5, 4}, wv)})[0]);
  for (size_t i = 0; i < 6; ++i) {
    for (size_t j = 0; j < 5; ++j) {
      float sum = 0;
      for (size_t k = 0; k < 4; ++k) sum += av[i * 4 + k] * wv[j * 4 + k];
      EXPECT_FLOAT_EQ(got[i * 5 + j], sum);
    }
  }
}

TEST_F(LoopTest, GroupedStridedConvolution) {
  View x = input("x", DType::f32, sizes({1, 4, 5, 6})), w = input("w", DType::f32, sizes({6, 2, 3, 2}));
  Conv2d c;
  c.x = {BufferId(x.body->id), {p.var(0), p.var(1), p.var(2), p.var(3)}};
  c.x_sizes = x.sizes;
  c.weight = BufferId(w.body->id);
  c.kernel = {3, 2};
  c.stride = {2, 1};
  c.padding = {1, 1};
  c.dilation = {1, 2};
  c.groups = 2;
  output(rec.define("conv", DType::f32, sizes({1, 6, 3, 6}), c));
  const std::vector<float> xv = counted(120), wv = counted(72, 0.25f);
  const std::vector<float> got = values<float>(run({tensor(DType::f32, {1, 4, 5, 6}, xv), tensor(DType::f32, {6, 2, 3, 2}, wv)})[0]);
  for (int64_t o = 0; o < 6; ++o) {
    for (int64_t h = 0; h < 3; ++h) {
      for (int64_t v = 0; v < 6; ++v) {
        float sum = 0;
        for (int64_t i = 0; i < 2 * 3 * 2; ++i) {
          const int64_t ch = o / 3 * 2 + i / 6, ih = h * 2 - 1 + i / 2 % 3, iw = v - 1 + i % 2 * 2;
          if (ih >= 0 && ih < 5 && iw >= 0 && iw < 6) sum += xv[static_cast<size_t>((ch * 5 + ih) * 6 + iw)] * wv[static_cast<size_t>(o * 12 + i)];
        }
        EXPECT_FLOAT_EQ(got[static_cast<size_t>((o * 3 + h) * 6 + v)], sum);
      }
    }
  }
}

TEST_F(LoopTest, FoldingEvaluatesConstantsOnceAndLeavesGeneratorsAndGrowth) {
  View x = input("x", DType::f32, sizes({4}));
  View w = rec.constant("w", tensor<float>(DType::f32, {4}, {1, 2, 3, 4}));
  View twice = rec.pointwise("twice", DType::f32, sizes({4}), [&](Coordinates c) { return p.op(mul, {rec.at(w, c), p.constant(2, DType::f32)}); });
  View total = rec.reduce("total", ReduceOp::sum, DType::f32, {}, sizes({4}), [&](Coordinates, Coordinates r) { return rec.at(twice, r); });
  View grown = rec.pointwise("grown", DType::f32, sizes({1000000, 4}), [&](Coordinates c) { return rec.at(twice, c.subspan(1)); });
  output(rec.pointwise("y", DType::f32, sizes({4}), [&](Coordinates c) {
    return p.op(add, {p.op(mul, {rec.at(x, c), rec.at(total, {})}), rec.at(grown, std::vector<Expr>{p.index(7), c[0]})});
  }));
  auto folded = fold_constants(rec.take());
  ASSERT_TRUE(folded.ok());
  EXPECT_EQ(to_string(folded.value()),
            "input x: f32[4]\n"
            "constant twice: f32[4] = [2, 4, 6, 8]\n"
            "constant total: f32[] = [20]\n"
            "grown: f32[1000000, 4] = [i0, i1] load(twice, i1)\n"
            "y: f32[4] = [i0] load(x, i0) * load(total) + load(grown, 7, i0)\n"
            "output y\n");
  EXPECT_EQ(values<float>(folded.value().buffers[2].data), (std::vector<float>{20}));
}

TEST_F(LoopTest, DeadLoopsGo) {
  View x = input("x", DType::f32, sizes({4}));
  auto same = [&](Coordinates c) { return rec.at(x, c); };
  rec.pointwise("unused", DType::f32, sizes({4}), same);
  output(rec.pointwise("used", DType::f32, sizes({4}), same));
  const LoopProgram program = dead_loops(rec.take());
  EXPECT_EQ(program.loops.size(), 1u);
  EXPECT_EQ(program.buffers.size(), 2u);
  EXPECT_TRUE(verify(program).ok());
}

TEST_F(LoopTest, VerifyFindsABodyOfAWrongType) {
  View x = input("x", DType::f32, sizes({4}));
  output(rec.pointwise("y", DType::f32, sizes({4}), [&](Coordinates c) { return rec.at(x, c); }));
  std::get<Pointwise>(rec.program().loops[0].def).body = p.boolean(true);
  const Status s = verify(rec.program());
  ASSERT_FALSE(s.ok());
  EXPECT_NE(s.error().message.find("the body of 'y' is bool"), std::string::npos) << s.error().message;
}

TEST_F(LoopTest, InputsThatContradictAreErrors) {
  Expr n = p.symbol(p.add_symbol({"s0", "n", 1, 64}));
  View x = input("x", DType::f32, {n}), y = input("y", DType::f32, {n * 2 + 1});
  output(rec.pointwise("z", DType::f32, {n}, [&](Coordinates c) { return p.op(add, {rec.at(x, c), rec.at(y, c)}); }));
  auto with = [&](int64_t a, int64_t b) {
    const std::vector<TensorData> in{tensor(DType::f32, {a}, counted(a)), tensor(DType::f32, {b}, counted(b))};
    return bind_symbols(rec.program(), in);
  };
  EXPECT_TRUE(with(3, 7).ok());
  ASSERT_FALSE(with(3, 6).ok());
  EXPECT_EQ(with(3, 6).error().code, ErrorCode::input_size);
}

// Every bit pattern keeps its value; rounding is to nearest, ties to even, and overflows to infinity.
TEST(MemoryTypes, HalfAndBfloat16) {
  using interpreter::Bf16;
  using interpreter::Half;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double h = Half{static_cast<uint16_t>(bits)}, b = Bf16{static_cast<uint16_t>(bits)};
    EXPECT_TRUE(std::isnan(h) || Half::from(h).bits == bits) << bits;
    EXPECT_TRUE(std::isnan(b) || Bf16::from(b).bits == bits) << bits;
  }
  EXPECT_EQ(double(Half::from(2049)), 2048);
  EXPECT_EQ(double(Half::from(2051)), 2052);
  EXPECT_EQ(double(Half::from(65519)), 65504);
  EXPECT_TRUE(std::isinf(double(Half::from(65520))));
  EXPECT_EQ(double(Half::from(0x1p-25)), 0);
  EXPECT_EQ(double(Half::from(0x1.8p-24)), 0x1p-23);
  EXPECT_EQ(double(Bf16::from(257)), 256);
  EXPECT_EQ(double(Bf16::from(259)), 260);
  EXPECT_TRUE(std::isnan(double(Bf16::from(std::nan("")))));
  EXPECT_TRUE(std::isnan(double(Half::from(std::nan("")))));
}

}  // namespace
}  // namespace coil
