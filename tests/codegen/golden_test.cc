// The text of plans and kernels for museum-sized programs, against checked-in goldens (COIL_GOLDEN_UPDATE=1 rewrites them).
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "codegen/cpu/cpu_kernels.h"
#include "codegen/foreign_text.h"
#include "codegen/interface/call_text.h"
#include "codegen/cpu/host/host_program.h"
#include "codegen/index_text.h"
#include "loop/recorder.h"
#include "schedule/schedule.h"
#include "tests/paths.h"

namespace coil {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

void expect_golden(const std::string& name, LoopProgram program) {
  auto plan = schedule(std::move(program), cpu::traits());
  ASSERT_TRUE(plan.ok());
  std::string text = to_string(plan.value()) + "----\n";
  for (const cpu::CpuFunction& f : cpu::generate_kernels(plan.value()).functions) text += f.text + "\n";
  const std::string path = std::string(COIL_SOURCE_DIR) + "/tests/codegen/golden/" + name + ".txt";
  if (std::getenv("COIL_GOLDEN_UPDATE")) std::ofstream(path) << text;
  EXPECT_EQ(text, read(path)) << "make golden-update, then read the diff";
}

struct Builder {
  std::shared_ptr<ExprPool> shared = std::make_shared<ExprPool>();
  ExprPool& pool = *shared;
  Recorder rec{shared};
  Expr batch = pool.symbol(pool.add_symbol({"s77", "batch", 1, 64}));

