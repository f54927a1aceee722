// Loop programs as text, for dumps and goldens.
#include <fmt/format.h>

#include "loop/loop_text.h"
#include "loop/reduced_span.h"
#include "loop/templates/template.h"

namespace coil {
namespace {

const char* const kReduceNames[] = {"sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "log_sum"};
const char* const kScanNames[] = {"sum", "prod", "max", "min", "log_sum"};

class Printer : LoopText {
 public:
  using LoopText::LoopText;

  std::string run() {
    for (const LoopInput& in : program_.inputs) {
      if (in.buffer.valid()) line("input {}", declaration(in.buffer));
      else line("input {}: {}", in.name, text(in.symint));
    }
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const BufferInfo::Kind kind = program_.buffers[i].kind;
      if (kind == BufferInfo::Kind::constant) line("constant {}", declaration(BufferId(i)));
      if (kind == BufferInfo::Kind::state) line("state {}", declaration(BufferId(i)));
    }
    for (const Loop& loop : program_.loops) print(loop);
    for (const LoopOutput& out : program_.outputs) {
      const char* verb = out.kind == LoopOutput::Kind::user ? "output" : out.kind == LoopOutput::Kind::check ? "check" : "write";
      const std::string target = out.target.valid() ? program_.buffer(out.target).name + " = " : "";
      const BufferInfo& source = program_.buffer(out.source);
      std::string shown;
      for (Expr s : source.shown) shown += (shown.empty() ? " as [" : ", ") + text(s);
      line("{} {}{}{}", verb, target, source.name, shown.empty() ? "" : shown + "]");
    }
    return std::move(out_);
  }

 private:
  template <class... A>
  void line(fmt::format_string<A...> format, A&&... args) {
    out_ += fmt::format(format, std::forward<A>(args)...);
    out_ += '\n';
  }

  std::string declaration(BufferId id) const {
    const BufferInfo& b = program_.buffer(id);
    std::string s = fmt::format("{}: {}{}", b.name, coil::name(b.dtype), list(b.sizes));
    const bool fixed = !b.strides.empty() && b.strides != contiguous_strides(*program_.pool, b.sizes);
    return fixed ? s + " strides " + list(b.strides) : s;
  }

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
    std::visit([&](const auto& def) { print_def(heads, rank, def); }, loop.def);
  }

  void print_def(const std::string& head, size_t rank, const Pointwise& d) { line("{} = {} {}", head, variables(rank), text(d.body)); }
  void print_def(const std::string& head, size_t rank, const Reduction& d) {
    const bool spans =
        d.domain.size() == 1 && reduced_span(d.op, d.body, static_cast<int>(rank), [&](Expr e) { return !depends_on_var(e, static_cast<int>(rank)); });
    line("{} = {} over {}{} {} {}", head, kReduceNames[static_cast<int>(d.op)], spans ? "ranges of " : "", list(d.domain), variables(rank, d.domain.size()),
         text(d.body));
  }
  void print_def(const std::string& head, size_t rank, const Scan& d) {
    line("{} = scan {} along i{} {} {}", head, kScanNames[static_cast<int>(d.op)], d.dim, variables(rank), text(d.body));
  }
  void print_def(const std::string& head, size_t rank, const Concat& d) {
    line("{} = concat along i{}", head, d.dim);
    for (const Concat::Piece& p : d.pieces) line("  from {} size {}: {} {}", text(p.begin), text(p.size), variables(rank), text(p.body));
  }
  void print_def(const std::string& head, size_t rank, const Sort& d) {
    const std::string below = d.below > 0 ? fmt::format(" below {}", d.below) : "";
    line("{} = sort{}{} along i{} of {} {} {}", head, d.descending ? " descending" : "", below, d.dim, text(d.length), variables(rank), text(d.body));
  }
  void print_def(const std::string& head, size_t, const Library& d) {
    std::string inputs, options;
    for (BufferId id : d.inputs) inputs += (inputs.empty() ? "" : ", ") + program_.buffer(id).name;
    for (int64_t o : d.options) options += fmt::format("{}{}", options.empty() ? "" : ", ", o);
    line("{} = library {} {} sizes {} options [{}]: {}", head, d.routine, coil::name(d.dtype), list(d.sizes), options, inputs);
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
    line("{} = user {}: {}", head, d.kernel->name, args);
  }
  template <Template T>
  void print_def(const std::string& head, size_t, const T& d) {
    line("{} = {}", head, coil::text(*this, d));
  }

  void print_def(const std::string& head, size_t, const Compact& d) {
    line("{} = compact blocks {} of {} where {} from {}: {}", head, text(d.blocks), text(d.length), text(d.keep), text(d.start), text(d.value));
  }
  void print_def(const std::string&, size_t, const ReadSize& d) {
    const Symbol& s = program_.pool->symbol_info(d.symbol);
    const std::string most = s.max == INT64_MAX ? "" : fmt::format(" to {}", s.max);
    line("read {} = {} in {}{}{}", s.label, program_.buffer(d.source).name, s.min, most.empty() ? " or more" : most,
         d.limit ? ", at most " + text(d.limit) : "");
  }

  void print_def(const std::string& head, size_t, const Region& d) {
    const auto name = [&](BufferId id) { return program_.buffer(id).name; };
    if (d.kind == Region::Kind::branch) {
      line("{} = branch by {}", head, name(d.predicate));
    } else {
      std::string initial;
      for (BufferId id : d.initial) initial += (initial.empty() ? "" : ", ") + name(id);
      line("{} = loop {}{} from [{}]", head, program_.pool->symbol_info(d.step).label, d.steps ? " < " + text(d.steps) : "", initial);
    }
    const char* titles[2][2] = {{"where it holds", "otherwise"}, {"step", "while"}};
    for (size_t p = 0; p < d.parts.size(); ++p) {
      std::string captures;
      for (const auto& [own, outer] : d.parts[p].captures)
        captures += (captures.empty() ? "" : ", ") + d.parts[p].program->buffer(own).name + " = " + name(outer);
      line("  {} [{}]", titles[d.kind == Region::Kind::loop][p], captures);
      const std::string inside = to_string(*d.parts[p].program);
      for (size_t begin = 0; begin < inside.size();) {
        const size_t end = inside.find('\n', begin);
        line("    {}", inside.substr(begin, end - begin));
        begin = end + 1;
      }
    }
  }

  std::string out_;
};

}  // namespace

std::string to_string(const LoopProgram& program) { return Printer(program).run(); }

}  // namespace coil
