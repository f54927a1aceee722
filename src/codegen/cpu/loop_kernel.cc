// Loop kernels: outer points are handed to threads, lanes run along the axis that most accesses step through by one.
#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "codegen/cpu/cpu_kernels.h"
#include "codegen/cpu/emit_expr.h"
#include "codegen/cpu/reduce_text.h"

namespace coil::cpu {
namespace {

constexpr int64_t kMaxLanes = 16;
constexpr int64_t kPointwiseBlock = 1024;  // elements of the lane axis in one item of a pointwise kernel: amortises the loop head
constexpr int64_t kReductionBlock = 64;    // lanes of an item whose inner loops run across memory: a few cache lines a row
constexpr int kLongBody = 16;              // cost of statements above which unrolling their loop saves nothing

bool by_index(ReduceOp op) { return op == ReduceOp::argmax || op == ReduceOp::argmin; }

// Offsets of all loads and stores with a weight: stores count more.
void for_each_access(const LoopKernel& k, const std::function<void(Expr offset, int weight)>& f) {
  for (const Stmt& s : k.stmts) {
    visit(s.value, [&](Expr e) {
      if (e->kind == ExprKind::load) f(e->args[0], 2);
    });
    if (s.offset) f(s.offset, 3);
  }
}

// The axis for lanes: by how many accesses it is contiguous in, -1 if none is worth it.
int choose_lane_axis(const LoopKernel& k) {
  if (k.sequential) return -1;
  const int n = static_cast<int>(k.axes.size());
  int best = -1, best_score = 0;
  for (int a = n - 1; a >= 0; --a) {
    const Expr size = k.axes[static_cast<size_t>(a)].size;
    if (size->is_constant() && size->as_int() < 4) continue;
    const bool inner = a >= k.num_outer;
    if (!inner && !k.scratch.empty()) continue;  // scratch holds one point's row, not a vector of points
    if (inner && a != n - 1) continue;  // other inner axes would need the innermost loop outside
    int score = 0;
    for_each_access(k, [&](Expr offset, int weight) {
      if (!depends_on_var(offset, a)) return;
      const auto affine = as_affine(offset, a);
      const bool unit = affine && affine->coefficient == offset->pool->index(1);
      score += unit ? 2 * weight : affine ? -weight : -2 * weight;
    });
    if (size->is_constant() && size->as_int() < kMaxLanes) score = score / 2 - 1;
    if (best < 0 ? score > -6 : score > best_score) {
      best = a;
      best_score = score;
    }
  }
  return best;
}

class LoopWriter {
 public:
  LoopWriter(const KernelPlan& plan, const LoopKernel& k) : plan_(plan), k_(k), names_(plan), lane_(choose_lane_axis(k)) {
    for (const Axis& a : k.axes) {
      context_.vars.push_back(a.name);
      context_.sizes.push_back(a.size);
    }
    lane_outer_ = lane_ >= 0 && lane_ < k.num_outer;
    for (size_t r = 0; r < k.scratch.size(); ++r) context_.scratch[static_cast<int>(r)] = "q" + std::to_string(r);
  }

  KernelText run() {
    std::string body;
    out_ = &body;
    item_loop();
    KernelText t;
    std::vector<BufferId> written;
    for (const Stmt& s : k_.stmts) {
      if (s.kind == Stmt::Kind::store && s.scratch < 0) written.push_back(s.buffer);
    }
    std::string scratch;
    for (size_t r = 0; r < k_.scratch.size(); ++r) scratch += scratch_pointer(r);
    const bool restrict = k_.stmts.size() > 1;  // a single store may run in place over its operand
    t.body = "extern \"C\" COIL_KERNEL void @NAME@(void* context, long begin, long end, int worker) {\n"
             "  const coil_args& a = *(const coil_args*)context;\n  [[maybe_unused]] const long* s = a.s;\n" +
             pointer_declarations(plan_, names_.buffers(), written, restrict) + scratch + body + "}\n";
    t.headers.assign(names_.headers().begin(), names_.headers().end());
    t.buffers = names_.buffers();
    t.items = items_;
    t.work = work();
    return t;
  }

