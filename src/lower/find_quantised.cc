#include "lower/find_quantised.h"

#include <algorithm>
#include <cstring>

#include "device/cuda/shared_memory.h"
#include "device/kernels.h"
#include "loop/simplify_body.h"
#include "lower/dequantised.h"
#include "lower/quantised_rows.h"
#include "ops/memory.h"

namespace coil {
namespace {

constexpr int64_t kMostK = 32768;                                 // no sum leaves int32
constexpr int64_t kMostDepthwiseTaps = COIL_DEPTHWISE_BYTE_TAPS;  // nor float32's integers, in which those may be summed
constexpr int64_t kLineGroup = cd::kBytePiece / 2;                // rows of k of a group are multiples of that where kernels read lines of numbers
constexpr int64_t kLeastByteGroup = COIL_LEAST_BYTE_GROUP;        // rows of k of a group whose sums of bytes are worth making apart

class QuantisedFinder {
 public:
  QuantisedFinder(LoopProgram& program, const QuantisedForms& forms)
      : program_(program), pool_(*program.pool), find_(program), find_weight_(program, true), rows_(program, before_), forms_(forms) {}

  void run() {
    std::vector<Loop> result;
    for (const Loop& loop : program_.loops) {
      before_.clear();
      Loop changed = loop;
      if (const Gemm* gemm = std::get_if<Gemm>(&loop.def)) changed = product(loop, *gemm);
      if (const GroupedGemm* gemm = std::get_if<GroupedGemm>(&loop.def); gemm && !forms_.signed_rows_only) changed = grouped_product(loop, *gemm);
      if (const Reduction* sum = std::get_if<Reduction>(&loop.def)) changed = sum_of_products(loop, *sum);
      if (const Conv2d* conv = std::get_if<Conv2d>(&loop.def); conv && !forms_.signed_rows_only) changed = convolution(loop, *conv);
      for (Loop& l : before_) result.push_back(std::move(l));
      result.push_back(std::move(changed));
    }
    program_.loops = std::move(result);
  }

 private:
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

