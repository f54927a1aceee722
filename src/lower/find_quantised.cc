#include "lower/find_quantised.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "loop/memory.h"
#include "loop/simplify_body.h"

namespace coil {
namespace {

bool is_byte(DType d) { return d == DType::i8 || d == DType::u8; }

// What a dequantised operand is made of, over the variables of its product.
struct Dequantised {
  Operand q;
  Expr zero, scale;  // null: 0 and 1; zero is an integer or a float that is one
};

class Finder {
 public:
  explicit Finder(LoopProgram& program) : program_(program), pool_(*program.pool) {
    for (size_t l = 0; l < program.loops.size(); ++l) {
      for (BufferId id : program.loops[l].outputs) definition_[id] = l;
    }
  }

  void run() {
    std::vector<Loop> result;
    for (const Loop& loop : program_.loops) {
      before_.clear();
      Loop changed = loop;
      if (const Gemm* gemm = std::get_if<Gemm>(&loop.def)) changed = product(loop, *gemm);
      if (const Reduction* sum = std::get_if<Reduction>(&loop.def)) changed = sum_of_products(loop, *sum);
      for (Loop& l : before_) result.push_back(std::move(l));
      result.push_back(std::move(changed));
    }
    program_.loops = std::move(result);
  }

 private:
  const Pointwise* pointwise(BufferId id) const {
    auto it = definition_.find(id);
    return it == definition_.end() ? nullptr : std::get_if<Pointwise>(&program_.loops[it->second].def);
  }

  // e with what it loads from elementwise results in its place, unless storing them changed the value.
  Expr head(Expr e) const {
    while (e->kind == ExprKind::load) {
      const DType stored = program_.buffer(BufferId(e->id)).dtype;
      const Pointwise* def = is_byte(stored) ? nullptr : pointwise(BufferId(e->id));
      if (!def) break;
      if (byte_size(stored) == 2 && !(def->body->is_op(ScalarOp::cast) && is_quantised(def->body->args[0]))) break;
      e = substitute_vars(def->body, e->args);
    }
    return e;
  }

  bool is_quantised(Expr e) const { return e->kind == ExprKind::load && is_byte(program_.buffer(BufferId(e->id)).dtype); }

  // A quantised number behind conversions that keep its value.
  Expr number(Expr e) const {
    e = head(e);
    while (e->is_op(ScalarOp::cast) && !is_byte(e->dtype) && !is_bool(e->dtype)) e = head(e->args[0]);
    return is_quantised(e) ? e : Expr();
  }

  std::optional<Dequantised> difference(Expr e) const {
    if (Expr q = number(e)) return Dequantised{{BufferId(q->id), {q->args.begin(), q->args.end()}}, Expr(), Expr()};
    e = head(e);
    if (e->is_op(ScalarOp::cast) && is_float(e->dtype)) e = head(e->args[0]);
    if (!e->is_op(ScalarOp::sub)) return std::nullopt;
    const Expr q = number(e->args[0]);
    if (!q) return std::nullopt;
    return Dequantised{{BufferId(q->id), {q->args.begin(), q->args.end()}}, e->args[1], Expr()};
  }

  // `sizes`: of the product's variables.
  std::optional<Dequantised> dequantised(const Operand& o, const std::vector<Expr>& sizes) const {
    std::optional<Dequantised> d = dequantised(head(pool_.load(o.buffer, program_.buffer(o.buffer).dtype, o.coordinates)));
    if (!d) return d;
    for (Expr& c : d->q.coordinates) c = simplify_index(c, {sizes});
    for (Expr* e : {&d->zero, &d->scale}) {
      if (*e) *e = simplify_body(*e, sizes);
    }
    return d;
  }

  std::optional<Dequantised> dequantised(Expr e) const {
    if (std::optional<Dequantised> d = difference(e)) return d;
    if (!e->is_op(ScalarOp::mul) || e->dtype != DType::f32) return std::nullopt;
    for (size_t side : {0u, 1u}) {
      std::optional<Dequantised> d = difference(e->args[side]);
      if (!d) continue;
      d->scale = e->args[1 - side];
      return d;
    }
    return std::nullopt;
  }

