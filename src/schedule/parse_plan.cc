#include "schedule/parse_plan.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "loop/parse_def.h"
#include "loop/program_lines.h"
#include "schedule/parse_kernel.h"
#include "schedule/plan_text.h"
#include "schedule/verify_plan.h"

namespace coil {
namespace {

constexpr int64_t kMostOfMachine = int64_t{1} << 40;

class PlanParser : ProgramLines {
 public:
  explicit PlanParser(uint64_t* contents) : ProgramLines(std::make_shared<ExprPool>(), contents) {}

  Result<KernelPlan> run(const std::vector<std::string_view>& lines) {
    if (lines.empty() || lines[0] != kPlanHead)
      return Error{ErrorCode::bad_program, fmt::format("line 1: a plan begins with the line '{}'", kPlanHead), "", ""};
    for (size_t i = 1; i < lines.size(); ++i) TRY_STATUS(read(lines[i], i + 1));
    if (open_) KernelReader::finish(plan_.kernels.back());
    return finished();
  }

 private:
  Status read(std::string_view line, size_t number) {
    if (line.empty()) return ok_status();
    LoopReader words(program_, buffers_, line);
    if (line.starts_with("  ")) read_indented(words);
    else read_line(words);
    if (!words.failed() && !words.at_end()) words.fail("unexpected text");
    if (!words.failed()) return ok_status();
    Error error = words.problem();
    error.message = fmt::format("line {}, {}", number, error.message);
    return error;
  }

  void read_indented(LoopReader& words) {
    if (!open_) return words.fail("an indented line that belongs to no kernel");
    Kernel& kernel = plan_.kernels.back();
    kernels_.explain_names(words, kernel);
    if (std::exchange(first_, false)) kernels_.first_line(words, kernel);
    else kernels_.further_line(words, kernel);
  }

  // A space behind the word: buffers may be named so.
  void read_line(LoopReader& words) {
    if (open_ && first_) return words.fail("what the kernel does has to follow, indented");
    if (std::exchange(open_, false)) KernelReader::finish(plan_.kernels.back());
    if (words.accept("kernel ")) return read_kernel(words);
    if (words.accept("input ")) return read_buffer(words, BufferInfo::Kind::input);
    if (words.accept("constant ")) return read_buffer(words, BufferInfo::Kind::constant);
    if (words.accept("state ")) return read_buffer(words, BufferInfo::Kind::state);
    if (words.accept("buffer ")) return read_buffer(words, BufferInfo::Kind::computed);
    if (words.accept("package ")) return read_constant(words);
    if (words.accept("argument ")) return read_input(words, plan_.inputs, [&] { return argument(words); });
    if (words.accept("arena ")) {
      plan_.arena_bytes = words.index();
      return words.expect("bytes");
    }
    if (words.accept("late after ")) return read_late(words);
    if (words.accept("states ")) return read_states(words);
    if (words.accept("arithmetic ")) {
      plan_.arithmetic = words.name();
      return;
    }
    if (words.accept("machine of ")) return read_machine(words);
    if (words.accept("not fused:")) return read_note(words);
    if (words.accept("why ")) return read_why(words);
    if (!read_common(words)) words.fail("expected a buffer, a kernel or what belongs to the plan");
  }

  void read_machine(LoopReader& words) {
    PlanMachine& m = plan_.machine;
    m.units = words.integer();
    words.expect("units, caches of");
    m.own_cache = words.integer();
    words.expect("and");
    m.shared_cache = words.integer();
    words.expect("bytes,");
    m.launch_bytes = words.integer();
    words.expect("bytes a launch");
    const auto fits = [](int64_t n) { return n >= 0 && n <= kMostOfMachine; };
    if (!words.failed() && !(m.units > 0 && fits(m.units) && fits(m.own_cache) && fits(m.shared_cache) && fits(m.launch_bytes))) {
      words.fail("a machine has at least one unit, and no number of it is negative or beyond 2^40");
    }
  }

  void read_kernel(LoopReader& words) {
    Kernel k;
    k.name = words.name();
    k.beside = words.accept(", beside the one before");
    k.joins = !k.beside && words.accept(", joined with the one before");
    if (words.accept("of")) {
      words.expect("[");
      while (!words.failed() && !words.accept("]")) {
        if (!k.ops.empty()) words.expect(",");
        k.ops.push_back(words.name());
      }
    } else {
      k.ops = {k.name};
    }
    if (words.accept("asserts")) k.assertion = words.quoted();
    if (words.failed()) return;
    plan_.kernels.push_back(std::move(k));
    open_ = first_ = true;
  }

  void read_buffer(LoopReader& words, BufferInfo::Kind kind) {
    if (kind == BufferInfo::Kind::constant || kind == BufferInfo::Kind::state) read_stored(words, kind);
    else lay_out(program_.buffer(add(words, kind)));
    words.expect(";");
    Placement p;
    using Kind = Placement::Kind;
    if (words.accept("argument")) p = {Kind::input, number(words), {}};
    else if (words.accept("result")) p = {Kind::output, number(words), {}};
    else if (words.accept("constant")) p = {Kind::constant, number(words), {}};
    else if (words.accept("row of")) p = row(words);
    else if (words.accept("at")) p = offset(words);
    else words.expect("nowhere");
    places_.push_back(p);
  }

