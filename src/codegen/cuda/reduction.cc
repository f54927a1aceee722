// Kernels with reductions and scans. Three ways to hand out the work:
//   row      a group of threads (a warp, or a block of up to 1024) shares one outer point; for reductions along contiguous memory.
//            Values that several passes read stay in registers when the row is short enough.
//   column   a block is 32 outer points wide (contiguous in memory) and shares the reduced axes among its lines of threads
//   thread   every thread has an outer point of its own: short reduced axes, as in pooling
#include <algorithm>
#include <bit>
#include <set>

#include <fmt/format.h>

#include "codegen/cuda/loop_context.h"
#include "codegen/host/index_text.h"
#include "schedule/schedule.h"

namespace coil::cuda {
namespace {

constexpr int kColumns = 32;
constexpr int kShortReduction = 64;      // points that one thread takes alone
constexpr int kKeptRegisters = 64;       // of a thread, for values that later passes read again
constexpr int kUnrolledChunks = 16;

bool by_index(ReduceOp op) { return op == ReduceOp::argmax || op == ReduceOp::argmin; }

const char* op_type(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum: return "cd::Sum";
    case ReduceOp::prod: return "cd::Product";
    case ReduceOp::max: case ReduceOp::any: return "cd::Maximum";
    case ReduceOp::min: case ReduceOp::all: return "cd::Minimum";
    case ReduceOp::argmax: return "cd::Argmax";
    case ReduceOp::argmin: return "cd::Argmin";
  }
  return "";
}

std::string extreme(DType d, bool lowest) {
  switch (compute_type(d)) {
    case DType::f64: return lowest ? "-cd::inf64()" : "cd::inf64()";
    case DType::boolean: return lowest ? "false" : "true";
    case DType::u8: return lowest ? "(cd::u8)0" : "(cd::u8)255";
    case DType::i8: return lowest ? "(cd::i8)-128" : "(cd::i8)127";
    case DType::i16: return lowest ? "(cd::i16)-32768" : "(cd::i16)32767";
    case DType::i32: return lowest ? "(cd::i32)(-2147483647 - 1)" : "(cd::i32)2147483647";
    case DType::i64: return lowest ? "(cd::i64)(-9223372036854775807ll - 1)" : "(cd::i64)9223372036854775807ll";
    default: return lowest ? "-cd::inf32()" : "cd::inf32()";
  }
}

std::string identity(ReduceOp op, DType d) {
  switch (op) {
    case ReduceOp::sum: return fmt::format("({})0", register_type(d));
    case ReduceOp::prod: return fmt::format("({})1", register_type(d));
    case ReduceOp::max: case ReduceOp::argmax: return extreme(d, true);
    case ReduceOp::min: case ReduceOp::argmin: return extreme(d, false);
    case ReduceOp::any: return "false";
    case ReduceOp::all: return "true";
  }
  return "";
}

enum class Way { row, column, thread, scan };

struct Accumulator {
  const Stmt* stmt = nullptr;
  std::string name;
};

class ReductionWriter {
 public:
  ReductionWriter(const KernelPlan& plan, const LoopKernel& k) : plan_(plan), k_(k), c_(loop_context(plan, k)) {}

  KernelText run() {
    choose_way();
    c_.wide_index = !fits_32(plan_, k_, outer_points() * inner_points() * 1);
    std::string main = frame_code();
    main += way_ == Way::scan ? scan_code() : phases();
    std::vector<BufferId> written;
    for (const Stmt& s : k_.stmts) {
      if (s.kind == Stmt::Kind::store && s.scratch < 0) written.push_back(s.buffer);
    }
    const int slots = way_ == Way::column ? block_threads() : 32;
    const std::string shared = needs_slots_ ? fmt::format("  __shared__ cd::Slots<{}> slots;\n", slots) : "";
    KernelText t = finish(c_, kernel_frame(c_, written, fmt::format("__launch_bounds__({})", block_threads())) + shared + main + "}\n");
    t.headers = {"cuda/reduce.h"};
    t.threads = block_threads();
    t.grid_x = grid();
    return t;
  }