  // Depends on constants alone.
  bool is_fixed(Expr e) const {
    return !any_of(e, [&](Expr n) {
      if (n->kind == ExprKind::symbol) return true;
      if (n->kind != ExprKind::load) return false;
      const BufferId id(n->id);
      const Pointwise* def = pointwise(id);
      return def ? !is_fixed(def->body) : program_.buffer(id).kind != BufferInfo::Kind::constant;
    });
  }

  // Known to be 0: a number, or data.
  bool is_zero(Expr e) const {
    e = head(e);
    while (e->is_op(ScalarOp::cast)) e = head(e->args[0]);
    if (e->is_constant()) return is_float(e->dtype) ? e->as_double() == 0 : e->as_int() == 0;
    if (e->kind != ExprKind::load || program_.buffer(BufferId(e->id)).kind != BufferInfo::Kind::constant) return false;
    const TensorData& d = program_.buffer(BufferId(e->id)).data;
    return std::all_of(d.bytes.begin(), d.bytes.end(), [](uint8_t b) { return b == 0; });
  }

  static bool mentions(Expr e, int32_t first, int32_t end) {
    for (int32_t v = first; v < end; ++v) {
      if (e && depends_on_var(e, v)) return true;
    }
    return false;
  }

  // How many rows of k share what e says of their column; 0: they do not.
  int64_t group_of(Expr e, int32_t k_var, int64_t k) const {
    if (!e || !depends_on_var(e, k_var)) return k;
    int64_t group = 1;
    visit(e, [&](Expr n) {
      if (n->is_op(ScalarOp::idiv) && n->args[0] == pool_.var(k_var) && n->args[1]->is_constant()) group = n->args[1]->as_int();
    });
    if (k % group != 0) return 0;
    return depends_on_var(of_group(e, k_var, k_var + 1, group, k), k_var + 1) ? 0 : group;
  }

  // e for row `rest` of group `number`, both variables.
  Expr of_group(Expr e, int32_t number, int32_t rest, int64_t group, int64_t k) const {
    std::vector<Expr> vars, sizes;
    for (int32_t v = 0; v < std::max(number, rest); ++v) vars.push_back(pool_.var(v));
    vars.resize(static_cast<size_t>(number) + 1);
    vars[static_cast<size_t>(number)] = pool_.var(number) * group + pool_.var(rest);
    for (int32_t v = 0; v <= std::max(number, rest); ++v) sizes.push_back(pool_.index(int64_t{1} << 31));
    sizes[static_cast<size_t>(number)] = pool_.index(k / group);
    sizes[static_cast<size_t>(rest)] = pool_.index(group);
    return simplify_body(substitute_vars(e, vars), sizes);
  }

  BufferId add_buffer(std::string name, DType dtype, std::vector<Expr> sizes) {
    BufferInfo info;
    info.name = std::move(name) + "_" + std::to_string(program_.buffers.size());
    info.dtype = dtype;
    info.sizes = std::move(sizes);
    program_.buffers.push_back(std::move(info));
    return BufferId(program_.buffers.size() - 1);
  }

  // e, of the column n_var and the row k_var, as a table [k / group, n] of f32.
  BufferId table(const Loop& loop, const char* what, Expr e, int32_t n_var, int32_t k_var, int64_t group, const std::vector<Expr>& sizes) {
    std::vector<Expr> vars(static_cast<size_t>(k_var) + 1, pool_.index(0));
    vars[static_cast<size_t>(n_var)] = pool_.var(1);
    vars[static_cast<size_t>(k_var)] = pool_.var(0) * group;
    const Expr body = simplify_body(pool_.cast(substitute_vars(e, vars), DType::f32), sizes);
    const BufferId id = add_buffer(loop.op + what, DType::f32, sizes);
    if (body->is_constant()) {  // the same number everywhere
      const auto count = static_cast<size_t>(sizes[0]->as_int() * sizes[1]->as_int());
      const std::vector<float> values(count, static_cast<float>(body->as_double()));
      auto bytes = std::make_shared<std::vector<uint8_t>>(count * sizeof(float));
      std::memcpy(bytes->data(), values.data(), bytes->size());
      BufferInfo& b = program_.buffer(id);
      b.kind = BufferInfo::Kind::constant;
      b.strides = contiguous_strides(pool_, sizes);
      b.data.dtype = DType::f32;
      b.data.sizes = {sizes[0]->as_int(), sizes[1]->as_int()};
      b.data.strides = {sizes[1]->as_int(), 1};
      b.data.bytes = *bytes;
      b.data.owner = bytes;
    } else {
      before_.push_back({Pointwise{body}, {id}, loop.op + what, loop.origins});
    }
    return id;
  }