  // The text says how a buffer lies that is not dense.
  void lay_out(BufferInfo& b) const {
    const bool known = std::all_of(b.sizes.begin(), b.sizes.end(), [](Expr e) { return static_cast<bool>(e); });
    if (b.strides.empty() && known) b.strides = contiguous_strides(*program_.pool, b.sizes);
  }

  static int number(LoopReader& words) {
    const int64_t n = words.integer();
    if (n < 0 || n > INT32_MAX) words.fail("expected a number of 0 or more");
    return words.failed() ? 0 : static_cast<int>(n);
  }

  static Placement row(LoopReader& words) {
    const BufferId whole = words.buffer();
    words.expect(",");
    Placement p{Placement::Kind::row, whole.index, words.index()};
    words.expect("bytes each");
    return p;
  }

  static Placement offset(LoopReader& words) {
    Placement p;
    p.offset = words.index();
    words.expect("of");
    if (words.accept("the states")) p.kind = Placement::Kind::state;
    else if (words.accept("the arena")) p.kind = Placement::Kind::arena;
    else if (words.accept("an image")) p.kind = Placement::Kind::part;
    else if (words.accept("late memory")) p.kind = Placement::Kind::late, p.index = number(words);
    else words.fail("expected the memory that it is in");
    return p;
  }

  void read_constant(LoopReader& words) {
    PlanConstant c;
    c.buffer = words.buffer();
    words.expect("as");
    const std::string packing = words.name();
    if (!Packing::fits(packing)) words.fail(fmt::format("'{}' is not the name of a packing: it has 1 to {} letters", packing, Packing::kMostLetters));
    c.packing = Packing(packing);
    for (const auto& [word, value] :
         {std::pair("k", &c.k), std::pair("n", &c.n), std::pair("groups", &c.groups), std::pair("batch", &c.batch), std::pair("strides", &c.batch_stride),
          std::pair("", &c.row_stride), std::pair("", &c.col_stride), std::pair("first", &c.first)}) {
      if (*word) words.expect(word);
      *value = words.integer();
    }
    if (words.accept("codes")) {
      const int64_t count = words.integer();
      if (count < 1 || count > 16) words.fail("expected 1 to 16 numbers of 4-bit codes");
      for (int64_t i = 0; i < count; ++i) {
        const int64_t number = words.integer();
        if (number < -128 || number > 127) words.fail("expected a number of 8 bits");
        c.codes.push_back(static_cast<int8_t>(number));
      }
    }
    plan_.constants.push_back(c);
  }

  BufferId argument(LoopReader& words) {
    const BufferId id = words.buffer();
    if (!id.valid()) words.fail("expected a buffer");
    return id;
  }

  void read_late(LoopReader& words) {
    LateMemory late;
    late.after = words.symbol();
    words.expect(":");
    late.bytes = words.index();
    words.expect("bytes");
    plan_.late_memory.push_back(late);
  }

  void read_states(LoopReader& words) {
    const int64_t bytes = words.integer();
    words.expect("bytes,");
    const int64_t stored = words.integer();
    words.expect("stored");
    if (bytes < 0 || stored < 0 || stored > bytes) words.fail("the states have a number of bytes of which some are stored");
    plan_.state_bytes = static_cast<uint64_t>(bytes), plan_.state_stored = static_cast<uint64_t>(stored);
  }

  void read_why(LoopReader& words) {
    const BufferId id = argument(words);
    words.expect(":");
    std::string why = words.all_left();
    if (id.valid()) program_.buffer(id).why = std::move(why);
  }

  void read_note(LoopReader& words) {
    FusionNote note;
    note.producer = words.name();
    words.expect("->");
    note.consumer = words.name();
    words.expect(":");
    note.reason = words.all_left();
    plan_.not_fused.push_back(std::move(note));
  }

  Result<KernelPlan> finished() {
    plan_.pool = program_.pool;
    const std::optional<SymbolId> workers = plan_.pool->find_symbol(kWorkersSymbol);
    if (!workers) return Error{ErrorCode::bad_program, fmt::format("the text has no line 'size workers = {} in 1 to 65536'", kWorkersSymbol), "", ""};
    if (!plan_.arena_bytes) return Error{ErrorCode::bad_program, "the text has no line `arena`: how much memory a call needs is not known", "", ""};
    plan_.workers = *workers;
    std::unordered_map<const ExprNode*, int> first;
    for (size_t b = 0; b < program_.buffers.size(); ++b) {
      Placement p = places_[b];
      if (p.kind == Placement::Kind::arena) p.index = first.try_emplace(p.offset.node(), static_cast<int>(b)).first->second;
      plan_.buffers.push_back({std::move(program_.buffers[b]), p});
    }
    plan_.outputs = std::move(program_.outputs);
    plan_.checks = std::move(program_.checks);
    plan_.none_results = std::move(program_.none_results);
    if (const Status sound = verify(plan_); !sound.ok()) return Error{ErrorCode::bad_program, sound.error().message, "", ""};
    return std::move(plan_);
  }

  KernelPlan plan_;
  std::vector<Placement> places_;  // of the buffers
  KernelReader kernels_{program_, buffers_};
  bool open_ = false;   // lines of a kernel may follow
  bool first_ = false;  // of which there was none yet
};

}  // namespace

Result<KernelPlan> parse_plan(std::string_view text) {
  uint64_t contents = 0;
  return PlanParser(&contents).run(lines_of(text));
}

}  // namespace coil