 private:
  ExprPool& pool() const { return *plan_.pool; }
  std::string& out() { return *out_; }
  std::string size(int axis) { return scalar_index(k_.axes[static_cast<size_t>(axis)].size); }

  std::string scalar_index(Expr e) {
    std::string ignored;
    ExprEmitter emitter(names_, context_, ignored, "", next_name_);
    return emitter.index(e);
  }

  std::string scratch_pointer(size_t r) {
    const WorkerScratch& s = k_.scratch[r];
    const Expr part = plan_.buffer(s.buffer).info.strides[1];
    return fmt::format("  {}* __restrict q{} = ({}*)a.p[{}] + worker * {};\n", memory_type(s.dtype), r, memory_type(s.dtype),
                       std::stoi(names_.pointer(s.buffer).substr(1)), scalar_index(part));
  }

  // Lanes along an outer axis: an item is a block of that axis. The other outer axes are unpacked from the item's number.
  void item_loop() {
    const bool any_inner = k_.num_outer < static_cast<int>(k_.axes.size());
    const int64_t block = any_inner ? kReductionBlock : kPointwiseBlock;
    items_ = pool().index(1);
    std::string unpack;
    out() += "  for (long item = begin; item < end; ++item) {\n";
    int unpacked = 0;
    const int count = k_.num_outer - (lane_outer_ ? 1 : 0);
    if (count + (lane_outer_ ? 1 : 0) > 1) unpack = "    long rest = item;\n";
    const std::string rest = count + (lane_outer_ ? 1 : 0) > 1 ? "rest" : "item";
    const auto take = [&](const std::string& name, const std::string& text, bool last) {
      unpack += last ? fmt::format("    const long {} = {};\n", name, rest)
                     : fmt::format("    const long {} = {} % {};\n    {} /= {};\n", name, rest, text, rest, text);
    };
    const int total = count + (lane_outer_ ? 1 : 0);
    if (lane_outer_) {
      const Expr n = k_.axes[static_cast<size_t>(lane_)].size;
      const Expr blocks = ceil_div(n, pool().index(block));
      items_ = items_ * blocks;
      take("block", scalar_index(blocks), ++unpacked == total);
    }
    for (int a = k_.num_outer - 1; a >= 0; --a) {
      if (a == lane_ && lane_outer_) continue;
      items_ = items_ * k_.axes[static_cast<size_t>(a)].size;
      take(k_.axes[static_cast<size_t>(a)].name, size(a), ++unpacked == total);
    }
    out() += unpack;
    if (lane_outer_) {
      lane_block(block);
    } else {
      phases("    ");
    }
    out() += "  }\n";
  }

  // Weighing whether to unroll a long body is a fifth of clang's time, and unrolled it takes half as long again.
  std::string keep_rolled(const std::string& indent) const { return indent + "#pragma clang loop unroll(disable)\n"; }
  static const Stmt& statement(const Stmt& s) { return s; }
  static const Stmt& statement(const Stmt* s) { return *s; }
  template <class Statements>
  static bool long_body(const Statements& stmts) {
    int sum = 0;
    for (const auto& s : stmts) sum += cost(statement(s).value);
    return sum > kLongBody;
  }

  bool whole_vectors(Expr n) const { return n->is_constant() && n->as_int() % kMaxLanes == 0; }

