#include "loop/loop.h"

#include <algorithm>

#include "loop/rename.h"
#include "loop/templates/template.h"
#include "loop/visit.h"

namespace coil {

TensorFace face(const BufferInfo& buffer) {
  TensorFace f{buffer.meant.value_or(buffer.dtype), buffer.sizes, buffer.strides};
  if (!buffer.shown.empty()) f.sizes = buffer.shown, f.strides = contiguous_strides(*buffer.shown[0]->pool, buffer.shown);
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
  std::visit(
      Overload{
          [&](const Pointwise& d) { result.push_back({d.body, sizes}); },
          [&](const Reduction& d) { result.push_back({d.body, joined_sizes({&sizes, &d.domain})}); }, [&](const Scan& d) { result.push_back({d.body, sizes}); },
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
          [&](const Compact& d) {
            result.push_back({d.keep, {d.blocks, d.length}});
            result.push_back({d.start, {d.blocks}});
            result.push_back({d.value, {d.blocks, d.length}});
          },
          [](const auto&) {},  // templates read operands, not bodies
      },
      loop.def);
  return result;
}

namespace {

// Every symbol from data that the definition mentions, those of a region's parts included unless they read them themselves.
void add_data_symbols(const LoopProgram& program, const Loop& loop, std::vector<SymbolId>& found) {
  const auto look = [&](Expr root) {
    if (!root) return;
    visit(root, [&](Expr e) {
      if (e->kind != ExprKind::symbol || !depends_on_data(e)) return;
      if (std::find(found.begin(), found.end(), SymbolId(e->id)) == found.end()) found.push_back(SymbolId(e->id));
    });
  };
  const auto look_all = [&](const std::vector<Expr>& list) { std::for_each(list.begin(), list.end(), look); };
  for (BufferId id : loop.outputs) look_all(program.buffer(id).sizes);
  for (const BodyRef& ref : bodies(program, loop)) {
    look(ref.body);
    look_all(ref.domain);
  }
  const TemplateParts parts = parts_of(loop.def);
  for (const auto& side : parts.sides) look_all(side);
  for (const TemplateParts::Read& read : parts.operands) look_all(read.operand->coordinates);
  std::visit(Overload{
                 [&](const Concat& d) {
                   for (const Concat::Piece& piece : d.pieces) look(piece.begin);
                 },
                 [&](const Library& d) {
                   look_all(d.sizes);
                   look(d.scratch);
                   look(d.worker_scratch);
                 },
                 [&](const ReadSize& d) { look(d.limit); },
                 [&](const UserCall& d) { look_all(expressions(d)); },
                 [&](const Region& d) {
                   look(d.steps);
                   for (const RegionPart& part : d.parts) {
                     std::vector<SymbolId> inside;
                     for (const Loop& l : part.program->loops) add_data_symbols(*part.program, l, inside);
                     for (SymbolId symbol : inside) {
                       const auto& own = part.program->data_sizes;
                       const bool is_own = std::any_of(own.begin(), own.end(), [&](const auto& size) { return size.first == symbol; });
                       if (!is_own && std::find(found.begin(), found.end(), symbol) == found.end()) found.push_back(symbol);
                     }
                   }
                 },
                 [](const auto&) {},
             },
             loop.def);
}

}  // namespace

bool defines_whole(const LoopDef& def) {
  return std::holds_alternative<Library>(def) || std::holds_alternative<Region>(def) || std::holds_alternative<UserCall>(def);
}

ReduceOp step_of(ScanOp op) {
  switch (op) {
    case ScanOp::sum: return ReduceOp::sum;
    case ScanOp::prod: return ReduceOp::prod;
    case ScanOp::max: return ReduceOp::max;
    case ScanOp::min: return ReduceOp::min;
    case ScanOp::log_sum: return ReduceOp::log_sum;
  }
  return ReduceOp::sum;
}

std::vector<Expr> expressions(const UserCall& call) {
  std::vector<Expr> out;
  const auto add = [&](Expr e) {
    if (e) out.push_back(e);
  };
  for (const UserCall::Argument& a : call.args) {
    if (const auto* t = std::get_if<UserCall::Tensor>(&a)) {
      for (Expr e : t->sizes) add(e);
      for (Expr e : t->operand.coordinates) add(e);
    }
    if (const auto* e = std::get_if<Expr>(&a)) add(*e);
    if (const auto* list = std::get_if<std::vector<Expr>>(&a)) std::for_each(list->begin(), list->end(), add);
  }
  for (const UserCall::Launch& l : call.launches) {
    for (Expr e : {l.range, l.work, l.grid[0], l.grid[1], l.grid[2]}) add(e);
  }
  add(call.key);
  return out;
}

std::vector<SymbolId> all_data_symbols(const LoopProgram& program, const Loop& loop) {
  std::vector<SymbolId> found;
  add_data_symbols(program, loop, found);
  return found;
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
  const TemplateParts parts = parts_of(loop.def);
  for (const TemplateParts::Read& read : parts.operands) add(read.operand->buffer);
  for (const BufferId* id : parts.whole) {
    if (id->valid()) add(*id);
  }
  if (const Library* l = std::get_if<Library>(&loop.def)) {
    for (BufferId id : l->inputs) add(id);
  } else if (const UserCall* u = std::get_if<UserCall>(&loop.def)) {
    for (const UserCall::Argument& a : u->args) {
      const auto* t = std::get_if<UserCall::Tensor>(&a);
      if (t && t->operand.buffer.valid()) add(t->operand.buffer);
    }
  } else if (const ReadSize* r = std::get_if<ReadSize>(&loop.def)) {
    add(r->source);
  } else if (const Region* g = std::get_if<Region>(&loop.def)) {
    if (g->predicate.valid()) add(g->predicate);
    for (BufferId id : g->initial) add(id);
    for (const RegionPart& part : g->parts) {
      for (const auto& [inner, outer] : part.captures) {
        if (std::find(loop.outputs.begin(), loop.outputs.end(), outer) == loop.outputs.end()) add(outer);
      }
    }
  }
  if (program.data_sizes.empty()) return found;
  for (SymbolId symbol : all_data_symbols(program, loop)) {
    for (const auto& [known, buffer] : program.data_sizes) {
      if (known == symbol) add(buffer);
    }
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
      rename_reads(loop, [this](BufferId id) { return ids_[static_cast<size_t>(id.index)]; });
    }
    for (LoopInput& in : program_.inputs) map(in.buffer);
    for (LoopOutput& out : program_.outputs) {
      map(out.source);
      map(out.target);
    }
    std::erase_if(program_.data_sizes, [this](auto& size) {
      map(size.second);
      return !size.second.valid();
    });
  }

