// Loop kernels: outer points are handed to threads, lanes run along the axis that most accesses step through by one.
#include <algorithm>

#include <fmt/format.h>

#include "codegen/cpu/loop_writer.h"
#include "loop/gives_position.h"

namespace coil::cpu {
namespace {

constexpr int64_t kPointwiseBlock = 1024;  // elements of the lane axis in one item of a pointwise kernel: amortises the loop head

bool any_reduction(const std::vector<const Stmt*>& stmts) {
  return std::any_of(stmts.begin(), stmts.end(), [](const Stmt* s) { return s->kind == Stmt::Kind::reduce; });
}

const Stmt& statement(const Stmt& s) { return s; }
const Stmt& statement(const Stmt* s) { return *s; }
template <class Statements>
bool long_body(const Statements& stmts) {
  int sum = 0;
  for (const auto& s : stmts) sum += cost(statement(s).value);
  return sum > kLongBody;
}

std::string vector_type(DType d) { return compute_type(d) == DType::boolean ? "cd::maskv" : "cd::Vec<" + register_type(d) + ">"; }

}  // namespace

LoopWriter::LoopWriter(const KernelPlan& plan, const LoopKernel& k, const LoopForm& form, const std::vector<BufferId>& buffers, const std::vector<int>& symbols)
    : plan_(plan), k_(k), form_(form), names_(plan, symbols) {
  for (const BufferId id : buffers) names_.number(id);
  for (const Axis& a : k.axes) {
    context_.vars.push_back(a.name);
    context_.sizes.push_back(a.size);
  }
  for (size_t r = 0; r < k.scratch.size(); ++r) context_.scratch[static_cast<int>(r)] = "q" + std::to_string(r);
}

KernelText LoopWriter::run() {
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
  t.body =
      "extern \"C\" COIL_KERNEL void @NAME@(void* context, long begin, long end, int worker) {\n"
      "  const coil_args& a = *(const coil_args*)context;\n  [[maybe_unused]] const long* s = a.s;\n" +
      pointer_declarations(plan_, names_.buffers(), written, restrict) + scratch + body + (form_.streams ? "  cd::end_streams();\n" : "") + "}\n";
  t.headers.assign(names_.headers().begin(), names_.headers().end());
  t.buffers = names_.buffers();
  t.symbols = names_.symbols();
  t.items = items_;
  t.work = work();
  return t;
}

std::string LoopWriter::scalar_index(Expr e) {
  std::string ignored;
  ExprEmitter emitter(names_, context_, ignored, "", next_name_);
  return emitter.index(e);
}

std::string LoopWriter::scratch_pointer(size_t r) {
  const WorkerScratch& s = k_.scratch[r];
  const Expr part = plan_.buffer(s.buffer).info.strides[1];
  return fmt::format("  {}* __restrict q{} = ({}*)a.p[{}] + worker * {};\n", memory_type(s.dtype), r, memory_type(s.dtype), names_.number(s.buffer),
                     scalar_index(part));
}

std::string LoopWriter::unpack(const ItemParts& parts, const std::string& item, const std::string& indent) {
  const std::string rest = parts.size() > 1 ? "rest" : item;
  std::string text = parts.size() > 1 ? fmt::format("{}long rest = {};\n", indent, item) : "";
  for (const auto& [name, values] : parts) {
    const std::string n = scalar_index(values);
    text += &name == &parts.back().first ? fmt::format("{}const long {} = {};\n", indent, name, rest)
                                         : fmt::format("{0}const long {1} = {2} % {3};\n{0}{2} /= {3};\n", indent, name, rest, n);
  }
  return text;
}

int64_t LoopWriter::lanes_of_item() const {
  if (form_.across >= 0) return kTiledBlock;
  if (form_.columns > 0) return form_.columns;
  return any_inner() ? kReductionBlock : kPointwiseBlock;
}

void LoopWriter::item_loop() {
  const int64_t block = lanes_of_item();
  items_ = pool().index(1);
  out() += "  for (long item = begin; item < end; ++item) {\n";
  ItemParts parts;
  if (lane_outer()) parts.emplace_back("block", ceil_div(axis(form_.lanes).size, pool().index(block)));
  if (form_.across >= 0) parts.emplace_back("strip", ceil_div(axis(form_.across).size, pool().index(kTileRows)));
  for (int a = k_.num_outer - 1; a >= 0; --a) {
    if (a != form_.across && !(a == form_.lanes && lane_outer())) parts.emplace_back(axis(a).name, axis(a).size);
  }
  for (const auto& part : parts) items_ = items_ * part.second;
  out() += unpack(parts, "item", "    ");
  rows_of_item(parts, block);
  if (form_.across >= 0) {
    tiles();
  } else if (form_.columns > 0) {
    column_block();
  } else if (lane_outer()) {
    lane_block(block);
  } else {
    phases("    ");
  }
  context_.rows.clear();
  out() += "  }\n";
}

std::string LoopWriter::open_repeat(const std::string& indent, int vectors) const {
  const std::string& v = axis(form_.lanes).name;
  if (form_.columns > 0)
    return fmt::format("{0}for (long u = 0; u < whole; ++u) {{\n{0}  [[maybe_unused]] const long {1} = {1}_at + u * COIL_LANES;\n", indent, v);
  return fmt::format("#pragma clang loop unroll(full)\n{0}for (int u = 0; u < {1}; ++u) {{\n{0}  [[maybe_unused]] const long {2} = {2}_at + u * COIL_LANES;\n",
                     indent, vectors, v);
}

void LoopWriter::lane_block(int64_t block) {
  const std::string v = axis(form_.lanes).name, at = several() ? v + "_at" : v;
  out() += fmt::format("    const long stop = cd::minimum((cd::i64)((block + 1) * {}), (cd::i64)({}));\n", block, size(form_.lanes));
  out() += fmt::format("    long {} = block * {};\n", at, block);
  context_.lane_var = form_.lanes, context_.whole_steps = true;
  if (several()) {
    out() += keep_rolled("    ") + fmt::format("    for (; {0} + {1} * COIL_LANES <= stop; {0} += {1} * COIL_LANES) {{\n", at, form_.vectors);
    repeats_ = true;
    phases("      ");
    repeats_ = false;
    out() += "    }\n";
  }
  vectors_until_stop(at, "    ");
  context_.lane_var = -1, context_.whole_steps = false;
}

void LoopWriter::vectors_until_stop(const std::string& at, const std::string& indent) {
  const std::string v = axis(form_.lanes).name, own = at == v ? "" : fmt::format("{}  const long {} = {};\n", indent, v, at);
  if (several() || long_body(k_.stmts)) out() += keep_rolled(indent);
  out() += fmt::format("{0}for (; {1} + COIL_LANES <= stop; {1} += COIL_LANES) {{\n{2}", indent, at, own);
  phases(indent + "  ");
  out() += indent + "}\n";
  if (whole_vectors(axis(form_.lanes).size)) return;
  out() += fmt::format("{0}if ({1} < stop) {{\n{2}{0}  const int lanes = (int)(stop - {1});\n", indent, at, own);
  context_.tail = "lanes";
  phases(indent + "  ");
  context_.tail.clear();
  out() += indent + "}\n";
}

void LoopWriter::phases(const std::string& indent) {
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

void LoopWriter::outer_statements(const std::vector<const Stmt*>& stmts, const std::string& indent) {
  if (repeats_) return repeated_outer(stmts, indent);
  ExprEmitter emitter(names_, context_, out(), indent, next_name_);
  for (const Stmt* s : stmts) run_statement(*s, emitter);
}

void LoopWriter::repeated_outer(const std::vector<const Stmt*>& stmts, const std::string& indent) {
  std::string body, *const whole = out_;
  out_ = &body;
  ExprEmitter emitter(names_, context_, body, indent + "  ", next_name_);
  for (const Stmt* s : stmts) {
    run_statement(*s, emitter);
    if (s->kind != Stmt::Kind::let) continue;
    const std::string name = "t" + std::to_string(next_name_++);
    *whole += fmt::format("{}{} {}[{}];\n", indent, vector_type(s->value->dtype), name, array_length(form_.vectors, form_.columns));
    body += fmt::format("{}  {}[u] = {};\n", indent, name, emitter.vector_value(s->value));
    context_.temps[s->temp.index] = {name + "[u]", true};
  }
  out_ = whole;
  out() += open_repeat(indent, form_.vectors) + body + indent + "}\n";
}

void LoopWriter::run_statement(const Stmt& s, ExprEmitter& emitter) {
  if (s.kind == Stmt::Kind::let) {
    const auto t = emitter.value(s.value);
    context_.temps[s.temp.index] = {t.text, t.vector};
  } else {
    CHECK(s.kind == Stmt::Kind::store, "an outer statement that reduces");
    if (const auto turned = std::find(turned_.begin(), turned_.end(), &s); turned != turned_.end()) {
      emitter.store_lanes(fmt::format("result{} + ({} - first) * COIL_LANES", turned - turned_.begin(), axis(form_.across).name), s.value);
      return;
    }
    emitter.store(s.scratch >= 0 ? context_.scratch.at(s.scratch) : names_.pointer(s.buffer), s.offset, s.value, s.condition, form_.streams && s.scratch < 0);
  }
}

void LoopWriter::inner_loops(const std::vector<const Stmt*>& stmts, const std::string& indent) {
  const bool lane_inner = form_.lanes >= 0 && !lane_outer();
  const int vectors = repeats_ ? form_.vectors : lane_inner && any_reduction(stmts) ? (long_body(stmts) ? form_.long_vectors : form_.vectors) : 1;
  const int last = static_cast<int>(k_.axes.size()) - 1;
  SumBlocks blocks;
  if (std::any_of(stmts.begin(), stmts.end(), [](const Stmt* s) { return adds_floats(*s); }))
    blocks = sum_blocks(k_, lane_inner ? last : -1, kMaxLanes * vectors);
  std::vector<ReduceText> reductions;
  for (const Stmt* s : stmts) {
    if (s->kind != Stmt::Kind::reduce && s->kind != Stmt::Kind::scan) continue;
    if (s->op == ReduceOp::log_sum) names_.need_header("math_exp.h");
    reductions.push_back(ReduceText::make(*s, next_name_++, form_.lanes >= 0, vectors, lane_inner));
    reductions.back().columns = repeats_ ? form_.columns : 0;
    reductions.back().small = gives_position(s->op) && s->kind == Stmt::Kind::reduce && upper_bound(inner_points()).value_or(INT64_MAX) < INT32_MAX;
    reductions.back().blocks = blocks.axis >= 0 && adds_floats(*s);
    out() += reductions.back().declare(indent);
  }
  std::string in = indent;
  const bool by_rows = repeats_ && form_.columns > 0;
  for (int a = k_.num_outer; a < last || (a == last && !lane_inner); ++a) {
    out() += open_inner(a, a == blocks.axis ? blocks.step : Expr(), in, by_rows && a == last);
    in += a == blocks.axis ? "    " : "  ";
  }
  if (by_rows) {
    const bool cut = last == blocks.axis;
    column_rows(stmts, reductions, cut ? axis(last).name + "_block" : "0", cut ? axis(last).name + "_stop" : size(last), in);
  } else if (lane_inner) {
    lane_loop(stmts, reductions, in, last, vectors, last == blocks.axis);
  } else if (repeats_) {
    out() += open_repeat(in, vectors);
    for (ReduceText& r : reductions) r.element = "[u]";
    inner_body(stmts, reductions, in + "  ");
    out() += in + "}\n";
  } else {
    inner_body(stmts, reductions, in);
  }
  for (int a = lane_inner ? last - 1 : last; a >= k_.num_outer; --a) {
    in.resize(in.size() - 2);
    out() += in + "}\n";
    if (a != blocks.axis) continue;
    out() += next_block(reductions, in);
    in.resize(in.size() - 2);
    out() += in + "}\n";
  }
  for (ReduceText& r : reductions) {
    out() += repeats_ ? r.finish_in_place(indent) : r.finish(indent);
    context_.temps[r.temp] = {repeats_ ? r.in_place() : r.result, lane_outer()};
  }
}

std::string LoopWriter::open_inner(int a, Expr block, const std::string& indent, bool by_rows) {
  const std::string& v = axis(a).name;
  if (!block && by_rows) return indent + "{\n";
  if (!block) return fmt::format("{0}for (long {1} = 0; {1} < {2}; ++{1}) {{\n", indent, v, size(a));
  const std::string step = scalar_index(block);
  return fmt::format(
      "{0}for (long {1}_block = 0; {1}_block < {2}; {1}_block += {3}) {{\n{0}  const long {1}_stop = cd::minimum((cd::i64)({1}_block + {3}), (cd::i64)({2}));\n"
      "{0}  {4}\n",
      indent, v, size(a), step, by_rows ? "{" : fmt::format("for (long {0} = {0}_block; {0} < {0}_stop; ++{0}) {{", v));
}

std::string LoopWriter::next_block(const std::vector<ReduceText>& reductions, const std::string& indent) const {
  std::string text;
  for (const ReduceText& r : reductions) {
    if (r.blocks) text += r.add_block(indent);
  }
  return text;
}

void LoopWriter::lane_loop(const std::vector<const Stmt*>& stmts, std::vector<ReduceText>& reductions, const std::string& in, int lanes, int vectors,
                           bool blocks) {
  const std::string v = axis(lanes).name, n = size(lanes), at = vectors > 1 ? v + "_at" : v;
  context_.lane_var = lanes, context_.whole_steps = true;
  const auto element = [&](const char* text) {
    for (ReduceText& r : reductions) r.element = vectors > 1 ? text : "";
  };
  // A scope of its own: the next pass declares the same variable.
  out() += fmt::format("{}{{\n{}  long {} = 0;\n", in, in, at);
  std::string deep = in + "  ", stop = n;
  const std::string more = fmt::format("{} + {} * COIL_LANES <= ", at, vectors);
  if (blocks) {
    out() += fmt::format("{0}while ({1}{2}) {{\n{0}  const long stop = cd::minimum((cd::i64)({3} + {4} * COIL_LANES), (cd::i64)({2}));\n", deep, more, n, at,
                         kSumBlock * vectors);
    deep += "  ";
    stop = "stop";
  }
  const auto close_block = [&] {
    if (!blocks) return;
    if (lanes == k_.num_outer) out() += fmt::format("{}if (!({}{})) break;\n", deep, more, n);  // a row of one block needs no float64
    out() += next_block(reductions, deep) + in + "  }\n";
    deep = in + "  ";
    stop = n;
  };
  if (vectors > 1) {
    out() +=
        keep_rolled(deep) + fmt::format("{0}for (; {1}{2}; {3} += {4} * COIL_LANES) {{\n", deep, more, stop, at, vectors) + open_repeat(deep + "  ", vectors);
    element("[u]");
    inner_body(stmts, reductions, deep + "    ");
    out() += deep + "  }\n" + deep + "}\n";
    close_block();
  }
  const std::string own = vectors > 1 ? fmt::format("{}  [[maybe_unused]] const long {} = {};\n", deep, v, at) : "";
  element("[0]");
  if (vectors > 1 || long_body(stmts)) out() += keep_rolled(deep);
  out() += fmt::format("{0}for (; {1} + COIL_LANES <= {2}; {1} += COIL_LANES) {{\n{3}", deep, at, stop, own);
  inner_body(stmts, reductions, deep + "  ");
  out() += deep + "}\n";
  if (vectors == 1) close_block();
  if (!whole_vectors(axis(lanes).size)) {
    out() += fmt::format("{0}  if ({1} < {2}) {{\n{3}{0}    const int lanes = (int)({2} - {1});\n", in, at, n, own);
    context_.tail = "lanes";
    inner_body(stmts, reductions, in + "    ");
    context_.tail.clear();
    out() += in + "  }\n";
  }
  out() += in + "}\n";
  context_.lane_var = -1, context_.whole_steps = false;
}

Expr LoopWriter::inner_points() const {
  Expr points = pool().index(1);
  for (size_t a = static_cast<size_t>(k_.num_outer); a < k_.axes.size(); ++a) points = points * k_.axes[a].size;
  return points;
}

Expr LoopWriter::point_number() const {
  Expr number = pool().index(0);
  for (size_t a = static_cast<size_t>(k_.num_outer); a < k_.axes.size(); ++a) {
    number = number * k_.axes[a].size + pool().var(static_cast<int>(a));
  }
  return number;
}

void LoopWriter::inner_body(const std::vector<const Stmt*>& stmts, std::vector<ReduceText>& reductions, const std::string& indent) {
  ExprEmitter emitter(names_, context_, out(), indent, next_name_);
  size_t r = 0;
  for (const Stmt* s : stmts) {
    if (s->kind == Stmt::Kind::reduce || s->kind == Stmt::Kind::scan) {
      ReduceText& reduction = reductions[r++];
      std::string value = emitter.vector_value(s->value);
      if (reduction.operand != s->value->dtype) value = fmt::format("cd::cast<{}>({})", register_type(reduction.operand), value);
      std::string number;
      if (gives_position(s->op)) number = emitter.vector_value(pool().cast(point_number(), reduction.small ? DType::i32 : DType::i64));
      const bool masked = !context_.tail.empty() && context_.lane_var >= k_.num_outer;
      out() += reduction.update(indent, value, number, masked);
      if (s->kind != Stmt::Kind::scan) continue;
      const std::string so_far = reduction.in_place();
      context_.temps[s->temp.index] = {reduction.operand == s->value->dtype ? so_far : fmt::format("cd::cast<{}>({})", register_type(s->value->dtype), so_far),
                                       form_.lanes >= 0};
    } else {
      run_statement(*s, emitter);
    }
  }
}

Expr LoopWriter::work() const {
  int ops = 2;
  for (const Stmt& s : k_.stmts) ops += cost(s.value) + 2;
  Expr points = inner_points();
  const auto block = [&](int a, int64_t most) { return index_min(axis(a).size, pool().index(most)); };
  if (form_.across >= 0) {
    points = points * block(form_.lanes, kTiledBlock) * block(form_.across, kTileRows);
  } else if (lane_outer()) {
    points = points * block(form_.lanes, lanes_of_item());
  }
  return form_.lanes >= 0 ? ceil_div(points * ops, pool().index(8)) : points * ops;
}

KernelText loop_kernel_text(const KernelPlan& plan, const LoopKernel& kernel, const LoopForm& form, const std::vector<BufferId>& buffers,
                            const std::vector<int>& symbols) {
  return LoopWriter(plan, kernel, form, buffers, symbols).run();
}

std::string pointer_declarations(const KernelPlan& plan, const std::vector<BufferId>& buffers, const std::vector<BufferId>& written, bool restrict) {
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