 private:
  ExprPool& pool() const { return *plan_.pool; }
  std::string type() const { return c_.index_type(); }
  std::string index(Expr e) {
    std::string ignored;
    std::map<int, TempText> none;
    return Emitter(c_, {&ignored, &ignored, "", "", -1, 1}, none).index(e);
  }
  const Axis& axis(int a) const { return k_.axes[static_cast<size_t>(a)]; }
  int num_axes() const { return static_cast<int>(k_.axes.size()); }
  int last_axis() const { return num_axes() - 1; }

  Expr outer_points() const {
    Expr n = pool().index(1);
    for (int a = 0; a < k_.num_outer; ++a) n = n * axis(a).size;
    return n;
  }
  Expr inner_points() const {
    Expr n = pool().index(1);
    for (int a = k_.num_outer; a < num_axes(); ++a) n = n * axis(a).size;
    return n;
  }

  void choose_way() {
    const Expr inner = inner_points();
    const int64_t n = typical(inner), outer = typical(outer_points());
    int best_outer = -1, outer_score = 0;
    for (int a = k_.num_outer - 1; a >= 0; --a) {
      const int score = contiguity(k_, a);
      if (best_outer < 0 || score > outer_score) best_outer = a, outer_score = score;
    }
    const int inner_score = contiguity(k_, last_axis());
    lane_ = best_outer;
    const auto bound = upper_bound(inner);
    if (k_.sequential) {
      way_ = outer_score > inner_score && outer >= 1024 ? Way::thread : Way::scan;
      threads_ = 256;
      return;
    }
    const bool short_one = bound && *bound <= kShortReduction;
    if (short_one && (outer >= 2048 || n <= 8 || outer_score > inner_score)) {
      way_ = Way::thread;
    } else if (lane_ >= 0 && outer_score > inner_score && k_.scratch.empty()) {
      way_ = outer >= 65536 && n <= 1024 ? Way::thread : Way::column;
      lines_ = n >= 256 ? 32 : 8;
    } else {
      way_ = Way::row;
      choose_row(n, bound);
    }
  }

  // Threads of a row: some 16 values each; and whether the row's values can stay in registers.
  void choose_row(int64_t n, std::optional<int64_t> bound) {
    width_ = access_width(c_, k_, last_axis());
    int64_t threads = 32;
    while (threads < 1024 && threads * 16 < n) threads *= 2;
    if (bound && !k_.scratch.empty()) {
      while (threads < 1024 && threads * kUnrolledChunks * width_ < *bound) threads *= 2;
    }
    threads_ = static_cast<int>(threads);
    const Expr chunks = chunk_count();
    const auto most = upper_bound(chunks);
    if (most) {
      const int64_t each = std::max<int64_t>((*most + threads_ - 1) / threads_, 1);
      if (each <= kUnrolledChunks && each * width_ <= kKeptRegisters) chunks_ = static_cast<int>(each);
    }
    CHECK(k_.scratch.empty() || chunks_ > 0, "kept values of a row that does not fit registers");
    if (chunks_ > 0 && k_.num_phases > 1) find_kept_loads();
  }

  // Chunks of a row: `width_` consecutive points of the last axis each.
  Expr chunk_count() const {
    Expr n = ceil_div(axis(last_axis()).size, pool().index(width_));
    for (int a = k_.num_outer; a < last_axis(); ++a) n = n * axis(a).size;
    return n;
  }