  View input(const char* name, DType dtype, std::vector<Expr> s) { return rec.input(name, dtype, s, contiguous_strides(pool, s)); }
  LoopProgram finish(const View& v) {
    output(v);
    return rec.take();
  }
  void output(const View& v) {
    BufferInfo& buffer = rec.program().buffer(BufferId(v.body->id));
    buffer.strides = contiguous_strides(pool, buffer.sizes);
    LoopOutput out;
    out.source = BufferId(v.body->id);
    out.name = "out";
    rec.program().outputs.push_back(out);
  }
};

TEST(Golden, Pointwise) {
  Builder b;
  const View x = b.input("x", DType::bf16, {b.batch, b.pool.index(10)});
  expect_golden("pointwise_bf16",
                b.finish(b.rec.pointwise("sigmoid", DType::bf16, x.sizes, [&](Coordinates i) { return b.pool.op(ScalarOp::sigmoid, {b.rec.at(x, i)}); })));
}

TEST(Golden, Transpose) {
  Builder b;
  const View x = b.input("x", DType::f32, {b.pool.index(33), b.batch});
  const View t = b.rec.view(x, {b.batch, b.pool.index(33)}, [](Coordinates i) { return std::vector<Expr>{i[1], i[0]}; });
  expect_golden("transpose", b.finish(b.rec.pointwise("neg", DType::f32, t.sizes, [&](Coordinates i) { return b.pool.op(ScalarOp::neg, {b.rec.at(t, i)}); })));
}

TEST(Golden, RowReduction) {
  Builder b;
  const View x = b.input("x", DType::f32, {b.batch, b.pool.index(100)});
  expect_golden("row_sum", b.finish(b.rec.reduce("sum", ReduceOp::sum, DType::f32, {b.batch}, {b.pool.index(100)},
                                                 [&](Coordinates i, Coordinates r) { return b.rec.at(x, std::vector<Expr>{i[0], r[0]}); })));
}

TEST(Golden, ColumnReduction) {
  Builder b;
  const View x = b.input("x", DType::f32, {b.batch, b.pool.index(100)});
  expect_golden("column_max", b.finish(b.rec.reduce("max", ReduceOp::max, DType::f32, {b.pool.index(100)}, {b.batch},
                                                    [&](Coordinates i, Coordinates r) { return b.rec.at(x, std::vector<Expr>{r[0], i[0]}); })));
}

// Few columns of many rows: parts of the rows, and lanes along the columns where they are read, though the parts' results lie otherwise.
TEST(Golden, LongColumns) {
  Builder b;
  const View x = b.input("x", DType::f32, {b.pool.index(8192), b.pool.index(32)});
  expect_golden("column_sum_parts", b.finish(b.rec.reduce("sum", ReduceOp::sum, DType::f32, {b.pool.index(32)}, {b.pool.index(8192)},
                                                          [&](Coordinates i, Coordinates r) { return b.rec.at(x, std::vector<Expr>{r[0], i[0]}); })));
}

TEST(Golden, GatherIsChecked) {
  Builder b;
  const View table = b.input("table", DType::f32, {b.pool.index(50), b.pool.index(32)});
  const View ids = b.input("ids", DType::i64, {b.batch});
  expect_golden("gather", b.finish(b.rec.pointwise("embedding", DType::f32, {b.batch, b.pool.index(32)}, [&](Coordinates i) {
    const Expr row = b.pool.checked_index(b.rec.at(ids, i.first(1)), b.pool.index(50));
    return b.rec.at(table, std::vector<Expr>{row, i[1]});
  })));
}

TEST(Golden, ComplexProduct) {
  Builder b;
  const View x = b.input("x", DType::c64, {b.batch, b.pool.index(10)}), y = b.input("y", DType::c64, {b.batch, b.pool.index(10)});
  expect_golden("complex_product", b.finish(b.rec.pointwise("mul", DType::c64, x.sizes, [&](Coordinates i) {
    const Complex p = parts_of(b.rec.at(x, i)), q = parts_of(b.rec.at(y, i));
    const auto mul = [&](Expr u, Expr v) { return b.pool.op(ScalarOp::mul, {u, v}); };
    return joined({b.pool.op(ScalarOp::sub, {mul(p.re, q.re), mul(p.im, q.im)}), b.pool.op(ScalarOp::add, {mul(p.re, q.im), mul(p.im, q.re)})});
  })));
}

// The library reads a stored, dense copy of the transposed input; a fused loop reads its result.
TEST(Golden, LibraryCall) {
  Builder b;
  const View x = b.input("x", DType::f32, {b.pool.index(8), b.batch});
  const View t = b.rec.view(x, {b.batch, b.pool.index(8)}, [](Coordinates i) { return std::vector<Expr>{i[1], i[0]}; });
  Library call;
  call.routine = "fft_r2c";
  call.subject = "rfft";
  call.dtype = DType::c64;
  call.sizes = {b.batch, b.pool.index(8), b.pool.index(1), b.pool.index(5)};
  call.options = {0};
  call.worker_scratch = b.pool.index(512);
  const View z = b.rec.library("rfft", std::move(call), {t}, {{DType::c64, {b.batch, b.pool.index(5)}}})[0];
  expect_golden("library_call", b.finish(b.rec.pointwise("real", DType::f32, z.sizes, [&](Coordinates i) { return parts_of(b.rec.at(z, i)).re; })));
}

// Numbers of the elements that are not 0, and ones of a size that only data bounds: read by the host, then memory of its own.
TEST(Golden, SizesFromData) {
  Builder b;
  ExprPool& p = b.pool;
  const auto from_data = [&](const char* name) {
    Symbol s;
    s.name = s.label = name;
    s.from_data = true;
    return p.add_symbol(s);
  };
  const SymbolId kept = from_data("u0"), asked = from_data("u1");
  const View x = b.input("x", DType::i64, {p.index(100)});
  const Expr one = p.constant_int(1, DType::i64), zero = p.constant_int(0, DType::i64);
  const auto keep = [&](Expr i) { return p.op(ScalarOp::ne, {b.rec.at(x, std::vector<Expr>{i}), zero}); };
  const View count =
      b.rec.reduce("count", ReduceOp::sum, DType::i64, {}, {p.index(100)}, [&](Coordinates, Coordinates j) { return p.select(keep(j[0]), one, zero); });
  b.rec.read_size(kept, count.body, p.index(100));
  const View positions = b.rec.compact(
      "positions", p.symbol(kept), p.index(1), p.index(100), [&](Coordinates c) { return keep(c[1]); }, [&](Expr) { return zero; },
      [&](Coordinates c) { return p.cast(c[1], DType::i64); });
  const View sum = b.rec.reduce("sum", ReduceOp::sum, DType::i64, {}, {p.symbol(kept)}, [&](Coordinates, Coordinates j) { return b.rec.at(positions, j); });
  b.rec.read_size(asked, sum.body, Expr());
  const View row = b.rec.scan("row", ScanOp::sum, DType::f32, {p.symbol(asked)}, 0, [&](Coordinates) { return p.constant(1, DType::f32); });
  const View out =
      b.rec.pointwise("out", DType::f32, {p.symbol(asked)}, [&](Coordinates c) { return b.rec.at(row, std::vector<Expr>{p.symbol(asked) - 1 - c[0]}); });
  LoopProgram program = b.finish(out);
  program.checks.push_back({Condition::compare(Condition::Kind::less, p.symbol(kept), p.index(50)), "less than fifty", "m.py:3", false});
  auto plan = schedule(program, cpu::traits());
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan.value().late_memory.size(), 1u);
  const std::string host = host_program_text(plan.value(), cpu::generate_kernels(plan.value()), {}).first;
  for (const char* part : {"if (!", "less than fifty (m.py:3)", "call->allocate(call->owner, 0, 0, s, &made[0], error)", "call->allocate(call->owner, -1, ",
                           "kLateOutputs[] = {1, }"}) {
    EXPECT_NE(host.find(part), std::string::npos) << part << " is not in\n" << host;
  }
  expect_golden("sizes_from_data", std::move(program));
}

