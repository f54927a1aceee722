// A loop program that a test records for the scheduler.
#pragma once

#include <gtest/gtest.h>

#include "loop/recorder.h"

namespace coil {

class ScheduledProgram : public ::testing::Test {
 protected:
  void output(const View& v) {
    const BufferId id(v.body->id);
    rec.program().buffer(id).strides = contiguous_strides(pool, v.sizes);
    LoopOutput out;
    out.source = id;
    out.name = "out";
    rec.program().outputs.push_back(out);
  }

  std::vector<Expr> sizes(std::initializer_list<int64_t> list) {
    std::vector<Expr> r;
    for (int64_t s : list) r.push_back(pool.index(s));
    return r;
  }
  View input(const char* name, std::vector<Expr> s, DType dtype = DType::f32) {
    View v = rec.input(name, dtype, s, contiguous_strides(pool, s));
    return v;
  }
  View constant(const char* name, std::vector<int64_t> s, DType dtype = DType::f32) {
    TensorData t;
    t.dtype = dtype;
    t.sizes = s;
    t.strides.resize(s.size());
    int64_t step = 1;
    for (size_t i = s.size(); i-- > 0; step *= s[i]) t.strides[i] = step;
    auto bytes = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(step) * 4);
    t.bytes = *bytes;
    t.owner = bytes;
    return rec.constant(name, t);
  }

  // a [m, k] by w [k, n].
  View gemm(const View& a, const View& w, int64_t n) {
    Gemm g;
    g.m = {a.sizes[0]};
    g.n = {pool.index(n)};
    g.k = {a.sizes[1]};
    g.a = {BufferId(a.body->id), {pool.var(0), pool.var(2)}};
    g.b = {BufferId(w.body->id), {pool.var(2), pool.var(1)}};
    return rec.define("mm", DType::f32, {a.sizes[0], pool.index(n)}, g);
  }

  std::shared_ptr<ExprPool> shared = std::make_shared<ExprPool>();
  ExprPool& pool = *shared;
  Recorder rec{shared};
  Expr batch = pool.symbol(pool.add_symbol({"s77", "batch", 1, 64}));
};

}  // namespace coil
