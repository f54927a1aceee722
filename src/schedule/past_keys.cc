#include "schedule/past_keys.h"

#include <algorithm>
#include <array>

namespace coil {
namespace {

constexpr int64_t kLeastRows = 32;  // fewer are read with the others: a block of keys of their own costs more than their copy
constexpr int kRow = 2, kColumn = 3;

class Finder {
 public:
  Finder(const FusionResult& fused, const TargetTraits& target) : fused_(fused), program_(fused.program), target_(target) {}

  PastKeysPlan run() {
    if (!target_.joins_keys) return {};
    find_uses();
    for (size_t g = 0; g < fused_.groups.size(); ++g) {
      const int row = fused_.groups[g].loops[0];
      if (const auto* a = std::get_if<Attention>(&loop(row).def)) join(row, static_cast<int>(g), *a);
    }
    return std::move(plan_);
  }

 private:
  struct Use {
    int definition = -1;      // row of the loop
    std::vector<int> groups;  // that read it
    bool output = false;
  };
  // Keys or values as a concatenation.
  struct Joined {
    int row;
    Expr rows;
    Operand past, rest;
    bool keep;
    bool rest_elsewhere;  // the rest is read where the second piece finds it
  };

  ExprPool& pool() const { return *program_.pool; }
  const Loop& loop(int row) const { return program_.loops[static_cast<size_t>(row)]; }
  Use& use(BufferId id) { return uses_[static_cast<size_t>(id.index)]; }

  void find_uses() {
    uses_.resize(program_.buffers.size());
    for (size_t g = 0; g < fused_.groups.size(); ++g) {
      for (int r : fused_.groups[g].loops) {
        for (BufferId id : loop(r).outputs) use(id).definition = r;
        for (BufferId id : reads(program_, loop(r))) use(id).groups.push_back(static_cast<int>(g));
      }
    }
    for (const LoopOutput& o : program_.outputs) use(o.source).output = true;
  }

  void join(int row, int group, const Attention& a) {
    if (a.k.buffer == a.v.buffer || a.q.buffer == a.k.buffer || a.q.buffer == a.v.buffer) return;
    if (a.mask && (a.mask->buffer == a.k.buffer || a.mask->buffer == a.v.buffer)) return;
    const std::optional<Joined> k = joined(a.k, {a.batch, a.kv_heads, a.kv_len, a.dim}, group),
                                v = joined(a.v, {a.batch, a.kv_heads, a.kv_len, a.v_dim}, group);
    if (!k || !v || !(k->rows == v->rows) || typical(k->rows) < kLeastRows) return;
    plan_.attentions[row] = {k->rows, k->past, v->past, k->rest, v->rest, k->keep, v->keep};
    for (const Joined& j : {*k, *v}) {
      plan_.left_out.emplace(j.row, 0);
      if (j.rest_elsewhere) plan_.left_out.emplace(j.row, 1);
    }
  }

  std::optional<Joined> joined(const Operand& x, const std::vector<Expr>& sizes, int group) {
    const Use& u = use(x.buffer);
    const auto* concat = u.definition < 0 ? nullptr : std::get_if<Concat>(&loop(u.definition).def);
    if (!concat || concat->pieces.size() < 2 || plan_.left_out.contains({u.definition, 0})) return std::nullopt;
    // Who reads it before this attention would not find it whole.
    if (std::any_of(u.groups.begin(), u.groups.end(), [&](int g) { return g < group; })) return std::nullopt;
    const auto dim = static_cast<size_t>(concat->dim);
    for (size_t d = 0; d < x.coordinates.size(); ++d) {
      if (d == dim ? !(x.coordinates[d] == pool().var(kRow)) : depends_on_var(x.coordinates[d], kRow)) return std::nullopt;
    }
    const std::optional<Operand> past = source(concat->pieces[0], x, sizes);
    if (!past) return std::nullopt;
    Joined j{u.definition, concat->pieces[0].size, *past, x, u.output || u.groups.size() > 1, false};
    if (j.keep && !is_whole(x, sizes)) return std::nullopt;
    const std::optional<Operand> rest = j.keep || concat->pieces.size() > 2 ? std::nullopt : source(concat->pieces[1], x, sizes);
    j.rest_elsewhere = rest.has_value();
    if (rest) j.rest = *rest;
    else j.rest.coordinates[dim] = pool().var(kRow) + j.rows;
    return j;
  }

  // Where a piece that is copied as it is comes from, if attention can read it there; by rows of the piece.
  std::optional<Operand> source(const Concat::Piece& piece, const Operand& x, const std::vector<Expr>& sizes) {
    if (piece.body->kind != ExprKind::load) return std::nullopt;
    const BufferId from(piece.body->id);
    const BufferInfo& info = program_.buffer(from);
    if (info.dtype != program_.buffer(x.buffer).dtype) return std::nullopt;
    Operand out{from, {}};
    for (Expr at : piece.body->args) out.coordinates.push_back(substitute_vars(at, x.coordinates));
    const Expr offset = offset_of(out);
    for (int v = 0; v < 4; ++v) {
      const std::optional<Affine> affine = as_affine(offset, v);
      for (int other = 0; other < 4; ++other) {
        if (!affine || depends_on_var(affine->coefficient, other)) return std::nullopt;
      }
      if (v == kColumn && !(sizes[kColumn] == pool().index(1)) && !(affine->coefficient == pool().index(1))) return std::nullopt;
    }
    return out;
  }

  Expr offset_of(const Operand& x) const {
    // What the variables are below is left out: rows differ by piece.
    return simplify_index(linear_offset(pool(), program_.buffer(x.buffer), x.coordinates), {});
  }

  // Whether the operand's elements are the buffer's, each once: its variables in some order are dense there.
  bool is_whole(const Operand& x, const std::vector<Expr>& sizes) const {
    const BufferInfo& b = program_.buffer(x.buffer);
    if (!(product(pool(), b.sizes) == product(pool(), sizes)) || b.strides != contiguous_strides(pool(), b.sizes)) return false;
    const Expr offset = offset_of(x), none = pool().index(0);
    if (!(substitute_vars(offset, std::vector<Expr>(4, none)) == none)) return false;
    std::array<int, 3> order = {0, 1, 2};
    do {
      Expr inside = sizes[kColumn];
      bool dense = true;
      for (int v : order) {
        const Expr size = sizes[static_cast<size_t>(v)];
        const std::optional<Affine> affine = as_affine(offset, v);
        dense = dense && (size == pool().index(1) || (affine && affine->coefficient == inside));
        inside = inside * size;
      }
      if (dense) return true;
    } while (std::next_permutation(order.begin(), order.end()));
    return false;
  }

  const FusionResult& fused_;
  const LoopProgram& program_;
  const TargetTraits& target_;
  std::vector<Use> uses_;
  PastKeysPlan plan_;
};

}  // namespace

PastKeysPlan find_past_keys(const FusionResult& fused, const TargetTraits& target) { return Finder(fused, target).run(); }

}  // namespace coil
