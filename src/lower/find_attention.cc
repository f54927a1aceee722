#include "lower/find_attention.h"

#include <algorithm>
#include <map>
#include <set>

#include "loop/narrow.h"
#include "loop/simplify_body.h"
#include "lower/attention_batches.h"
#include "lower/attention_heads.h"
#include "lower/attention_scores.h"

namespace coil {
namespace {

bool has_one_dimension_each(const Gemm& g) { return g.m.size() == 1 && g.n.size() == 1 && g.k.size() == 1 && !g.quantised; }

class AttentionFinder {
 public:
  explicit AttentionFinder(LoopProgram& program)
      : program_(program), pool_(*program.pool), masks_(program, [this](BufferId id) { return elementwise(id); }), scores_(program, definition_, masks_) {
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
      std::optional<Found> found = best(l);
      if (!found) {
        result.push_back(program_.loops[l]);
        if (auto* attention = std::get_if<Attention>(&result.back().def)) drop_mask(*attention);
        continue;
      }
      for (Loop& loop : replacement(l, *found)) result.push_back(std::move(loop));
    }
    program_.loops = std::move(result);
    for (const Moved& m : moved_) read_moved(m);
  }

 private:
  struct Found {
    Attention attention;
    AttentionBatches batches;
    bool turned = false;             // the product gives columns of rows: weights are its right operand
    Expr mask;                       // null: none
    std::optional<size_t> rounding;  // a loop whose result the attention makes itself
  };
  // Elements of a buffer that another one has.
  struct Moved {
    BufferId from, to;
    bool row_by_row = false;  // in the same order
    std::function<std::vector<Expr>(const std::vector<Expr>&)> coordinates;
  };

  Expr elementwise(BufferId id) const {
    const auto* def = scores_.defined_as<Pointwise>(id);
    return def ? def->body : Expr();
  }

  // Programs also compute the causal mask of attention that they ask for (transformers: from positions, whose sequences it compares).
  void drop_mask(Attention& a) const {
    if (!a.mask) return;
    const Expr mask = pool_.load(a.mask->buffer, program_.buffer(a.mask->buffer).dtype, a.mask->coordinates);
    if (masks_.is_flag(a, mask)) a.mask.reset();
  }

  // Of the ways to see its batches as batches and heads one in which operands lie at affine places.
  std::optional<Found> best(size_t l) {
    const Gemm* values = std::get_if<Gemm>(&program_.loops[l].def);
    if (!values || !has_one_dimension_each(*values)) return std::nullopt;
    for (bool turned : {false, true}) {
      std::optional<Found> chosen;
      int64_t least = 0;
      std::vector<AttentionBatches> ways = ways_to_split(pool_, values->batch);
      std::set<int64_t> tried;
      for (size_t w = 0; w < ways.size(); ++w) {
        std::optional<Found> found = match(l, *values, turned, ways[w]);
        if (!found) continue;
        const int64_t divisions = count_divisions(found->attention);
        if (!chosen || divisions < least) chosen = found, least = divisions;
        if (least == 0) break;
        for (int64_t heads : divisors_of_heads(found->attention)) {
          if (values->batch.size() == 1 && tried.insert(heads).second) append_split(pool_, values->batch[0], heads, ways);
        }
      }
      if (chosen) return chosen;
    }
    return std::nullopt;
  }

  std::optional<Found> match(size_t l, const Gemm& values, bool turned, const AttentionBatches& batches) {
    const Expr queries = turned ? values.n[0] : values.m[0], columns = turned ? values.m[0] : values.n[0], keys = values.k[0];
    const auto at = [&](const Operand& o, Expr row, Expr column, Expr summed) {
      std::vector<Expr> vars = batches.of_point;
      for (Expr e : {turned ? column : row, turned ? row : column, summed}) vars.push_back(e);
      return placed(o, vars);
    };
    const Expr zero = pool_.index(0), row = pool_.var(2), column = pool_.var(3);
    const std::vector<Expr> sizes{batches.batch, batches.heads, queries, keys};
    const Operand weights = at(turned ? values.b : values.a, row, zero, column);
    const auto from = scores_.weights(pool_.load(weights.buffer, program_.buffer(weights.buffer).dtype, weights.coordinates), sizes);
    if (!from) return std::nullopt;
    const auto scores = scores_.scores(from->scores);
    if (!scores || !has_one_dimension_each(*scores->product) || !is_private(l)) return std::nullopt;

    Found found{{}, batches, turned, scores->mask, std::nullopt};
    Attention& a = found.attention;
    a.batch = batches.batch, a.heads = a.kv_heads = batches.heads;
    a.q_len = queries, a.kv_len = keys, a.dim = scores->product->k[0], a.v_dim = columns;
    a.scale = scores->scale, a.highest_fill = scores->highest_fill;
    if (!set_factors(a, *scores, sizes)) return std::nullopt;
    a.v = at(turned ? values.a : values.b, zero, column, row);
    if (!take_types(found, program_.loops[l].outputs[0])) return std::nullopt;
    simplify_places(a);
    a.masked_rows_zero = from->zero_rows || !scores->mask;  // a plain softmax gives NaN for rows without anything, which only a mask can bring about
    return found;
  }

