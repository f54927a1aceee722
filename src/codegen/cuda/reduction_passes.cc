// The passes of a kernel with reductions: what a thread does at its points, and how threads combine.
#include <fmt/format.h>

#include "codegen/cuda/reduction_words.h"
#include "codegen/cuda/reduction_writer.h"
#include "loop/gives_position.h"
#include "schedule/schedule.h"

namespace coil::cuda {
namespace {

// A running sum of one thread is one long chain: it goes in float64, as eager's does on the CPU.
DType accumulated_type(const Stmt& s) {
  const bool running = s.kind == Stmt::Kind::scan && (s.op == ReduceOp::sum || s.op == ReduceOp::prod || s.op == ReduceOp::log_sum) && is_float(s.value->dtype);
  return running ? DType::f64 : s.value->dtype;
}

}  // namespace

std::string ReductionWriter::phases() {
  std::string text;
  if (c_.skew) text += fmt::format("  const {} skew = {} & {};\n", type(), index(c_.skew), width_ - 1);
  for (size_t r = 0; r < k_.scratch.size(); ++r) text += keep_array("kept" + std::to_string(r), k_.scratch[r].dtype);
  for (size_t l = 0; l < kept_values_.size(); ++l) text += keep_array("read" + std::to_string(l), kept_values_[l].first->dtype);
  size_t i = 0;
  for (int phase = 0; i < k_.stmts.size(); ++phase) {
    std::vector<const Stmt*> outer, inner;
    for (; i < k_.stmts.size() && k_.stmts[i].phase == phase; ++i) (k_.stmts[i].inner ? inner : outer).push_back(&k_.stmts[i]);
    if (!outer.empty()) text += outer_statements(outer);
    if (inner.empty()) continue;
    if (const Stmt* sum = softmax_sum(inner, i)) {
      text += softmax_pass(*inner[0], *sum);
      std::vector<const Stmt*> between;  // what uses the largest value alone
      for (++phase; i < k_.stmts.size() && k_.stmts[i].phase == phase; ++i) {
        if (!k_.stmts[i].inner) between.push_back(&k_.stmts[i]);
      }
      if (!between.empty()) text += outer_statements(between);
    } else {
      text += inner_pass(inner, phase);
    }
  }
  return text;
}

std::string ReductionWriter::keep_array(const std::string& name, DType dtype) {
  if (way_ != Way::row) return fmt::format("  {} {}[{}];\n", register_type(dtype), name, upper_bound(inner_points()).value_or(1));
  return fmt::format("  {} {}[{}][{}];\n", register_type(dtype), name, chunks_, width_);
}

std::string ReductionWriter::outer_statements(const std::vector<const Stmt*>& stmts) {
  if (several()) return outer_of_several(stmts);
  return outer_code(stmts, way_ == Way::thread ? "" : way_ == Way::column ? "line == 0 && active" : "y == 0", "  ");
}

std::string ReductionWriter::outer_code(const std::vector<const Stmt*>& stmts, const std::string& only, const std::string& indent) {
  std::string before, stores;
  Emitter emitter(c_, {&before, &before, indent, indent, -1, 1}, temps_);
  std::vector<const Stmt*> written;
  for (const Stmt* s : stmts) {
    if (s->kind == Stmt::Kind::let) {
      temps_[s->temp.index] = emitter.value(s->value);
      continue;
    }
    emitter.value(s->value);  // computed by all, stored by one
    written.push_back(s);
  }
  const std::string inside_indent = indent + (only.empty() ? "" : "  ");
  Emitter::Place place = {&stores, &stores, inside_indent, inside_indent, -1, 1};
  for (const Stmt* s : written) {
    const TempText t = emitter.value(s->value);
    Emitter inside(c_, place, temps_);
    const std::string to = c_.names.pointer(s->buffer), at = inside.index(s->offset);
    stores += fmt::format("{}cd::store1({} + {}, {});\n", place.before_indent, to, at, t.text);
  }
  if (stores.empty()) return before;
  return before + (only.empty() ? stores : fmt::format("{0}if ({1}) {{\n{2}{0}}}\n", indent, only, stores));
}

std::string ReductionWriter::inner_pass(const std::vector<const Stmt*>& stmts, int phase) {
  std::string text;
  std::vector<Accumulator> accumulators;
  for (const Stmt* s : stmts) {
    if (s->kind != Stmt::Kind::reduce && s->kind != Stmt::Kind::scan) continue;
    const std::string name = "acc" + std::to_string(c_.next_name++);
    accumulators.push_back({s, name, several() ? "[v]" : ""});
    const DType type = accumulated_type(*s);
    const auto declare = [&](const std::string& of, const std::string& variable, const std::string& value) {
      if (several()) text += fmt::format("  {0} {1}[{2}];\n#pragma unroll\n  for (int v = 0; v < {2}; ++v) {1}[v] = {3};\n", of, variable, width_, value);
      else text += fmt::format("  {} {} = {};\n", of, variable, value);
    };
    declare(register_type(type), name, identity(s->op, type));
    if (gives_position(s->op)) declare("cd::i64", name + "i", "9223372036854775807ll");
  }
  const auto at_chunk = [&](int width, const std::string& indent, const std::string& element) {
    return chunk(stmts, accumulators, phase, width, indent, element);
  };
  text += way_ == Way::row ? row_loop(at_chunk) : serial_loop(stmts, accumulators);
  for (const Accumulator& a : accumulators) text += combine(a);
  return text;
}

const Stmt* ReductionWriter::softmax_sum(const std::vector<const Stmt*>& first, size_t next) const {
  if (way_ != Way::row || chunks_ > 0 || first.size() != 1 || first[0]->kind != Stmt::Kind::reduce || first[0]->op != ReduceOp::max) return nullptr;
  const Stmt& top = *first[0];
  if (!is_float(top.value->dtype)) return nullptr;
  const Stmt* sum = nullptr;
  for (size_t i = next; i < k_.stmts.size() && k_.stmts[i].phase == top.phase + 1; ++i) {
    if (!k_.stmts[i].inner) continue;
    if (sum) return nullptr;
    sum = &k_.stmts[i];
  }
  const Expr largest = pool().temp(top.temp, top.value->dtype);
  const Expr wanted = pool().op(ScalarOp::exp, {pool().op(ScalarOp::sub, {top.value, largest})});
  return sum && sum->kind == Stmt::Kind::reduce && sum->op == ReduceOp::sum && sum->value == wanted ? sum : nullptr;
}

std::string ReductionWriter::softmax_pass(const Stmt& top, const Stmt& sum) {
  const std::string number = std::to_string(c_.next_name++), type = register_type(top.value->dtype), largest = "top" + number, part = "part" + number;
  std::string text = fmt::format("  {} {} = {}, {} = 0;\n", type, largest, identity(ReduceOp::max, top.value->dtype), part);
  const std::string x = "x" + number;
  const auto fill = [&](int width, const std::string& indent, const std::string& element) {
    std::string before, body;
    const std::string inside = width > 1 ? indent + "  " : indent;
    Emitter emitter(c_, {&before, width > 1 ? &body : &before, indent, inside, width > 1 ? last_axis() : -1, width}, temps_);
    const std::string value = emitter.lane_value(top.value);
    (width > 1 ? body : before) += fmt::format("{}{}{} = {};\n", inside, x, element, value);
    return width > 1 ? before + lanes_loop(body, width, indent) : before;
  };
  if (k_.num_outer == last_axis()) {
    text +=
        softmax_batches(type, x, identity(ReduceOp::max, top.value->dtype), fill) + fmt::format("    cd::softmax_step({}, {}, {});\n  }}\n", largest, part, x);
  } else {
    text += row_loop([&](int width, const std::string& indent, const std::string&) {
      return fmt::format("{0}{1} {2}[1][{3}];\n{4}{0}cd::softmax_step({5}, {6}, {2});\n", indent, type, x, width,
                         fill(width, indent, width > 1 ? "[0][v]" : "[0][0]"), largest, part);
    });
  }
  text += combine({&top, largest, ""});
  text += fmt::format("  {0} = cd::softmax_part({1}, {0}, {2});\n", part, largest, temps_.at(top.temp.index).text);
  return text + combine({&sum, part, ""});
}

std::string ReductionWriter::softmax_batches(const std::string& type, const std::string& x, const std::string& none, const AtChunk& fill) {
  constexpr int batch = 4;
  const std::string ix = this->type(), v = axis(last_axis()).name, n = index(axis(last_axis()).size), skew = c_.skew ? " - skew" : "";
  const std::string wide = width_ > 1 ? "a.wide && " : "", element = width_ > 1 ? "[u][v]" : "[u][0]",
                    each = fmt::format("#pragma unroll\n      for (int u = 0; u < {}; ++u) {{\n", batch);
  const std::string start = fmt::format("        const {} {} = (c + u * {}) * {}{};\n", ix, v, threads_, width_, skew);
  std::string text =
      fmt::format("  for ({} c = y; c < {}; c += {}) {{\n    {} {}[{}][{}];\n", ix, index(chunk_count()), batch * threads_, type, x, batch, width_);
  text += fmt::format("    if ({}{}(c + {}) * {}{} + {} <= {}) {{\n", wide, c_.skew ? fmt::format("c * {} >= skew && ", width_) : "", (batch - 1) * threads_,
                      width_, skew, width_, n);
  text += each + start + fill(width_, "        ", element) + "      }\n    } else {\n" + each + start;
  if (width_ > 1) {
    text += fmt::format("        if ({}{}{} + {} <= {}) {{\n", wide, c_.skew ? v + " >= 0 && " : "", v, width_, n) + fill(width_, "          ", element) +
            "          continue;\n        }\n";
  }
  text += fmt::format(
      "#pragma unroll\n        for (int v = 0; v < {0}; ++v) {{\n          {1}[u][v] = {2};\n          const {3} {4}_at = {4} + v;\n          if ({5}{4}_at >= {6}) continue;\n",
      width_, x, none, ix, v, c_.skew ? v + "_at < 0 || " : "", n);
  c_.vars[static_cast<size_t>(last_axis())] = v + "_at";
  text += fill(1, "          ", "[u][v]") + "        }\n      }\n    }\n";
  c_.vars[static_cast<size_t>(last_axis())] = v;
  return text;
}

std::string ReductionWriter::combine(const Accumulator& a) {
  const Stmt& s = *a.stmt;
  const std::string total = "total" + std::to_string(c_.next_name++);
  std::string text;
  if (several() && way_ == Way::thread) {
    temps_[s.temp.index] = {a.name + (gives_position(s.op) ? "i" : "") + a.lane, true};
    return text;
  }
  if (several()) {
    needs_slots_ = true;
    text = fmt::format("  cd::columns_reduce<{}, {}, {}>({}, slots, {});\n", op_type(s.op), columns_, lines_, a.name, set_);
    set_ ^= 1;
    temps_[s.temp.index] = {a.name + a.lane, true};
    return text;
  }
  if (way_ == Way::thread) {
    text = fmt::format("  const auto {} = {}{};\n", total, a.name, gives_position(s.op) ? "i" : "");
  } else {
    const std::string how = way_ == Way::row
                                ? fmt::format("cd::row_reduce{}<{}, {}>", gives_position(s.op) ? "_index" : "", op_type(s.op), threads_)
                                : fmt::format("cd::column_reduce{}<{}, {}, {}>", gives_position(s.op) ? "_index" : "", op_type(s.op), columns_, lines_);
    needs_slots_ = true;
    text = fmt::format("  const auto {} = {}({}{}, slots, {});\n", total, how, a.name, gives_position(s.op) ? ", " + a.name + "i" : "", set_);
    set_ ^= 1;
  }
  temps_[s.temp.index] = {total, false};
  return text;
}

std::string ReductionWriter::update(const Accumulator& a, const std::string& value, const std::string& number, const std::string& indent) {
  const Stmt& s = *a.stmt;
  if (gives_position(s.op)) {
    return fmt::format("{0}if ({1}::better({2}{5}, {2}i{5}, {3}, {4})) {2}{5} = {3}, {2}i{5} = {4};\n", indent, op_type(s.op), a.name, value, number, a.lane);
  }
  return fmt::format("{0}{1} = {2}::combine({1}, {3});\n", indent, a.name + a.lane, op_type(s.op), value);
}

Expr ReductionWriter::point_number() const {
  Expr number = pool().index(0);
  for (int a = k_.num_outer; a < num_axes(); ++a) number = number * axis(a).size + pool().var(a);
  return number;
}

std::string ReductionWriter::chunk(const std::vector<const Stmt*>& stmts, const std::vector<Accumulator>& accumulators, int phase, int width,
                                   const std::string& indent, const std::string& element) {
  std::string before, body, after;
  const std::string inside = width > 1 ? indent + "  " : indent;
  Emitter::Place place = {&before, width > 1 ? &body : &before, indent, inside, width > 1 ? vector_axis() : -1, width};
  Emitter emitter(c_, place, temps_);
  std::string& out = width > 1 ? body : before;
  for (size_t l = 0; l < kept_values_.size(); ++l) {
    if (kept_values_[l].second < phase) emitter.know(kept_values_[l].first, {fmt::format("read{}{}", l, element), width > 1});
  }
  for (size_t r = 0; r < k_.scratch.size(); ++r) know_scratch(emitter, stmts, static_cast<int>(r), fmt::format("kept{}{}", r, element), width > 1);
  size_t next = 0;
  for (const Stmt* s : stmts) {
    if (s->kind == Stmt::Kind::reduce || s->kind == Stmt::Kind::scan) {
      std::string value = emitter.lane_value(s->value), number, done = accumulators[next].name;
      if (const DType type = accumulated_type(*s); type != s->value->dtype) {
        value = fmt::format("({})({})", register_type(type), value);
        done = fmt::format("({}){}", register_type(s->value->dtype), done);
      }
      if (gives_position(s->op)) number = emitter.lane_value(pool().cast(point_number(), DType::i64));
      out += update(accumulators[next], value, number, inside);
      if (s->kind == Stmt::Kind::scan) temps_[s->temp.index] = {done, false};
      ++next;
    } else if (s->scratch >= 0) {
      const std::string value = emitter.lane_value(s->value);
      out += fmt::format("{}kept{}{} = {};\n", inside, s->scratch, element, value);
    } else {
      emitter.store(s->buffer, s->offset, s->value, s->condition, after, indent);
    }
  }
  for (size_t l = 0; l < kept_values_.size(); ++l) {
    if (kept_values_[l].second == phase) out += fmt::format("{}read{}{} = {};\n", inside, l, element, emitter.lane_value(kept_values_[l].first));
  }
  if (width == 1) return before + after;
  return before + lanes_loop(body, width, indent) + after;
}

void ReductionWriter::know_scratch(Emitter& emitter, const std::vector<const Stmt*>& stmts, int row, const std::string& text, bool lanes) {
  for (const Stmt* s : stmts) {
    visit(s->value, [&](Expr e) {
      if (e->kind == ExprKind::load && e->id == kScratchBase + row) emitter.know(e, {text, lanes});
    });
  }
}

std::string ReductionWriter::row_loop(const AtChunk& at_chunk) {
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
    text += fmt::format("{}const {} {} = c * {}{};\n", indent, ix, v, width_, c_.skew ? " - skew" : "");
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
    const bool whole = !c_.skew && size->is_constant() && size->as_int() % width_ == 0;
    const std::string before = c_.skew ? fmt::format(" && {} >= 0", v) : "";
    text += fmt::format("{}if (a.wide{}{}) {{\n", indent, before, whole ? "" : fmt::format(" && {} + {} <= {}", v, width_, n));
    text += at_chunk(width_, indent + "  ", element) + indent + "} else {\n";
    text += fmt::format("#pragma unroll\n{0}  for (int v = 0; v < {1}; ++v) {{\n{0}    const {2} {3}_at = {3} + v;\n{0}    if ({5}{3}_at >= {4}) continue;\n",
                        indent, width_, ix, v, n, c_.skew ? v + "_at < 0 || " : "");
    c_.vars[static_cast<size_t>(last_axis())] = v + "_at";
    text += at_chunk(1, indent + "    ", element) + indent + "  }\n" + indent + "}\n";
    c_.vars[static_cast<size_t>(last_axis())] = v;
  } else {
    text += at_chunk(1, indent, chunks_ > 0 ? "[e][0]" : "");
  }
  if (!exact) text += "    }\n";
  return text + "  }\n";
}

}  // namespace coil::cuda
