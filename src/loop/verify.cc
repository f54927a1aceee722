// What every later stage may rely on.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "loop/loop.h"

namespace coil {
namespace {

class Verifier {
 public:
  explicit Verifier(const LoopProgram& program) : program_(program), defined_(program.buffers.size(), 0) {}

  Status run() {
    TRY_STATUS(check_buffers());
    for (const Loop& loop : program_.loops) TRY_STATUS(check_loop(loop));
    return check_outputs();
  }

 private:
  template <class... A>
  static Error wrong(fmt::format_string<A...> format, A&&... args) {
    return Error{ErrorCode::internal, "loop program: " + fmt::format(format, std::forward<A>(args)...), {}, {}};
  }

  bool exists(BufferId id) const { return id.valid() && static_cast<size_t>(id.index) < program_.buffers.size(); }

  Status check_buffers() {
    std::set<std::string> names;
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const BufferInfo& b = program_.buffers[i];
      if (!names.insert(b.name).second) return wrong("two buffers are named '{}'", b.name);
      if (!b.strides.empty() && b.strides.size() != b.sizes.size()) return wrong("'{}' has {} strides and {} sizes", b.name, b.strides.size(), b.sizes.size());
      for (Expr s : b.sizes) {
        if (!s || any_of(s, [](Expr e) { return e->kind == ExprKind::var || e->kind == ExprKind::load; })) return wrong("'{}' has a bad size", b.name);
      }
      if (b.kind != BufferInfo::Kind::computed) {
        defined_[i] = 1;
        if (b.strides.empty() && !b.sizes.empty()) return wrong("'{}' is stored outside and has no strides", b.name);
      }
    }
    return ok_status();
  }

  // Sizes from data have a ReadSize.
  Status check_symbols(const Loop& loop) {
    for (BufferId id : loop.outputs) {
      for (Expr size : program_.buffer(id).sizes) {
        if (any_of(size, [&](Expr e) { return e->kind == ExprKind::symbol && depends_on_data(e) && !is_read(SymbolId(e->id)); }))
          return wrong("'{}' has a size that is never read", program_.buffer(id).name);
      }
    }
    return ok_status();
  }
  bool is_read(SymbolId symbol) const {
    const auto& outer = program_.outer_sizes;
    return std::find(outer.begin(), outer.end(), symbol) != outer.end() ||
           std::any_of(program_.data_sizes.begin(), program_.data_sizes.end(), [&](const auto& size) { return size.first == symbol; });
  }

  Status check_loop(const Loop& loop) {
    const size_t expected = std::holds_alternative<Sort>(loop.def) ? 2 : 1;
    const bool any_number = defines_whole(loop.def) && !loop.outputs.empty();
    if (!any_number && loop.outputs.size() != expected) return wrong("'{}' defines {} buffers", loop.op, loop.outputs.size());
    for (BufferId id : loop.outputs) {
      if (!exists(id) || program_.buffer(id).kind != BufferInfo::Kind::computed) return wrong("'{}' defines what is not a computed buffer", loop.op);
      if (defined_[static_cast<size_t>(id.index)]) return wrong("'{}' is defined twice", program_.buffer(id).name);
    }
    const std::string& name = program_.buffer(loop.outputs[0]).name;
    for (const BodyRef& ref : bodies(program_, loop)) TRY_STATUS(check_body(name, ref, loop));
    TRY_STATUS(check_template(name, loop));
    TRY_STATUS(check_symbols(loop));
    for (BufferId id : reads(program_, loop)) {
      if (!exists(id) || !defined_[static_cast<size_t>(id.index)]) return wrong("'{}' reads a buffer before its definition", name);
    }
    for (BufferId id : loop.outputs) defined_[static_cast<size_t>(id.index)] = 1;
    return ok_status();
  }