  static Operand placed(const Operand& o, const std::vector<Expr>& vars) {
    Operand r{o.buffer, {}};
    for (Expr c : o.coordinates) r.coordinates.push_back(substitute_vars(c, vars));
    return r;
  }

  // Queries and keys from the product of the scores, whose rows may be either.
  bool set_factors(Attention& a, const AttentionScores::Scores& s, const std::vector<Expr>& sizes) const {
    const size_t batches = s.product->batch.size();
    const auto is_variable = [&](Expr e, size_t v) {
      const bool unit = sizes[v]->is_constant() && sizes[v]->as_int() == 1 && e->is_constant() && e->as_int() == 0;
      return unit || e == pool_.var(static_cast<int32_t>(v));
    };
    for (size_t i = 0; i < batches; ++i) {
      if (depends_on_var(s.at[i], 2) || depends_on_var(s.at[i], 3)) return false;
    }
    const Expr m = s.at[batches], n = s.at[batches + 1], zero = pool_.index(0);
    const bool direct = is_variable(m, 2) && is_variable(n, 3), turned = !direct && is_variable(m, 3) && is_variable(n, 2);
    if (!direct && !turned) return false;
    std::vector<Expr> rows(s.at.begin(), s.at.begin() + static_cast<long>(batches)), columns = rows;
    for (Expr e : {pool_.var(2), zero, pool_.var(3)}) rows.push_back(e);
    for (Expr e : {zero, pool_.var(2), pool_.var(3)}) columns.push_back(e);
    a.q = direct ? placed(s.product->a, rows) : placed(s.product->b, columns);
    a.k = direct ? placed(s.product->b, columns) : placed(s.product->a, rows);
    return true;
  }

  // The intermediate results serve nothing but the pattern.
  bool is_private(size_t last) const {
    const std::set<BufferId>& met = scores_.met();
    for (BufferId id : met) {
      if (outside_.contains(id)) return false;
      auto it = readers_.find(id);
      if (it == readers_.end()) continue;
      for (size_t reader : it->second) {
        if (reader == last) continue;
        const std::vector<BufferId>& defines = program_.loops[reader].outputs;
        if (std::none_of(defines.begin(), defines.end(), [&](BufferId d) { return met.contains(d); })) return false;
      }
    }
    return true;
  }

  // Of an operand that is a copy, a multiple or a conversion of numbers of this type: those numbers. `scale` takes the factor; null: nothing may be multiplied.
  std::optional<Operand> source_of(const Operand& o, DType type, double* scale) const {
    const auto* def = scores_.defined_as<Pointwise>(o.buffer);
    if (!def) return std::nullopt;
    Expr source = def->body;
    double factor = 1;
    if (source->is_op(ScalarOp::mul)) {
      const size_t constant = source->args[0]->is_constant() ? 0 : 1;
      if (!scale || !source->args[constant]->is_constant()) return std::nullopt;
      factor = source->args[constant]->as_double();
      source = source->args[1 - constant];
    }
    source = AttentionScores::without_cast(source);
    const bool plain = source->kind == ExprKind::load && std::none_of(source->args.begin(), source->args.end(), [](Expr c) {
                         return any_of(c, [](Expr e) { return e->is_op(ScalarOp::checked_index); });
                       });
    if (!plain || program_.buffer(BufferId(source->id)).dtype != type) return std::nullopt;
    if (scale) *scale *= factor;
    return placed({BufferId(source->id), source->args}, o.coordinates);
  }

