// Grouped products: groups of rows, columns or terms that follow one another, each with a matrix of its own; a list says where each group ends.
// Mixtures of experts are made of them: rows come sorted by expert. And weights that are a direction times a length.
#include <algorithm>

#include "lower/families.h"
#include "lower/formula.h"
#include "lower/grouped_products.h"

namespace coil::lowering {
namespace {

using GroupKind = GroupedGemm::Kind;

// The template's types; products of nothing have no template.
bool has_template(const View& a, const View& b) {
  const auto has_nothing = [](const View& v) { return std::any_of(v.sizes.begin(), v.sizes.end(), [](Expr s) { return is_const(s, 0); }); };
  return a.dtype == b.dtype && is_float(a.dtype) && a.dtype != DType::f64 && !has_nothing(a) && !has_nothing(b);
}

View define(Op& op, const std::string& name, DType dtype, GroupKind kind, const View& a, const View& b, const View& ends) {
  const bool rows = kind == GroupKind::rows;
  GroupedGemm def;
  def.kind = kind;
  def.groups = ends.sizes[0], def.m = a.sizes[0], def.n = b.sizes.back(), def.k = a.sizes[1];
  def.a = renumbered(op.pool, op.rec.operand(a), {1, 3});
  def.b = renumbered(op.pool, op.rec.operand(b), rows ? std::vector<size_t>{0, 3, 2} : std::vector<size_t>{3, 2});
  def.ends = op.rec.stored(ends, "ends");
  Sizes sizes = rows ? Sizes{def.m, def.n} : Sizes{def.groups, def.m, def.n};
  return op.rec.define(name, dtype, std::move(sizes), std::move(def));
}

// What a file may give otherwise.
void check(const Op& op, const View& a, const View& b, size_t rank_of_b, const View& ends) {
  if (a.rank() != 2 || b.rank() != rank_of_b) fail(ErrorCode::bad_program, op.node.target + " of other than matrices and lists of them");
  if (ends.rank() == 1 && (ends.dtype == DType::i32 || ends.dtype == DType::i64)) return;
  fail(ErrorCode::bad_program, op.node.target + ": 'offs' has to be a list of int32 or int64, the ends of the groups");
}

// out[i, n] = sum over k of a[i, k] * b[g, k, n], g being the group of row i; zeros behind the last one's.
View by_rows(Op& op, const std::string& name, DType to, const View& a, const View& b, const View& ends) {
  check(op, a, b, 3, ends);
  if (has_template(a, b)) return define(op, name, to, GroupKind::rows, a, b, ends);
  ExprPool& p = op.pool;
  const DType type = is_float(to) ? accumulate_type(to) : to;
  const Expr groups = ends.sizes[0];
  const View group = group_numbers(op, name, ends, a.sizes[0]);
  return op.rec.reduce(name, ReduceOp::sum, to, {a.sizes[0], b.sizes[2]}, {a.sizes[1]}, [&](Coordinates c, Coordinates k) {
    const Expr number = op.rec.at(group, c.first(1)), last = p.cast(groups - 1, DType::i64);
    const Expr row = p.checked_index(p.op(ScalarOp::minimum, {number, last}), groups);
    const Expr product =
        p.op(ScalarOp::mul, {as(op.rec.at(a, std::vector<Expr>{c[0], k[0]}), type), as(op.rec.at(b, std::vector<Expr>{row, k[0], c[1]}), type)});
    return p.select(p.op(ScalarOp::le, {number, last}), product, op.constant(0, type));
  });
}

// out[g, m, n] = sum over the k of group g of a[m, k] * b[k, n].
View by_depth(Op& op, const std::string& name, DType to, const View& a, const View& b, const View& ends) {
  check(op, a, b, 2, ends);
  if (has_template(a, b)) return define(op, name, to, GroupKind::depth, a, b, ends);
  ExprPool& p = op.pool;
  const DType type = is_float(to) ? accumulate_type(to) : to;
  const View group = group_numbers(op, name, ends, a.sizes[1]);
  return op.rec.reduce(name, ReduceOp::sum, to, {ends.sizes[0], a.sizes[0], b.sizes[1]}, {a.sizes[1]}, [&](Coordinates c, Coordinates k) {
    const Expr product = p.op(ScalarOp::mul, {as(op.rec.at(a, std::vector<Expr>{c[1], k[0]}), type), as(op.rec.at(b, std::vector<Expr>{k[0], c[2]}), type)});
    return p.select(p.op(ScalarOp::eq, {op.rec.at(group, k), p.cast(c[0], DType::i64)}), product, op.constant(0, type));
  });
}

Views grouped_mm(Op& op) {
  if (op.has("bias")) fail(ErrorCode::unsupported_feature, op.node.target + ": a bias, which PyTorch does not take either");
  return {grouped_product(op, op.name, op.out().dtype, op.tensor("self"), op.tensor("mat2"), op.maybe_tensor("offs"))};
}

// What transformers (since 5) has for types and compilers that PyTorch's operator does not serve, and its gradients.
Views expert_products(Op& op) { return {by_rows(op, op.name, op.out().dtype, op.tensor("input"), op.tensor("weight"), op.tensor("offs"))}; }
Views expert_gradients(Op& op) {
  const View x = op.tensor("input"), w = op.tensor("weight"), ends = op.tensor("offs"), grad = op.tensor("grad_output");
  return {by_rows(op, op.name + ".input", op.out().dtype, grad, permuted(op, w, {0, 2, 1}), ends),
          by_depth(op, op.name + ".weight", op.out().dtype, permuted(op, x, {1, 0}), grad, ends)};
}

// v[s, i, j] = matrices[position(s), i, j], a position being data.
struct Chosen {
  View matrices;
  Expr position;  // over variable 0
};
// What a view reads, of a gather's result what that reads: nobody else may need the result.
Expr source_of(Op& op, const View& v) {
  if (v.body->kind != ExprKind::load) return v.body;
  const LoopProgram& program = op.rec.program();
  const BufferId id(v.body->id);
  if (program.buffer(id).kind != BufferInfo::Kind::computed) return v.body;
  const auto made = std::find_if(program.loops.rbegin(), program.loops.rend(), [&](const Loop& l) { return l.outputs[0] == id; });
  const auto* formula = made == program.loops.rend() ? nullptr : std::get_if<Pointwise>(&made->def);
  if (!formula || formula->body->kind != ExprKind::load || program.buffer(BufferId(formula->body->id)).dtype != v.dtype) return v.body;
  return substitute_vars(formula->body, std::vector<Expr>(v.body->args.begin(), v.body->args.end()));
}

std::optional<Chosen> chosen(Op& op, const View& v) {
  if (v.rank() != 3) return std::nullopt;
  const Expr body = source_of(op, v);
  if (body->kind != ExprKind::load || body->args.size() != 3) return std::nullopt;
  const std::vector<Expr> at(body->args.begin(), body->args.end());
  const auto by_data = [](Expr e) { return any_of(e, [](Expr n) { return n->is_op(ScalarOp::checked_index); }); };
  if (!by_data(at[0]) || depends_on_var(at[0], 1) || depends_on_var(at[0], 2)) return std::nullopt;
  if (by_data(at[1]) || by_data(at[2]) || depends_on_var(at[1], 0) || depends_on_var(at[2], 0)) return std::nullopt;
  const BufferInfo& buffer = op.rec.program().buffer(BufferId(body->id));
  View all{v.dtype, {buffer.sizes[0], v.sizes[1], v.sizes[2]}, op.pool.load(BufferId(body->id), buffer.dtype, {op.pool.var(0), at[1], at[2]})};
  return Chosen{std::move(all), at[0]};
}

// rows[s] * matrices[position(s)].
View by_position(Op& op, const View& rows, const View& matrices, Expr position) {
  ExprPool& p = op.pool;
  const Expr count = rows.sizes[0];
  const View number = op.rec.pointwise(op.name + ".number", DType::i64, {count},
                                       [&](Coordinates c) { return p.cast(substitute_vars(position, std::vector<Expr>{c[0]}), DType::i64); });
  const auto [sorted, order] = op.rec.sort(op.name + ".order", number, 0, count, false);
  const View place = op.rec.sort(op.name + ".place", order, 0, count, false).second;  // where each row went
  const View ends = op.rec.reduce(op.name + ".ends", ReduceOp::sum, DType::i64, {matrices.sizes[0]}, {count}, [&](Coordinates c, Coordinates k) {
    return p.cast(p.op(ScalarOp::le, {op.rec.at(number, k), p.cast(c[0], DType::i64)}), DType::i64);
  });
  const auto moved = [&](const View& v, const View& to) {
    return op.rec.view(v, v.sizes, [&](Coordinates c) { return std::vector<Expr>{p.checked_index(op.rec.at(to, c.first(1)), count), c[1]}; });
  };
  return moved(define(op, op.name, op.out().dtype, GroupKind::rows, moved(rows, order), matrices, ends), place);
}

// v * g / |v|, the norm over all dimensions but `dim` (-1: over all); and the norms.
Views weight_norm(Op& op) {
  const View v = op.tensor("v"), g = op.tensor("g");
  const int64_t dim = op.integer("dim");
  std::vector<size_t> others;
  for (size_t i = 0; i < v.rank(); ++i) {
    if (dim == -1 || i != wrap_dim(dim, v.rank())) others.push_back(i);
  }
  const DType type = accumulate_type(v.dtype);
  const View squares =
      reduced(op, op.name + ".squares", ReduceOp::sum, type, v, others, true, [&](Expr e, Coordinates) { return (Val(as(e, type)) * Val(as(e, type))).e; });
  const auto norm = [&](Coordinates c) { return op.pool.op(ScalarOp::sqrt, {read(squares, c)}); };
  Views results{op.rec.pointwise(op.name, op.out().dtype, v.sizes,
                                 [&](Coordinates c) { return (Val(as(op.rec.at(v, c), type)) * (Val(as(read(g, c), type)) / Val(norm(c)))).e; })};
  if (op.node.outputs.size() > 1) {
    const TensorType& out = op.out(1);
    results.push_back(op.rec.pointwise(op.name + ".norm", out.dtype, out.sizes, [&](Coordinates c) { return as(norm(c), out.dtype); }));
  }
  return results;
}

}  // namespace

View grouped_product(Op& op, const std::string& name, DType dtype, const View& a, const View& b, const std::optional<View>& ends) {
  if (a.rank() == 3 && b.rank() == 3) return matrix_product(op, name, dtype, a, b, 1);
  if (!ends) fail(ErrorCode::bad_program, op.node.target + ": groups of rows, columns or terms without 'offs'");
  if (a.rank() == 2 && b.rank() == 3) return by_rows(op, name, dtype, a, b, *ends);
  if (a.rank() == 2 && b.rank() == 2) return by_depth(op, name, dtype, a, b, *ends);
  if (a.rank() != 3 || b.rank() != 2) fail(ErrorCode::bad_program, op.node.target + " of other than matrices and lists of them");
  return permuted(op, by_rows(op, name, dtype, permuted(op, b, {1, 0}), permuted(op, a, {0, 2, 1}), *ends), {1, 0});
}

View group_numbers(Op& op, const std::string& name, const View& ends, Expr size) {
  ExprPool& p = op.pool;
  return op.rec.reduce(name + ".group", ReduceOp::sum, DType::i64, {size}, {ends.sizes[0]}, [&](Coordinates c, Coordinates k) {
    return p.cast(p.op(ScalarOp::le, {as(op.rec.at(ends, k), DType::i64), p.cast(c[0], DType::i64)}), DType::i64);
  });
}

std::optional<View> product_of_chosen(Op& op, const View& a, const View& b) {
  if (!has_template(a, b)) return std::nullopt;
  if (const auto of_b = is_const(a.sizes[1], 1) ? chosen(op, b) : std::nullopt) {
    return unsqueezed(op, by_position(op, squeezed(op, a, 1), of_b->matrices, of_b->position), 1);
  }
  if (const auto of_a = is_const(b.sizes[2], 1) ? chosen(op, a) : std::nullopt) {
    return unsqueezed(op, by_position(op, squeezed(op, b, 2), permuted(op, of_a->matrices, {0, 2, 1}), of_a->position), 2);
  }
  return std::nullopt;
}

void add_grouped_products(Table& table) {
  table["aten._grouped_mm.default"] = grouped_mm;
  table["transformers.grouped_mm_fallback.default"] = expert_products;
  table["transformers.grouped_mm_fallback_backward.default"] = expert_gradients;
  table["aten._weight_norm.default"] = weight_norm;
  table["aten._weight_norm_interface.default"] = weight_norm;
}

}  // namespace coil::lowering