  // e, of the column n_var and the row k_var, as a table [k / group, n] of f32; of several matrices, whose number is variable 0, [matrices, k / group, n].
  BufferId table(const Loop& loop, const char* what, Expr e, int32_t n_var, int32_t k_var, int64_t group, const std::vector<Expr>& sizes) {
    const auto rank = static_cast<int32_t>(sizes.size());
    std::vector<Expr> vars(static_cast<size_t>(k_var) + 1, pool_.index(0));
    if (rank == 3) vars[0] = pool_.var(0);
    vars[static_cast<size_t>(n_var)] = pool_.var(rank - 1);
    vars[static_cast<size_t>(k_var)] = pool_.var(rank - 2) * group;
    const Expr body = simplify_body(pool_.cast(substitute_vars(e, vars), DType::f32), sizes);
    const BufferId id = add_buffer(program_, loop.op + what, DType::f32, sizes);
    if (body->is_constant()) {  // the same number everywhere
      size_t count = 1;
      for (Expr n : sizes) count *= static_cast<size_t>(n->as_int());
      const std::vector<float> values(count, static_cast<float>(body->as_double()));
      auto bytes = std::make_shared<std::vector<uint8_t>>(count * sizeof(float));
      std::memcpy(bytes->data(), values.data(), bytes->size());
      BufferInfo& b = program_.buffer(id);
      b.kind = BufferInfo::Kind::constant;
      b.strides = contiguous_strides(pool_, sizes);
      b.data.dtype = DType::f32;
      for (Expr n : sizes) b.data.sizes.push_back(n->as_int());
      for (Expr step : b.strides) b.data.strides.push_back(step->as_int());
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
    const auto [b, rounded] = weight(g.b, a_type, sizes);
    if (!b || n < 1 || k < 1 || !is_whole_weight(b->q, n_var, k_var, n, k) || !is_of_weight(*b, 0, n_var)) return loop;
    const int64_t group = shared_group(*b, k_var, k);
    if (forms_.signed_rows_only && (group < 1 || (group != k && group % kLineGroup != 0) || group > kMostK)) return loop;
    const std::optional<Dequantised> a = bytes_of_a(loop, g, rounded, sizes);
    if (forms_.signed_rows_only && (!a || program_.buffer(a->q.buffer).dtype != DType::i8)) return loop;
    if (a && is_exact(*b, *a, k_var, k)) return integer_product(loop, g, *b, *a);
    if (group < 1) return loop;
    Loop changed = loop;
    Gemm& to = std::get<Gemm>(changed.def);
    to.b = b->q;
    to.quantised = tables(loop, *b, n_var, k_var, group, {pool_.index(k / group), pool_.index(n)});
    if (!a || !has_byte_groups(*a, k, group)) return changed;
    to.a = a->q;
    return scaled_product(loop, std::move(changed), DType::f32, *b, *a, n_var);
  }

  // Groups of rows, each with a matrix of its own.
  Loop grouped_product(const Loop& loop, const GroupedGemm& g) {
    constexpr int32_t kRow = 1, kColumn = 2, kDepth = 3;
    const std::vector<Expr> sizes{g.groups, g.m, g.n, g.k};  // of variables 0 to 3
    if (g.kind != GroupedGemm::Kind::rows || g.quantised || !g.groups->is_constant() || !g.n->is_constant() || !g.k->is_constant()) return loop;
    const int64_t n = g.n->as_int(), k = g.k->as_int();
    const auto [b, rounded] = weight(g.b, program_.buffer(g.a.buffer).dtype, sizes);
    if (!b || n < 1 || k < 1 || !is_whole_weight(b->q, kColumn, kDepth, n, k, g.groups) || !is_of_weight(*b, kRow, kColumn)) return loop;
    const int64_t group = shared_group(*b, kDepth, k);
    if (group < 1) return loop;
    Loop changed = loop;
    GroupedGemm& to = std::get<GroupedGemm>(changed.def);
    to.b = b->q;
    to.quantised = tables(loop, *b, kColumn, kDepth, group, {g.groups, pool_.index(k / group), pool_.index(n)});
    const bool byte_groups = group <= kMostK && (group == k || (group % 4 == 0 && group >= kLeastByteGroup));
    if (!forms_.int8_activations || !byte_groups) return changed;
    const std::vector<Expr> as_gemm{pool_.index(0), pool_.var(0), pool_.var(1), pool_.var(2)};
    Gemm rows;
    rows.m = {g.m}, rows.n = {g.n}, rows.k = {g.k};
    rows.a.buffer = g.a.buffer;
    for (Expr c : g.a.coordinates) rows.a.coordinates.push_back(substitute_vars(c, as_gemm));
    const Dequantised a = rows_.rows(loop, rows);
    to.a = {a.q.buffer, {pool_.var(kRow), pool_.var(kDepth)}};
    return scaled_product(loop, std::move(changed), DType::f32, *b, a, 1);
  }

  // What a product's right operand is dequantised from; and whether roundings on the way to 16 bits are left out.
  std::pair<std::optional<Dequantised>, bool> weight(const Operand& operand, DType other, const std::vector<Expr>& sizes) const {
    std::optional<Dequantised> b = find_.dequantised(operand, sizes);
    const bool rounded = !b && byte_size(other) == 2;
    if (rounded) b = find_weight_.dequantised(operand, sizes);
    if (b && b->zero && find_.is_zero(b->zero)) b->zero = Expr();
    return {std::move(b), rounded};
  }

  // Scale and zero point are known when the program is compiled, and do not depend on the variables of rows.
  bool is_of_weight(const Dequantised& b, int32_t first_row, int32_t end) const {
    const auto fits = [&](Expr e) { return !e || (!mentions(e, first_row, end) && find_.is_fixed(e)); };
    return fits(b.zero) && fits(b.scale);
  }

  Gemm::Quantised tables(const Loop& loop, const Dequantised& b, int32_t n_var, int32_t k_var, int64_t group, const std::vector<Expr>& shape) {
    Gemm::Quantised quantised;
    quantised.group = group;
    if (b.scale) quantised.scale = table(loop, ".scale", b.scale, n_var, k_var, group, shape);
    if (b.zero) quantised.zero = table(loop, ".zero", b.zero, n_var, k_var, group, shape);
    return quantised;
  }

  // How many rows of k share the weight's scale and zero point; 0: groups of the one do not divide those of the other, or there are none.
  int64_t shared_group(const Dequantised& b, int32_t k_var, int64_t k) const {
    const int64_t scale_group = group_of(b.scale, k_var, k), zero_group = group_of(b.zero, k_var, k), group = std::min(scale_group, zero_group);
    return group < 1 || scale_group % group != 0 || zero_group % group != 0 ? 0 : group;
  }

  // What a is dequantised from, a scale and zero point for each row, or is quantised to; nothing: it is multiplied as floats.
  std::optional<Dequantised> bytes_of_a(const Loop& loop, const Gemm& g, bool rounded, const std::vector<Expr>& sizes) {
    const auto n_var = static_cast<int32_t>(g.m.size()), k_var = n_var + 1;
    if (!rounded) {
      if (std::optional<Dequantised> a = find_.dequantised(g.a, sizes)) {
        if (mentions(a->zero, n_var, k_var + 1) || mentions(a->scale, n_var, k_var + 1)) return std::nullopt;
        if (!is_plain(pool_.load(a->q.buffer, program_.buffer(a->q.buffer).dtype, a->q.coordinates))) return std::nullopt;
        return a;
      }
    }
    if (!forms_.int8_activations) return std::nullopt;
    return rows_.rows(loop, g);
  }

  // The whole sum is one of integers: the scale is the column's, and the weight's bytes are not better kept in 4 bits.
  bool is_exact(const Dequantised& b, const Dequantised& a, int32_t k_var, int64_t k) const {
    if (b.zero || mentions(b.scale, k_var, k_var + 1) || k > kMostK) return false;
    return !has_4_bits(program_.buffer(b.q.buffer).data.bytes) || !has_byte_groups(a, k, k);
  }

  bool has_byte_groups(const Dequantised& a, int64_t k, int64_t group) const {
    return program_.buffer(a.q.buffer).dtype == DType::i8 && group <= kMostK && (group == k || (group % 4 == 0 && group >= kLeastByteGroup));
  }

  // An i8 constant, all of it, its two dimensions being the product's columns and rows; of several matrices, whose number is variable 0, behind that.
  bool is_whole_weight(const Operand& q, int32_t n_var, int32_t k_var, int64_t n, int64_t k, Expr matrices = Expr()) const {
    const BufferInfo& b = program_.buffer(q.buffer);
    const size_t lead = matrices ? 1 : 0;
    if (b.kind != BufferInfo::Kind::constant || b.dtype != DType::i8 || q.coordinates.size() != lead + 2) return false;
    if (matrices && (q.coordinates[0] != pool_.var(0) || b.sizes[0] != matrices)) return false;
    const Expr first = q.coordinates[lead], second = q.coordinates[lead + 1], column = pool_.var(n_var), row = pool_.var(k_var);
    const Expr columns = pool_.index(n), rows = pool_.index(k);
    const bool by_columns = first == column && second == row && b.sizes[lead] == columns && b.sizes[lead + 1] == rows;
    const bool by_rows = first == row && second == column && b.sizes[lead] == rows && b.sizes[lead + 1] == columns;
    return by_columns || by_rows;
  }

  // A sum in int32 of products of bytes with a weight.
  Loop sum_of_products(const Loop& loop, const Reduction& sum) const {
    const BufferInfo& out = program_.buffer(loop.outputs[0]);
    if (sum.op != ReduceOp::sum || out.dtype != DType::i32 || sum.domain.size() != 1 || out.sizes.empty() || !sum.body->is_op(ScalarOp::mul)) return loop;
    const auto n_var = static_cast<int32_t>(out.sizes.size()) - 1, k_var = n_var + 1;
    if (!out.sizes.back()->is_constant() || !sum.domain[0]->is_constant()) return loop;
    for (size_t side : {0u, 1u}) {
      const Expr a = find_.number(sum.body->args[side]), b = find_.number(sum.body->args[1 - side]);
      if (!a || !b) return loop;
      const Operand weight{BufferId(b->id), {b->args.begin(), b->args.end()}};
      if (!is_whole_weight(weight, n_var, k_var, out.sizes.back()->as_int(), sum.domain[0]->as_int()) || mentions(a, n_var, k_var)) continue;
      if (!is_plain(a) || (forms_.signed_rows_only && program_.buffer(BufferId(a->id)).dtype != DType::i8)) continue;
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
  Loop integer_product(const Loop& loop, const Gemm& g, const Dequantised& b, const Dequantised& a) {
    Loop integers = loop;
    Gemm& to = std::get<Gemm>(integers.def);
    to = g;
    to.a = a.q;
    to.b = b.q;
    return scaled_product(loop, std::move(integers), DType::i32, b, a, static_cast<int32_t>(g.m.size()));
  }

  // The product `sums` of a's numbers, in i32 without b's scale or in f32 with it, and `loop` as what makes its result of them; n_var: the result's last
  // variable.
  Loop scaled_product(const Loop& loop, Loop sums, DType type, const Dequantised& b, const Dequantised& a, int32_t n_var) {
    const BufferId out = loop.outputs[0];
    const BufferId sum = add_buffer(program_, loop.op + ".integers", type, program_.buffer(out).sizes);
    std::vector<Expr> own;
    for (int32_t v = 0; v <= n_var; ++v) own.push_back(pool_.var(v));
    Expr value = pool_.load(sum, type, own);
    if (a.zero && !find_.is_zero(a.zero)) {  // never of a grouped product, whose rows are coil's own
      const Expr column = pool_.load(column_sums(loop, std::get<Gemm>(sums.def), type, b), type, {pool_.var(n_var)});
      value = pool_.op(ScalarOp::sub, {value, pool_.op(ScalarOp::mul, {column, pool_.cast(a.zero, type)})});
    }
    value = pool_.cast(value, DType::f32);
    if (b.scale && type == DType::i32) value = pool_.op(ScalarOp::mul, {value, b.scale});
    if (a.scale) value = pool_.op(ScalarOp::mul, {value, a.scale});
    sums.outputs = {sum};
    sums.op += ".integers";
    before_.push_back(std::move(sums));
    Loop scaled = loop;
    scaled.def = Pointwise{simplify_body(pool_.cast(value, compute_type(program_.buffer(out).dtype)), program_.buffer(out).sizes)};
    scaled.op += ".scaled";
    return scaled;
  }

  // [n]: of a column of b, of its numbers in i32 or of what they stand for in f32.
  BufferId column_sums(const Loop& loop, const Gemm& g, DType type, const Dequantised& b) {
    const auto n_var = static_cast<int32_t>(g.m.size()), k_var = n_var + 1;
    std::vector<Expr> vars(static_cast<size_t>(k_var) + 1, pool_.index(0)), at;
    vars[static_cast<size_t>(n_var)] = pool_.var(0);
    vars[static_cast<size_t>(k_var)] = pool_.var(1);
    for (Expr c : b.q.coordinates) at.push_back(substitute_vars(c, vars));
    Expr value = pool_.cast(pool_.load(b.q.buffer, DType::i8, at), type);
    if (type == DType::f32) {
      if (b.zero) value = pool_.op(ScalarOp::sub, {value, pool_.cast(substitute_vars(b.zero, vars), type)});
      if (b.scale) value = pool_.op(ScalarOp::mul, {value, pool_.cast(substitute_vars(b.scale, vars), type)});
    }
    const BufferId total = add_buffer(program_, loop.op + ".columns", type, {g.n[0]});
    before_.push_back({Reduction{ReduceOp::sum, {g.k[0]}, simplify_body(value, std::vector{g.n[0], g.k[0]})}, {total}, loop.op + ".columns", loop.origins});
    return total;
  }

  // The weight of a convolution as a constant of four dimensions: its own, or one that is folded into such. Invalid: it is neither.
  BufferId whole_weight(const Loop& loop, const Operand& q, const std::vector<Expr>& sizes) {
    const BufferInfo from = program_.buffer(q.buffer);
    if (from.kind != BufferInfo::Kind::constant || from.dtype != DType::i8) return BufferId();
    std::vector<Expr> own;
    int64_t have = 1, want = 1;
    for (size_t d = 0; d < 4; ++d) {
      own.push_back(pool_.var(static_cast<int32_t>(d)));
      want *= sizes[d]->as_int();
    }
    for (Expr n : from.sizes) have *= n->as_int();
    if (q.coordinates == own && from.sizes == sizes) return q.buffer;
    if (want > have || !is_plain(pool_.load(q.buffer, DType::i8, q.coordinates))) return BufferId();
    const BufferId id = add_buffer(program_, loop.op + ".weight", DType::i8, sizes);
    before_.push_back({Pointwise{pool_.load(q.buffer, DType::i8, q.coordinates)}, {id}, loop.op + ".weight", loop.origins, {}});
    return id;
  }

  // (sum of (qx - zero_x) * qw) * (scale_w * scale_x)
  Loop convolution(const Loop& loop, const Conv2d& c) {
    const std::vector<Expr> w_sizes = program_.buffer(c.weight).sizes;
    if (std::any_of(w_sizes.begin(), w_sizes.end(), [](Expr n) { return !n->is_constant() || n->as_int() < 1; })) return loop;
    const int64_t taps = w_sizes[2]->as_int() * w_sizes[3]->as_int();
    const bool single = c.groups > 1 && w_sizes[1] == pool_.index(1);
    if (taps * w_sizes[1]->as_int() > kMostK || (single && taps > kMostDepthwiseTaps)) return loop;
    Operand weight{c.weight, {}};
    for (int32_t v = 0; v < 4; ++v) weight.coordinates.push_back(pool_.var(v));
    const std::optional<Dequantised> x = find_.dequantised(c.x, c.x_sizes), w = find_.dequantised(weight, w_sizes);
    if (!x || !w || (w->zero && !find_.is_zero(w->zero)) || mentions(x->scale, 0, 4) || mentions(w->scale, 1, 4)) return loop;
    if (w->scale && !find_.is_fixed(w->scale)) return loop;
    const DType type = program_.buffer(x->q.buffer).dtype;
    const std::optional<int64_t> zero = x->zero ? find_.fixed_integer(x->zero) : 0;
    if (!zero || *zero < (type == DType::i8 ? -128 : 0) || *zero > (type == DType::i8 ? 127 : 255)) return loop;
    if (!is_plain(pool_.load(x->q.buffer, type, x->q.coordinates))) return loop;
    const BufferId numbers = whole_weight(loop, w->q, w_sizes);
    if (!numbers.valid()) return loop;

    const BufferId out = loop.outputs[0];
    const std::vector<Expr> sizes = program_.buffer(out).sizes;
    const BufferId sum = add_buffer(program_, loop.op + ".integers", DType::i32, sizes);
    std::vector<Expr> own;
    for (int32_t v = 0; v < 4; ++v) own.push_back(pool_.var(v));
    Expr value = pool_.cast(pool_.load(sum, DType::i32, own), DType::f32), scale = w->scale;
    if (x->scale && scale && find_.is_fixed(x->scale)) {
      scale = pool_.op(ScalarOp::mul, {scale, x->scale});
    } else if (x->scale) {
      value = pool_.op(ScalarOp::mul, {value, x->scale});
    }
    if (scale) {
      const std::vector<Expr> channels{sizes[1]};
      const BufferId by_channel = add_buffer(program_, loop.op + ".scale", DType::f32, channels);
      before_.push_back({Pointwise{simplify_body(scale, channels)}, {by_channel}, loop.op + ".scale", loop.origins, {}});
      value = pool_.op(ScalarOp::mul, {value, pool_.load(by_channel, DType::f32, {pool_.var(1)})});
    }
    Loop integers = loop;
    Conv2d& to = std::get<Conv2d>(integers.def);
    to.x = x->q;
    to.weight = numbers;
    to.x_zero = *zero;
    integers.outputs = {sum};
    integers.op += ".integers";
    before_.push_back(std::move(integers));
    Loop scaled = loop;
    scaled.def = Pointwise{simplify_body(pool_.cast(value, compute_type(program_.buffer(out).dtype)), sizes)};
    scaled.op += ".scaled";
    return scaled;
  }

  LoopProgram& program_;
  ExprPool& pool_;
  DequantisedFinder find_, find_weight_;  // the latter: of a weight, past roundings
  std::vector<Loop> before_;
  RowQuantiser rows_;
  QuantisedForms forms_;
};

}  // namespace

LoopProgram find_quantised(LoopProgram program, const QuantisedForms& forms) {
  QuantisedFinder(program, forms).run();
  return program;
}

}  // namespace coil
