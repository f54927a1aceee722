#include "schedule/parse_kernel.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "loop/loop_text.h"
#include "loop/parse_def.h"
#include "loop/templates/template.h"
#include "schedule/plan_text.h"
#include "schedule/stand_in.h"

namespace coil {
namespace {

constexpr int kMostPhases = 10000;

// "t12": 12; nullopt: another name.
std::optional<int32_t> temp_number(std::string_view name) {
  int32_t number = 0;
  if (name.size() < 2 || name[0] != 't') return std::nullopt;
  const auto [end, wrong] = std::from_chars(name.data() + 1, name.data() + name.size(), number);
  return wrong == std::errc() && end == name.data() + name.size() && number >= 0 ? std::optional(number) : std::nullopt;
}

std::optional<int32_t> scratch_number(std::string_view name) {
  int32_t number = 0;
  if (!is_scratch_name(name)) return std::nullopt;
  const auto [end, wrong] = std::from_chars(name.data() + 7, name.data() + name.size(), number);
  return wrong == std::errc() && end == name.data() + name.size() ? std::optional(number) : std::nullopt;
}

}  // namespace

void KernelReader::explain_names(LoopReader& words, const Kernel& kernel) {
  const auto* loop = std::get_if<LoopKernel>(&kernel.def);
  words.meaning().temp = [this](TempId id) -> std::optional<DType> {
    const auto found = temps_.find(id.index);
    return found == temps_.end() ? std::nullopt : std::optional(found->second);
  };
  words.meaning().buffer = [this, loop](std::string_view name) -> std::optional<std::pair<BufferId, DType>> {
    const std::optional<int32_t> row = scratch_number(name);
    if (row && loop && static_cast<size_t>(*row) < loop->scratch.size())
      return std::pair(BufferId(kScratchBase + *row), loop->scratch[static_cast<size_t>(*row)].dtype);
    const auto found = buffers_.find(name);
    if (found == buffers_.end()) return std::nullopt;
    return std::pair(found->second, program_.buffer(found->second).dtype);
  };
}

void KernelReader::first_line(LoopReader& words, Kernel& kernel) {
  temps_.clear();
  using Kind = ControlMark::Kind;
  const auto mark = [&](Kind kind) -> ControlMark& { return kernel.def.emplace<ControlMark>(ControlMark{kind, {}, {}, {}, {}, {}}); };
  if (words.accept("for")) return read_loop_or_images(words, kernel);
  if (words.accept("template")) return read_template(words, kernel);
  if (words.accept("sort")) return read_sort(words, kernel);
  if (words.next("library")) return read_library(words, kernel);
  if (words.accept("copy")) return read_copy(words, kernel);
  if (words.accept("read")) return read_read(words, kernel);
  if (words.accept("if")) {
    ControlMark& m = mark(Kind::branch);
    m.predicate = words.buffer();
    words.expect("in");
    m.scratch = words.buffer();
  } else if (words.accept("else")) {
    mark(Kind::otherwise);
  } else if (words.accept("image by image of")) {
    ControlMark& m = mark(Kind::images);
    m.steps = words.index();
    words.expect(",");
    m.part_bytes = words.index();
    words.expect("bytes each, in");
    m.scratch = words.buffer();
  } else if (words.accept("stop unless")) {
    mark(Kind::stop_unless).predicate = words.buffer();
  } else if (words.accept("end")) {
    mark(Kind::end);
  } else if (words.accept("user")) {
    read_user(words, kernel);
  } else {
    words.fail("expected what the kernel does");
  }
}

void KernelReader::further_line(LoopReader& words, Kernel& kernel) {
  if (auto* loop = std::get_if<LoopKernel>(&kernel.def)) return of_loop(words, *loop);
  if (auto* t = std::get_if<TemplateKernel>(&kernel.def)) return of_template(words, *t);
  if (auto* sort = std::get_if<SortKernel>(&kernel.def)) return of_sort(words, *sort);
  auto* library = std::get_if<LibraryKernel>(&kernel.def);
  if (library && words.accept("scratch memory")) library->scratch = words.buffer();
  else words.fail("an indented line follows, which belongs to nothing");
}

void KernelReader::finish(Kernel& kernel) {
  auto* loop = std::get_if<LoopKernel>(&kernel.def);
  if (!loop) return;
  loop->num_phases = 1;
  for (const Stmt& s : loop->stmts) loop->num_phases = std::max(loop->num_phases, s.phase + (s.inner ? 1 : 0));
}

void KernelReader::read_loop_or_images(LoopReader& words, Kernel& kernel) {
  if (!words.accept("each")) return read_axes(words, kernel.def.emplace<LoopKernel>());
  ControlMark& m = kernel.def.emplace<ControlMark>(ControlMark{ControlMark::Kind::loop, {}, {}, {}, {}, {}});
  m.step = words.symbol();
  if (words.accept("<")) m.steps = words.index();
  words.expect("in");
  m.scratch = words.buffer();
}

// " i0<4 i1<8 | r2<16 in order"
void KernelReader::read_axes(LoopReader& words, LoopKernel& k) {
  bool inner = false;
  while (!words.failed() && !words.at_end() && !words.next("in order")) {
    if (!inner && words.accept("|")) inner = true;
    Axis axis;
    axis.name = words.name();
    words.expect("<");
    axis.size = words.index();
    k.num_outer += !inner;
    k.axes.push_back(std::move(axis));
  }
  k.sequential = words.accept("in order");
}

PlanOperand KernelReader::operand(LoopReader& words) {
  PlanOperand o;
  o.buffer = words.buffer();
  if (!o.buffer.valid()) return o;
  words.expect("[");
  o.offset = words.index();
  words.expect("]");
  return o;
}

void KernelReader::read_template(LoopReader& words, Kernel& kernel) {
  auto& k = kernel.def.emplace<TemplateKernel>();
  read_def(words, k.def);
  if (!words.failed() && !is_template(k.def)) words.fail("expected a template");
}

void KernelReader::read_sort(LoopReader& words, Kernel& kernel) {
  auto& k = kernel.def.emplace<SortKernel>();
  k.def.descending = words.accept("descending");
  if (words.accept("below")) k.def.below = words.integer();
  words.expect("along");
  k.def.dim = words.variable();
  words.expect("of");
  k.def.length = words.index();
  words.expect("to");
  k.sizes = words.list();
  words.expect(":");
  k.body = k.def.body = words.expr();
}

void KernelReader::read_library(LoopReader& words, Kernel& kernel) {
  auto& k = kernel.def.emplace<LibraryKernel>();
  LoopDef def;
  read_def(words, def);
  if (auto* library = std::get_if<Library>(&def)) k.def = std::move(*library);
  words.expect(";");
  words.expect("gives");
  do k.results.push_back(words.buffer());
  while (words.accept(","));
}

// "user myns::gelu: x[8*i0 + i1] of [rows, 8] -> out". Its code is not in the text.
void KernelReader::read_user(LoopReader& words, Kernel& kernel) {
  const std::string name = words.name();
  words.expect(":");
  std::vector<StandInTensor> tensors;
  while (!words.failed() && !words.next("->")) {
    if (!tensors.empty()) words.expect(",");
    StandInTensor t;
    t.operand = operand(words);
    words.expect("of");
    t.sizes = words.list();
    if (!words.failed() && !has_strides(t.operand.offset, t.sizes.size())) words.fail("a user's kernel gets tensors that have a stride for each dimension");
    tensors.push_back(std::move(t));
  }
  words.expect("->");
  std::vector<BufferId> results;
  do results.push_back(words.buffer());
  while (words.accept(","));
  if (!words.failed()) kernel.def = stand_in(*program_.pool, name, std::move(tensors), std::move(results));
}

void KernelReader::read_copy(LoopReader& words, Kernel& kernel) {
  auto& k = kernel.def.emplace<CopyKernel>();
  k.from = words.buffer();
  words.expect("->");
  k.to = words.buffer();
  if (words.accept("at")) k.to_element = words.index();
  if (words.accept(", because")) k.why = words.all_left();
}

void KernelReader::read_read(LoopReader& words, Kernel& kernel) {
  auto& k = kernel.def.emplace<ReadKernel>();
  k.symbol = words.symbol();
  words.expect("from");
  k.source = words.buffer();
  if (words.accept(", at most")) k.limit = words.index();
}

// "  keeps scratch0: f32 64 in x_scratch", or a statement.
void KernelReader::of_loop(LoopReader& words, LoopKernel& k) {
  if (!words.accept("keeps")) return read_statement(words, k.stmts, &k.scratch);
  WorkerScratch s;
  if (words.name() != scratch_name(static_cast<int32_t>(k.scratch.size()))) words.fail("what is kept is scratch0, scratch1, ... in order");
  words.expect(":");
  s.dtype = words.dtype();
  s.elements = words.index();
  if (words.accept("in")) s.buffer = words.buffer();
  k.scratch.push_back(std::move(s));
}

void KernelReader::of_template(LoopReader& words, TemplateKernel& k) {
  if (words.accept("reads")) {
    do k.operands.push_back(operand(words));
    while (words.accept(","));
  } else if (words.accept("or")) {
    k.weights.push_back(operand(words));
  } else if (words.accept("winograd")) {
    k.call_winograd = static_cast<int32_t>(std::clamp<int64_t>(words.integer(), 0, 4));
  } else if (words.accept("with")) {
    PastKeys& past = k.past.emplace();
    past.rows = words.index();
    words.expect("rows before them");
    past.k = operand(words);
    past.keep_k = words.accept("kept");
    words.expect("and");
    past.v = operand(words);
    past.keep_v = words.accept("kept");
  } else if (words.accept("gives")) {
    const std::optional<int32_t> temp = temp_number(words.name());
    if (!temp) words.fail("expected a temp, such as t0");
    k.acc = TempId(temp.value_or(0));
    words.expect("of");
    k.result_sizes = words.list();
    words.expect("for");
    const PlanOperand result = operand(words);
    k.result = result.buffer, k.result_offset = result.offset;
    if (!words.failed() && k.result.valid()) temps_[k.acc.index] = compute_type(program_.buffer(k.result).dtype);
  } else if (words.accept("scratch memory")) {
    k.scratch = words.buffer();
  } else {
    read_statement(words, k.epilogue, nullptr);
  }
}

void KernelReader::of_sort(LoopReader& words, SortKernel& k) {
  if (words.accept("scratch memory")) {
    k.scratch = words.buffer();
    return;
  }
  words.expect("values");
  const PlanOperand values = operand(words);
  words.expect("indices");
  const PlanOperand indices = operand(words);
  k.values = values.buffer, k.values_offset = values.offset;
  k.indices = indices.buffer, k.indices_offset = indices.offset;
  if (!words.failed() && k.values.valid()) k.dtype = program_.buffer(k.values).dtype;
}

// "  0* t3: i64 = reduce sum of load(x, i0)", "  0  y[i0] = t3 where i0 < 4". scratch: where stores to it may go.
void KernelReader::read_statement(LoopReader& words, std::vector<Stmt>& stmts, const std::vector<WorkerScratch>* scratch) {
  Stmt s;
  const int64_t phase = words.integer();
  if (phase < 0 || phase > kMostPhases) words.fail("expected the number of a pass");
  s.phase = words.failed() ? 0 : static_cast<int>(phase);
  s.inner = words.accept("*");
  const std::string target = words.name();
  if (words.accept("[")) {
    const std::optional<int32_t> row = scratch ? scratch_number(target) : std::nullopt;
    const auto found = buffers_.find(target);
    if (row && static_cast<size_t>(*row) < scratch->size()) s.scratch = *row, s.dtype = (*scratch)[static_cast<size_t>(*row)].dtype;
    else if (found != buffers_.end()) s.buffer = found->second, s.dtype = program_.buffer(s.buffer).dtype;
    else words.fail(fmt::format("there is no buffer '{}' before this line", target));
    s.offset = words.index();
    words.expect("]");
    words.expect("=");
    s.value = words.expr();
    if (words.accept("where")) s.condition = words.expr();
    return stmts.push_back(std::move(s));
  }
  const std::optional<int32_t> temp = temp_number(target);
  if (!temp) words.fail(fmt::format("'{}' is neither a temp, such as t0, nor a place in a buffer", target));
  s.temp = TempId(temp.value_or(0));
  if (words.accept(":")) s.dtype = words.dtype();
  words.expect("=");
  s.kind = words.accept("reduce") ? Stmt::Kind::reduce : words.accept("scan") ? Stmt::Kind::scan : Stmt::Kind::let;
  if (s.kind != Stmt::Kind::let) {
    size_t op = 0;
    while (op < std::size(kReduceNames) && !words.accept(kReduceNames[op])) ++op;
    if (op == std::size(kReduceNames)) words.fail("expected the operation of a reduction");
    else s.op = static_cast<ReduceOp>(op);
    words.expect("of");
  }
  s.value = words.expr();
  if (!words.failed()) temps_[s.temp.index] = s.dtype;
  stmts.push_back(std::move(s));
}

}  // namespace coil
