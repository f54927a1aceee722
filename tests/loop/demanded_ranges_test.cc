// What is left of a program whose results are parts of its values, and that the parts are those of before.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "expr/extent.h"
#include "loop/demanded_ranges.h"
#include "loop/interpret.h"
#include "loop/recorder.h"
#include "tests/loop/recorded_program.h"

namespace coil {
namespace {

using enum ScalarOp;

TensorData floats(std::vector<int64_t> sizes) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return tensor(DType::f32, std::move(sizes), counted(count, 0.125f));
}

class DemandedRanges : public RecordedProgram {
 protected:
  Expr n(int64_t value) { return p.index(value); }
  Expr symbol(const char* name, int64_t min) { return p.symbol(p.add_symbol({name, name, min, INT64_MAX})); }
  View input(const char* name, std::vector<Expr> sizes) { return rec.input(name, DType::f32, sizes, contiguous_strides(p, sizes)); }
  View apply(ScalarOp op, const View& x, const char* name) {
    return rec.pointwise(name, DType::f32, x.sizes, [&](Coordinates c) { return p.op(op, {rec.at(x, c)}); });
  }
  // count elements of dimension dim, from first on.
  View slice(const View& x, size_t dim, Expr first, Expr count, int64_t step = 1) {
    std::vector<Expr> sizes = x.sizes;
    sizes[dim] = count;
    return rec.view(x, sizes, [&](Coordinates c) {
      std::vector<Expr> at(c.begin(), c.end());
      at[dim] = at[dim] * step + first;
      return at;
    });
  }
  View row_sum(const View& x, const char* name) {
    return rec.reduce(name, ReduceOp::sum, DType::f32, {x.sizes[0]}, {x.sizes[1]},
                      [&](Coordinates c, Coordinates r) { return rec.at(x, std::vector<Expr>{c[0], r[0]}); });
  }
  View product(const View& a, const View& b, const char* name) {
    Gemm g{{}, {a.sizes[0]}, {b.sizes[1]}, {a.sizes[1]}, {BufferId(a.body->id), {p.var(0), p.var(2)}}, {BufferId(b.body->id), {p.var(2), p.var(1)}}, {}};
    return rec.define(name, DType::f32, {a.sizes[0], b.sizes[1]}, std::move(g));
  }

