#include "loop/program_lines.h"

#include <algorithm>

#include <fmt/format.h>

#include "expr/constant_text.h"

namespace coil {

std::string sizes_text(const LoopProgram& program, const LoopText& words, bool workers) {
  std::string out;
  const ExprPool& pool = *program.pool;
  for (size_t i = 0; i < pool.num_symbols(); ++i) {
    const Symbol& s = pool.symbol_info(SymbolId(i));
    if (s.name == kWorkersSymbol && !workers) continue;  // a plan adds it to the pool, and no loop mentions it: the text is the same before and after
    const std::string range = s.max == INT64_MAX ? fmt::format("{} or more", s.min) : fmt::format("{} to {}", s.min, s.max);
    out += fmt::format("size {} = {} in {}{}\n", name_text(s.label), name_text(s.name), range, s.from_data ? " from data" : "");
  }
  std::vector<Expr> ones;
  for (const BufferInfo& b : program.buffers) {
    for (Expr size : b.sizes) {
      visit(size, [&](Expr e) {
        if (pool.is_one(e) && std::find(ones.begin(), ones.end(), e) == ones.end()) ones.push_back(e);
      });
    }
  }
  for (Expr one : ones) out += fmt::format("one {}\n", words.text(one));
  return out;
}

std::string input_text(const LoopProgram& program, const LoopText& words, const LoopInput& in, std::string_view word, const std::string& buffer) {
  if (!in.buffer.valid()) return fmt::format("{} size {}: {}\n", word, name_text(in.name), words.text(in.symint));
  const std::string called = in.name == program.buffer(in.buffer).name ? "" : " named " + quoted_name(in.name);
  return fmt::format("{} {}{}{}{}\n", word, buffer, in.exact_strides ? " exact strides" : "", in.whole_storage ? " whole storage" : "", called);
}

std::string check_text(const SizeCheck& check) {
  return fmt::format("require {}{}{}{}\n", to_string(check.condition), check.also_asserted ? " asserted" : "",
                     check.message.empty() ? "" : " else " + quoted_name(check.message), check.where.empty() ? "" : " at " + quoted_name(check.where));
}

std::string output_text(const LoopProgram& program, const LoopText& words, const LoopOutput& out) {
  const BufferInfo& source = program.buffer(out.source);
  const char* verb = out.kind == LoopOutput::Kind::user ? "output" : out.kind == LoopOutput::Kind::check ? "check" : "write";
  const std::string target = out.target.valid() ? words.name(out.target) + " = " : "";
  const std::string shown = source.shown.empty() ? "" : " as " + words.list(source.shown);
  const std::string called = out.name == source.name ? "" : " named " + quoted_name(out.name);
  return fmt::format("{} {}{}{}{}{}\n", verb, target, words.name(out.source), shown, out.number.empty() ? "" : " number " + out.number, called);
}

bool ProgramLines::read_common(LoopReader& words) {
  if (words.accept("size ")) return read_size(words), true;
  if (words.accept("one ")) return assume_one(words), true;
  if (words.accept("require ")) return read_check(words), true;
  if (words.accept("output ")) return read_output(words, LoopOutput::Kind::user), true;
  if (words.accept("check ")) return read_output(words, LoopOutput::Kind::check), true;
  if (words.accept("write ")) return read_output(words, LoopOutput::Kind::state_write), true;
  if (words.accept("none ")) return program_.none_results.push_back(static_cast<int>(words.integer())), true;
  return false;
}

void ProgramLines::read_size(LoopReader& words) {
  Symbol s;
  s.label = words.name();
  words.expect("=");
  s.name = words.name();
  words.expect("in");
  s.min = words.integer();
  if (!words.accept("or more")) {
    words.expect("to");
    s.max = words.integer();
  }
  s.from_data = words.accept("from data");
  if (reads_otherwise(s.label)) words.fail(fmt::format("'{}' cannot be the name of a size here: expressions read it as something else", s.label));
  else if (program_.pool->find_symbol(s.name)) words.fail(fmt::format("two sizes are named '{}'", s.name));
  else if (s.min > s.max) words.fail("the range is empty");
  if (!words.failed()) program_.pool->add_symbol(std::move(s));
}

void ProgramLines::assume_one(LoopReader& words) {
  if (const Expr size = words.index()) program_.pool->assume_one(size);
}

BufferId ProgramLines::add(LoopReader& words, BufferInfo::Kind kind) {
  BufferInfo b;
  b.kind = kind;
  b.name = words.name();
  words.expect(":");
  b.dtype = words.dtype();
  b.sizes = words.list();
  if (words.accept("strides")) b.strides = words.list();
  else if (kind != BufferInfo::Kind::computed && !words.failed()) b.strides = contiguous_strides(*program_.pool, b.sizes);
  b.pairs = words.accept("pairs");
  if (words.accept("meant")) b.meant = words.dtype();
  const BufferId id(program_.buffers.size());
  if (!words.failed() && !buffers_.emplace(b.name, id).second) words.fail(fmt::format("two buffers are named '{}'", b.name));
  if (is_complex(b.dtype) || is_float8(b.dtype) || is_wide_unsigned(b.dtype)) words.fail(fmt::format("no buffer is {}", coil::name(b.dtype)));
  program_.buffers.push_back(std::move(b));
  return id;
}

void ProgramLines::read_stored(LoopReader& words, BufferInfo::Kind kind) {
  BufferInfo& b = program_.buffer(add(words, kind));
  const std::optional<StoredAs> stored = stored_as(words, b.dtype, b.sizes, b.strides, contents_);
  if (!stored) return;
  if (words.accept("=")) b.data = read_contents(words, *stored);
  else b.data = kind == BufferInfo::Kind::state ? zeros(*stored) : drawn_contents(b.name, *stored);
}

void ProgramLines::read_input(LoopReader& words, std::vector<LoopInput>& inputs, FunctionRef<BufferId()> buffer) {
  LoopInput in;
  if (words.accept("size ")) {
    in.name = words.name();
    words.expect(":");
    in.symint = words.index();
  } else {
    in.buffer = buffer();
    if (!in.buffer.valid()) return;
    BufferInfo& b = program_.buffer(in.buffer);
    b.input = static_cast<int>(std::count_if(inputs.begin(), inputs.end(), [](const LoopInput& i) { return i.buffer.valid(); }));
    in.exact_strides = words.accept("exact strides");
    in.whole_storage = words.accept("whole storage");
    in.name = words.accept("named") ? words.quoted() : b.name;
  }
  inputs.push_back(std::move(in));
}

void ProgramLines::read_check(LoopReader& words) {
  SizeCheck check;
  check.condition = words.condition();
  check.also_asserted = words.accept("asserted");
  if (words.accept("else")) check.message = words.quoted();
  if (words.accept("at")) check.where = words.quoted();
  program_.checks.push_back(std::move(check));
}

void ProgramLines::read_output(LoopReader& words, LoopOutput::Kind kind) {
  LoopOutput out;
  out.kind = kind;
  if (kind == LoopOutput::Kind::state_write) {
    out.target = words.buffer();
    words.expect("=");
  }
  out.source = words.buffer();
  if (words.failed()) return;
  if (!out.source.valid() || (kind == LoopOutput::Kind::state_write && !out.target.valid())) return words.fail("'-' is no buffer");
  if (out.target.valid() && program_.buffer(out.target).kind == BufferInfo::Kind::input) out.kind = LoopOutput::Kind::input_write;
  if (words.accept("as")) program_.buffer(out.source).shown = words.list();
  if (words.accept("number")) out.number = words.name();
  out.name = words.accept("named") ? words.quoted() : program_.buffer(out.source).name;
  program_.outputs.push_back(std::move(out));
}

}  // namespace coil