  void find_kept_loads() {
    std::map<const ExprNode*, std::set<int>> phases;
    std::vector<Expr> order;
    for (const Stmt& s : k_.stmts) {
      if (!s.inner) continue;
      visit(s.value, [&](Expr e) {
        if (e->kind != ExprKind::load || e->id >= kScratchBase) return;
        bool moves = false, data = false;
        for (int a = k_.num_outer; a < num_axes(); ++a) moves = moves || depends_on_var(e->args[0], a);
        data = any_of(s.value, [](Expr n) { return n->is_op(ScalarOp::masked); });
        if (!moves || data) return;
        if (phases[e.node()].empty()) order.push_back(e);
        phases[e.node()].insert(s.phase);
      });
    }
    int registers = static_cast<int>(k_.scratch.size()) * chunks_ * width_;
    for (Expr e : order) {
      if (phases[e.node()].size() < 2 || registers + chunks_ * width_ > kKeptRegisters) continue;
      registers += chunks_ * width_;
      kept_loads_.push_back({e, *phases[e.node()].begin()});
    }
  }

  int block_threads() const {
    if (way_ == Way::thread) return 128;
    if (way_ == Way::column) return kColumns * lines_;
    if (way_ == Way::row && threads_ == 32) return 256;
    return threads_;
  }

  // Expr of the number of groups a block's grid has to cover.
  std::string grid() const {
    switch (way_) {
      case Way::thread: return fmt::format("cdiv({}, {})", host_index(outer_points()), block_threads());
      case Way::column: {
        Expr blocks = ceil_div(axis(lane_).size, pool().index(kColumns));
        for (int a = 0; a < k_.num_outer; ++a) {
          if (a != lane_) blocks = blocks * axis(a).size;
        }
        return host_index(blocks);
      }
      case Way::row: return threads_ == 32 ? fmt::format("cdiv({}, 8)", host_index(outer_points())) : host_index(outer_points());
      case Way::scan: return host_index(outer_points());
    }
    return "1";
  }

  // The outer point of this thread.
  std::string frame_code() {
    const std::string ix = type();
    std::string text;
    if (way_ == Way::thread) {
      text = fmt::format("  const {0} point = ({0})blockIdx.x * {1} + threadIdx.x;\n  if (point >= {2}) return;\n", ix, block_threads(), index(outer_points()));
      std::vector<int> order;
      if (lane_ >= 0) order.push_back(lane_);
      for (int a = k_.num_outer - 1; a >= 0; --a) {
        if (a != lane_) order.push_back(a);
      }
      return text + take_apart("point", order, {});
    }
    if (way_ == Way::column) {
      text = fmt::format("  const int line = threadIdx.x / {};\n", kColumns);
      std::vector<int> order;
      if (lane_ >= 0) order.push_back(lane_);
      for (int a = k_.num_outer - 1; a >= 0; --a) {
        if (a != lane_) order.push_back(a);
      }
      text += fmt::format("  const {0} block = blockIdx.x;\n", ix);
      const std::string v = axis(lane_).name, blocks = index(ceil_div(axis(lane_).size, pool().index(kColumns)));
      // The last block of a line may hang over: its idle columns compute the last one again and store nothing.
      text += take_apart("block", order, blocks);
      text += fmt::format("  const {0} {1}_wish = {1}_block * {2} + threadIdx.x % {2}, {1} = {1}_wish < {3} ? {1}_wish : {3} - 1;\n"
                          "  const bool active = {1}_wish < {3};\n", ix, v, kColumns, index(axis(lane_).size));
      return text;
    }
    if (way_ == Way::row && threads_ == 32) {
      text = fmt::format("  const {0} row = ({0})blockIdx.x * 8 + threadIdx.x / 32;\n  const int y = threadIdx.x % 32;\n  if (row >= {1}) return;\n", ix,
                         index(outer_points()));
    } else {
      text = fmt::format("  const {0} row = blockIdx.x;\n  const int y = threadIdx.x;\n", ix);
    }
    std::vector<int> order;
    for (int a = k_.num_outer - 1; a >= 0; --a) order.push_back(a);
    return text + take_apart("row", order, {});
  }

