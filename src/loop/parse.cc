#include "loop/parse.h"

#include <algorithm>

#include <fmt/format.h>

#include "loop/loop_reader.h"
#include "loop/loop_text.h"
#include "loop/parse_def.h"
#include "loop/program_lines.h"

namespace coil {
namespace {

constexpr int kMaxNesting = 50;  // of control flow

using TextLines = std::span<const std::string_view>;

class Parser : ProgramLines {
 public:
  Parser(std::shared_ptr<ExprPool> pool, uint64_t* contents, int nesting) : ProgramLines(std::move(pool), contents), nesting_(nesting) {}

  Result<LoopProgram> run(TextLines lines, size_t first_number) {
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
  Status read(std::string_view line, TextLines more, size_t number) {
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
    if (words.accept("outer ")) return program_.outer_sizes.push_back(words.symbol());
    if (words.accept("input ")) return read_input(words, program_.inputs, [&] { return add(words, BufferInfo::Kind::input); });
    if (words.accept("constant ")) return read_stored(words, BufferInfo::Kind::constant);
    if (words.accept("state ")) return read_stored(words, BufferInfo::Kind::state);
    if (!read_common(words)) read_loop(words);
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
  Status read_parts(LoopReader& words, TextLines lines, size_t number) {
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
  Result<RegionPart> read_part(const Region& region, TextLines lines, size_t number) {
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
