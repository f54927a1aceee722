#include "lower/find_attention.h"

#include <algorithm>
#include <map>
#include <set>

#include "loop/simplify_body.h"
#include "lower/attention_heads.h"
#include "lower/attention_mask.h"

namespace coil {
namespace {

constexpr int64_t kMaxTemplateDim = 256;  // device/kernels.h, CoilAttention

class Finder {
 public:
  explicit Finder(LoopProgram& program) : program_(program), pool_(*program.pool), masks_(program, [this](BufferId id) { return stored(id); }) {
    for (size_t l = 0; l < program.loops.size(); ++l) {
      for (BufferId id : program.loops[l].outputs) definition_[id] = l;
      for (BufferId id : reads(program, program.loops[l])) readers_[id].insert(l);
    }
    for (const LoopOutput& out : program.outputs) outside_.insert(out.source);
  }

  void run() {
    std::vector<Loop> result;
    for (size_t l = 0; l < program_.loops.size(); ++l) {
      if (absorbed_.contains(l)) continue;
      matched_.clear();
      new_loops_.clear();
      rounding_.reset();
      std::optional<Attention> found = match(l);
      for (Loop& loop : new_loops_) result.push_back(std::move(loop));
      Loop loop = program_.loops[l];
      if (found) {
        loop.def = std::move(*found);
        loop.op = "attention";
        if (rounding_) {
          const Loop& rounding = program_.loops[*rounding_];
          loop.outputs = rounding.outputs;
          loop.origins.insert(loop.origins.end(), rounding.origins.begin(), rounding.origins.end());
          absorbed_.insert(*rounding_);
        }
      }
      result.push_back(std::move(loop));
    }
    program_.loops = std::move(result);
  }

 private:
  struct Scores {
    const Gemm* product = nullptr;
    double scale = 1;
    Expr mask;  // over batch, head, row, column; null: none
  };

  template <class Def>
  const Def* defined_as(BufferId id) {
    auto it = definition_.find(id);
    if (it == definition_.end()) return nullptr;
    return std::get_if<Def>(&program_.loops[it->second].def);
  }

  // The body of an elementwise definition of the buffer.
  Expr stored(BufferId id) {
    const Pointwise* def = defined_as<Pointwise>(id);
    return def ? def->body : Expr();
  }

  // The buffer that e reads at the point's own coordinates; `reduced`: with a 0 in the last one.
  BufferId plain_load(Expr e, size_t rank, bool reduced = false) const {
    if (!e || e->kind != ExprKind::load || e->args.size() != rank) return BufferId();
    const BufferInfo& b = program_.buffer(BufferId(e->id));
    for (size_t i = 0; i < rank; ++i) {
      const bool unit = b.sizes[i]->is_constant() && b.sizes[i]->as_int() == 1 && e->args[i] == pool_.index(0);
      const bool own = e->args[i] == pool_.var(static_cast<int32_t>(i));
      if (reduced && i + 1 == rank ? !unit : !own && !unit) return BufferId();
    }
    return BufferId(e->id);
  }

  // The same, noted as part of the pattern.
  Expr elementwise(BufferId id) {
    const Expr body = stored(id);
    if (body) matched_.insert(id);
    return body;
  }

  static Expr without_cast(Expr e) { return e->is_op(ScalarOp::cast) ? e->args[0] : e; }

  // What weights are stored of. Those that were rounded behind a softmax in float32 (autocast; softmax(dtype=float32).to(...)) are those before.
  Expr weights_body(BufferId id) {
    const Expr body = id.valid() ? elementwise(id) : Expr();
    const BufferId wide = body ? plain_load(without_cast(body), 4) : BufferId();
    return wide.valid() && program_.buffer(wide).dtype == DType::f32 ? elementwise(wide) : body;
  }

  // For the four variables of the scores' points.
  Expr at_point(Expr e) const { return simplify_body(e, point_sizes_); }

  // A reduction of the last of four dimensions: its body with the reduced variable in the place of the last coordinate.
  Expr row_reduction(BufferId id, ReduceOp op) {
    const Reduction* def = defined_as<Reduction>(id);
    if (!def || def->op != op || def->domain.size() != 1 || program_.buffer(id).sizes.size() != 4) return Expr();
    matched_.insert(id);
    const std::vector<Expr> vars{pool_.var(0), pool_.var(1), pool_.var(2), pool_.var(3), pool_.var(3)};
    return at_point(substitute_vars(def->body, vars));
  }