  void lane_block(int64_t block) {
    const std::string v = k_.axes[static_cast<size_t>(lane_)].name;
    const Expr n = k_.axes[static_cast<size_t>(lane_)].size;
    out() += fmt::format("    const long stop = cd::minimum((cd::i64)((block + 1) * {}), (cd::i64)({}));\n", block, size(lane_));
    out() += fmt::format("    long {} = block * {};\n", v, block);
    context_.lane_var = lane_;
    if (long_body(k_.stmts)) out() += keep_rolled("    ");
    out() += fmt::format("    for (; {} + COIL_LANES <= stop; {} += COIL_LANES) {{\n", v, v);
    phases("      ");
    out() += "    }\n";
    if (!whole_vectors(n)) {
      out() += fmt::format("    if ({} < stop) {{\n      const int lanes = (int)(stop - {});\n", v, v);
      context_.tail = "lanes";
      phases("      ");
      context_.tail.clear();
      out() += "    }\n";
    }
    context_.lane_var = -1;
  }

  // All statements at one outer point (or one vector of them), pass by pass.
  void phases(const std::string& indent) {
    size_t i = 0;
    // Temps of one evaluation are named afresh.
    context_.temps.clear();
    for (int phase = 0; i < k_.stmts.size(); ++phase) {
      std::vector<const Stmt*> outer, inner;
      for (; i < k_.stmts.size() && k_.stmts[i].phase == phase; ++i) (k_.stmts[i].inner ? inner : outer).push_back(&k_.stmts[i]);
      if (!outer.empty()) outer_statements(outer, indent);
      if (!inner.empty()) inner_loops(inner, indent);
      CHECK(phase <= k_.num_phases + static_cast<int>(k_.stmts.size()), "phases out of order");
    }
  }

  void outer_statements(const std::vector<const Stmt*>& stmts, const std::string& indent) {
    ExprEmitter emitter(names_, context_, out(), indent, next_name_);
    for (const Stmt* s : stmts) run_statement(*s, emitter);
  }

  void run_statement(const Stmt& s, ExprEmitter& emitter) {
    if (s.kind == Stmt::Kind::let) {
      const auto t = emitter.value(s.value);
      context_.temps[s.temp.index] = {t.text, t.vector};
    } else {
      CHECK(s.kind == Stmt::Kind::store, "an outer statement that reduces");
      emitter.store(s.scratch >= 0 ? context_.scratch.at(s.scratch) : names_.pointer(s.buffer), s.offset, s.value, s.condition);
    }
  }

  // One pass over the inner axes.
  void inner_loops(const std::vector<const Stmt*>& stmts, const std::string& indent) {
    const bool lane_inner = lane_ >= 0 && !lane_outer_;
    std::vector<ReduceText> reductions;
    for (const Stmt* s : stmts) {
      if (s->kind != Stmt::Kind::reduce && s->kind != Stmt::Kind::scan) continue;
      reductions.push_back(ReduceText::make(*s, next_name_++, lane_ >= 0));
      out() += reductions.back().declare(indent);
    }
    std::string in = indent;
    const int last = static_cast<int>(k_.axes.size()) - 1;
    for (int a = k_.num_outer; a < last || (a == last && !lane_inner); ++a) {
      const std::string& v = k_.axes[static_cast<size_t>(a)].name;
      out() += fmt::format("{}for (long {} = 0; {} < {}; ++{}) {{\n", in, v, v, size(a), v);
      in += "  ";
    }
    if (lane_inner) {
      lane_loop(stmts, reductions, in, last);
    } else {
      inner_body(stmts, reductions, in);
    }
    for (int a = lane_inner ? last - 1 : last; a >= k_.num_outer; --a) {
      in.resize(in.size() - 2);
      out() += in + "}\n";
    }
    for (ReduceText& r : reductions) {
      out() += r.finish(indent, lane_inner);
      context_.temps[r.temp] = {r.result, lane_outer_};
    }
  }

