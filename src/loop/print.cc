// Loop programs as text, for dumps and goldens; parse.cc reads it back.
#include <fmt/format.h>

#include <algorithm>

#include "expr/constant_text.h"
#include "loop/loop_text.h"
#include "loop/parse.h"
#include "loop/parse_def.h"
#include "loop/program_lines.h"
#include "loop/reduced_span.h"
#include "loop/templates/template.h"

namespace coil {
namespace {

class Printer : LoopText {
 public:
  // part: of a region, inside of another program's text.
  Printer(const LoopProgram& program, bool part) : LoopText(program), part_(part) {}

  std::string run() {
    if (!part_) out_ += sizes_text(program_, *this, false);
    for (SymbolId outer : program_.outer_sizes) line("outer {}", program_.pool->symbol_info(outer).label);
    for (const LoopInput& in : program_.inputs) print(in);
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const BufferInfo& b = program_.buffers[i];
      if (b.kind != BufferInfo::Kind::constant && b.kind != BufferInfo::Kind::state) continue;
      const std::string contents = contents_text(b.data);
      line("{} {}{}", b.kind == BufferInfo::Kind::constant ? "constant" : "state", declaration(BufferId(i)), contents.empty() ? "" : " = " + contents);
    }
    for (const SizeCheck& check : program_.checks) out_ += check_text(check);
    for (const Loop& loop : program_.loops) print(loop);
    for (const LoopOutput& out : program_.outputs) out_ += output_text(program_, *this, out);
    for (int place : program_.none_results) line("none {}", place);
    return std::move(out_);
  }

 private:
  template <class... A>
  void line(fmt::format_string<A...> format, A&&... args) {
    out_ += fmt::format(format, std::forward<A>(args)...);
    out_ += '\n';
  }

  void print(const LoopInput& in) { out_ += input_text(program_, *this, in, "input", in.buffer.valid() ? declaration(in.buffer) : ""); }

  // "[i0, i1 | i2]": the coordinates of an element, then the reduced ones.
  std::string variables(size_t rank, size_t reduced = 0) const {
    std::string s;
    for (size_t i = 0; i < rank + reduced; ++i) s += fmt::format("{}i{}", i == 0 ? "" : i == rank ? " | " : ", ", i);
    return "[" + s + "]";
  }

  void print(const Loop& loop) {
    std::string heads;
    for (BufferId id : loop.outputs) heads += (heads.empty() ? "" : "; ") + declaration(id);
    const size_t rank = program_.buffer(loop.outputs[0]).sizes.size();
    tail_ = loop.op == usual_op(program_.buffer(loop.outputs[0]).name) ? "" : "; op " + name_text(loop.op);
    if (!loop.assertion.empty()) tail_ += "; asserts " + quoted_name(loop.assertion);
    std::visit([&](const auto& def) { print_def(heads, rank, def); }, loop.def);
  }

  // A definition's line; what belongs to no kind of definition stands at its end.
  template <class... A>
  void def_line(fmt::format_string<A...> format, A&&... args) {
    out_ += fmt::format(format, std::forward<A>(args)...);
    out_ += tail_ + '\n';
  }