// A branch whose parts have memory of their own; the host steers.
TEST(Golden, Branch) {
  Builder b;
  ExprPool& p = b.pool;
  const View x = b.input("x", DType::f32, {p.index(4), p.index(8)});
  const View holds = b.rec.reduce("any", ReduceOp::any, DType::boolean, {}, x.sizes,
                                  [&](Coordinates, Coordinates r) { return p.op(ScalarOp::gt, {b.rec.at(x, r), p.constant(1, DType::f32)}); });
  Region region;
  region.predicate = BufferId(holds.body->id);
  for (const bool first : {true, false}) {
    Recorder inner(b.shared);
    RegionPart part;
    const BufferId own = inner.capture(b.rec.program().buffer(BufferId(x.body->id)));
    part.captures = {{own, BufferId(x.body->id)}};
    const View v = inner.load_of(own);
    const View sums = inner.scan("cumsum", ScanOp::sum, DType::f32, v.sizes, 1, [&](Coordinates c) { return inner.at(v, c); });
    inner.result(first ? sums : inner.pointwise("neg", DType::f32, v.sizes, [&](Coordinates c) { return p.op(ScalarOp::neg, {inner.at(sums, c)}); }),
                 DType::f32, v.sizes);
    part.program = std::make_shared<const LoopProgram>(inner.take());
    region.parts.push_back(std::move(part));
  }
  const View chosen = b.rec.region("cond", std::move(region), {{DType::f32, x.sizes}})[0];
  LoopProgram program = b.finish(b.rec.pointwise("abs", DType::f32, x.sizes, [&](Coordinates i) { return p.op(ScalarOp::abs, {b.rec.at(chosen, i)}); }));
  ASSERT_TRUE(verify(program).ok());
  auto plan = schedule(program, cpu::traits());
  ASSERT_TRUE(plan.ok());
  const std::string host = host_program_text(plan.value(), cpu::generate_kernels(plan.value()), {}).first;
  for (const char* part : {"  if (*(const unsigned char*)(call->arena + ", "  } else {\n"})
    EXPECT_NE(host.find(part), std::string::npos) << part << " is not in\n" << host;
  expect_golden("branch", std::move(program));
}

// One token's attention over a growing cache: keys, which the program gives, are copied on the way; values are read where they lie.
TEST(Golden, PastKeys) {
  Builder b;
  ExprPool& p = b.pool;
  const Expr past = p.symbol(p.add_symbol({"s12", "past", 0, 4096})), one = p.index(1), heads = p.index(4), dim = p.index(8);
  const View q = b.input("q", DType::f32, {b.batch, heads, one, dim});
  const auto joined = [&](const char* name, const char* cache, const char* added) {
    return b.rec.concat(name, DType::f32, {b.batch, heads, past + 1, dim}, 2,
                        {b.input(cache, DType::f32, {b.batch, heads, past, dim}), b.input(added, DType::f32, q.sizes)});
  };
  const View k = joined("keys", "cache_k", "k"), v = joined("values", "cache_v", "v");
  Attention a;
  a.batch = b.batch, a.heads = a.kv_heads = heads, a.q_len = one, a.kv_len = past + 1, a.dim = a.v_dim = dim;
  a.q = b.rec.operand(q), a.k = b.rec.operand(k), a.v = b.rec.operand(v);
  const View y = b.rec.define("attention", DType::f32, q.sizes, a);
  b.output(y);
  LoopProgram program = b.finish(k);
  auto plan = schedule(program, cpu::traits());
  ASSERT_TRUE(plan.ok());
  const std::string host = host_program_text(plan.value(), cpu::generate_kernels(plan.value()), {}).first;
  for (const char* part : {"t.past = s[", "t.k_past = call->inputs[", "t.keep_k_past = 1;", "t.keep_v_past = 0;"})
    EXPECT_NE(host.find(part), std::string::npos) << part << " is not in\n" << host;
  expect_golden("past_keys", std::move(program));
}

// A long formula of an offset is written once, short ones where they are used.
TEST(HostText, LongOffsets) {
  KernelPlan plan;
  plan.pool = std::make_shared<ExprPool>();
  const Expr n = plan.pool->symbol(plan.pool->add_symbol({"s0", "n", 1, 64})), m = plan.pool->symbol(plan.pool->add_symbol({"s1", "m", 1, 64}));
  const Expr formula = index_max(n * m * 64, index_min(n * 128, m * 512)) + index_max(n * 64, m * 128) + 256;
  for (const Expr offset : {n * 64, formula, plan.pool->index(128), formula}) {
    PlanBuffer b;
    b.placement.kind = Placement::Kind::arena;
    b.placement.offset = offset;
    b.placement.index = offset == formula ? 1 : static_cast<int>(plan.buffers.size());  // as number_places() has it
    plan.buffers.push_back(b);
  }
  EXPECT_EQ(buffer_address(plan, BufferId(0)), "call->arena + (64L * s[0])");
  EXPECT_EQ(buffer_address(plan, BufferId(1)), "call->arena + offset_1(s)");
  EXPECT_EQ(buffer_address(plan, BufferId(2)), "call->arena + 128L");
  EXPECT_EQ(buffer_address(plan, BufferId(3)), "call->arena + offset_1(s)");
  EXPECT_EQ(offset_functions(plan), "__attribute__((noinline)) static int64_t offset_1(const long* s) { return " + host_index(formula) + "; }\n");
}

TEST(HostText, StringsAreEscaped) {
  EXPECT_EQ(c_string("a\"b\\c\n"), "\"a\\\"b\\\\c\\012\"");
  EXPECT_EQ(c_string("what?"
                     "?!"),
            "\"what\\077\\077!\"");
}

}  // namespace
}  // namespace coil
