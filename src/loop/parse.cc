#include "loop/parse.h"

#include <algorithm>

#include <fmt/format.h>

#include "expr/constant_text.h"
#include "loop/loop_reader.h"
#include "loop/loop_text.h"
#include "loop/parse_def.h"

namespace coil {
namespace {

constexpr int kMaxNesting = 50;  // of control flow

using Lines = std::span<const std::string_view>;

class Parser {
 public:
  Parser(std::shared_ptr<ExprPool> pool, uint64_t* contents, int nesting) : contents_(contents), nesting_(nesting) { program_.pool = std::move(pool); }

  Result<LoopProgram> run(Lines lines, size_t first_number) {
    for (size_t i = 0; i < lines.size();) {
      size_t end = i + 1;
      while (end < lines.size() && lines[end].starts_with("  ")) ++end;
      TRY_STATUS(read(lines[i], lines.subspan(i + 1, end - i - 1), first_number + i));
      i = end;
    }
    for (const LoopOutput& out : program_.outputs) {
      BufferInfo& b = program_.buffer(out.source);
      if (out.kind == LoopOutput::Kind::user && b.strides.empty()) b.strides = contiguous_strides(*program_.pool, b.sizes);
    }
    return std::move(program_);
  }

 private:
  // more: the indented lines behind it.
  Status read(std::string_view line, Lines more, size_t number) {
    if (line.empty() && more.empty()) return ok_status();
    LoopReader words(program_, buffers_, line);
    read_line(words);
    if (open_ && !words.failed()) {
      const Status parts = read_parts(words, more, number + 1);
      open_ = nullptr;
      TRY_STATUS(parts);
    } else if (!more.empty() && !words.failed()) {
      words.fail("an indented line follows, which belongs to nothing");
    }
    if (!words.failed() && !words.at_end()) words.fail("unexpected text");
    return words.failed() ? words.problem_in(number) : ok_status();
  }

  // A space behind the word: buffers may be named so, and a colon follows their names.
  void read_line(LoopReader& words) {
    if (words.accept("size ")) return read_size(words);
    if (words.accept("one ")) return assume_one(words);
    if (words.accept("outer ")) return program_.outer_sizes.push_back(words.symbol());
    if (words.accept("input ")) return read_input(words);
    if (words.accept("constant ")) return read_stored(words, BufferInfo::Kind::constant);
    if (words.accept("state ")) return read_stored(words, BufferInfo::Kind::state);
    if (words.accept("require ")) return read_check(words);
    if (words.accept("output ")) return read_output(words, LoopOutput::Kind::user);
    if (words.accept("check ")) return read_output(words, LoopOutput::Kind::check);
    if (words.accept("write ")) return read_output(words, LoopOutput::Kind::state_write);
    if (words.accept("none ")) return program_.none_results.push_back(static_cast<int>(words.integer()));
    read_loop(words);
  }