  Loop product(const Loop& loop, const Gemm& g) {
    const DType a_type = program_.buffer(g.a.buffer).dtype;
    if (!g.batch.empty() || g.n.size() != 1 || g.k.size() != 1 || !g.n[0]->is_constant() || !g.k[0]->is_constant()) return loop;
    if (!is_float(a_type) || a_type == DType::f64 || g.quantised) return loop;
    const auto n_var = static_cast<int32_t>(g.m.size()), k_var = n_var + 1;
    const int64_t n = g.n[0]->as_int(), k = g.k[0]->as_int();
    std::vector<Expr> sizes = g.m;
    sizes.insert(sizes.end(), {g.n[0], g.k[0]});
    std::optional<Dequantised> b = dequantised(g.b, sizes);
    if (!b || n < 1 || k < 1 || !is_whole_weight(b->q, n_var, k_var, n, k)) return loop;
    if (b->zero && is_zero(b->zero)) b->zero = Expr();
    for (Expr e : {b->zero, b->scale}) {
      if (e && (mentions(e, 0, n_var) || !is_fixed(e))) return loop;
    }
    if (std::optional<Loop> integers = integer_product(loop, g, *b, sizes)) return *integers;
    const int64_t scale_group = group_of(b->scale, k_var, k), zero_group = group_of(b->zero, k_var, k);
    const int64_t group = std::min(scale_group, zero_group);
    if (group < 1 || scale_group % group != 0 || zero_group % group != 0) return loop;
    Gemm::Quantised quantised;
    quantised.group = group;
    const std::vector<Expr> shape{pool_.index(k / group), pool_.index(n)};
    if (b->scale) quantised.scale = table(loop, ".scale", b->scale, n_var, k_var, group, shape);
    if (b->zero) quantised.zero = table(loop, ".zero", b->zero, n_var, k_var, group, shape);
    Loop changed = loop;
    Gemm& to = std::get<Gemm>(changed.def);
    to.b = b->q;
    to.quantised = quantised;
    return changed;
  }

  // An i8 constant, all of it, its two dimensions being the product's columns and rows.
  bool is_whole_weight(const Operand& q, int32_t n_var, int32_t k_var, int64_t n, int64_t k) const {
    const BufferInfo& b = program_.buffer(q.buffer);
    if (b.kind != BufferInfo::Kind::constant || b.dtype != DType::i8 || q.coordinates.size() != 2) return false;
    const Expr first = q.coordinates[0], second = q.coordinates[1], column = pool_.var(n_var), row = pool_.var(k_var);
    const bool by_columns = first == column && second == row && b.sizes[0] == pool_.index(n) && b.sizes[1] == pool_.index(k);
    const bool by_rows = first == row && second == column && b.sizes[0] == pool_.index(k) && b.sizes[1] == pool_.index(n);
    return by_columns || by_rows;
  }

  // A sum in int32 of products of bytes with a weight.
  Loop sum_of_products(const Loop& loop, const Reduction& sum) const {
    const BufferInfo& out = program_.buffer(loop.outputs[0]);
    if (sum.op != ReduceOp::sum || out.dtype != DType::i32 || sum.domain.size() != 1 || out.sizes.empty() || !sum.body->is_op(ScalarOp::mul)) return loop;
    const auto n_var = static_cast<int32_t>(out.sizes.size()) - 1, k_var = n_var + 1;
    if (!out.sizes.back()->is_constant() || !sum.domain[0]->is_constant()) return loop;
    for (size_t side : {0u, 1u}) {
      const Expr a = number(sum.body->args[side]), b = number(sum.body->args[1 - side]);
      if (!a || !b) return loop;
      const Operand weight{BufferId(b->id), {b->args.begin(), b->args.end()}};
      if (!is_whole_weight(weight, n_var, k_var, out.sizes.back()->as_int(), sum.domain[0]->as_int()) || mentions(a, n_var, k_var)) continue;
      if (!is_plain(a)) continue;
      Gemm g;
      g.m.assign(out.sizes.begin(), out.sizes.end() - 1);
      g.n = {out.sizes.back()};
      g.k = sum.domain;
      g.a = {BufferId(a->id), {a->args.begin(), a->args.end()}};
      g.b = weight;
      Loop changed = loop;
      changed.def = std::move(g);
      return changed;
    }
    return loop;
  }