  // The row's largest number as it is subtracted: itself, or 0 for -inf.
  BufferId top_of(Expr e) const {
    if (!e->is_op(ScalarOp::select)) return plain_load(e, 4, true);
    const bool safe =
        is_number(e->args[1], 0) && e->args[0]->is_op(ScalarOp::eq) && e->args[0]->args[0] == e->args[2] && is_minus_infinity(e->args[0]->args[1]);
    return safe ? plain_load(e->args[2], 4, true) : BufferId();
  }

  bool is_exponential(Expr e, Expr scores, BufferId top) {
    if (!e || !e->is_op(ScalarOp::exp) || !e->args[0]->is_op(ScalarOp::sub)) return false;
    return e->args[0]->args[0] == scores && top_of(e->args[0]->args[1]) == top;
  }

  // exp(x - max) / sum; x, which is read from a buffer of any shape.
  Expr softmax_source(Expr e) {
    if (!e || !e->is_op(ScalarOp::div) || !e->args[0]->is_op(ScalarOp::exp) || !e->args[0]->args[0]->is_op(ScalarOp::sub)) return Expr();
    Expr scores = e->args[0]->args[0]->args[0];
    const BufferId top = top_of(e->args[0]->args[0]->args[1]), sum = plain_load(e->args[1], 4, true);
    if (scores->kind != ExprKind::load || !top.valid() || !sum.valid()) return Expr();
    if (row_reduction(top, ReduceOp::max) != scores || !is_exponential(row_reduction(sum, ReduceOp::sum), scores, top)) return Expr();
    return scores;
  }

  // Whether nothing of the row counts: not any(not (x == -inf)), or that its exponentials, which `quotient` is divided by, have the sum 0.
  bool is_empty_row(Expr e, Expr scores, Expr quotient) {
    if (e->is_op(ScalarOp::eq)) return e->args[0] == quotient->args[1] && is_number(e->args[1], 0);
    const BufferId flag = plain_load(e, 4, true);
    Expr inverse = flag.valid() ? elementwise(flag) : Expr();
    if (!inverse || !inverse->is_op(ScalarOp::logical_not)) return false;
    Expr some = row_reduction(plain_load(inverse->args[0], 4, true), ReduceOp::any);
    if (some && some->kind == ExprKind::load) some = elementwise(plain_load(some, 4));
    if (!some || !some->is_op(ScalarOp::logical_not)) return false;
    Expr none = some->args[0];
    if (none->kind == ExprKind::load) none = elementwise(plain_load(none, 4));
    if (!none || !none->is_op(ScalarOp::eq)) return false;
    const size_t infinite = is_minus_infinity(none->args[0]) ? 0 : 1;
    return is_minus_infinity(none->args[infinite]) && at_point(none->args[1 - infinite]) == scores;
  }

  // product * scale + masks, whatever of these there is; what is computed between may have other shapes (windows apart from images).
  std::optional<Scores> scores_of(Expr e) {
    if (e->kind == ExprKind::load) {
      const BufferId id(e->id);
      matched_.insert(id);
      if (const Gemm* g = defined_as<Gemm>(id); g && plain_load(e, 4).valid()) return Scores{g, 1, Expr()};
      const Pointwise* def = defined_as<Pointwise>(id);
      return def ? scores_of(at_point(substitute_vars(def->body, e->args))) : std::nullopt;
    }
    if (e->is_op(ScalarOp::add)) {
      const std::set<BufferId> before = matched_;
      for (size_t side : {0u, 1u}) {
        std::optional<Scores> s = scores_of(e->args[side]);
        if (s && (!s->mask || e->args[1 - side]->dtype == s->mask->dtype)) {
          s->mask = s->mask ? pool_.op(ScalarOp::add, {s->mask, e->args[1 - side]}) : e->args[1 - side];
          return s;
        }
        matched_ = before;
      }
      return std::nullopt;
    }
    if (e->is_op(ScalarOp::select)) return filled(e);
    if (!e->is_op(ScalarOp::mul) && !e->is_op(ScalarOp::div)) return std::nullopt;
    const size_t constant = e->args[0]->is_constant() && e->is_op(ScalarOp::mul) ? 0 : 1;
    if (!e->args[constant]->is_constant()) return std::nullopt;
    std::optional<Scores> s = scores_of(e->args[1 - constant]);
    if (!s || s->mask) return std::nullopt;
    const double factor = e->args[constant]->as_double();
    s->scale *= e->is_op(ScalarOp::mul) ? factor : 1 / factor;
    return s;
  }