  void print_def(const std::string& head, size_t rank, const Pointwise& d) { def_line("{} = {} {}", head, variables(rank), text(d.body)); }
  void print_def(const std::string& head, size_t rank, const Reduction& d) {
    const bool spans =
        d.domain.size() == 1 && reduced_span(d.op, d.body, static_cast<int>(rank), [&](Expr e) { return !depends_on_var(e, static_cast<int>(rank)); });
    def_line("{} = {} over {}{} {} {}", head, reduce_name(d.op), spans ? "ranges of " : "", list(d.domain), variables(rank, d.domain.size()), text(d.body));
  }
  void print_def(const std::string& head, size_t rank, const Scan& d) {
    def_line("{} = scan {} along i{} {} {}", head, reduce_name(step_of(d.op)), d.dim, variables(rank), text(d.body));
  }
  void print_def(const std::string& head, size_t rank, const Concat& d) {
    def_line("{} = concat along i{}", head, d.dim);
    for (const Concat::Piece& p : d.pieces) line("  from {} size {}: {} {}", text(p.begin), text(p.size), variables(rank), text(p.body));
  }
  void print_def(const std::string& head, size_t rank, const Sort& d) {
    const std::string below = d.below > 0 ? fmt::format(" below {}", d.below) : "";
    def_line("{} = sort{}{} along i{} of {} {} {}", head, d.descending ? " descending" : "", below, d.dim, text(d.length), variables(rank), text(d.body));
  }
  void print_def(const std::string& head, size_t, const Library& d) {
    std::string options, more;
    for (int64_t o : d.options) options += fmt::format("{}{}", options.empty() ? "" : ", ", o);
    if (d.scratch) more += " scratch " + text(d.scratch);
    if (d.worker_scratch) more += " worker scratch " + text(d.worker_scratch);
    def_line("{} = library {} {} for {} sizes {} options [{}]{}: {}", head, name_text(d.routine), coil::name(d.dtype), name_text(d.subject), list(d.sizes),
             options, more, names(d.inputs));
  }
  void print_def(const std::string& head, size_t, const UserCall& d) {
    std::string args;
    for (const UserCall::Argument& a : d.args) {
      args += args.empty() ? "" : ", ";
      if (const auto* t = std::get_if<UserCall::Tensor>(&a)) args += t->operand.buffer.valid() ? operand(t->operand) : "None";
      if (const auto* e = std::get_if<Expr>(&a)) args += text(*e);
      if (const auto* f = std::get_if<double>(&a)) args += fmt::format("{}", *f);
      if (const auto* b = std::get_if<bool>(&a)) args += *b ? "true" : "false";
      if (const auto* l = std::get_if<std::vector<Expr>>(&a)) args += list(*l);
    }
    def_line("{} = user {}: {}", head, name_text(d.kernel->name), args);
  }
  template <Template T>
  void print_def(const std::string& head, size_t, const T& d) {
    def_line("{} = {} {}", head, T::kName, coil::text(*this, d));
  }

  void print_def(const std::string& head, size_t, const Compact& d) {
    def_line("{} = compact blocks {} of {} where {} from {}: {}", head, text(d.blocks), text(d.length), text(d.keep), text(d.start), text(d.value));
  }
  void print_def(const std::string& head, size_t, const ReadSize& d) {
    def_line("{} = read {} from {}{}", head, name_text(program_.pool->symbol_info(d.symbol).label), name(d.source),
             d.limit ? ", at most " + text(d.limit) : "");
  }

  void print_def(const std::string& head, size_t, const Region& d) {
    if (d.kind == Region::Kind::branch) {
      def_line("{} = branch by {}", head, name(d.predicate));
    } else {
      def_line("{} = loop {}{} from [{}]", head, name_text(program_.pool->symbol_info(d.step).label), d.steps ? " < " + text(d.steps) : "", names(d.initial));
    }
    for (size_t p = 0; p < d.parts.size(); ++p) {
      std::string captures;
      for (const auto& [own, outer] : d.parts[p].captures)
        captures += (captures.empty() ? "" : ", ") + name_text(d.parts[p].program->buffer(own).name) + " = " + name(outer);
      line("  {} [{}]", part_title(d.kind, p), captures);
      const std::string inside = Printer(*d.parts[p].program, true).run();
      for (size_t begin = 0; begin < inside.size();) {
        const size_t end = inside.find('\n', begin);
        line("    {}", inside.substr(begin, end - begin));
        begin = end + 1;
      }
    }
  }

  const bool part_;
  std::string out_, tail_;
};

}  // namespace

std::string to_string(const LoopProgram& program) { return Printer(program, false).run(); }

}  // namespace coil