  Status check_body(const std::string& name, const BodyRef& ref, const Loop& loop) {
    if (!ref.body) return wrong("'{}' has no body", name);
    const DType dtype = program_.buffer(loop.outputs[0]).dtype;
    const Reduction* reduction = std::get_if<Reduction>(&loop.def);
    const bool free_type = (reduction && (reduction->op == ReduceOp::argmax || reduction->op == ReduceOp::argmin)) || std::holds_alternative<Compact>(loop.def);
    if (!free_type && ref.body->dtype != compute_type(dtype)) {
      return wrong("the body of '{}' is {}, the buffer {}", name, coil::name(ref.body->dtype), coil::name(dtype));
    }
    if (reduction && reduction->op == ReduceOp::log_sum) return wrong("'{}' is a logarithm of a sum that is no scan", name);
    const Scan* scan = std::get_if<Scan>(&loop.def);
    if (scan && scan->op == ScanOp::log_sum && !is_float(ref.body->dtype)) return wrong("'{}' is a logarithm of a sum of {}", name, coil::name(ref.body->dtype));
    std::string problem;
    visit(ref.body, [&](Expr e) {
      if (e->kind == ExprKind::temp) problem = "mentions a kernel's temporary";
      if (e->kind == ExprKind::var && static_cast<size_t>(e->id) >= ref.domain.size()) problem = fmt::format("mentions i{} of {} variables", e->id, ref.domain.size());
      if (e->kind != ExprKind::load) return;
      if (!exists(BufferId(e->id))) problem = "reads a buffer that does not exist";
      else if (program_.buffer(BufferId(e->id)).sizes.size() != e->args.size()) problem = fmt::format("reads '{}' with {} coordinates", program_.buffer(BufferId(e->id)).name, e->args.size());
      else if (compute_type(program_.buffer(BufferId(e->id)).dtype) != e->dtype) problem = fmt::format("reads '{}' as {}", program_.buffer(BufferId(e->id)).name, coil::name(e->dtype));
    });
    if (!problem.empty()) return wrong("the body of '{}' {}", name, problem);
    return ok_status();
  }

  Status check_operand(const std::string& name, const Operand& o, size_t num_vars) {
    if (!exists(o.buffer)) return wrong("'{}' reads a buffer that does not exist", name);
    if (program_.buffer(o.buffer).sizes.size() != o.coordinates.size()) return wrong("'{}' reads '{}' with a wrong rank", name, program_.buffer(o.buffer).name);
    for (Expr c : o.coordinates) {
      if (any_of(c, [&](Expr e) { return e->kind == ExprKind::load || (e->kind == ExprKind::var && static_cast<size_t>(e->id) >= num_vars); })) {
        return wrong("'{}' reads '{}' at bad coordinates", name, program_.buffer(o.buffer).name);
      }
    }
    return ok_status();
  }

  Status check_quantised(const std::string& name, const Gemm& g) {
    for (BufferId id : {g.quantised->scale, g.quantised->zero}) {
      if (!id.valid()) continue;
      const bool fits = exists(id) && program_.buffer(id).dtype == DType::f32 && program_.buffer(id).sizes.size() == 2 && program_.buffer(id).sizes[1] == g.n[0];
      if (!fits) return wrong("'{}' has scales or zero points of a wrong type or shape", name);
    }
    return g.quantised->group > 0 ? ok_status() : wrong("'{}' has groups without rows", name);
  }

  Status check_grouped(const std::string& name, const Loop& loop, const GroupedGemm& g) {
    const std::vector<Expr>& sizes = program_.buffer(loop.outputs[0]).sizes;
    const bool rows = g.kind == GroupedGemm::Kind::rows;
    if (sizes != (rows ? std::vector<Expr>{g.m, g.n} : std::vector<Expr>{g.groups, g.m, g.n})) return wrong("'{}' has other sizes than its grouped product", name);
    TRY_STATUS(check_operand(name, g.a, 4));
    TRY_STATUS(check_operand(name, g.b, 4));
    const bool fits = exists(g.ends) && program_.buffer(g.ends).sizes == std::vector<Expr>{g.groups} && (program_.buffer(g.ends).dtype == DType::i32 || program_.buffer(g.ends).dtype == DType::i64);
    if (!fits) return wrong("'{}' has ends of groups of a wrong type or shape", name);
    const DType a = program_.buffer(g.a.buffer).dtype;
    return is_float(a) && a != DType::f64 && a == program_.buffer(g.b.buffer).dtype ? ok_status() : wrong("'{}' multiplies different types", name);
  }