  // Scores some of which are replaced by a number so low that what it is added to does not matter.
  std::optional<Scores> filled(Expr e) {
    const size_t low = is_lowest(e->args[1]) ? 1 : 2;
    if (!is_lowest(e->args[low])) return std::nullopt;
    std::optional<Scores> s = scores_of(e->args[3 - low]);
    if (!s) return std::nullopt;
    const Expr before = s->mask ? s->mask : pool_.constant(0, DType::f32);
    s->mask = pool_.select(masks_.condition(e->args[0], low == 2), before, pool_.constant(e->args[low]->as_double(), before->dtype));
    return s;
  }

  // The intermediate results serve nothing but the pattern.
  bool is_private(size_t last) const {
    for (BufferId id : matched_) {
      if (outside_.contains(id)) return false;
      auto it = readers_.find(id);
      if (it == readers_.end()) continue;
      for (size_t reader : it->second) {
        if (reader == last) continue;
        const std::vector<BufferId>& defines = program_.loops[reader].outputs;
        if (std::none_of(defines.begin(), defines.end(), [&](BufferId d) { return matched_.contains(d); })) return false;
      }
    }
    return true;
  }

  Operand renumbered(const Operand& o, const std::vector<int32_t>& to) {
    std::vector<Expr> vars;
    for (int32_t v : to) vars.push_back(pool_.var(v));
    Operand r{o.buffer, {}};
    for (Expr c : o.coordinates) r.coordinates.push_back(substitute_vars(c, vars));
    return r;
  }

  // A factor that was multiplied into an operand goes into the scale.
  void peel_scale(Operand& o, double& scale) {
    const Pointwise* def = defined_as<Pointwise>(o.buffer);
    if (!def || !def->body->is_op(ScalarOp::mul)) return;
    const size_t constant = def->body->args[0]->is_constant() ? 0 : 1;
    Expr factor = def->body->args[constant], source = def->body->args[1 - constant];
    if (!factor->is_constant() || source->kind != ExprKind::load) return;
    if (program_.buffer(BufferId(source->id)).dtype != program_.buffer(o.buffer).dtype) return;
    scale *= factor->as_double();
    Operand inner{BufferId(source->id), {}};
    for (Expr c : source->args) inner.coordinates.push_back(substitute_vars(c, o.coordinates));
    o = std::move(inner);
  }

  // Of an operand that is numbers of this type widened to float32: those numbers. `scale` takes the factor that they were multiplied with.
  std::optional<Operand> before_widening(const Operand& o, DType narrow, double& scale) {
    const Pointwise* def = defined_as<Pointwise>(o.buffer);
    if (!def) return std::nullopt;
    Expr source = def->body;
    if (source->is_op(ScalarOp::mul)) {
      const size_t constant = source->args[0]->is_constant() ? 0 : 1;
      if (!source->args[constant]->is_constant()) return std::nullopt;
      scale *= source->args[constant]->as_double();
      source = source->args[1 - constant];
    }
    source = without_cast(source);
    if (source->kind != ExprKind::load || program_.buffer(BufferId(source->id)).dtype != narrow) return std::nullopt;
    Operand inner{BufferId(source->id), {}};
    for (Expr c : source->args) inner.coordinates.push_back(substitute_vars(c, o.coordinates));
    return inner;
  }

  // The one loop that reads this float32 result, if all it does is to round it to 2 bytes.
  std::optional<size_t> rounding_of(BufferId result) {
    auto it = readers_.find(result);
    if (program_.buffer(result).dtype != DType::f32 || outside_.contains(result) || it == readers_.end() || it->second.size() != 1) return std::nullopt;
    const Loop& reader = program_.loops[*it->second.begin()];
    const Pointwise* def = std::get_if<Pointwise>(&reader.def);
    if (!def || reader.outputs.size() != 1) return std::nullopt;
    const BufferInfo& out = program_.buffer(reader.outputs[0]);
    if (byte_size(out.dtype) != 2 || !is_float(out.dtype) || out.sizes != program_.buffer(result).sizes) return std::nullopt;
    if (plain_load(without_cast(def->body), 4) != result) return std::nullopt;
    return *it->second.begin();
  }

  // Attention in float32 of 2-byte numbers, as decompositions write it, is attention of those: a template widens them itself.
  void narrow(Attention& a, BufferId result) {
    const std::optional<size_t> rounding = rounding_of(result);
    if (!rounding) return;
    const DType type = program_.buffer(program_.loops[*rounding].outputs[0]).dtype;
    double scale = a.scale, one = 1;
    const std::optional<Operand> q = before_widening(a.q, type, scale), k = before_widening(a.k, type, scale), v = before_widening(a.v, type, one);
    if (!q || !k || !v || one != 1) return;
    a.q = *q, a.k = *k, a.v = *v, a.scale = scale;
    rounding_ = rounding;
  }

