#include "loop/templates/grouped_gemm.h"

#include <fmt/format.h>

#include "loop/demand.h"
#include "loop/interpret_operands.h"
#include "loop/loop_reader.h"
#include "loop/loop_text.h"

namespace coil {

Gemm in_batches(const GroupedGemm& def) {
  Gemm g;
  g.batch = {def.groups}, g.m = {def.m}, g.n = {def.n}, g.k = {def.k};
  g.a = def.a, g.b = def.b;
  g.quantised = def.quantised;
  return g;
}

TemplateParts parts(GroupedGemm& def) {
  const std::vector<Expr> domain = {def.groups, def.m, def.n, def.k};
  TemplateParts p;
  p.operands = {{&def.a, domain}, {&def.b, domain}};
  p.whole = {&def.ends};
  if (def.quantised) p.whole.insert(p.whole.end(), {&def.quantised->scale, &def.quantised->zero});
  p.sides = {{def.groups}, {def.m}, {def.n}, {def.k}};
  p.ranges = domain;
  return p;
}

namespace {

// Scales and zero points: tables of float32 for each column of each matrix.
std::string quantised_problem(const LoopProgram& program, const Loop& loop, const GroupedGemm& def) {
  const DType a = program.buffer(def.a.buffer).dtype;
  const bool bytes = a == DType::i8 && program.buffer(loop.outputs[0]).dtype == DType::f32;
  if (def.kind != GroupedGemm::Kind::rows || !(bytes || (is_float(a) && a != DType::f64)) || program.buffer(def.b.buffer).dtype != DType::i8)
    return "multiplies different types";
  for (BufferId id : {def.quantised->scale, def.quantised->zero}) {
    if (!id.valid()) continue;
    const BufferInfo& b = program.buffer(id);
    if (b.dtype != DType::f32 || b.sizes.size() != 3 || b.sizes[0] != def.groups || b.sizes[2] != def.n)
      return "has scales or zero points of a wrong type or shape";
  }
  return def.quantised->group > 0 ? "" : "has groups without rows";
}

}  // namespace

std::string problem(const LoopProgram& program, const Loop& loop, const GroupedGemm& def) {
  const bool rows = def.kind == GroupedGemm::Kind::rows;
  const std::vector<Expr> expected = rows ? std::vector<Expr>{def.m, def.n} : std::vector<Expr>{def.groups, def.m, def.n};
  if (program.buffer(loop.outputs[0]).sizes != expected) return "has other sizes than its grouped product";
  const BufferInfo& ends = program.buffer(def.ends);
  if (ends.sizes != std::vector<Expr>{def.groups} || (ends.dtype != DType::i32 && ends.dtype != DType::i64))
    return "has ends of groups of a wrong type or shape";
  if (def.quantised) return quantised_problem(program, loop, def);
  const DType a = program.buffer(def.a.buffer).dtype;
  return is_float(a) && a != DType::f64 && a == program.buffer(def.b.buffer).dtype ? "" : "multiplies different types";
}

std::string text(const LoopText& words, const GroupedGemm& def) {
  return fmt::format("by {} of {} groups to {} m {} n {} k {}: {} * {}{}", def.kind == GroupedGemm::Kind::rows ? "rows" : "depth", words.text(def.groups),
                     words.name(def.ends), words.text(def.m), words.text(def.n), words.text(def.k), words.operand(def.a), words.operand(def.b),
                     quantised_text(words, def.quantised));
}

void read(LoopReader& words, GroupedGemm& def) {
  words.expect("by");
  def.kind = words.accept("depth") ? GroupedGemm::Kind::depth : GroupedGemm::Kind::rows;
  if (def.kind == GroupedGemm::Kind::rows) words.expect("rows");
  words.expect("of");
  def.groups = words.index();
  words.expect("groups to");
  def.ends = words.buffer();
  for (const auto& [word, size] : {std::pair("m", &def.m), std::pair("n", &def.n), std::pair("k", &def.k)}) {
    words.expect(word);
    *size = words.index();
  }
  words.expect(":");
  def.a = words.operand();
  words.expect("*");
  def.b = words.operand();
  read_quantised(words, def.quantised);
}

// Which rows a group has is known when the call runs.
DimRange narrowable(const GroupedGemm&, size_t, const DimRange&, Expr size) { return whole_range(size); }
void narrow(GroupedGemm&, const std::vector<DimRange>&, const std::vector<Expr>&) { CHECK(false, "a grouped product was to be narrowed"); }

TemplateTiles tiles(ExprPool& pool, const GroupedGemm& def, const std::vector<Expr>&) {
  if (def.kind == GroupedGemm::Kind::depth) return {{def.groups, def.m, def.n}, {pool.var(0), pool.var(1), pool.var(2)}};
  return {{pool.index(1), def.m, def.n}, {pool.var(1), pool.var(2)}};
}

// Rows of columns.
std::optional<std::vector<Expr>> own_strides(ExprPool& pool, const GroupedGemm&, const std::vector<Expr>& results) { return contiguous_strides(pool, results); }

Expr operations(ExprPool&, const GroupedGemm& def, const std::vector<Expr>&) { return def.m * def.n * def.k * 2; }
std::vector<Expr> work_sizes(const GroupedGemm& def, const std::vector<Expr>&) { return {def.m, def.n, def.k}; }

TemplateLimits limits(ExprPool& pool, const GroupedGemm& def, const std::vector<Expr>& results) { return limits(pool, in_batches(def), results); }

// --- evaluation

// One group after the other; rows that no group has stay 0.
Status Interpreter::run_template(const Loop& loop, const GroupedGemm& def) {
  const std::vector<int64_t> d = sizes({def.groups, def.m, def.n, def.k});
  const int64_t G = d[0], M = d[1], N = d[2], K = d[3];
  const bool rows = def.kind == GroupedGemm::Kind::rows;
  TRY(const std::vector<double> ends, gathered<double>({def.ends, {program_.pool->var(0)}}, {G}, {0}));
  TRY(const std::vector<float> a, gathered<float>(def.a, {M, K}, {1, 3}));
  TRY(std::vector<float> b, gathered<float>(def.b, {rows ? G : 1, K, N}, rows ? std::vector<int>{0, 3, 2} : std::vector<int>{4, 3, 2}));
  if (def.quantised) TRY_STATUS(dequantise(*def.quantised, static_cast<size_t>(N), b));
  std::vector<float> c(static_cast<size_t>((rows ? 1 : G) * M * N));
  int64_t begin = 0;
  for (int64_t g = 0; g < G; ++g) {
    const auto end = static_cast<int64_t>(ends[static_cast<size_t>(g)]);
    if (end < begin || end > (rows ? M : K)) {
      return Error{ErrorCode::input_value, "an index is out of range in " + loop.op + ": the ends of its groups decrease, or leave what is grouped", "", ""};
    }
    for (int64_t i = rows ? begin : 0; i < (rows ? end : M); ++i) {
      float* out = c.data() + ((rows ? 0 : g * M) + i) * N;
      for (int64_t p = rows ? 0 : begin; p < (rows ? K : end); ++p) {
        const float x = a[static_cast<size_t>(i * K + p)];
        const float* y = b.data() + ((rows ? g * K : 0) + p) * N;
        for (int64_t j = 0; j < N; ++j) out[j] += x * y[j];
      }
    }
    begin = end;
  }
  store(loop.outputs[0], c);
  return ok_status();
}

}  // namespace coil