  // Coordinates of axes, the fastest first, from a number. lane_blocks: the first axis is counted in blocks of columns.
  std::string take_apart(std::string rest, const std::vector<int>& order, const std::string& lane_blocks) {
    const std::string ix = type(), unsigned_ix = c_.wide_index ? "cd::u64" : "cd::u32";
    std::string text;
    for (size_t i = 0; i < order.size(); ++i) {
      const bool blocks = i == 0 && !lane_blocks.empty();
      const std::string name = axis(order[i]).name + (blocks ? "_block" : ""), n = blocks ? lane_blocks : index(axis(order[i]).size);
      if (i + 1 == order.size()) {
        text += fmt::format("  const {} {} = {};\n", ix, name, rest);
        break;
      }
      const std::string next = "rest" + std::to_string(c_.next_name++);
      text += fmt::format("  const {0} {1} = ({0})(({2}){3} / ({2})({4})), {5} = {3} - {1} * {4};\n", ix, next, unsigned_ix, rest, n, name);
      rest = next;
    }
    return text;
  }

  std::string phases() {
    std::string text;
    for (size_t r = 0; r < k_.scratch.size(); ++r) text += keep_array("kept" + std::to_string(r), k_.scratch[r].dtype);
    for (size_t l = 0; l < kept_loads_.size(); ++l) text += keep_array("read" + std::to_string(l), kept_loads_[l].first->dtype);
    size_t i = 0;
    for (int phase = 0; i < k_.stmts.size(); ++phase) {
      std::vector<const Stmt*> outer, inner;
      for (; i < k_.stmts.size() && k_.stmts[i].phase == phase; ++i) (k_.stmts[i].inner ? inner : outer).push_back(&k_.stmts[i]);
      if (!outer.empty()) text += outer_statements(outer);
      if (!inner.empty()) text += inner_pass(inner, phase);
    }
    return text;
  }

  std::string keep_array(const std::string& name, DType dtype) {
    if (way_ != Way::row) return fmt::format("  {} {}[{}];\n", register_type(dtype), name, upper_bound(inner_points()).value_or(1));
    return fmt::format("  {} {}[{}][{}];\n", register_type(dtype), name, chunks_, width_);
  }

  std::string outer_statements(const std::vector<const Stmt*>& stmts) {
    std::string before, after, stores;
    Emitter emitter(c_, {&before, &before, "  ", "  ", -1, 1}, temps_);
    const std::string only = way_ == Way::thread ? "" : way_ == Way::column ? "  if (line == 0 && active) {\n" : "  if (y == 0) {\n";
    std::vector<const Stmt*> written;
    for (const Stmt* s : stmts) {
      if (s->kind == Stmt::Kind::let) {
        temps_[s->temp.index] = emitter.value(s->value);
        continue;
      }
      emitter.value(s->value);  // computed by all, stored by one
      written.push_back(s);
    }
    Emitter::Place place = {&stores, &stores, only.empty() ? "  " : "    ", only.empty() ? "  " : "    ", -1, 1};
    for (const Stmt* s : written) {
      const TempText t = emitter.value(s->value);
      Emitter inside(c_, place, temps_);
      stores += fmt::format("{}cd::store1({} + {}, {});\n", place.before_indent, c_.names.pointer(s->buffer), inside.index(s->offset), t.text);
    }
    if (stores.empty()) return before;
    return before + only + stores + (only.empty() ? "" : "  }\n");
  }

  // One pass over the inner axes: declares accumulators, loops, combines.
  std::string inner_pass(const std::vector<const Stmt*>& stmts, int phase) {
    std::string text;
    std::vector<Accumulator> accumulators;
    for (const Stmt* s : stmts) {
      if (s->kind != Stmt::Kind::reduce && s->kind != Stmt::Kind::scan) continue;
      const std::string name = "acc" + std::to_string(c_.next_name++);
      accumulators.push_back({s, name});
      text += fmt::format("  {} {} = {};\n", register_type(s->value->dtype), name, identity(s->op, s->value->dtype));
      if (by_index(s->op)) text += fmt::format("  cd::i64 {}i = 9223372036854775807ll;\n", name);
    }
    text += way_ == Way::row ? row_loop(stmts, accumulators, phase) : serial_loop(stmts, accumulators);
    for (const Accumulator& a : accumulators) text += combine(a);
    return text;
  }

