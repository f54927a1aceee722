// What every later stage may rely on.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "loop/templates/template.h"
#include "loop/visit.h"

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
    TRY_STATUS(check_dim(name, loop));
    for (const BodyRef& ref : bodies(program_, loop)) TRY_STATUS(check_body(name, ref, loop));
    TRY_STATUS(is_template(loop.def) ? check_template(name, loop) : check_others(name, loop));
    TRY_STATUS(check_symbols(loop));
    for (BufferId id : reads(program_, loop)) {
      if (!exists(id) || !defined_[static_cast<size_t>(id.index)]) return wrong("'{}' reads a buffer before its definition", name);
    }
    for (BufferId id : loop.outputs) defined_[static_cast<size_t>(id.index)] = 1;
    return ok_status();
  }

  // The dimension along which a definition goes is one of its result.
  Status check_dim(const std::string& name, const Loop& loop) {
    const size_t rank = program_.buffer(loop.outputs[0]).sizes.size();
    const auto fits = [&](int dim) { return dim >= 0 && static_cast<size_t>(dim) < rank; };
    const bool good = std::visit(Overload{[&](const Scan& d) { return fits(d.dim); }, [&](const Concat& d) { return fits(d.dim); },
                                          [&](const Sort& d) { return fits(d.dim) || (rank == 0 && d.dim == 0); }, [](const auto&) { return true; }},
                                 loop.def);
    return good ? ok_status() : Status(wrong("'{}' goes along a dimension that it does not have", name));
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
    if (scan && scan->op == ScanOp::log_sum && !is_float(ref.body->dtype))
      return wrong("'{}' is a logarithm of a sum of {}", name, coil::name(ref.body->dtype));
    std::string problem;
    visit(ref.body, [&](Expr e) {
      if (e->kind == ExprKind::temp) problem = "mentions a kernel's temporary";
      if (e->kind == ExprKind::var && static_cast<size_t>(e->id) >= ref.domain.size())
        problem = fmt::format("mentions i{} of {} variables", e->id, ref.domain.size());
      if (e->kind != ExprKind::load) return;
      if (!exists(BufferId(e->id))) problem = "reads a buffer that does not exist";
      else if (program_.buffer(BufferId(e->id)).sizes.size() != e->args.size())
        problem = fmt::format("reads '{}' with {} coordinates", program_.buffer(BufferId(e->id)).name, e->args.size());
      else if (compute_type(program_.buffer(BufferId(e->id)).dtype) != e->dtype)
        problem = fmt::format("reads '{}' as {}", program_.buffer(BufferId(e->id)).name, coil::name(e->dtype));
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

  Status check_template(const std::string& name, const Loop& loop) {
    const TemplateParts parts = parts_of(loop.def);
    for (const TemplateParts::Read& read : parts.operands) TRY_STATUS(check_operand(name, *read.operand, read.domain.size()));
    for (const BufferId* id : parts.whole) {
      if (id->valid() && !exists(*id)) return wrong("'{}' reads a buffer that does not exist", name);
    }
    const std::string problem = template_problem(program_, loop);
    return problem.empty() ? ok_status() : wrong("'{}' {}", name, problem);
  }

  Status check_others(const std::string& name, const Loop& loop) {
    const size_t rank = program_.buffer(loop.outputs[0]).sizes.size();
    if (const Compact* k = std::get_if<Compact>(&loop.def)) {
      const bool typed = k->keep->dtype == DType::boolean && k->start->dtype == DType::i64 && k->value->dtype == DType::i64 &&
                         program_.buffer(loop.outputs[0]).dtype == DType::i64;
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
      if (!exists(g.initial[i]) || !same(program_.buffer(g.initial[i]), program_.buffer(loop.outputs[i]).sizes, loop.outputs[i]))
        return wrong("'{}' begins with other values than it carries", name);
    }
    for (size_t p = 0; p < g.parts.size(); ++p) {
      const RegionPart& part = g.parts[p];
      if (!part.program) return wrong("'{}' lacks a part", name);
      TRY_STATUS(verify(*part.program));
      for (const auto& [own, outer] : part.captures) {
        if (!exists(outer) || !own.valid() || static_cast<size_t>(own.index) >= part.program->buffers.size())
          return wrong("'{}' captures a buffer that does not exist", name);
        if (!same(part.program->buffer(own), program_.buffer(outer).sizes, outer))
          return wrong("'{}' captures '{}' as something else", name, program_.buffer(outer).name);
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
