// Epilogues: the pointwise loops behind a template that run where its results are finished, and how their points are those of the template.
#include <algorithm>

#include "expr/written_size.h"
#include "loop/templates/template.h"
#include "schedule/inline_producers.h"

namespace coil {
namespace {

constexpr int64_t kMaxEpilogueText = 600;  // nodes of all its loops as they are written: a kernel stays readable, and clang's time linear
constexpr int64_t kMaxPointText = 200;     // of a coordinate
constexpr int kTileColumns = 2;            // variable of TemplateTiles::coordinates

// The load with which `body` reads `buffer`, where all its reads are at the same coordinates.
Expr only_load(Expr body, BufferId buffer) {
  Expr found;
  bool one = true;
  visit(body, [&](Expr e) {
    if (e->kind != ExprKind::load || e->id != buffer.index) return;
    one = one && (!found || found == e);
    found = e;
  });
  return one ? found : Expr();
}

// Every load of `buffer` in `body` is at coordinates (i0, i1, ...), or 0 where the size is 1.
bool reads_its_own_point(Expr body, BufferId buffer, const std::vector<Expr>& sizes) {
  return !any_of(body, [&](Expr e) {
    if (e->kind != ExprKind::load || e->id != buffer.index) return false;
    for (size_t d = 0; d < e->args.size(); ++d) {
      const Expr c = e->args[d];
      const bool var = c->kind == ExprKind::var && c->id == static_cast<int>(d);
      const bool unit = sizes[d] == c->pool->index(1) && c == c->pool->index(0);
      if (!var && !unit) return true;
    }
    return false;
  });
}

// The variables of a loop over `sizes` by the point of `buffer` that it reads: each of the buffer's coordinates is one of them, or several in
// row-major order, as behind a reshape or a permutation.
std::optional<std::vector<Expr>> inverse(Expr load, const std::vector<Expr>& buffer_sizes, const std::vector<Expr>& sizes, const std::vector<Expr>& point) {
  ExprPool& pool = *load->pool;
  const Expr zero = pool.index(0), one = pool.index(1);
  if (std::find(sizes.begin(), sizes.end(), zero) != sizes.end()) return std::nullopt;  // nothing to divide by
  std::vector<Expr> vars(sizes.size());
  for (size_t d = 0; d < buffer_sizes.size(); ++d) {
    Expr row_major = zero, count = one, rest = point[d];
    std::vector<size_t> merged;
    for (size_t v = 0; v < sizes.size(); ++v) {
      if (!depends_on_var(load->args[d], static_cast<int>(v))) continue;
      if (vars[v]) return std::nullopt;
      vars[v] = zero;
      merged.push_back(v);
      row_major = row_major * sizes[v] + pool.var(static_cast<int>(v));
      count = count * sizes[v];
    }
    if (!provably_equal(load->args[d], row_major) || !provably_equal(count, buffer_sizes[d])) return std::nullopt;
    for (size_t k = merged.size(); k-- > 0;) {
      vars[merged[k]] = k == 0 ? rest : floor_mod(rest, sizes[merged[k]]);
      rest = floor_div(rest, sizes[merged[k]]);
    }
  }
  for (size_t v = 0; v < sizes.size(); ++v) {
    if (!vars[v] && !(sizes[v] == one)) return std::nullopt;
    if (!vars[v]) vars[v] = zero;
  }
  return vars;
}

// Another shape or another order of dimensions, as behind a reshape or a permutation: lanes are those of the template as they were, the columns of its tiles
// (channels of images, columns of products). What lies by rows, columns last, is written along its columns; of other templates any order is written.
bool keeps_lanes(const LoopProgram& program, const Loop& loop, const Loop& next, const std::vector<Expr>& point) {
  ExprPool& pool = *program.pool;
  const std::vector<Expr>& sizes = program.buffer(loop.outputs[0]).sizes;
  const std::vector<Expr> of_tiles = template_tiles(pool, loop.def, sizes).coordinates;
  size_t lane = sizes.size() - 1;
  for (size_t d = 0; d < of_tiles.size(); ++d) {
    if (depends_on_var(of_tiles[d], kTileColumns)) lane = d;
  }
  const auto along = std::find(point.begin(), point.end(), pool.var(static_cast<int>(lane)));
  if (lane + 1 < sizes.size()) return sizes[lane] == pool.index(1) || along != point.end();
  const std::vector<Expr>& strides = program.buffer(next.outputs[0]).strides;
  return along != point.end() && !strides.empty() && strides[static_cast<size_t>(along - point.begin())] == pool.index(1);
}

}  // namespace

std::optional<std::vector<Expr>> epilogue_point(const LoopProgram& program, const Loop& loop, BufferId source, const std::vector<Expr>& point) {
  const Expr body = std::get<Pointwise>(loop.def).body;
  const std::vector<Expr>&from = program.buffer(source).sizes, &sizes = program.buffer(loop.outputs[0]).sizes;
  if (from == sizes && reads_its_own_point(body, source, sizes)) return point;
  const Expr load = only_load(body, source);
  return load ? inverse(load, from, sizes, point) : std::nullopt;
}

// An epilogue ends where its next loop reads what an option wants stored.
static void keep_apart(const LoopProgram& program, const TargetTraits& target, Epilogues& epilogues, std::vector<FusionNote>& notes) {
  if (target.stored.empty()) return;
  for (auto& [row, chain] : epilogues) {
    BufferId result = program.loops[static_cast<size_t>(row)].outputs[0];
    for (size_t i = 0; i < chain.size(); ++i) {
      const Loop& next = program.loops[static_cast<size_t>(chain[i])];
      if (target.stored.contains(program.buffer(result).name)) {
        notes.push_back({program.buffer(result).name, next.op, "an option keeps them apart"});
        chain.resize(i);
        break;
      }
      result = next.outputs[0];
    }
  }
  std::erase_if(epilogues, [](const auto& e) { return e.second.empty(); });
}

Epilogues find_epilogues(const LoopProgram& program, const TargetTraits& target, std::vector<FusionNote>& notes) {
  if (!target.fuse_epilogues) return {};
  const auto uses = buffer_uses(program);
  Epilogues epilogues;
  std::set<int> claimed;
  // Last template first: where two meet in one sum, the other's result is complete by then.
  for (size_t l = program.loops.size(); l-- > 0;) {
    const Loop& loop = program.loops[l];
    if (!takes_epilogue(loop.def)) continue;
    std::vector<int> chain;
    int64_t size = 0;
    BufferId result = loop.outputs[0];
    std::vector<Expr> point = variables(*program.pool, program.buffer(result).sizes.size());
    while (true) {
      const BufferUse& use = uses[static_cast<size_t>(result.index)];
      const std::string& name = program.buffer(result).name;
      if (use.program_output || use.loops.empty()) break;
      const int next = *use.loops.begin();
      const std::string& next_name = program.loops[static_cast<size_t>(next)].op;
      if (use.loops.size() > 1) {
        notes.push_back({name, next_name, "the template's result is used by " + std::to_string(use.loops.size()) + " loops: it is stored"});
        break;
      }
      const Pointwise* p = std::get_if<Pointwise>(&program.loops[static_cast<size_t>(next)].def);
      if (claimed.contains(next)) {
        notes.push_back({name, next_name, "the consumer already runs in a later template's epilogue"});
        break;
      }
      if (use.operand || !p || !program.loops[static_cast<size_t>(next)].assertion.empty()) {
        notes.push_back({name, next_name, "only pointwise loops run in a template's epilogue"});
        break;
      }
      const std::optional<std::vector<Expr>> moved = epilogue_point(program, program.loops[static_cast<size_t>(next)], result, point);
      if (!moved || !(*moved == point || keeps_lanes(program, loop, program.loops[static_cast<size_t>(next)], *moved))) {
        notes.push_back({name, next_name, "the consumer reads the template's result at other coordinates"});
        break;
      }
      size += written_size(p->body, kMaxEpilogueText);
      const bool long_point = std::any_of(moved->begin(), moved->end(), [](Expr e) { return written_size(e, kMaxPointText) > kMaxPointText; });
      if (size > kMaxEpilogueText || long_point) {
        notes.push_back({name, next_name, "the template's epilogue would grow beyond " + std::to_string(kMaxEpilogueText) + " nodes"});
        break;
      }
      point = *moved;
      chain.push_back(next);
      claimed.insert(next);
      result = program.loops[static_cast<size_t>(next)].outputs[0];
    }
    if (!chain.empty()) epilogues[static_cast<int>(l)] = chain;
  }
  keep_apart(program, target, epilogues, notes);
  return epilogues;
}

}  // namespace coil