  static bool is_four_dimensional(const Gemm* g) { return g && g->batch.size() == 2 && g->m.size() == 1 && g->n.size() == 1 && g->k.size() == 1; }

  bool fits(const Gemm& scores, const Gemm& values, BufferId result) const {
    const DType dtype = program_.buffer(result).dtype;
    if (!is_float(dtype) || dtype == DType::f64) return false;
    for (BufferId id : {scores.a.buffer, scores.b.buffer, values.b.buffer}) {
      if (program_.buffer(id).dtype != dtype) return false;
    }
    for (Expr dim : {scores.k[0], values.n[0]}) {
      if (!dim->is_constant() || dim->as_int() < 1 || dim->as_int() > kMaxTemplateDim) return false;
    }
    return scores.batch == values.batch && scores.m == values.m && scores.n == values.k;
  }

  std::optional<Attention> match(size_t l) {
    const Gemm* values = std::get_if<Gemm>(&program_.loops[l].def);
    if (!is_four_dimensional(values)) return std::nullopt;
    // Row i of the left operand: variables batch, head, row and, for the column, the summed one.
    const Operand weights = renumbered(values->a, {0, 1, 2, 9, 3});
    point_sizes_ = program_.buffer(weights.buffer).sizes;
    if (point_sizes_.size() != 4) return std::nullopt;
    const DType stored = program_.buffer(weights.buffer).dtype;
    Expr body = weights_body(plain_load(pool_.load(weights.buffer, stored, weights.coordinates), 4));
    if (!body) return std::nullopt;
    body = at_point(body);
    Expr empty;  // set: rows without anything become 0
    if (body->is_op(ScalarOp::select) && is_number(body->args[1], 0)) {
      empty = body->args[0];
      Expr other = body->args[2];
      body = other->kind == ExprKind::load ? elementwise(plain_load(other, 4)) : other;
      if (body) body = at_point(body);
    }
    const Expr source = softmax_source(body);
    if (!source || (empty && !is_empty_row(empty, source, body))) return std::nullopt;
    std::optional<Scores> scores = scores_of(source);
    if (!scores || !is_four_dimensional(scores->product) || !fits(*scores->product, *values, program_.loops[l].outputs[0])) return std::nullopt;
    if (!is_private(l)) return std::nullopt;
    Attention found = assembled(*scores, *values, program_.loops[l].outputs[0]);
    found.masked_rows_zero = empty || !scores->mask;  // a plain softmax gives NaN for rows without anything, which only a mask can bring about
    return found;
  }

  Attention assembled(const Scores& scores, const Gemm& values, BufferId result) {
    const Gemm& product = *scores.product;
    Attention a;
    a.batch = product.batch[0];
    a.heads = a.kv_heads = product.batch[1];
    a.q_len = product.m[0];
    a.kv_len = product.n[0];
    a.dim = product.k[0];
    a.v_dim = values.n[0];
    a.scale = scores.scale;
    a.q = renumbered(product.a, {0, 1, 2, 9, 3});  // batch, head, row, -, k
    a.k = renumbered(product.b, {0, 1, 9, 2, 3});  // batch, head, -, row, k
    a.v = renumbered(values.b, {0, 1, 9, 3, 2});   // batch, head, -, column, row
    peel_scale(a.q, a.scale);
    peel_scale(a.k, a.scale);
    narrow(a, result);
    const int64_t group = group_of(a.k, a.heads);
    if (group > 1 && group_of(a.v, a.heads) == group) {
      for (Operand* o : {&a.k, &a.v}) {
        for (Expr& c : o->coordinates) c = of_kv_head(c, a.heads, group, 0);
      }
      a.kv_heads = pool_.index(a.heads->as_int() / group);
    }
    if (scores.mask) masks_.set(a, scores.mask, new_loops_);
    return a;
  }

  LoopProgram& program_;
  ExprPool& pool_;
  std::map<BufferId, size_t> definition_;
  std::map<BufferId, std::set<size_t>> readers_;
  std::set<BufferId> outside_, matched_;
  std::optional<size_t> rounding_;  // a loop whose result the attention under consideration makes itself
  std::set<size_t> absorbed_;       // such loops
  std::vector<Expr> point_sizes_;   // of the scores under consideration
  AttentionMasks masks_;
  std::vector<Loop> new_loops_;
};

}  // namespace

LoopProgram find_attention(LoopProgram program) {
  Finder(program).run();
  return program;
}

}  // namespace coil
