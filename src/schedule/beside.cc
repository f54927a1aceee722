// Which neighbours among the kernels may run at the same time: pointwise kernels that do not need each other, such as the pieces of a
// concatenation or the halves of a state's update.
#include <algorithm>
#include <set>

#include "expr/written_size.h"
#include "schedule/schedule.h"

namespace coil {
namespace {

// Of a launch, in nodes as they are written: a compiler's time grows faster than a function, and what is so long needs no company.
constexpr int64_t kMaxText = 1000;

// Buffers of kernels that may run at the same time, and how long these are.
struct Touched {
  std::set<int32_t> read, written;
  int64_t text = 0;
};

// Of a pointwise kernel; nothing of others.
std::optional<Touched> touched(const Kernel& k) {
  const auto* loop = std::get_if<LoopKernel>(&k.def);
  if (!loop || loop->num_outer != static_cast<int>(loop->axes.size()) || loop->sequential || !loop->scratch.empty() || !k.assertion.empty())
    return std::nullopt;
  Touched t;
  const auto add_loads = [&](Expr e) {
    if (!e) return;
    t.text += written_size(e, kMaxText);
    visit(e, [&](Expr n) {
      if (n->kind == ExprKind::load) t.read.insert(n->id);
    });
  };
  for (const Stmt& s : loop->stmts) {
    add_loads(s.value);
    add_loads(s.offset);
    add_loads(s.condition);
    if (s.kind == Stmt::Kind::store) t.written.insert(s.buffer.index);
  }
  return t;
}

bool meet(const std::set<int32_t>& a, const std::set<int32_t>& b) {
  return std::any_of(a.begin(), a.end(), [&](int32_t id) { return b.contains(id); });
}

}  // namespace

void mark_beside(std::vector<Kernel>& kernels, const TargetTraits& target) {
  Touched together;
  int count = 0, depth = 0;
  for (Kernel& k : kernels) {
    if (const auto* mark = std::get_if<ControlMark>(&k.def)) {
      depth += mark->opens();
      depth -= mark->kind == ControlMark::Kind::end;
    }
    if (depth > 0) {  // a part was marked when it was planned
      count = 0;
      continue;
    }
    const std::optional<Touched> own = touched(k);
    const bool piece = std::exchange(k.beside, false);  // writes another part of the buffer than the kernel before it
    if (own) {
      k.beside = count > 0 && count < target.most_beside && together.text + own->text <= kMaxText && !meet(own->read, together.written) &&
                 !meet(own->written, together.read) && (piece || !meet(own->written, together.written));
    }
    if (!k.beside) together = {}, count = 0;
    if (!own) continue;
    together.read.insert(own->read.begin(), own->read.end());
    together.written.insert(own->written.begin(), own->written.end());
    together.text += own->text;
    ++count;
  }
}

}  // namespace coil
