// See few_last.h.
#include "schedule/few_last.h"

#include <algorithm>
#include <optional>
#include <set>

#include "schedule/schedule.h"

namespace coil {
namespace {

bool is_loop(const Loop& loop) { return std::holds_alternative<Pointwise>(loop.def) || std::holds_alternative<Reduction>(loop.def); }

// The dimension that the innermost variable of many elements walks along, one by one. Null: none, or it moves in others too.
std::optional<size_t> line_of(Expr load, const std::vector<Expr>& domain) {
  for (size_t v = domain.size(); v-- > 0;) {
    if (is_few(domain[v])) continue;
    std::optional<size_t> line;
    for (size_t d = 0; d < load->args.size(); ++d) {
      const int64_t step = first_step(load->args[d], static_cast<int>(v));
      if (step == 0) continue;
      if (step != 1 || line) return std::nullopt;
      line = d;
    }
    return line;
  }
  return std::nullopt;
}

}  // namespace

bool is_few(Expr size) {
  constexpr int64_t kFew = 8;
  return size->is_constant() && size->as_int() <= kFew;
}

std::map<BufferId, size_t> lines_of_readers(const LoopProgram& program) {
  std::map<BufferId, size_t> lines;
  std::set<BufferId> other;
  for (const LoopOutput& out : program.outputs) other.insert(out.source);
  for (const Loop& loop : program.loops) {
    if (!is_loop(loop)) {
      for (BufferId id : reads(program, loop)) other.insert(id);
      other.insert(loop.outputs.begin(), loop.outputs.end());
      continue;
    }
    for (const BodyRef& ref : bodies(program, loop)) {
      visit(ref.body, [&](Expr e) {
        if (e->kind != ExprKind::load) return;
        const BufferId id(e->id);
        const std::optional<size_t> line = line_of(e, ref.domain);
        const auto [known, fresh] = lines.try_emplace(id, line.value_or(0));
        if (!line || *line + 1 == e->args.size() || (!fresh && known->second != *line)) other.insert(id);
      });
    }
  }
  std::erase_if(lines, [&](const auto& entry) {
    const BufferInfo& b = program.buffer(entry.first);
    return other.contains(entry.first) || b.kind != BufferInfo::Kind::computed || !b.strides.empty() || b.sizes.size() < 2 || !is_few(b.sizes.back());
  });
  return lines;
}

bool reads_along(const LoopProgram& program, const Loop& loop, size_t dimension) {
  bool some = false, all = true;
  for (const BodyRef& ref : bodies(program, loop)) {
    visit(ref.body, [&](Expr e) {
      if (e->kind != ExprKind::load) return;
      const Expr offset = linear_offset(*program.pool, program.buffer(BufferId(e->id)), e->args);
      const int64_t step = first_step(offset, static_cast<int>(dimension));
      some |= step == 1;
      all &= step == 0 || step == 1;
    });
  }
  return some && all;
}

std::vector<Expr> strides_along(ExprPool& pool, const std::vector<Expr>& sizes, size_t dimension) {
  std::vector<Expr> strides(sizes.size());
  strides[dimension] = pool.index(1);
  Expr next = sizes[dimension];
  for (size_t d = sizes.size(); d-- > 0;) {
    if (d == dimension) continue;
    strides[d] = next;
    next = next * sizes[d];
  }
  return strides;
}

}  // namespace coil