  // The one loop that reads this float32 result, if all it does is to round it to 2 bytes.
  std::optional<size_t> rounding_of(BufferId result) const {
    auto it = readers_.find(result);
    if (program_.buffer(result).dtype != DType::f32 || outside_.contains(result) || it == readers_.end() || it->second.size() != 1) return std::nullopt;
    const Loop& reader = program_.loops[*it->second.begin()];
    const Pointwise* def = std::get_if<Pointwise>(&reader.def);
    if (!def || reader.outputs.size() != 1) return std::nullopt;
    const BufferInfo &out = program_.buffer(reader.outputs[0]), &wide = program_.buffer(result);
    if (byte_size(out.dtype) != 2 || !is_float(out.dtype) || out.sizes != wide.sizes) return std::nullopt;
    const Expr source = simplify_body(AttentionScores::without_cast(def->body), out.sizes);
    return source == own_element(result) ? std::optional(*it->second.begin()) : std::nullopt;
  }

  // The buffer's element at a point's own coordinates.
  Expr own_element(BufferId id) const {
    const BufferInfo& b = program_.buffer(id);
    return simplify_body(pool_.load(id, b.dtype, variables(pool_, b.sizes.size())), b.sizes);
  }

  // All operands in the type of the result. Attention in float32 of 2-byte numbers, as decompositions write it, is attention of those: a template
  // widens them itself.
  bool take_types(Found& found, BufferId result) const {
    Attention& a = found.attention;
    for (Expr dim : {a.dim, a.v_dim}) {
      if (!dim->is_constant() || dim->as_int() < 1 || dim->as_int() > kMaxAttentionDim) return false;
    }
    const DType type = program_.buffer(result).dtype;
    if (!is_float(type) || type == DType::f64) return false;
    if (const std::optional<size_t> rounding = rounding_of(result)) {
      Attention narrow = a;
      if (as_type(narrow, program_.buffer(program_.loops[*rounding].outputs[0]).dtype)) {
        a = narrow, found.rounding = rounding;
        return true;
      }
    }
    return as_type(a, type);
  }

  bool as_type(Attention& a, DType type) const {
    for (Operand* o : {&a.q, &a.k, &a.v}) {
      double* const scale = o == &a.v ? nullptr : &a.scale;
      const bool fits = program_.buffer(o->buffer).dtype == type;
      if (std::optional<Operand> source = source_of(*o, type, scale)) *o = *source;
      else if (!fits) return false;
    }
    return true;
  }

  // Coordinates in the ranges of their variables, and heads of keys that several heads of queries share once.
  void simplify_places(Attention& a) const {
    const auto simplify = [](Operand& o, const std::vector<Expr>& sizes) {
      for (Expr& c : o.coordinates) c = simplify_index(c, VarRanges{sizes});
    };
    simplify(a.q, {a.batch, a.heads, a.q_len, a.dim});
    simplify(a.k, {a.batch, a.heads, a.kv_len, a.dim});
    simplify(a.v, {a.batch, a.heads, a.kv_len, a.v_dim});
    const int64_t group = group_of(a.k, a.heads);
    if (group <= 1 || group_of(a.v, a.heads) != group) return;
    for (Operand* o : {&a.k, &a.v}) {
      for (Expr& c : o->coordinates) c = of_kv_head(c, a.heads, group, 0);
    }
    a.kv_heads = pool_.index(a.heads->as_int() / group);
  }

  // The loops that take the place of the product.
  std::vector<Loop> replacement(size_t l, Found& found) {
    std::vector<Loop> loops;
    Loop loop = program_.loops[l];
    if (found.rounding) {
      const Loop& rounding = program_.loops[*found.rounding];
      loop.outputs = rounding.outputs;
      loop.origins.insert(loop.origins.end(), rounding.origins.begin(), rounding.origins.end());
      absorbed_.insert(*found.rounding);
    }
    Attention& a = found.attention;
    if (found.mask) masks_.set(a, found.mask, loops);
    loop.op = "attention";
    const bool same = found.batches.is_plain() && !found.turned;
    Loop view{Pointwise{}, loop.outputs, "attention.view", loop.origins};
    if (!same) loop.outputs = {moved_result(loop.outputs[0], found)};
    const BufferId result = loop.outputs[0];
    loop.def = std::move(a);
    loops.push_back(std::move(loop));
    if (same) return loops;
    // For what reads the product whole.
    const BufferInfo& old = program_.buffer(view.outputs[0]);
    view.def = Pointwise{simplify_body(pool_.load(result, old.dtype, moved_.back().coordinates(variables(pool_, old.sizes.size()))), old.sizes)};
    loops.push_back(std::move(view));
    return loops;
  }

