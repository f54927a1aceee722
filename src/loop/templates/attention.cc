#include "loop/templates/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "loop/demand.h"
#include "loop/interpret_operands.h"
#include "loop/loop_reader.h"
#include "loop/loop_text.h"

namespace coil {

TemplateParts parts(Attention& def) {
  TemplateParts p;
  p.operands = {{&def.q, {def.batch, def.heads, def.q_len, def.dim}},
                {&def.k, {def.batch, def.kv_heads, def.kv_len, def.dim}},
                {&def.v, {def.batch, def.kv_heads, def.kv_len, def.v_dim}}};
  if (def.mask) p.operands.push_back({&*def.mask, {def.batch, def.heads, def.q_len, def.kv_len}});
  for (Expr size : {def.batch, def.heads, def.kv_heads, def.q_len, def.kv_len, def.dim, def.v_dim}) p.sides.push_back({size});
  p.ranges = {def.batch, def.heads};  // rows and columns differ by operand
  return p;
}

std::string problem(const LoopProgram& program, const Loop& loop, const Attention&) {
  return program.buffer(loop.outputs[0]).sizes.size() == 4 ? "" : "is an attention of a wrong rank";
}

std::string highest_fill_text(const Attention& def) {
  if (!def.highest_fill) return "__builtin_nanf(\"\")";
  return std::isinf(*def.highest_fill) ? "-__builtin_inff()" : fmt::format("(float){:.17g}", *def.highest_fill);
}

std::string text(const LoopText& words, const Attention& def) {
  return fmt::format("batch {} heads {} kv_heads {} queries {} keys {} dim {} v_dim {} scale {}{}{}{}: q {} k {} v {}{}", words.text(def.batch),
                     words.text(def.heads), words.text(def.kv_heads), words.text(def.q_len), words.text(def.kv_len), words.text(def.dim), words.text(def.v_dim),
                     def.scale, def.causal ? " causal" : "", def.masked_rows_zero ? "" : " masked rows NaN",
                     def.highest_fill ? fmt::format(" fills to {}", *def.highest_fill) : "", words.operand(def.q), words.operand(def.k), words.operand(def.v),
                     def.mask ? " mask " + words.operand(*def.mask) : "");
}

void read(LoopReader& words, Attention& def) {
  for (const auto& [word, size] :
       {std::pair("batch", &def.batch), std::pair("heads", &def.heads), std::pair("kv_heads", &def.kv_heads), std::pair("queries", &def.q_len),
        std::pair("keys", &def.kv_len), std::pair("dim", &def.dim), std::pair("v_dim", &def.v_dim)}) {
    words.expect(word);
    *size = words.index();
  }
  words.expect("scale");
  def.scale = words.real();
  def.causal = words.accept("causal");
  def.masked_rows_zero = !words.accept("masked rows NaN");
  if (words.accept("fills to")) def.highest_fill = words.real();
  for (const auto& [word, operand] : {std::pair(": q", &def.q), std::pair("k", &def.k), std::pair("v", &def.v)}) {
    words.expect(word);
    *operand = words.operand();
  }
  if (words.accept("mask")) def.mask = words.operand();
}

namespace {

bool is_single(Expr count) { return count->is_constant() && count->as_int() == 1; }

}  // namespace

// Row i of a causal attention sees the keys up to i, counted from the first row: either rows are kept from the first on, or
// there is one, which sees what it sees.
DimRange narrowable(const Attention& def, size_t dim, const DimRange& wanted, Expr size) {
  if (dim == 0 || (dim == 1 && def.heads == def.kv_heads)) return wanted;
  if (dim != 2) return whole_range(size);
  if (!def.causal || is_single(wanted.count)) return wanted;
  const DimRange r = without_steps(wanted, size);
  return {size->pool->index(0), r.step, r.first + r.count};
}

void narrow(Attention& def, const std::vector<DimRange>& ranges, const std::vector<Expr>& at) {
  if (def.causal && !is_whole(ranges[2], def.q_len)) {
    const Expr seen = ranges[2].first + ranges[2].count;
    const bool one_row = is_single(ranges[2].count);
    if (one_row || provably_nonnegative(def.kv_len - seen)) def.kv_len = simplify_index(index_min(def.kv_len, seen), {});
    if (one_row) def.causal = false;  // it sees all keys that are left
  }
  def.batch = ranges[0].count;
  if (def.heads == def.kv_heads) def.kv_heads = ranges[1].count;
  def.heads = ranges[1].count;
  def.q_len = ranges[2].count;
  narrow_operand(def.q, at);
  if (def.mask) narrow_operand(*def.mask, at);
  const std::vector<Expr> of_keys(at.begin(), at.begin() + 2);  // their rows are not the queries'
  narrow_operand(def.k, of_keys);
  narrow_operand(def.v, of_keys);
}

TemplateTiles tiles(ExprPool&, const Attention&, const std::vector<Expr>&) {
  CHECK(false, "attention takes no epilogue");
  return {};
}

std::optional<std::vector<Expr>> own_strides(ExprPool&, const Attention&, const std::vector<Expr>&) { return std::nullopt; }

namespace {

// Pairs of queries and keys; those that a causal mask hides are left out.
Expr attended(ExprPool& pool, const Attention& def) {
  if (!def.causal || def.q_len != def.kv_len) return def.q_len * def.kv_len;
  return floor_div(def.q_len * (def.q_len + pool.index(1)), pool.index(2));
}

}  // namespace

Expr operations(ExprPool& pool, const Attention& def, const std::vector<Expr>&) {
  return def.batch * def.heads * attended(pool, def) * (def.dim + def.v_dim) * 2;
}
std::vector<Expr> work_sizes(const Attention& def, const std::vector<Expr>&) { return {def.batch, def.heads, def.q_len, def.kv_len, def.dim + def.v_dim}; }

TemplateLimits limits(ExprPool&, const Attention& def, const std::vector<Expr>&) {
  return {{def.batch * def.heads * def.q_len, def.kv_len * def.dim},
          {{"the heads of ", def.batch * def.heads}, {"the queries of ", def.heads * def.q_len}, {"the keys of ", def.kv_len}}};
}

// --- evaluation

Status Interpreter::run_template(const Loop& loop, const Attention& def) {
  const std::vector<int64_t> d = sizes({def.batch, def.heads, def.kv_heads, def.q_len, def.kv_len, def.dim, def.v_dim});
  const int64_t B = d[0], H = d[1], G = d[2], Q = d[3], K = d[4], D = d[5], V = d[6];
  TRY(std::vector<float> q, gathered<float>(def.q, {B, H, Q, D}, {0, 1, 2, 3}));
  TRY(std::vector<float> k, gathered<float>(def.k, {B, G, K, D}, {0, 1, 2, 3}));
  TRY(std::vector<float> v, gathered<float>(def.v, {B, G, K, V}, {0, 1, 2, 3}));
  std::vector<float> mask;
  if (def.mask) {
    TRY(mask, gathered<float>(*def.mask, {B, H, Q, K}, {0, 1, 2, 3}));
  }
  const bool boolean = def.mask && is_bool(program_.buffer(def.mask->buffer).dtype);
  const double none = -std::numeric_limits<double>::infinity();
  std::vector<float> out(static_cast<size_t>(B * H * Q * V));
  std::vector<double> scores(static_cast<size_t>(K));
  for (int64_t row = 0; row < B * H * Q; ++row) {
    const int64_t b = row / (H * Q), h = row / Q % H, i = row % Q, kv = b * G + h / (H / G);
    double top = none, sum = 0;
    for (int64_t j = 0; j < K; ++j) {
      double s = 0;
      for (int64_t c = 0; c < D; ++c) s += static_cast<double>(q[static_cast<size_t>(row * D + c)]) * k[static_cast<size_t>((kv * K + j) * D + c)];
      s *= def.scale;
      if (def.mask) {
        const float m = mask[static_cast<size_t>(row * K + j)];
        const double more = boolean ? (m != 0 ? 0 : none) : m;
        s = more <= def.highest_fill.value_or(NAN) ? more : s + more;
      }
      if (def.causal && j > i) s = none;
      scores[static_cast<size_t>(j)] = s;
      top = std::max(top, s);
    }
    if (top == none && (def.masked_rows_zero || K == 0)) continue;  // nothing to attend to: zeros, else NaN of exp(-inf - -inf)
    for (double& s : scores) sum += s = std::exp(s - top);
    for (int64_t c = 0; c < V; ++c) {
      double total = 0;
      for (int64_t j = 0; j < K; ++j) total += scores[static_cast<size_t>(j)] * v[static_cast<size_t>((kv * K + j) * V + c)];
      out[static_cast<size_t>(row * V + c)] = static_cast<float>(total / sum);
    }
  }
  store(loop.outputs[0], out);
  return ok_status();
}

}  // namespace coil
