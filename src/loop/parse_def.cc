#include "loop/parse_def.h"

#include <algorithm>

#include <fmt/format.h>

#include "loop/loop_text.h"
#include "loop/templates/template.h"

namespace coil {
namespace {

std::optional<ReduceOp> reduce_op(LoopReader& words) {
  for (size_t i = 0; i < std::size(kReduceNames); ++i) {
    if (words.accept(kReduceNames[i])) return static_cast<ReduceOp>(i);
  }
  return std::nullopt;
}

Pointwise read_pointwise(LoopReader& words) {
  words.variables();
  return {words.expr()};
}

// "over [4] [i0 | i1] load(x, i0, i1)"; "ranges of" follows from the body.
Reduction read_reduction(LoopReader& words, ReduceOp op) {
  Reduction d;
  d.op = op;
  words.expect("over");
  words.accept("ranges of");
  d.domain = words.list();
  words.variables();
  d.body = words.expr();
  return d;
}

Scan read_scan(LoopReader& words) {
  Scan d;
  const std::optional<ReduceOp> op = reduce_op(words);
  bool found = false;
  for (ScanOp s : {ScanOp::sum, ScanOp::prod, ScanOp::max, ScanOp::min, ScanOp::log_sum}) {
    if (op != step_of(s)) continue;
    d.op = s;
    found = true;
  }
  if (!found) words.fail("expected the operation of a scan");
  words.expect("along");
  d.dim = words.variable();
  words.variables();
  d.body = words.expr();
  return d;
}

Concat read_concat(LoopReader& words) {
  Concat d;
  words.expect("along");
  d.dim = words.variable();
  return d;
}

Sort read_sort(LoopReader& words) {
  Sort d;
  d.descending = words.accept("descending");
  if (words.accept("below")) d.below = words.integer();
  words.expect("along");
  d.dim = words.variable();
  words.expect("of");
  d.length = words.index();
  words.variables();
  d.body = words.expr();
  return d;
}

Library read_library(LoopReader& words) {
  Library d;
  d.routine = words.name();
  // The only type that no buffer has: complex numbers.
  const std::string type = words.name();
  if (const auto dtype = dtype_from_name(type)) d.dtype = *dtype;
  else words.fail(fmt::format("'{}' is no type of elements", type));
  words.expect("for");
  d.subject = words.name();
  words.expect("sizes");
  d.sizes = words.list();
  words.expect("options");
  words.expect("[");
  while (!words.failed() && !words.accept("]")) {
    if (!d.options.empty()) words.expect(",");
    d.options.push_back(words.integer());
  }
  if (words.accept("scratch")) d.scratch = words.index();
  if (words.accept("worker scratch")) d.worker_scratch = words.index();
  words.expect(":");
  while (!words.failed() && !words.at_end() && !words.next(";")) {
    if (!d.inputs.empty()) words.expect(",");
    d.inputs.push_back(words.buffer());
  }
  return d;
}

Compact read_compact(LoopReader& words) {
  Compact d;
  for (const auto& [word, part] :
       {std::pair("blocks", &d.blocks), std::pair("of", &d.length), std::pair("where", &d.keep), std::pair("from", &d.start), std::pair(":", &d.value)}) {
    words.expect(word);
    *part = part == &d.blocks || part == &d.length ? words.index() : words.expr();
  }
  return d;
}

ReadSize read_read(LoopReader& words) {
  ReadSize d;
  d.symbol = words.symbol();
  words.expect("from");
  d.source = words.buffer();
  if (words.accept(", at most")) d.limit = words.index();
  return d;
}

Region read_branch(LoopReader& words) {
  Region d;
  words.expect("by");
  d.predicate = words.buffer();
  return d;
}

Region read_region_loop(LoopReader& words) {
  Region d;
  d.kind = Region::Kind::loop;
  d.step = words.symbol();
  if (words.accept("<")) d.steps = words.index();
  words.expect("from");
  words.expect("[");
  while (!words.failed() && !words.accept("]")) {
    if (!d.initial.empty()) words.expect(",");
    d.initial.push_back(words.buffer());
  }
  return d;
}

// The template whose name is next, if one's is.
template <size_t I = 0>
bool read_template(LoopReader& words, LoopDef& def) {
  if constexpr (I < std::variant_size_v<LoopDef>) {
    using T = std::variant_alternative_t<I, LoopDef>;
    if constexpr (Template<T>) {
      if (words.accept(T::kName)) {
        T d;
        read(words, d);
        def = std::move(d);
        return true;
      }
    }
    return read_template<I + 1>(words, def);
  } else {
    return false;
  }
}

}  // namespace

const char* part_title(Region::Kind kind, size_t part) {
  static constexpr const char* kTitles[2][2] = {{"where it holds", "otherwise"}, {"step", "while"}};
  return kTitles[kind == Region::Kind::loop][std::min<size_t>(part, 1)];
}

Concat::Piece read_piece(LoopReader& words) {
  Concat::Piece piece;
  words.expect("from");
  piece.begin = words.index();
  words.expect("size");
  piece.size = words.index();
  words.expect(":");
  words.variables();
  piece.body = words.expr();
  return piece;
}

void read_def(LoopReader& words, LoopDef& def) {
  if (words.next("[")) def = read_pointwise(words);
  else if (const auto op = reduce_op(words)) def = read_reduction(words, *op);
  else if (words.accept("scan")) def = read_scan(words);
  else if (words.accept("concat")) def = read_concat(words);
  else if (words.accept("sort")) def = read_sort(words);
  else if (words.accept("library")) def = read_library(words);
  else if (words.accept("compact")) def = read_compact(words);
  else if (words.accept("read")) def = read_read(words);
  else if (words.accept("branch")) def = read_branch(words);
  else if (words.accept("loop")) def = read_region_loop(words);
  else if (words.accept("user")) words.fail("a user's kernel, whose code is not in the text");
  else if (!read_template(words, def)) words.fail("expected a definition");
}

}  // namespace coil