  BufferId moved_result(BufferId old, const Found& found) {
    const Attention& a = found.attention;
    BufferInfo info;
    info.name = "attention.result_" + std::to_string(program_.buffers.size());
    info.dtype = program_.buffer(old).dtype;
    info.sizes = {a.batch, a.heads, a.q_len, a.v_dim};
    program_.buffers.push_back(std::move(info));
    const BufferId id(program_.buffers.size() - 1);
    moved_.push_back(
        {old, id, !found.turned, [batches = found.batches, turned = found.turned](const std::vector<Expr>& at) { return batches.point_of(at, turned); }});
    return id;
  }

  // Readers at coordinates find the elements there. The copy goes if it has no reader or can be made in its place.
  void read_moved(const Moved& m) {
    std::vector<size_t> of_from, of_to;
    for (size_t l = 0; l < program_.loops.size(); ++l) {
      Loop& loop = program_.loops[l];
      if (loop.outputs[0] != m.from) redirect_reads(loop, program_, m.from, m.to, m.coordinates);
      const std::vector<BufferId> read = reads(program_, loop);
      if (std::find(read.begin(), read.end(), m.from) != read.end()) of_from.push_back(l);
      if (std::find(read.begin(), read.end(), m.to) != read.end()) of_to.push_back(l);
    }
    if (of_from.empty() && !outside_.contains(m.from)) {
      const auto is_copy = [&](size_t l) { return program_.loops[l].outputs[0] == m.from; };
      const auto copy = std::find_if(of_to.begin(), of_to.end(), is_copy);
      program_.loops[*copy].outputs.clear();
      of_to.erase(copy);
    }
    if (of_to.size() == 1 && define_in_place(program_.loops[of_to[0]], m)) {
      Loop& copy = program_.loops[of_to[0]];
      for (Loop& loop : program_.loops) {
        if (loop.outputs == std::vector{m.to}) loop.outputs = copy.outputs;
      }
      program_.loops[of_to[0]].outputs.clear();
    }
    std::erase_if(program_.loops, [](const Loop& loop) { return loop.outputs.empty(); });
  }

  // Whether the loop copies the result element by element into a buffer that attention can define instead, in another shape if need be.
  bool define_in_place(const Loop& copy, const Moved& m) {
    const auto* def = std::get_if<Pointwise>(&copy.def);
    if (!def || copy.outputs.size() != 1) return false;
    BufferInfo& out = program_.buffer(copy.outputs[0]);
    const BufferInfo& result = program_.buffer(m.to);
    if (out.dtype != result.dtype || out.pairs || out.meant || (!out.strides.empty() && out.strides != contiguous_strides(pool_, out.sizes))) return false;
    if (out.sizes == result.sizes && def->body == own_element(m.to)) return true;
    const auto is_result = [&](const LoopOutput& o) { return o.source == copy.outputs[0]; };
    const bool shown = std::count_if(program_.outputs.begin(), program_.outputs.end(), is_result) == 1 &&
                       std::find_if(program_.outputs.begin(), program_.outputs.end(), is_result)->kind == LoopOutput::Kind::user;
    if (!shown || !m.row_by_row || copy.outputs[0] != m.from) return false;
    if (out.shown.empty()) out.shown = out.sizes;
    out.sizes = result.sizes;
    if (!out.strides.empty()) out.strides = contiguous_strides(pool_, out.sizes);
    return true;
  }

  LoopProgram& program_;
  ExprPool& pool_;
  std::map<BufferId, size_t> definition_;
  std::map<BufferId, std::set<size_t>> readers_;
  std::set<BufferId> outside_;
  std::set<size_t> absorbed_;  // loops whose results attention makes itself
  std::vector<Moved> moved_;
  AttentionMasks masks_;
  AttentionScores scores_;
};

}  // namespace

LoopProgram find_attention(LoopProgram program) {
  AttentionFinder(program).run();
  return program;
}

}  // namespace coil
