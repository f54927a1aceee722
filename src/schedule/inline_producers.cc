#include "schedule/inline_producers.h"

#include <algorithm>

#include "schedule/schedule.h"

namespace coil {
namespace {

const Pointwise* pointwise(const Loop& loop) { return std::get_if<Pointwise>(&loop.def); }
int count_loads(Expr body) {
  int n = 0;
  visit(body, [&](Expr e) { n += e->kind == ExprKind::load; });
  return n;
}

int64_t loads_of(Expr body, BufferId buffer) {
  int64_t n = 0;
  visit(body, [&](Expr e) { n += e->kind == ExprKind::load && e->id == buffer.index; });
  return n;
}

int count_nodes(Expr body) {
  int n = 0;
  visit(body, [&](Expr) { ++n; });
  return n;
}

Expr points(ExprPool& pool, const std::vector<Expr>& domain) { return product(pool, domain); }

// The bodies of a loop by reference, for rewriting.
std::vector<Expr*> body_slots(Loop& loop) {
  std::vector<Expr*> slots;
  if (auto* p = std::get_if<Pointwise>(&loop.def)) slots.push_back(&p->body);
  if (auto* r = std::get_if<Reduction>(&loop.def)) slots.push_back(&r->body);
  if (auto* s = std::get_if<Scan>(&loop.def)) slots.push_back(&s->body);
  if (auto* s = std::get_if<Sort>(&loop.def)) slots.push_back(&s->body);
  if (auto* c = std::get_if<Concat>(&loop.def)) {
    for (auto& piece : c->pieces) slots.push_back(&piece.body);
  }
  return slots;
}

Expr substitute_producer(Expr body, BufferId buffer, Expr producer, const std::vector<Expr>& domain) {
  const Expr replaced = rewrite(body, [&](Expr e) -> Expr {
    if (e->kind != ExprKind::load || e->id != buffer.index) return Expr();
    return substitute_vars(producer, e->args);
  });
  // Substitution makes (a * n + b) / n and the like: the ranges of this domain decide them.
  return rewrite(replaced, [&](Expr e) -> Expr {
    if (e->kind != ExprKind::load) return Expr();
    std::vector<Expr> coordinates;
    for (Expr c : e->args) coordinates.push_back(simplify_index(c, {domain}));
    ExprNode node = *e;
    node.args = std::move(coordinates);
    return e->pool->make(std::move(node));
  });
}

constexpr int kMaxBodyNodes = 400;  // keeps kernels readable and compile time linear in the program

}  // namespace

std::vector<BufferUse> buffer_uses(const LoopProgram& program) {
  std::vector<BufferUse> uses(program.buffers.size());
  const auto use = [&](BufferId id) -> BufferUse& { return uses[static_cast<size_t>(id.index)]; };
  for (size_t l = 0; l < program.loops.size(); ++l) {
    const Loop& loop = program.loops[l];
    for (BufferId out : loop.outputs) use(out).producer = static_cast<int>(l);
    const bool whole = !std::holds_alternative<Pointwise>(loop.def) && !std::holds_alternative<Reduction>(loop.def) &&
                       !std::holds_alternative<Concat>(loop.def) && !std::holds_alternative<Scan>(loop.def) &&
                       !std::holds_alternative<Sort>(loop.def);  // templates and library calls read where the buffer is
    for (BufferId read : reads(program, loop)) {
      use(read).loops.insert(static_cast<int>(l));
      use(read).operand |= whole;
    }
  }
  for (const LoopOutput& o : program.outputs) use(o.source).program_output = true;
  return uses;
}

void inline_pointwise(LoopProgram& program, const Epilogues& epilogues, const TargetTraits& target, std::vector<bool>& alive,
                      std::vector<FusionNote>& notes) {
  ExprPool& pool = *program.pool;
  const auto uses = buffer_uses(program);
  std::set<int> in_epilogue;  // these read an accumulator that exists nowhere else
  for (const auto& [row, chain] : epilogues) in_epilogue.insert(chain.begin(), chain.end());
  std::vector<std::set<int>> consumers;
  for (const BufferUse& u : uses) consumers.push_back(u.loops);

  for (size_t l = 0; l < program.loops.size(); ++l) {
    const Loop& loop = program.loops[l];
    const Pointwise* p = pointwise(loop);
    if (!p || in_epilogue.contains(static_cast<int>(l))) continue;
    const BufferId buffer = loop.outputs[0];
    const BufferUse& use = uses[static_cast<size_t>(buffer.index)];
    auto& users = consumers[static_cast<size_t>(buffer.index)];
    if (use.program_output || use.operand || users.empty()) continue;

    const Expr produced = points(pool, program.buffer(buffer).sizes);
    bool expanding = false, too_big = false;
    for (int u : users) {
      for (const BodyRef& body : bodies(program, program.loops[static_cast<size_t>(u)])) {
        too_big |= count_nodes(body.body) + count_nodes(p->body) > kMaxBodyNodes;
        const int64_t loads = loads_of(body.body, buffer);
        if (loads == 0 || std::holds_alternative<Concat>(program.loops[static_cast<size_t>(u)].def)) continue;
        const Expr read = points(pool, body.domain);
        const bool fewer = typical(read) < typical(produced) / loads;  // a slice, a gather: what is not read need not be computed
        expanding |= !fewer && !provably_equal(read, produced);
      }
    }
    const int c = cost(p->body), n = count_loads(p->body);
    const bool cheap = c <= target.inline_cost && n <= target.max_inlined_loads;
    const bool once = users.size() == 1 && !expanding;
    if (too_big || !(once || cheap)) {
      for (int u : users) {
        notes.push_back({program.buffer(buffer).name, program.loops[static_cast<size_t>(u)].op,
                         too_big ? "the body would grow beyond " + std::to_string(kMaxBodyNodes) + " nodes"
                                 : "recomputing it (cost " + std::to_string(c) + ", " + std::to_string(n) + " loads) for " +
                                       (expanding ? "a larger domain" : std::to_string(users.size()) + " consumers") +
                                       " is dearer than storing it"});
      }
      continue;
    }
    const Expr body = p->body;
    const std::vector<Origin> origins = loop.origins;
    for (int u : users) {
      Loop& user = program.loops[static_cast<size_t>(u)];
      const auto domains = bodies(program, user);
      const auto slots = body_slots(user);
      for (size_t s = 0; s < slots.size(); ++s) *slots[s] = substitute_producer(*slots[s], buffer, body, domains[s].domain);
      for (const Origin& o : origins) {
        if (std::find(user.origins.begin(), user.origins.end(), o) == user.origins.end()) user.origins.push_back(o);
      }
      if (user.op.find(loop.op) == std::string::npos) user.op = loop.op + "_" + user.op;
    }
    visit(body, [&](Expr e) {
      if (e->kind == ExprKind::load) consumers[static_cast<size_t>(e->id)].insert(users.begin(), users.end());
    });
    alive[l] = false;
  }
}

}  // namespace coil