  Status check_template(const std::string& name, const Loop& loop) {
    const size_t rank = program_.buffer(loop.outputs[0]).sizes.size();
    if (const Gemm* g = std::get_if<Gemm>(&loop.def)) {
      const size_t results = g->batch.size() + g->m.size() + g->n.size();
      if (results != rank) return wrong("'{}' has rank {} for {} variables of its gemm", name, rank, results);
      TRY_STATUS(check_operand(name, g->a, results + g->k.size()));
      TRY_STATUS(check_operand(name, g->b, results + g->k.size()));
      const DType a = program_.buffer(g->a.buffer).dtype, b = program_.buffer(g->b.buffer).dtype, out = program_.buffer(loop.outputs[0]).dtype;
      const bool integers = (a == DType::i8 || a == DType::u8) && b == DType::i8 && out == DType::i32 && !g->quantised;
      if (!integers && !(g->quantised ? is_float(a) && b == DType::i8 : a == b)) return wrong("'{}' multiplies different types", name);
      if (g->quantised) TRY_STATUS(check_quantised(name, *g));
    } else if (const GroupedGemm* grouped = std::get_if<GroupedGemm>(&loop.def)) {
      return check_grouped(name, loop, *grouped);
    } else if (const Conv2d* c = std::get_if<Conv2d>(&loop.def)) {
      if (rank != 4 || c->x_sizes.size() != 4) return wrong("'{}' is a convolution of a wrong rank", name);
      TRY_STATUS(check_operand(name, c->x, 4));
      if (!exists(c->weight) || program_.buffer(c->weight).sizes.size() != 4) return wrong("'{}' has a weight of a wrong rank", name);
      const DType x = program_.buffer(c->x.buffer).dtype, w = program_.buffer(c->weight).dtype, out = program_.buffer(loop.outputs[0]).dtype;
      const bool integers = (x == DType::i8 || x == DType::u8) && w == DType::i8 && out == DType::i32;
      if (integers && (c->x_zero < (x == DType::i8 ? -128 : 0) || c->x_zero > (x == DType::i8 ? 127 : 255))) return wrong("'{}' has a zero point out of its range", name);
      if (!integers && (x != w || !is_float(x) || c->x_zero != 0)) return wrong("'{}' multiplies different types", name);
    } else if (const Attention* a = std::get_if<Attention>(&loop.def)) {
      if (rank != 4) return wrong("'{}' is an attention of a wrong rank", name);
      for (const Operand* o : {&a->q, &a->k, &a->v}) TRY_STATUS(check_operand(name, *o, 4));
      if (a->mask) TRY_STATUS(check_operand(name, *a->mask, 4));
    } else if (const Compact* k = std::get_if<Compact>(&loop.def)) {
      const bool typed = k->keep->dtype == DType::boolean && k->start->dtype == DType::i64 && k->value->dtype == DType::i64 && program_.buffer(loop.outputs[0]).dtype == DType::i64;
      if (rank != 1 || !typed) return wrong("'{}' compacts values of wrong types or to a wrong rank", name);
    } else if (const ReadSize* r = std::get_if<ReadSize>(&loop.def)) {
      const auto is_i64 = [&](BufferId id) { return exists(id) && program_.buffer(id).sizes.empty() && program_.buffer(id).dtype == DType::i64; };
      if (!is_i64(r->source) || !is_i64(loop.outputs[0])) return wrong("'{}' reads a size from what is no 0-d i64 buffer", name);
      const bool known = std::find(program_.data_sizes.begin(), program_.data_sizes.end(), std::pair(r->symbol, loop.outputs[0])) != program_.data_sizes.end();
      if (!known || !program_.pool->symbol_info(r->symbol).from_data) return wrong("'{}' reads a symbol that is no size from data", name);
    } else if (const Region* g = std::get_if<Region>(&loop.def)) {
      return check_region(name, loop, *g);
    }
    return ok_status();
  }

