#include "schedule/inline_producers.h"

#include <algorithm>

#include "expr/written_size.h"
#include "schedule/schedule.h"
#include "schedule/turned_loops.h"

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

// The longest coordinates of a load (of `buffer`, or of any), as they are written.
int64_t longest_index(Expr body, BufferId buffer) {
  constexpr int64_t kMost = 1000;
  int64_t longest = 0;
  visit(body, [&](Expr e) {
    if (e->kind != ExprKind::load || (buffer.valid() && e->id != buffer.index)) return;
    int64_t sum = 0;
    for (Expr c : e->args) sum += written_size(c, kMost);
    longest = std::max(longest, sum);
  });
  return longest;
}

// Loads whose values are positions of other loads.
int count_positions(Expr body) {
  std::vector<Expr> todo;
  visit(body, [&](Expr e) {
    if (e->dtype != DType::index) return;
    for (Expr arg : e->args) {
      if (arg->dtype != DType::index) todo.push_back(arg);
    }
  });
  std::set<const ExprNode*> seen;
  int n = 0;
  while (!todo.empty()) {
    const Expr e = todo.back();
    todo.pop_back();
    if (!seen.insert(e.node()).second) continue;
    n += e->kind == ExprKind::load;
    todo.insert(todo.end(), e->args.begin(), e->args.end());
  }
  return n;
}

Expr points(ExprPool& pool, const std::vector<Expr>& domain) { return product(pool, domain); }