  // The narrowed program, whose results on these inputs are compared with the whole one's.
  LoopProgram narrowed(const std::vector<std::vector<TensorData>>& calls) {
    const LoopProgram& whole = rec.program();
    LoopProgram part = demanded_ranges(whole, true);
    const Status valid = verify(part);
    EXPECT_TRUE(valid.ok()) << (valid.ok() ? "" : valid.error().message);
    for (const std::vector<TensorData>& inputs : calls) {
      auto expected = interpret(whole, inputs), got = interpret(part, inputs);
      EXPECT_TRUE(expected.ok() && got.ok()) << (got.ok() ? "" : got.error().message);
      if (!expected.ok() || !got.ok()) continue;
      for (size_t i = 0; i < expected.value().size(); ++i) {
        const TensorData &e = expected.value()[i], &g = got.value()[i];
        EXPECT_EQ(e.sizes, g.sizes);
        EXPECT_TRUE(std::equal(e.bytes.begin(), e.bytes.end(), g.bytes.begin(), g.bytes.end())) << to_string(part);
      }
    }
    return part;
  }
  static std::string sizes_of(const LoopProgram& program, const std::string& name) {
    for (const BufferInfo& b : program.buffers) {
      if (b.name != name) continue;
      std::string text;
      for (Expr s : b.sizes) text += (text.empty() ? "" : " x ") + to_string(s);
      return text;
    }
    return "gone";
  }
};

TEST_F(DemandedRanges, ExtentsOfIndices) {
  const Expr s = symbol("s", 1), i = p.var(0), j = p.var(1);
  const std::vector<Expr> sizes = {n(6), s};
  const auto text = [&](Expr e) {
    const auto x = extent(e, {sizes});
    return x ? to_string(x->first) + " .. " + to_string(x->last) : "?";
  };
  EXPECT_EQ(text(i * 3 + 2), "2 .. 17");
  EXPECT_EQ(text(n(9) - i), "4 .. 9");
  EXPECT_EQ(text(s - 1 - j), "0 .. s - 1");
  EXPECT_EQ(text(s * i + j), "0 .. 6*s - 1");
  EXPECT_EQ(text(coil::floor_div(i + 5, n(4))), "1 .. 2");
  EXPECT_EQ(text(coil::floor_mod(i + 64, n(64))), "0 .. 5");
  EXPECT_EQ(text(coil::floor_mod(i * 7, n(5))), "0 .. 4");
  EXPECT_EQ(text(index_min(i, n(2))), "0 .. 2");
  EXPECT_EQ(text(p.var(2)), "?");
}

TEST_F(DemandedRanges, TheLastRowOfLayers) {
  const Expr s = symbol("s", 1);
  const View x = input("x", {s, n(4)}), w = input("w", {n(4), n(5)});
  const View h = apply(exp, x, "h"), y = product(h, w, "y"), t = apply(tanh, y, "t"), sum = row_sum(t, "sum");
  output(apply(neg, slice(sum, 0, s - 1, n(1)), "out"));
  const LoopProgram part = narrowed({{floats({1, 4}), floats({4, 5})}, {floats({7, 4}), floats({4, 5})}});
  EXPECT_EQ(sizes_of(part, "h"), "1 x 4");
  EXPECT_EQ(sizes_of(part, "y"), "1 x 5");
  EXPECT_EQ(sizes_of(part, "sum"), "1");
}

TEST_F(DemandedRanges, WhatMayHaveNoSuchRowStaysWhole) {
  const Expr s = symbol("s", 0);
  const View x = input("x", {s, n(4)}), h = apply(exp, x, "h");
  output(apply(neg, slice(h, 0, s - 1, n(1)), "out"));
  EXPECT_EQ(sizes_of(demanded_ranges(rec.program()), "h"), "s x 4");
}

TEST_F(DemandedRanges, ReadersTogether) {
  const View x = input("x", {n(20), n(3)}), a = apply(exp, x, "a"), b = apply(tanh, a, "b"), c = apply(neg, a, "c");
  output(apply(neg, slice(b, 0, n(2), n(3)), "first"));
  output(apply(exp, slice(c, 0, n(4), n(5)), "second"));
  const LoopProgram part = narrowed({{floats({20, 3})}});
  EXPECT_EQ(sizes_of(part, "a"), "7 x 3");  // 2 to 8
  EXPECT_EQ(sizes_of(part, "b"), "3 x 3");
  EXPECT_EQ(sizes_of(part, "c"), "5 x 3");
}

TEST_F(DemandedRanges, OutputsAndNearlyEverythingStay) {
  const View x = input("x", {n(20), n(3)}), a = apply(exp, x, "a"), b = apply(tanh, x, "b");
  output(a);
  output(apply(neg, slice(a, 0, n(0), n(2)), "first"));
  output(apply(neg, slice(b, 0, n(1), n(18)), "second"));
  const LoopProgram part = narrowed({{floats({20, 3})}});
  EXPECT_EQ(sizes_of(part, "a"), "20 x 3");
  EXPECT_EQ(sizes_of(part, "b"), "20 x 3");
}

TEST_F(DemandedRanges, StepsOfRowsAndNotOfNeighbours) {
  const View x = input("x", {n(20), n(21)}), a = apply(exp, x, "a"), b = apply(tanh, x, "b");
  output(apply(neg, slice(a, 0, n(1), n(5), 4), "rows"));
  output(apply(neg, slice(b, 1, n(1), n(5), 2), "columns"));
  const LoopProgram part = narrowed({{floats({20, 21})}});
  EXPECT_EQ(sizes_of(part, "a"), "5 x 21");
  EXPECT_EQ(sizes_of(part, "b"), "20 x 9");
}

TEST_F(DemandedRanges, PiecesOfAConcatenation) {
  const View x = input("x", {n(6), n(3)}), y = input("y", {n(8), n(3)});
  const View a = apply(exp, x, "a"), b = apply(tanh, y, "b"), all = rec.concat("all", DType::f32, {n(14), n(3)}, 0, {a, b});
  output(apply(neg, slice(all, 0, n(7), n(2)), "out"));
  const LoopProgram part = narrowed({{floats({6, 3}), floats({8, 3})}});
  EXPECT_EQ(sizes_of(part, "a"), "gone");
  EXPECT_EQ(sizes_of(part, "b"), "2 x 3");
  EXPECT_TRUE(std::holds_alternative<Pointwise>(part.loops[1].def));
}

TEST_F(DemandedRanges, PositionsAreCheckedThoughNobodyReadsThere) {
  const View table = input("table", {n(10), n(4)}), i = rec.input("i", DType::i64, {n(16)}, {n(1)});
  const View a = rec.pointwise("a", DType::f32, {n(16), n(4)}, [&](Coordinates c) {
    return rec.at(table, std::vector<Expr>{p.checked_index(rec.at(i, std::vector<Expr>{c[0]}), n(10)), c[1]});
  });
  const View b = apply(exp, a, "b");
  output(apply(neg, slice(slice(b, 0, n(0), n(2)), 1, n(1), n(2)), "out"));
  const LoopProgram part = demanded_ranges(rec.program());
  EXPECT_TRUE(verify(part).ok());
  EXPECT_EQ(sizes_of(part, "a"), "2 x 2");
  EXPECT_EQ(sizes_of(part, "b"), "2 x 2");
  EXPECT_EQ(sizes_of(part, "a.checks"), "16 x 1");
}

TEST_F(DemandedRanges, ChecksOfADroppedPieceStay) {
  const View table = input("table", {n(10), n(4)}), i = rec.input("i", DType::i64, {n(16)}, {n(1)});
  const View a = rec.pointwise("a", DType::f32, {n(16), n(4)}, [&](Coordinates c) {
    return rec.at(table, std::vector<Expr>{p.checked_index(rec.at(i, std::vector<Expr>{c[0]}), n(10)), c[1]});
  });
  const View all = rec.concat("all", DType::f32, {n(26), n(4)}, 0, {a, apply(exp, table, "last")});
  output(apply(neg, slice(all, 0, n(20), n(2)), "out"));
  const LoopProgram part = demanded_ranges(rec.program());
  EXPECT_TRUE(verify(part).ok());
  EXPECT_EQ(sizes_of(part, "a"), "gone");
  EXPECT_EQ(sizes_of(part, "a.checks"), "16 x 1");
  EXPECT_EQ(part.outputs.back().kind, LoopOutput::Kind::check);
}

TEST_F(DemandedRanges, AScanNeedsWhatComesBefore) {
  const View x = input("x", {n(20), n(3)});
  const View down = rec.scan("down", ScanOp::sum, DType::f32, x.sizes, 0, [&](Coordinates c) { return rec.at(x, c); });
  output(apply(neg, slice(down, 0, n(4), n(3)), "out"));
  EXPECT_EQ(sizes_of(narrowed({{floats({20, 3})}}), "down"), "7 x 3");
}

// x times one weight is read as queries, keys and values; of the queries one is used.
TEST_F(DemandedRanges, AJointProjectionIsSplit) {
  const View x = input("x", {n(600), n(8)}), w = input("w", {n(8), n(48)}), y = product(x, w, "y"), b = apply(tanh, y, "b");
  Attention a;
  a.batch = a.heads = a.kv_heads = n(1);
  a.q_len = a.kv_len = n(600);
  a.dim = a.v_dim = n(16);
  const auto columns = [&](int64_t first) { return Operand{BufferId(b.body->id), {p.var(2), p.var(3) + first}}; };
  a.q = columns(16), a.k = columns(0), a.v = columns(32);
  const View all = rec.define("attention", DType::f32, {n(1), n(1), n(600), n(16)}, a);
  output(apply(neg, slice(all, 2, n(4), n(1)), "between"));
  EXPECT_EQ(sizes_of(narrowed({{floats({600, 8}), floats({8, 48})}}), "y"), "600 x 48");  // keys and values lie on both sides
  std::get<Attention>(rec.program().loops[2].def).q = columns(0);
  std::get<Attention>(rec.program().loops[2].def).k = columns(16);
  const LoopProgram part = narrowed({{floats({600, 8}), floats({8, 48})}});
  EXPECT_EQ(sizes_of(part, "y") + ", " + sizes_of(part, "b"), "600 x 32, 600 x 32");
  EXPECT_EQ(sizes_of(part, "y.rows") + ", " + sizes_of(part, "b.rows"), "1 x 16, 1 x 16");
}

class DemandedQueries : public DemandedRanges {
 protected:
  // Causal attention of s queries and as many keys, of which rows are read.
  LoopProgram rows(Expr first, Expr count, Expr s, std::vector<int64_t> lengths) {
    const View q = input("q", {n(2), n(2), s, n(4)}), k = input("k", {n(2), n(2), s, n(4)}), v = input("v", {n(2), n(2), s, n(4)});
    Attention a;
    a.batch = a.heads = a.kv_heads = n(2);
    a.q_len = a.kv_len = s;
    a.dim = a.v_dim = n(4);
    a.q = rec.operand(q), a.k = rec.operand(k), a.v = rec.operand(v);
    a.causal = true;
    const View all = rec.define("attention", DType::f32, q.sizes, a);
    output(apply(neg, slice(all, 2, first, count), "out"));
    std::vector<std::vector<TensorData>> calls;
    for (int64_t length : lengths) calls.push_back(std::vector<TensorData>(3, floats({2, 2, length, 4})));
    return narrowed(calls);
  }
};

TEST_F(DemandedQueries, TheLastOneSeesEverything) {
  const Expr s = symbol("s", 1);
  const LoopProgram part = rows(s - 1, n(1), s, {1, 2, 9});
  const auto& a = std::get<Attention>(part.loops[0].def);
  EXPECT_FALSE(a.causal);
  EXPECT_EQ(to_string(a.q_len) + ", " + to_string(a.kv_len), "1, s");
}

TEST_F(DemandedQueries, OneInTheMiddleSeesWhatComesBefore) {
  const LoopProgram part = rows(n(3), n(1), n(9), {9});
  const auto& a = std::get<Attention>(part.loops[0].def);
  EXPECT_FALSE(a.causal);
  EXPECT_EQ(to_string(a.q_len) + ", " + to_string(a.kv_len), "1, 4");
}

TEST_F(DemandedQueries, SeveralCountFromTheFirst) {
  const LoopProgram part = rows(n(2), n(3), n(9), {9});
  const auto& a = std::get<Attention>(part.loops[0].def);
  EXPECT_TRUE(a.causal);
  EXPECT_EQ(to_string(a.q_len) + ", " + to_string(a.kv_len), "5, 5");
}

}  // namespace
}  // namespace coil
