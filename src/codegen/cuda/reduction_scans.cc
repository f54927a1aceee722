// The passes of a kernel with a scan: what is before each chunk goes on to the next one.
#include <fmt/format.h>

#include "codegen/cuda/reduction_words.h"
#include "codegen/cuda/reduction_writer.h"

namespace coil::cuda {

std::string ReductionWriter::scan_code() {
  const std::string ix = type(), n = index(axis(last_axis()).size);
  needs_slots_ = !warp_rows();
  const Stmt* scan = nullptr;
  for (const Stmt& s : k_.stmts) {
    if (s.kind != Stmt::Kind::scan) continue;
    CHECK(!scan, "a scan kernel has one scan");
    scan = &s;
  }
  CHECK(scan, "a scan kernel without a scan");
  const std::string number = std::to_string(c_.next_name++), x = "x" + number, carry = "carry" + number, first = identity(scan->op, scan->value->dtype);
  std::string text;
  if (c_.skew) text += fmt::format("  const {} skew = {} & {};\n", ix, index(c_.skew), width_ - 1);
  text += fmt::format("  {0} {1} = {2}, {3}[{4}][{5}];\n  for ({6} base = 0; base < {7}{8}; base += {9}) {{\n", register_type(scan->value->dtype), carry, first,
                      x, chunks_, width_, ix, n, c_.skew ? " + skew" : "", threads_ * chunks_ * width_);
  text += fmt::format("#pragma unroll\n    for (int i = 0; i < {}; ++i) {}[i / {}][i % {}] = {};\n", chunks_ * width_, x, width_, width_, first);
  text += scan_groups([&](int width, const std::string& indent, const std::string& element) {
    std::string before, body;
    const std::string inside = width > 1 ? indent + "  " : indent;
    Emitter emitter(c_, {&before, width > 1 ? &body : &before, indent, inside, width > 1 ? last_axis() : -1, width}, temps_);
    const std::string value = emitter.lane_value(scan->value);
    (width > 1 ? body : before) += fmt::format("{}{}{} = {};\n", inside, x, element, value);
    return width > 1 ? before + lanes_loop(body, width, indent) : before;
  });
  text += warp_rows() ? fmt::format("    cd::warp_scan<{}>({}, {});\n", op_type(scan->op), x, carry)
                      : fmt::format("    cd::block_scan<{}, {}>({}, {}, slots);\n", op_type(scan->op), threads_, x, carry);
  text += scan_groups([&](int width, const std::string& indent, const std::string& element) {
    std::string before, body, after;
    temps_[scan->temp.index] = {x + element, width > 1};
    Emitter emitter(c_, {&before, width > 1 ? &body : &before, indent, width > 1 ? indent + "  " : indent, width > 1 ? last_axis() : -1, width}, temps_);
    for (const Stmt& s : k_.stmts) {
      if (s.kind == Stmt::Kind::store) emitter.store(s.buffer, s.offset, s.value, s.condition, after, indent);
    }
    return width > 1 ? before + lanes_loop(body, width, indent) + after : before + after;
  });
  return text + "  }\n";
}

std::string ReductionWriter::scan_groups(const AtChunk& at_chunk) {
  const std::string ix = type(), v = axis(last_axis()).name, n = index(axis(last_axis()).size), skew = c_.skew ? " - skew" : "";
  // As cd::block_scan has it: lines of a warp.
  const std::string place = chunks_ == 1 ? "y" : fmt::format("((y / 32 * {} + g) * 32 + y % 32)", chunks_);
  const std::string each =
      fmt::format("#pragma unroll\n      for (int g = 0; g < {}; ++g) {{\n        const {} {} = base + {} * {}{};\n", chunks_, ix, v, place, width_, skew);
  if (width_ == 1) return each + fmt::format("        if ({} < {}) {{\n", v, n) + at_chunk(1, "          ", "[g][0]") + "        }\n      }\n";
  const int own = 32 * chunks_ * width_;
  // Without conditions between them, a thread's loads are all under way at once.
  std::string text = fmt::format("    if (a.wide && {}base + (y / 32 + 1) * {}{} <= {}) {{\n",
                                 c_.skew ? fmt::format("base + y / 32 * {} >= skew && ", own) : "", own, skew, n);
  text += each + at_chunk(width_, "        ", "[g][v]") + "      }\n    } else {\n" + each;
  if (chunks_ > 1) {
    text += fmt::format("        if (a.wide && {}{} + {} <= {}) {{\n", c_.skew ? v + " >= 0 && " : "", v, width_, n) +
            at_chunk(width_, "          ", "[g][v]") + "          continue;\n        }\n";
  }
  text += fmt::format(
      "#pragma unroll\n        for (int v = 0; v < {0}; ++v) {{\n          const {1} {2}_at = {2} + v;\n          if ({4}{2}_at >= {3}) continue;\n", width_,
      ix, v, n, c_.skew ? v + "_at < 0 || " : "");
  c_.vars[static_cast<size_t>(last_axis())] = v + "_at";
  text += at_chunk(1, "          ", "[g][v]") + "        }\n      }\n    }\n";
  c_.vars[static_cast<size_t>(last_axis())] = v;
  return text;
}

}  // namespace coil::cuda
