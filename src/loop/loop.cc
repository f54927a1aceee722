#include "loop/loop.h"

#include <algorithm>

namespace coil {
namespace {

template <class... F>
struct Overload : F... {
  using F::operator()...;
};
template <class... F>
Overload(F...) -> Overload<F...>;

std::vector<Expr> joined(std::initializer_list<const std::vector<Expr>*> parts) {
  std::vector<Expr> all;
  for (const std::vector<Expr>* part : parts) all.insert(all.end(), part->begin(), part->end());
  return all;
}

}  // namespace

TensorFace face(const BufferInfo& buffer) {
  TensorFace f{buffer.dtype, buffer.sizes, buffer.strides};
  if (!buffer.pairs) return f;
  f.dtype = complex_type(buffer.dtype);
  f.sizes.pop_back();
  if (!f.strides.empty()) f.strides.pop_back();
  for (Expr& s : f.strides) s = floor_div(s, s->pool->index(2));
  return f;
}

std::vector<BodyRef> bodies(const LoopProgram& program, const Loop& loop) {
  const std::vector<Expr>& sizes = program.buffer(loop.outputs[0]).sizes;
  std::vector<BodyRef> result;
  std::visit(Overload{
                 [&](const Pointwise& d) { result.push_back({d.body, sizes}); },
                 [&](const Reduction& d) { result.push_back({d.body, joined({&sizes, &d.domain})}); },
                 [&](const Scan& d) { result.push_back({d.body, sizes}); },
                 [&](const Concat& d) {
                   for (const Concat::Piece& piece : d.pieces) {
                     std::vector<Expr> domain = sizes;
                     domain[static_cast<size_t>(d.dim)] = piece.size;
                     result.push_back({piece.body, std::move(domain)});
                   }
                 },
                 [&](const Sort& d) {
                   std::vector<Expr> domain = sizes;
                   if (!domain.empty()) domain[static_cast<size_t>(d.dim)] = d.length;
                   result.push_back({d.body, std::move(domain)});
                 },
                 [](const auto&) {},  // templates read operands, not bodies
             },
             loop.def);
  return result;
}

std::vector<BufferId> reads(const LoopProgram& program, const Loop& loop) {
  std::vector<BufferId> found;
  auto add = [&](BufferId id) {
    if (std::find(found.begin(), found.end(), id) == found.end()) found.push_back(id);
  };
  for (const BodyRef& ref : bodies(program, loop)) {
    visit(ref.body, [&](Expr e) {
      if (e->kind == ExprKind::load) add(BufferId(e->id));
    });
  }
  if (const Gemm* g = std::get_if<Gemm>(&loop.def)) {
    add(g->a.buffer);
    add(g->b.buffer);
  } else if (const Conv2d* c = std::get_if<Conv2d>(&loop.def)) {
    add(c->x.buffer);
    add(c->weight);
  } else if (const Attention* a = std::get_if<Attention>(&loop.def)) {
    add(a->q.buffer);
    add(a->k.buffer);
    add(a->v.buffer);
    if (a->mask) add(a->mask->buffer);
  } else if (const Library* l = std::get_if<Library>(&loop.def)) {
    for (BufferId id : l->inputs) add(id);
  }
  return found;
}

namespace {

// The program without the buffers that are not `kept`; loops must not mention any of those.
class Renumber {
 public:
  Renumber(LoopProgram& program, const std::vector<char>& kept) : program_(program), ids_(kept.size()) {
    std::vector<BufferInfo> buffers;
    for (size_t i = 0; i < kept.size(); ++i) {
      if (!kept[i]) continue;
      ids_[i] = BufferId(buffers.size());
      buffers.push_back(std::move(program.buffers[i]));
    }
    identity_ = buffers.size() == kept.size();
    program.buffers = std::move(buffers);
  }

  void run() {
    if (identity_) return;
    for (Loop& loop : program_.loops) {
      for (BufferId& id : loop.outputs) map(id);
      std::visit([this](auto& def) { rename(def); }, loop.def);
    }
    for (LoopInput& in : program_.inputs) map(in.buffer);
    for (LoopOutput& out : program_.outputs) {
      map(out.source);
      map(out.target);
    }
  }

 private:
  void map(BufferId& id) const {
    if (id.valid()) id = ids_[static_cast<size_t>(id.index)];
  }
  void rename(Expr& e) const {
    e = rewrite(e, [this](Expr leaf) {
      if (leaf->kind != ExprKind::load) return Expr();
      BufferId id(leaf->id);
      map(id);
      return leaf->pool->load(id, leaf->dtype, leaf->args);
    });
  }
  void rename(Operand& o) const { map(o.buffer); }
  void rename(Pointwise& d) const { rename(d.body); }
  void rename(Reduction& d) const { rename(d.body); }
  void rename(Scan& d) const { rename(d.body); }
  void rename(Sort& d) const { rename(d.body); }
  void rename(Concat& d) const {
    for (Concat::Piece& piece : d.pieces) rename(piece.body);
  }
  void rename(Library& d) const {
    for (BufferId& id : d.inputs) map(id);
  }
  void rename(Gemm& d) const {
    rename(d.a);
    rename(d.b);
  }
  void rename(Conv2d& d) const {
    rename(d.x);
    map(d.weight);
  }
  void rename(Attention& d) const {
    rename(d.q);
    rename(d.k);
    rename(d.v);
    if (d.mask) rename(*d.mask);
  }

  LoopProgram& program_;
  std::vector<BufferId> ids_;
  bool identity_ = false;
};

}  // namespace

LoopProgram dead_loops(LoopProgram program) {
  std::vector<char> live(program.buffers.size(), 0);
  auto mark = [&](BufferId id) {
    if (id.valid()) live[static_cast<size_t>(id.index)] = 1;
  };
  for (const LoopOutput& out : program.outputs) {
    mark(out.source);
    mark(out.target);
  }
  for (const LoopInput& in : program.inputs) mark(in.buffer);  // part of the interface, read or not
  std::vector<Loop> kept;
  for (auto it = program.loops.rbegin(); it != program.loops.rend(); ++it) {
    bool needed = false;
    for (BufferId id : it->outputs) needed = needed || live[static_cast<size_t>(id.index)];
    if (!needed) continue;
    for (BufferId id : it->outputs) mark(id);
    for (BufferId id : reads(program, *it)) mark(id);
    kept.push_back(std::move(*it));
  }
  std::reverse(kept.begin(), kept.end());
  program.loops = std::move(kept);
  Renumber(program, live).run();
  return program;
}

}  // namespace coil