  void read_size(LoopReader& words) {
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

  void assume_one(LoopReader& words) {
    if (const Expr size = words.index()) program_.pool->assume_one(size);
  }

  BufferId add(LoopReader& words, BufferInfo::Kind kind) {
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

  void read_input(LoopReader& words) {
    LoopInput in;
    if (words.accept("size ")) {
      in.name = words.name();
      words.expect(":");
      in.symint = words.index();
    } else {
      in.buffer = add(words, BufferInfo::Kind::input);
      BufferInfo& b = program_.buffer(in.buffer);
      b.input = static_cast<int>(std::count_if(program_.inputs.begin(), program_.inputs.end(), [](const LoopInput& i) { return i.buffer.valid(); }));
      in.exact_strides = words.accept("exact strides");
      in.whole_storage = words.accept("whole storage");
      in.name = words.accept("named") ? words.quoted() : b.name;
    }
    program_.inputs.push_back(std::move(in));
  }

  void read_stored(LoopReader& words, BufferInfo::Kind kind) {
    BufferInfo& b = program_.buffer(add(words, kind));
    const std::optional<StoredAs> stored = stored_as(words, b.dtype, b.sizes, b.strides, contents_);
    if (!stored) return;
    if (words.accept("=")) b.data = read_contents(words, *stored);
    else b.data = kind == BufferInfo::Kind::state ? zeros(*stored) : drawn_contents(b.name, *stored);
  }

  void read_check(LoopReader& words) {
    SizeCheck check;
    check.condition = words.condition();
    check.also_asserted = words.accept("asserted");
    if (words.accept("else")) check.message = words.quoted();
    if (words.accept("at")) check.where = words.quoted();
    program_.checks.push_back(std::move(check));
  }

  void read_output(LoopReader& words, LoopOutput::Kind kind) {
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

  void read_loop(LoopReader& words) {
    Loop loop;
    do loop.outputs.push_back(add(words, BufferInfo::Kind::computed));
    while (words.accept(";"));
    words.expect("=");
    if (words.failed()) return;
    read_def(words, loop.def);
    loop.op = words.accept("; op") ? words.name() : usual_op(program_.buffer(loop.outputs[0]).name);
    if (words.accept("; asserts")) loop.assertion = words.quoted();
    if (words.failed()) return;
    if (const auto* read = std::get_if<ReadSize>(&loop.def)) program_.data_sizes.emplace_back(read->symbol, loop.outputs[0]);
    program_.loops.push_back(std::move(loop));
    LoopDef& def = program_.loops.back().def;
    if (std::holds_alternative<Region>(def) || std::holds_alternative<Concat>(def)) open_ = &def;
  }

  // What stands below a definition's line.
  Status read_parts(LoopReader& words, Lines lines, size_t number) {
    if (auto* concat = std::get_if<Concat>(open_)) {
      for (size_t i = 0; i < lines.size(); ++i) {
        LoopReader piece(program_, buffers_, lines[i]);
        concat->pieces.push_back(read_piece(piece));
        if (!piece.failed() && !piece.at_end()) piece.fail("unexpected text");
        if (piece.failed()) return piece.problem_in(number + i);
      }
      return ok_status();
    }
    auto& region = std::get<Region>(*open_);
    for (size_t i = 0; i < lines.size();) {
      size_t end = i + 1;
      while (end < lines.size() && lines[end].starts_with("    ")) ++end;
      TRY(RegionPart part, read_part(region, lines.subspan(i, end - i), number + i));
      region.parts.push_back(std::move(part));
      i = end;
    }
    const size_t least = region.kind == Region::Kind::branch ? 2 : 1;
    if (region.parts.size() < least) words.fail("the parts of the control flow have to follow, indented");
    return ok_status();
  }

  // "  step [x = x_3]" and the part's own lines, four spaces to the right.
  Result<RegionPart> read_part(const Region& region, Lines lines, size_t number) {
    LoopReader words(program_, buffers_, lines[0]);
    words.expect(part_title(region.kind, region.parts.size()));
    words.expect("[");
    std::vector<std::pair<std::string, BufferId>> captures;
    while (!words.failed() && !words.accept("]")) {
      if (!captures.empty()) words.expect(",");
      std::string own = words.name();
      words.expect("=");
      captures.emplace_back(std::move(own), words.buffer());
    }
    if (!words.failed() && nesting_ >= kMaxNesting) words.fail("control flow is nested too deeply");
    if (words.failed()) return words.problem_in(number);
    std::vector<std::string_view> inside;
    for (size_t i = 1; i < lines.size(); ++i) inside.push_back(lines[i].substr(4));
    Parser parser(program_.pool, contents_, nesting_ + 1);
    TRY(LoopProgram program, parser.run(inside, number + 1));
    RegionPart part;
    for (const auto& [own, outer] : captures) {
      const auto found = parser.buffers_.find(own);
      if (found == parser.buffers_.end()) words.fail(fmt::format("the part has no input '{}'", own));
      else part.captures.emplace_back(found->second, outer);
    }
    if (words.failed()) return words.problem_in(number);
    part.program = std::make_shared<const LoopProgram>(std::move(program));
    return part;
  }

  LoopProgram program_;
  BuffersByName buffers_;
  uint64_t* const contents_;
  const int nesting_;
  LoopDef* open_ = nullptr;  // a definition whose parts follow
};

}  // namespace

Result<LoopProgram> parse_loops(std::string_view text) {
  const std::vector<std::string_view> lines = lines_of(text);
  uint64_t contents = 0;
  TRY(LoopProgram program, Parser(std::make_shared<ExprPool>(), &contents, 0).run(lines, 1));
  if (const Status sound = verify(program); !sound.ok()) return Error{ErrorCode::bad_program, sound.error().message, "", ""};
  if (program.outputs.empty()) return Error{ErrorCode::bad_program, "the text has no line `output`: nothing is to be computed", "", ""};
  return program;
}

}  // namespace coil