  Status check_region(const std::string& name, const Loop& loop, const Region& g) {
    const bool branch = g.kind == Region::Kind::branch;
    const size_t carried = g.initial.size();
    if (branch ? g.parts.size() != 2 || carried > 0 : g.parts.empty() || g.parts.size() > 2 || carried > loop.outputs.size())
      return wrong("'{}' is a region with a wrong number of parts or carried values", name);
    if (branch && (!exists(g.predicate) || !is_bool(program_.buffer(g.predicate).dtype) || !program_.buffer(g.predicate).sizes.empty()))
      return wrong("'{}' branches by what is no 0-d bool", name);
    if (!branch && !g.steps && (g.parts.size() < 2 || carried < loop.outputs.size())) return wrong("'{}' is a loop without an end", name);
    for (size_t i = 0; i < carried; ++i) {
      if (!exists(g.initial[i]) || !same(program_.buffer(g.initial[i]), program_.buffer(loop.outputs[i]).sizes, loop.outputs[i])) return wrong("'{}' begins with other values than it carries", name);
    }
    for (size_t p = 0; p < g.parts.size(); ++p) {
      const RegionPart& part = g.parts[p];
      if (!part.program) return wrong("'{}' lacks a part", name);
      TRY_STATUS(verify(*part.program));
      for (const auto& [own, outer] : part.captures) {
        if (!exists(outer) || !own.valid() || static_cast<size_t>(own.index) >= part.program->buffers.size()) return wrong("'{}' captures a buffer that does not exist", name);
        if (!same(part.program->buffer(own), program_.buffer(outer).sizes, outer)) return wrong("'{}' captures '{}' as something else", name, program_.buffer(outer).name);
      }
      TRY_STATUS(check_results(name, loop, g, p));
    }
    return ok_status();
  }

  bool same(const BufferInfo& b, const std::vector<Expr>& sizes, BufferId other) const { return b.dtype == program_.buffer(other).dtype && b.sizes == sizes; }

  Status check_results(const std::string& name, const Loop& loop, const Region& g, size_t number) {
    const LoopProgram& part = *g.parts[number].program;
    const bool condition = g.kind == Region::Kind::loop && number == 1;
    size_t i = 0;
    for (const LoopOutput& out : part.outputs) {
      if (out.kind == LoopOutput::Kind::check) continue;
      const BufferInfo& b = part.buffer(out.source);
      if (out.kind != LoopOutput::Kind::user || i >= (condition ? 1 : loop.outputs.size())) return wrong("a part of '{}' has other results", name);
      if (b.strides != contiguous_strides(*program_.pool, b.sizes)) return wrong("a part of '{}' has results that are not dense", name);
      if (condition) {
        if (!is_bool(b.dtype) || !b.sizes.empty()) return wrong("'{}' goes on by what is no 0-d bool", name);
      } else {
        std::vector<Expr> sizes = program_.buffer(loop.outputs[i]).sizes;
        if (g.kind == Region::Kind::loop && i >= g.initial.size()) {
          if (sizes.empty() || !(sizes[0] == g.steps)) return wrong("'{}' stacks rows to another number of steps", name);
          sizes.erase(sizes.begin());
        }
        // Of results whose size data decides, each branch has its own.
        for (size_t d = 0; g.kind == Region::Kind::branch && d < sizes.size() && d < b.sizes.size(); ++d) {
          if (depends_on_data(sizes[d])) sizes[d] = b.sizes[d];
        }
        if (!same(b, sizes, loop.outputs[i])) return wrong("a part of '{}' gives a result of another type", name);
      }
      ++i;
    }
    if (i != (condition ? 1 : loop.outputs.size())) return wrong("a part of '{}' has fewer results", name);
    return ok_status();
  }

  Status check_outputs() {
    std::set<BufferId> used;
    for (const LoopOutput& out : program_.outputs) {
      if (!exists(out.source) || !defined_[static_cast<size_t>(out.source.index)]) return wrong("output '{}' is never computed", out.name);
      const BufferInfo& b = program_.buffer(out.source);
      if (b.kind != BufferInfo::Kind::computed) return wrong("output '{}' is not computed", out.name);
      if (out.kind == LoopOutput::Kind::check) continue;
      if (out.kind != LoopOutput::Kind::user) {
        if (!exists(out.target) || program_.buffer(out.target).sizes != b.sizes) return wrong("write '{}' has a wrong target", out.name);
        continue;
      }
      if (!used.insert(out.source).second) return wrong("two outputs are '{}'", b.name);
      if (b.strides.size() != b.sizes.size()) return wrong("output '{}' has no strides", out.name);
    }
    return ok_status();
  }

  const LoopProgram& program_;
  std::vector<char> defined_;
};

}  // namespace

Status verify(const LoopProgram& program) { return Verifier(program).run(); }

}  // namespace coil