  void lane_loop(const std::vector<const Stmt*>& stmts, std::vector<ReduceText>& reductions, const std::string& in, int axis) {
    const std::string v = k_.axes[static_cast<size_t>(axis)].name, n = size(axis);
    context_.lane_var = axis;
    // A scope of its own: the next pass declares the same variable.
    out() += fmt::format("{}{{\n{}  long {} = 0;\n", in, in, v);
    if (long_body(stmts)) out() += keep_rolled(in + "  ");
    out() += fmt::format("{}  for (; {} + COIL_LANES <= {}; {} += COIL_LANES) {{\n", in, v, n, v);
    inner_body(stmts, reductions, in + "    ");
    out() += in + "  }\n";
    if (!whole_vectors(k_.axes[static_cast<size_t>(axis)].size)) {
      out() += fmt::format("{}  if ({} < {}) {{\n{}    const int lanes = (int)({} - {});\n", in, v, n, in, n, v);
      context_.tail = "lanes";
      inner_body(stmts, reductions, in + "    ");
      context_.tail.clear();
      out() += in + "  }\n";
    }
    out() += in + "}\n";
    context_.lane_var = -1;
  }

  // The number of an inner point, row-major over the inner axes: what argmax and argmin return.
  Expr point_number() const {
    Expr number = pool().index(0);
    for (size_t a = static_cast<size_t>(k_.num_outer); a < k_.axes.size(); ++a) {
      number = number * k_.axes[a].size + pool().var(static_cast<int>(a));
    }
    return number;
  }

  void inner_body(const std::vector<const Stmt*>& stmts, std::vector<ReduceText>& reductions, const std::string& indent) {
    ExprEmitter emitter(names_, context_, out(), indent, next_name_);
    size_t r = 0;
    for (const Stmt* s : stmts) {
      if (s->kind == Stmt::Kind::reduce || s->kind == Stmt::Kind::scan) {
        ReduceText& reduction = reductions[r++];
        const std::string value = emitter.vector_value(s->value);
        std::string number;
        if (by_index(s->op)) number = emitter.vector_value(pool().cast(point_number(), DType::i64));
        const bool masked = !context_.tail.empty() && context_.lane_var >= k_.num_outer;
        out() += reduction.update(indent, value, number, masked);
        if (s->kind == Stmt::Kind::scan) context_.temps[s->temp.index] = {reduction.accumulator, false};
      } else {
        run_statement(*s, emitter);
      }
    }
  }

  // Vector operations of one item, roughly: what the host needs to choose a grain.
  Expr work() const {
    int ops = 2;
    for (const Stmt& s : k_.stmts) ops += cost(s.value) + 2;
    Expr points = pool().index(1);
    for (size_t a = static_cast<size_t>(k_.num_outer); a < k_.axes.size(); ++a) points = points * k_.axes[a].size;
    if (lane_outer_) {
      const bool any_inner = k_.num_outer < static_cast<int>(k_.axes.size());
      const Expr n = k_.axes[static_cast<size_t>(lane_)].size;
      points = points * index_min(n, pool().index(any_inner ? kReductionBlock : kPointwiseBlock));
    }
    return lane_ >= 0 ? ceil_div(points * ops, pool().index(8)) : points * ops;
  }

  const KernelPlan& plan_;
  const LoopKernel& k_;
  KernelNames names_;
  EmitContext context_;
  int lane_ = -1;
  bool lane_outer_ = false;
  std::string* out_ = nullptr;
  int next_name_ = 0;
  Expr items_;
};

}  // namespace

KernelText loop_kernel_text(const KernelPlan& plan, const LoopKernel& kernel) { return LoopWriter(plan, kernel).run(); }

std::string pointer_declarations(const KernelPlan& plan, const std::vector<BufferId>& buffers, const std::vector<BufferId>& written,
                                 bool restrict) {
  std::string text;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const bool writes = std::find(written.begin(), written.end(), buffers[i]) != written.end();
    const PlanBuffer& b = plan.buffer(buffers[i]);
    const std::string type = (writes ? "" : "const ") + memory_type(b.info.dtype) + "*";
    text += fmt::format("  [[maybe_unused]] {}{} p{} = ({})a.p[{}];\n", type, restrict ? " __restrict" : "", i, type, i);
  }
  return text;
}

}  // namespace coil::cpu