  // Loaded at affine coordinates, as a template's operand is.
  static bool is_plain(Expr load) {
    return std::all_of(load->args.begin(), load->args.end(), [](Expr c) {
      return !any_of(c, [](Expr e) { return e->kind == ExprKind::load || e->is_op(ScalarOp::idiv) || e->is_op(ScalarOp::imod); });
    });
  }

  // (sum of qa * qb - zero_a * (sum of qb)) * scale_b * scale_a
  std::optional<Loop> integer_product(const Loop& loop, const Gemm& g, const Dequantised& b, const std::vector<Expr>& sizes) {
    constexpr int64_t kMostK = 32768;  // no sum leaves int32
    const auto n_var = static_cast<int32_t>(g.m.size()), k_var = n_var + 1;
    const std::optional<Dequantised> a = dequantised(g.a, sizes);
    if (!a || b.zero || mentions(b.scale, k_var, k_var + 1) || g.k[0]->as_int() > kMostK) return std::nullopt;
    for (Expr e : {a->zero, a->scale}) {
      if (mentions(e, n_var, k_var + 1)) return std::nullopt;
    }
    if (!is_plain(pool_.load(a->q.buffer, program_.buffer(a->q.buffer).dtype, a->q.coordinates))) return std::nullopt;
    const BufferId out = loop.outputs[0];
    const DType stored = program_.buffer(out).dtype;
    const BufferId sum = add_buffer(loop.op + ".integers", DType::i32, program_.buffer(out).sizes);
    std::vector<Expr> own;
    for (int32_t v = 0; v <= n_var; ++v) own.push_back(pool_.var(v));
    Expr value = pool_.load(sum, DType::i32, own);
    if (a->zero && !is_zero(a->zero)) {
      const BufferId total = add_buffer(loop.op + ".columns", DType::i32, {g.n[0]});
      std::vector<Expr> vars(static_cast<size_t>(k_var) + 1, pool_.index(0)), at;
      vars[static_cast<size_t>(n_var)] = pool_.var(0);
      vars[static_cast<size_t>(k_var)] = pool_.var(1);
      for (Expr c : b.q.coordinates) at.push_back(substitute_vars(c, vars));
      before_.push_back({Reduction{ReduceOp::sum, {g.k[0]}, pool_.cast(pool_.load(b.q.buffer, DType::i8, at), DType::i32)}, {total}, loop.op + ".columns", loop.origins});
      const Expr column = pool_.load(total, DType::i32, {pool_.var(n_var)});
      value = pool_.op(ScalarOp::sub, {value, pool_.op(ScalarOp::mul, {column, pool_.cast(a->zero, DType::i32)})});
    }
    value = pool_.cast(value, DType::f32);
    for (Expr scale : {b.scale, a->scale}) {
      if (scale) value = pool_.op(ScalarOp::mul, {value, scale});
    }
    Loop integers = loop;
    Gemm& to = std::get<Gemm>(integers.def);
    to.a = a->q;
    to.b = b.q;
    integers.outputs = {sum};
    integers.op += ".integers";
    before_.push_back(std::move(integers));
    Loop scaled = loop;
    scaled.def = Pointwise{simplify_body(pool_.cast(value, compute_type(stored)), program_.buffer(out).sizes)};
    scaled.op += ".scaled";
    return scaled;
  }

  LoopProgram& program_;
  ExprPool& pool_;
  std::map<BufferId, size_t> definition_;
  std::vector<Loop> before_;
};

}  // namespace

LoopProgram find_quantised(LoopProgram program) {
  Finder(program).run();
  return program;
}

}  // namespace coil
