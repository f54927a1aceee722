// Loop kernels whose items are tiles: what is contiguous across the lanes is turned on its way.
#include <fmt/format.h>

#include "codegen/cpu/loop_writer.h"

namespace coil::cpu {

// An item is kTiledBlock lanes of kTileRows points across. What is contiguous across the lanes is read in square tiles, turned on its way to the
// stack; results that are, on their way from it.
void LoopWriter::tiles() {
  const std::string v = axis(form_.lanes).name, x = axis(form_.across).name;
  out() += fmt::format("    const long stop = cd::minimum((cd::i64)((block + 1) * {}), (cd::i64)({}));\n", kTiledBlock, size(form_.lanes));
  out() += fmt::format("    const long last = cd::minimum((cd::i64)((strip + 1) * {}), (cd::i64)({}));\n", kTileRows, size(form_.across));
  out() += fmt::format(
      "    for (long first = strip * {}; first < last; first += COIL_LANES) {{\n      const int points = (int)cd::minimum((cd::i64)(last - first), (cd::i64)COIL_LANES);\n",
      kTileRows);
  context_.lane_var = form_.lanes, context_.whole_steps = true;
  out() += fmt::format("      long {} = block * {};\n      for (; {} + COIL_LANES <= stop; {} += COIL_LANES) {{\n", v, kTiledBlock, v, v);
  tile("        ");
  out() += "      }\n";
  if (!whole_vectors(axis(form_.lanes).size)) {
    out() += fmt::format("      if ({} < stop) {{\n        const int lanes = (int)(stop - {});\n", v, v);
    context_.tail = "lanes";
    tile("        ");
    context_.tail.clear();
    out() += "      }\n";
  }
  out() += "    }\n";
  context_.lane_var = -1, context_.whole_steps = false;
}

void LoopWriter::tile(const std::string& indent) {
  const std::string x = axis(form_.across).name, tail = context_.tail;
  std::string reads, parts;
  for (size_t i = 0; i < form_.tiled.size(); ++i) {
    const BufferId id(form_.tiled[i]->id);
    const Expr offset = form_.tiled[i]->args[0];
    out() += fmt::format("{}{} tile{}[COIL_LANES * COIL_LANES] __attribute__((aligned(64)));\n", indent, memory_type(plan_.buffer(id).info.dtype), i);
    const std::string args =
        fmt::format("{} + {}, {}, tile{}", names_.pointer(id), scalar_index(offset), scalar_index(as_affine(offset, form_.lanes)->coefficient), i);
    reads += fmt::format("{}    cd::turn({});\n", indent, args);
    parts += fmt::format("{}    cd::turn_part({}, {}, points);\n", indent, args, tail.empty() ? "COIL_LANES" : tail);
    context_.known[form_.tiled[i].node()] = fmt::format("cd::load(tile{} + ({} - first) * COIL_LANES)", i, x);
  }
  out() += form_.turned ? open_turned(indent) : at_first_point(reads, parts, indent);
  out() += keep_rolled(indent) + fmt::format("{0}for (long {1} = first; {1} < first + points; ++{1}) {{\n", indent, x);
  phases(indent + "  ");
  context_.known.clear();
  out() += indent + "}\n";
  if (form_.turned) close_turned(indent);
}

std::string LoopWriter::at_first_point(const std::string& whole, const std::string& part, const std::string& indent) const {
  const std::string body =
      context_.tail.empty() ? fmt::format("{0}  if (points == COIL_LANES) {{\n{1}{0}  }} else {{\n{2}{0}  }}\n", indent, whole, part) : part;
  return fmt::format("{0}{{\n{0}  const long {1} = first;\n{2}{0}}}\n", indent, axis(form_.across).name, body);
}

std::string LoopWriter::open_turned(const std::string& indent) {
  turned_.clear();
  std::string text;
  for (const Stmt& s : k_.stmts) {
    if (s.kind != Stmt::Kind::store) continue;
    text += fmt::format("{}{} result{}[COIL_LANES * COIL_LANES] __attribute__((aligned(64)));\n", indent, memory_type(s.dtype), turned_.size());
    turned_.push_back(&s);
  }
  return text;
}

void LoopWriter::close_turned(const std::string& indent) {
  std::string whole, parts;
  for (size_t i = 0; i < turned_.size(); ++i) {
    const Expr offset = turned_[i]->offset;
    const std::string to =
        fmt::format("{} + {}, {}", names_.pointer(turned_[i]->buffer), scalar_index(offset), scalar_index(as_affine(offset, form_.lanes)->coefficient));
    whole += fmt::format("{}    cd::turn(result{}, COIL_LANES, {});\n", indent, i, to);
    parts += fmt::format("{}    cd::turn_out_part(result{}, {}, {}, points);\n", indent, i, to, context_.tail.empty() ? "COIL_LANES" : context_.tail);
  }
  out() += at_first_point(whole, parts, indent);
  turned_.clear();
}

}  // namespace coil::cpu