 private:
  void map(BufferId& id) const {
    if (id.valid()) id = ids_[static_cast<size_t>(id.index)];
  }

  LoopProgram& program_;
  std::vector<BufferId> ids_;
  bool identity_ = false;
};

bool mentions(const Condition& c, SymbolId symbol) {
  const auto in = [&](Expr e) { return e && any_of(e, [&](Expr n) { return n->kind == ExprKind::symbol && n->id == symbol.index; }); };
  return in(c.a) || in(c.b) || std::any_of(c.parts.begin(), c.parts.end(), [&](const Condition& part) { return mentions(part, symbol); });
}

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
  for (const SizeCheck& check : program.checks) {
    if (check.also_asserted) continue;
    for (const auto& [symbol, buffer] : program.data_sizes) {
      if (mentions(check.condition, symbol)) mark(buffer);
    }
  }
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
  // Conditions on sizes that nothing reads: their assertions stay.
  std::erase_if(program.checks, [&](const SizeCheck& check) {
    return check.also_asserted && std::none_of(program.data_sizes.begin(), program.data_sizes.end(), [&](const auto& size) {
             return live[static_cast<size_t>(size.second.index)] && mentions(check.condition, size.first);
           });
  });
  Renumber(program, live).run();
  return program;
}

}  // namespace coil