  std::string combine(const Accumulator& a) {
    const Stmt& s = *a.stmt;
    const std::string total = "total" + std::to_string(c_.next_name++);
    std::string text;
    if (way_ == Way::thread) {
      text = fmt::format("  const auto {} = {}{};\n", total, a.name, by_index(s.op) ? "i" : "");
    } else {
      const std::string how = way_ == Way::row ? fmt::format("cd::row_reduce{}<{}, {}>", by_index(s.op) ? "_index" : "", op_type(s.op), threads_)
                                               : fmt::format("cd::column_reduce{}<{}, {}, {}>", by_index(s.op) ? "_index" : "", op_type(s.op), kColumns, lines_);
      needs_slots_ = true;
      text = fmt::format("  const auto {} = {}({}{}, slots, {});\n", total, how, a.name, by_index(s.op) ? ", " + a.name + "i" : "", set_);
      set_ ^= 1;
    }
    temps_[s.temp.index] = {total, false};
    return text;
  }

  std::string update(const Accumulator& a, const std::string& value, const std::string& number, const std::string& indent) {
    const Stmt& s = *a.stmt;
    if (by_index(s.op)) {
      return fmt::format("{0}if ({1}::better({2}, {2}i, {3}, {4})) {2} = {3}, {2}i = {4};\n", indent, op_type(s.op), a.name, value, number);
    }
    return fmt::format("{0}{1} = {2}::combine({1}, {3});\n", indent, a.name, op_type(s.op), value);
  }

  Expr point_number() const {
    Expr number = pool().index(0);
    for (int a = k_.num_outer; a < num_axes(); ++a) number = number * axis(a).size + pool().var(a);
    return number;
  }

  // The statements at one chunk: `width` points at once, or one.
  std::string chunk(const std::vector<const Stmt*>& stmts, const std::vector<Accumulator>& accumulators, int phase, int width, const std::string& indent,
                    const std::string& element) {
    std::string before, body, after;
    const std::string inside = width > 1 ? indent + "  " : indent;
    Emitter::Place place = {&before, width > 1 ? &body : &before, indent, inside, width > 1 ? last_axis() : -1, width};
    Emitter emitter(c_, place, temps_);
    std::string& out = width > 1 ? body : before;
    for (size_t l = 0; l < kept_loads_.size(); ++l) {
      if (kept_loads_[l].second < phase) emitter.know(kept_loads_[l].first, {fmt::format("read{}{}", l, element), width > 1});
    }
    for (size_t r = 0; r < k_.scratch.size(); ++r) know_scratch(emitter, stmts, static_cast<int>(r), fmt::format("kept{}{}", r, element), width > 1);
    size_t next = 0;
    for (const Stmt* s : stmts) {
      if (s->kind == Stmt::Kind::reduce || s->kind == Stmt::Kind::scan) {
        const std::string value = emitter.lane_value(s->value);
        std::string number;
        if (by_index(s->op)) number = emitter.lane_value(pool().cast(point_number(), DType::i64));
        out += update(accumulators[next], value, number, inside);
        if (s->kind == Stmt::Kind::scan) temps_[s->temp.index] = {accumulators[next].name, false};
        ++next;
      } else if (s->scratch >= 0) {
        const std::string value = emitter.lane_value(s->value);
        out += fmt::format("{}kept{}{} = {};\n", inside, s->scratch, element, value);
      } else {
        emitter.store(s->buffer, s->offset, s->value, after, indent);
      }
    }
    for (size_t l = 0; l < kept_loads_.size(); ++l) {
      if (kept_loads_[l].second == phase) out += fmt::format("{}read{}{} = {};\n", inside, l, element, emitter.lane_value(kept_loads_[l].first));
    }
    if (width == 1) return before + after;
    return before + fmt::format("{}for (int v = 0; v < {}; ++v) {{\n", "#pragma unroll\n" + indent, width) + body + indent + "}\n" + after;
  }