// A body of a loop, and the sizes of its variables. The rows of bodies().
struct Slot {
  Expr* body;
  std::vector<Expr> domain;
};
Slot slot(LoopProgram& program, Loop& loop, size_t row) {
  Slot s{nullptr, program.buffer(loop.outputs[0]).sizes};
  if (auto* p = std::get_if<Pointwise>(&loop.def)) s.body = &p->body;
  if (auto* r = std::get_if<Reduction>(&loop.def)) {
    s.body = &r->body;
    s.domain.insert(s.domain.end(), r->domain.begin(), r->domain.end());
  }
  if (auto* scan = std::get_if<Scan>(&loop.def)) s.body = &scan->body;
  if (auto* sort = std::get_if<Sort>(&loop.def)) {
    s.body = &sort->body;
    if (!s.domain.empty()) s.domain[static_cast<size_t>(sort->dim)] = sort->length;
  }
  if (auto* c = std::get_if<Concat>(&loop.def)) {
    s.body = &c->pieces[row].body;
    s.domain[static_cast<size_t>(c->dim)] = c->pieces[row].size;
  }
  CHECK(s.body, "a loop without bodies");
  return s;
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

// Budgets, which keep kernels readable and compile time linear in the program.
constexpr int kMaxBodyNodes = 400;
constexpr int64_t kMaxBodyText = 1000;  // of a body as it is written, where indices and what is masked are repeated
constexpr int kMaxBodyCost = 2000;      // of its operations: clang's time grows faster than a function beyond that
constexpr int64_t kMaxIndexText = 40;   // of indices in a producer that long indices are put into: the rules for divisions would work hard for little
constexpr int kMaxPositions = 12;       // loads that say where to load
constexpr int kEpilogueCost = 4;        // of a vector's element that an epilogue computes for each point of a template's result,
constexpr int kEpilogueLoads = 2;       // from so many values,
constexpr int64_t kEpilogueReads = 16;  // ... of which so many read the same element
constexpr size_t kMaxName = 400;
constexpr size_t kMaxOrigins = 200;

// Which body of which loop.
using BodyRow = std::pair<int, size_t>;

// The producer's names and places are the consumer's too, as far as anybody will read.
void add_names(Loop& user, const Loop& producer) {
  for (const Origin& o : producer.origins) {
    if (user.origins.size() >= kMaxOrigins) break;
    if (std::find(user.origins.begin(), user.origins.end(), o) == user.origins.end()) user.origins.push_back(o);
  }
  if (user.op.find(producer.op) != std::string::npos) return;
  user.op = producer.op + "_" + user.op;
  if (user.op.size() > kMaxName) user.op.resize(kMaxName);
}

class Inliner {
 public:
  Inliner(LoopProgram& program, const Epilogues& epilogues, const TargetTraits& target, std::vector<FusionNote>& notes)
      : program_(program), target_(target), notes_(notes), uses_(buffer_uses(program)), turned_(turned_for_rows(program)), readers_(program.buffers.size()) {
    for (const auto& [row, chain] : epilogues) in_epilogue_.insert(chain.begin(), chain.end());
    for (size_t l = 0; l < program.loops.size(); ++l) {
      const std::vector<BodyRef> refs = bodies(program, program.loops[l]);
      for (size_t row = 0; row < refs.size(); ++row) add_reader(refs[row].body, {static_cast<int>(l), row});
    }
  }

  void run(std::vector<bool>& alive) {
    for (size_t l = 0; l < program_.loops.size(); ++l) alive[l] = !inlined(l);
  }

 private:
  Loop& loop(int row) { return program_.loops[static_cast<size_t>(row)]; }

  void add_reader(Expr body, BodyRow row) {
    visit(body, [&](Expr e) {
      if (e->kind == ExprKind::load) readers_[static_cast<size_t>(e->id)].insert(row);
    });
  }

  // Puts loop l into all that read it, if that is worth it.
  bool inlined(size_t l) {
    const Loop& producer = program_.loops[l];
    const Pointwise* p = pointwise(producer);
    if (!p || in_epilogue_.contains(static_cast<int>(l))) return false;
    const BufferId buffer = producer.outputs[0];
    const BufferUse& use = uses_[static_cast<size_t>(buffer.index)];
    const std::set<BodyRow>& readers = readers_[static_cast<size_t>(buffer.index)];
    if (use.program_output || use.operand || readers.empty()) return false;
    std::vector<int> users;
    for (const BodyRow& row : readers) {
      if (users.empty() || users.back() != row.first) users.push_back(row.first);
    }
    if (target_.stored.contains(program_.buffer(buffer).name)) {
      notes_.push_back({program_.buffer(buffer).name, loop(users[0]).op, "an option keeps them apart"});
      return false;
    }
    const bool expanding = expands(buffer, readers);
    const int c = cost(p->body), n = count_loads(p->body);
    const bool cheap = c <= target_.inline_cost && n <= target_.max_inlined_loads;
    const bool once = users.size() == 1 && !expanding && target_.inline_cost >= 0;
    const bool gathered = turned_.contains(static_cast<int>(l));
    const bool turned_next = users.size() == 1 && turned_.contains(users[0]) && reads_sums(p->body);
    const bool repeated = (c > kEpilogueCost || n > kEpilogueLoads) && repeats(buffer, readers);
    std::string why;
    if (why = too_long(buffer, p->body, readers); !why.empty()) {
      // a budget
    } else if (gathered) {
      why = "it turns memory so that the rows that data names are read whole";
    } else if (turned_next) {
      why = "that loop turns memory, and with it the sums that this one reads would be computed along the other axis";
    } else if (!once && !cheap) {
      why = "recomputing it (cost " + std::to_string(c) + ", " + std::to_string(n) + " loads) for " +
            (expanding ? "a larger domain" : std::to_string(users.size()) + " consumers") + " is dearer than storing it";
    } else if (repeated) {
      why = "an epilogue would compute it (cost " + std::to_string(c) + ", " + std::to_string(n) + " loads) for each point of its template's result";
    } else if (!substitute(buffer, p->body, readers)) {
      why = "the body's text would grow beyond " + std::to_string(kMaxBodyText) + " nodes";
    }
    for (int u : users) {
      if (why.empty()) add_names(loop(u), producer);
      else notes_.push_back({program_.buffer(buffer).name, loop(u).op, why});
    }
    return why.empty();
  }

  // Whether some consumer reads more points than the producer makes.
  bool expands(BufferId buffer, const std::set<BodyRow>& readers) {
    const Expr produced = points(*program_.pool, program_.buffer(buffer).sizes);
    return std::any_of(readers.begin(), readers.end(), [&](const BodyRow& row) {
      const Slot s = slot(program_, loop(row.first), row.second);
      const int64_t loads = loads_of(*s.body, buffer);
      if (loads == 0 || std::holds_alternative<Concat>(loop(row.first).def)) return false;
      const Expr read = points(*program_.pool, s.domain);
      const bool fewer = typical(read) < typical(produced) / loads;  // a slice, a gather: what is not read need not be computed
      return !fewer && !provably_equal(read, produced);
    });
  }

  // Sums of a loop of their own, or short ones of what data names.
  bool reads_sums(Expr body) {
    return any_of(body, [&](Expr e) {
      if (e->is_op(ScalarOp::checked_index)) return true;
      const int from = e->kind == ExprKind::load ? uses_[static_cast<size_t>(e->id)].producer : -1;
      return from >= 0 && std::holds_alternative<Reduction>(loop(from).def);
    });
  }

  // Whether an epilogue reads an element many times, as one of a vector along the channels: nothing else of a template waits for memory while that is computed.
  bool repeats(BufferId buffer, const std::set<BodyRow>& readers) {
    const int64_t produced = typical(points(*program_.pool, program_.buffer(buffer).sizes));
    return std::any_of(readers.begin(), readers.end(), [&](const BodyRow& row) {
      if (!in_epilogue_.contains(row.first)) return false;
      return typical(points(*program_.pool, slot(program_, loop(row.first), row.second).domain)) / kEpilogueReads >= produced;
    });
  }

  // Empty: it does. Otherwise what would grow beyond what.
  std::string too_long(BufferId buffer, Expr produced, const std::set<BodyRow>& readers) {
    const int own = count_nodes(produced), own_cost = cost(produced), own_loads = count_loads(produced);
    const int positions = count_positions(produced);
    const bool long_index = longest_index(produced, {}) > kMaxIndexText;
    for (const BodyRow& row : readers) {
      const Expr body = *slot(program_, loop(row.first), row.second).body;
      if (count_nodes(body) + own > kMaxBodyNodes) return "the body would grow beyond " + std::to_string(kMaxBodyNodes) + " nodes";
      if (own_loads > 1 && count_loads(body) - loads_of(body, buffer) + own_loads > target_.most_loads)
        return "the body would read more than " + std::to_string(target_.most_loads) + " values";
      if (cost(body) + own_cost > std::max(kMaxBodyCost, own_cost)) return "the body would cost more than " + std::to_string(kMaxBodyCost);
      if (positions + count_positions(body) > kMaxPositions) return "more than " + std::to_string(kMaxPositions) + " values would be positions of others";
      if (long_index && longest_index(body, buffer) > kMaxIndexText) return "its indices would grow beyond " + std::to_string(kMaxIndexText) + " nodes";
    }
    return "";
  }

  // False, and nothing done, where a body would become too long.
  bool substitute(BufferId buffer, Expr produced, const std::set<BodyRow>& readers) {
    std::vector<Expr> grown;
    for (const BodyRow& row : readers) {
      const Slot s = slot(program_, loop(row.first), row.second);
      grown.push_back(substitute_producer(*s.body, buffer, produced, s.domain));
      if (written_size(grown.back(), kMaxBodyText) > kMaxBodyText) return false;
    }
    size_t i = 0;
    for (const BodyRow& row : readers) {
      *slot(program_, loop(row.first), row.second).body = grown[i++];
      add_reader(produced, row);
    }
    return true;
  }

  LoopProgram& program_;
  const TargetTraits& target_;
  std::vector<FusionNote>& notes_;
  const std::vector<BufferUse> uses_;
  const std::set<int> turned_;              // rows of copies that loops read rows of
  std::vector<std::set<BodyRow>> readers_;  // of each buffer
  std::set<int> in_epilogue_;               // these read an accumulator that exists nowhere else
};

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

void inline_pointwise(LoopProgram& program, const Epilogues& epilogues, const TargetTraits& target, std::vector<bool>& alive, std::vector<FusionNote>& notes) {
  Inliner(program, epilogues, target, notes).run(alive);
}

}  // namespace coil