  void know_scratch(Emitter& emitter, const std::vector<const Stmt*>& stmts, int row, const std::string& text, bool lanes) {
    for (const Stmt* s : stmts) {
      visit(s->value, [&](Expr e) {
        if (e->kind == ExprKind::load && e->id == kScratchBase + row) emitter.know(e, {text, lanes});
      });
    }
  }

  std::string row_loop(const std::vector<const Stmt*>& stmts, const std::vector<Accumulator>& accumulators, int phase) {
    const std::string ix = type(), v = axis(last_axis()).name, n = index(axis(last_axis()).size), chunks = index(chunk_count());
    std::string text;
    const bool single = k_.num_outer == last_axis();
    const Expr count = chunk_count();
    const bool exact = chunks_ > 0 && count->is_constant() && count->as_int() == static_cast<int64_t>(chunks_) * threads_;
    if (chunks_ > 0) {
      text += fmt::format("#pragma unroll\n  for (int e = 0; e < {}; ++e) {{\n    const {} c = e * {} + y;\n", chunks_, ix, threads_);
      if (!exact) text += fmt::format("    if (c < {}) {{\n", chunks);
    } else {
      text += fmt::format("#pragma unroll 4\n  for ({} c = y; c < {}; c += {}) {{\n    {{\n", ix, chunks, threads_);
    }
    const std::string element = chunks_ > 0 ? "[e][v]" : "";
    std::string indent = exact ? "    " : "      ";
    if (single) {
      text += fmt::format("{}const {} {} = c * {};\n", indent, ix, v, width_);
    } else {
      const std::string per_line = index(ceil_div(axis(last_axis()).size, pool().index(width_)));
      text += fmt::format("{0}const {1} line = c / {2}, {3} = (c - line * {2}) * {4};\n", indent, ix, per_line, v, width_);
      std::vector<int> order;
      for (int a = last_axis() - 1; a >= k_.num_outer; --a) order.push_back(a);
      std::string apart = take_apart("line", order, {});
      text += apart;
    }
    if (width_ > 1) {
      const Expr size = axis(last_axis()).size;
      const bool whole = size->is_constant() && size->as_int() % width_ == 0;
      text += fmt::format("{}if (a.wide{}) {{\n", indent, whole ? "" : fmt::format(" && {} + {} <= {}", v, width_, n));
      text += chunk(stmts, accumulators, phase, width_, indent + "  ", element) + indent + "} else {\n";
      text += fmt::format("#pragma unroll\n{0}  for (int v = 0; v < {1}; ++v) {{\n{0}    const {2} {3}_at = {3} + v;\n{0}    if ({3}_at >= {4}) continue;\n", indent,
                          width_, ix, v, n);
      c_.vars[static_cast<size_t>(last_axis())] = v + "_at";
      text += chunk(stmts, accumulators, phase, 1, indent + "    ", element) + indent + "  }\n" + indent + "}\n";
      c_.vars[static_cast<size_t>(last_axis())] = v;
    } else {
      text += chunk(stmts, accumulators, phase, 1, indent, chunks_ > 0 ? "[e][0]" : "");
    }
    if (!exact) text += "    }\n";
    return text + "  }\n";
  }

  // All inner points of a thread, one after the other: every one, or every `lines_`-th.
  std::string serial_loop(const std::vector<const Stmt*>& stmts, const std::vector<Accumulator>& accumulators) {
    const std::string ix = type();
    std::string text, indent = "  ";
    if (way_ == Way::thread) {
      for (int a = k_.num_outer; a < num_axes(); ++a) {
        text += fmt::format("{0}for ({1} {2} = 0; {2} < {3}; ++{2}) {{\n", indent, ix, axis(a).name, index(axis(a).size));
        indent += "  ";
      }
      const std::string element = k_.scratch.empty() ? "" : fmt::format("[{}]", index(inner_number()));
      text += chunk(stmts, accumulators, 0, 1, indent, element);
      for (int a = k_.num_outer; a < num_axes(); ++a) {
        indent.resize(indent.size() - 2);
        text += indent + "}\n";
      }
      return text;
    }
    text += fmt::format("#pragma unroll 4\n  for ({0} c = line; c < {1}; c += {2}) {{\n", ix, index(inner_points()), lines_);
    std::vector<int> order;
    for (int a = last_axis(); a >= k_.num_outer; --a) order.push_back(a);
    text += take_apart("c", order, {});
    std::string inside = chunk(stmts, accumulators, 0, 1, "    ", "");
    // Idle columns must not store.
    const bool stores = std::any_of(stmts.begin(), stmts.end(), [](const Stmt* s) { return s->kind == Stmt::Kind::store; });
    if (stores) inside = "    if (active) {\n" + inside + "    }\n";
    return text + inside + "  }\n";
  }
  Expr inner_number() const { return point_number(); }

  // Blocks of the scanned axis one after the other.
  std::string scan_code() {
    const std::string ix = type(), v = axis(last_axis()).name, n = index(axis(last_axis()).size);
    std::string text, declare, carry;
    needs_slots_ = true;
    std::string head, tail;
    std::vector<std::pair<const Stmt*, std::string>> scans;
    for (const Stmt& s : k_.stmts) {
      if (s.kind != Stmt::Kind::scan) continue;
      const std::string name = std::to_string(c_.next_name++);
      scans.emplace_back(&s, name);
      declare += fmt::format("  {0} carry{1} = {2};\n", register_type(s.dtype), name, identity(s.op, s.value->dtype));
    }
    CHECK(scans.size() == 1, "a scan kernel has one scan");
    const auto& [scan, name] = scans[0];
    std::string value_text;
    {
      Emitter emitter(c_, {&value_text, &value_text, "      ", "      ", -1, 1}, temps_);
      const TempText t = emitter.value(scan->value);
      value_text += fmt::format("      x{} = {};\n", name, t.text);
    }
    text += fmt::format("  for ({0} base = 0; base < {1}; base += {2}) {{\n    const {0} {3} = base + y;\n    {4} x{5} = {6};\n    if ({3} < {1}) {{\n{7}    }}\n", ix, n,
                        threads_, v, register_type(scan->value->dtype), name, identity(scan->op, scan->value->dtype), value_text);
    text += fmt::format("    {0} all{1};\n    const {0} part{1} = cd::block_scan<{2}, {3}>(x{1}, {4}, slots, all{1});\n"
                        "    const {0} scanned{1} = {2}::combine(carry{1}, part{1});\n    carry{1} = {2}::combine(carry{1}, all{1});\n",
                        register_type(scan->value->dtype), name, op_type(scan->op), threads_, identity(scan->op, scan->value->dtype));
    temps_[scan->temp.index] = {"scanned" + name, false};
    std::string stores, after;
    Emitter emitter(c_, {&stores, &stores, "      ", "      ", -1, 1}, temps_);
    for (const Stmt& s : k_.stmts) {
      if (s.kind == Stmt::Kind::store) emitter.store(s.buffer, s.offset, s.value, after, "      ");
    }
    return declare + text + fmt::format("    if ({} < {}) {{\n{}    }}\n  }}\n", v, n, stores);
  }

  const KernelPlan& plan_;
  const LoopKernel& k_;
  KernelContext c_;
  std::map<int, TempText> temps_;
  Way way_ = Way::row;
  int lane_ = -1;        // thread, column: the outer axis that consecutive threads run along
  int threads_ = 32;     // row: of one row
  int lines_ = 8;        // column
  int width_ = 1;        // row: points of a chunk
  int chunks_ = 0;       // row: chunks a thread, when they are few enough to stay in registers; 0: a loop
  std::vector<std::pair<Expr, int>> kept_loads_;  // and the phase that reads them
  bool needs_slots_ = false;
  int set_ = 0;
};

}  // namespace

KernelText reduction_text(const KernelPlan& plan, const LoopKernel& kernel) { return ReductionWriter(plan, kernel).run(); }

}  // namespace coil::cuda
