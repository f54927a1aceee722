#include "codegen/cpu/host/host_program.h"

#include <algorithm>
#include <functional>
#include <optional>

#include <fmt/format.h>

#include "codegen/cpu/choices.h"
#include "codegen/cpu/host/host_calls.h"
#include "codegen/cpu/host/images_text.h"
#include "codegen/cpu/host/launch_table.h"
#include "codegen/cpu/host/library_text.h"
#include "codegen/cpu/host/prologue_text.h"
#include "codegen/interface/read_text.h"
#include "codegen/cpu/templates/call_fields.h"
#include "codegen/foreign_text.h"
#include "codegen/index_text.h"
#include "codegen/interface/call_text.h"
#include "codegen/interface/interface_text.h"
#include "codegen/interface/limits.h"
#include "codegen/interface/watch_text.h"
#include "schedule/kernel_buffers.h"
#include "schedule/schedule.h"

namespace coil {
namespace {

constexpr int64_t kChunkWork = 8192;   // vector operations of the smallest chunk worth handing to another thread, about 4 us
constexpr size_t kOptimisedCalls = 8;  // programs of more kernels get a `run` that is not optimised

class HostWriter {
 public:
  HostWriter(const KernelPlan& plan, const cpu::CpuProgram& program, const HostOptions& options) : plan_(plan), program_(program), options_(options) {}

  HostText run() {
    std::string calls = one_thread();
    size_t writes = plan_.kernels.size();
    while (writes > 0 && std::holds_alternative<CopyKernel>(plan_.kernels[writes - 1].def)) --writes;
    calls += kernel_calls(0, writes);
    calls += flag_checks();  // before state and inputs are written
    calls += kernel_calls(writes, plan_.kernels.size());
    const bool several = !options_.watched && options_.timed.empty() && calls_.fill_files();
    HostText text;
    if (several) text.further = further_files();
    const HostFile file = several ? HostFile::first : HostFile::alone;
    const std::string rest = (options_.watched ? watch_table() : "") + choices_table(file) + interface_text(plan_, kHostInterface) + table_.support(file) +
                             calls_.text(file, one_thread()) + run_function(calls) + model_text(plan_, options_);
    text.first = prologue_text(plan_, program_, options_, {chunk_work(), tuning(), file, several ? &calls_.named_first() : nullptr}) + rest;
    return text;
  }

 private:
  ExprPool& pool() const { return *plan_.pool; }
  // A watched program hands out small chunks: what several threads do wrong shows in small calls too.
  int64_t chunk_work() const { return options_.watched ? kChunkWork / 64 : kChunkWork; }

  // --- choices: their numbers have the names of the kernel at hand ("method", "threads")
  bool timed(size_t k) const { return k < options_.timed.size() && options_.timed[k]; }
  bool chooses(size_t k) const { return timed(k) || !plan_.kernels[k].choices.rows.empty(); }
  bool tuning() const {
    for (size_t k = 0; k < plan_.kernels.size(); ++k) {
      if (chooses(k)) return true;
    }
    return false;
  }

  int row_of(const Choice& choice) {
    const auto it = std::find(choices_.begin(), choices_.end(), choice);
    if (it != choices_.end()) return static_cast<int>(it - choices_.begin());
    choices_.push_back(choice);
    return static_cast<int>(choices_.size()) - 1;
  }

  std::string declare_choice(size_t k, const std::string& row) const { return coil::declare_choice(cpu::value_names(plan_.kernels[k]), row); }
  // The number in generated code, "0" of kernels for which there is none of this name.
  template <class T>
  std::string number_of(size_t k, int32_t T::* member) const {
    const std::string name = name_of(member);
    const ChoiceNames& names = cpu::value_names(plan_.kernels[k]);
    return std::find(names.begin(), names.end(), name) != names.end() ? name : "0";
  }

  std::string choice(size_t k) {
    if (!chooses(k)) return "";
    if (timed(k)) return declare_choice(k, fmt::format("coil_tuning.choices[{}]", k));
    const ChoiceTable& table = plan_.kernels[k].choices;
    const auto isa = std::find(options_.isas.begin(), options_.isas.end(), options_.tuned_isa);
    if (isa == options_.isas.end()) return declare_choice(k, "kChoices[0]");
    std::string row;
    for (const ChoiceTable::Row& r : table.rows) {
      const bool last = &r == &table.rows.back();
      row += last ? std::to_string(row_of(r.choice)) : fmt::format("({}) <= {}L ? {} : ", host_index(table.key), r.up_to, row_of(r.choice));
    }
    return declare_choice(k, fmt::format("kChoices[chosen != {} ? 0 : {}]", isa - options_.isas.begin(), row));
  }

  std::string choices_table(HostFile file) const {
    if (!options_.timed.empty()) return "extern \"C\" __attribute__((visibility(\"default\"))) CoilTuning coil_tuning;\nCoilTuning coil_tuning;\n\n";
    if (choices_.size() == 1 && !tuning()) return "";
    std::string rows;
    for (const Choice& c : choices_) rows += fmt::format("{{{}, {}, {}, {}}}, ", c.values[0], c.values[1], c.values[2], c.values[3]);
    return "// How kernels are run: numbers that a tuner chose, 0 where the kernel's default serves.\n" +
           shared_text(file, "const int32_t kChoices[][4]", " = {" + rows + "};\n\n");
  }

  std::string hook(size_t k, bool after) const {
    if (!timed(k)) return "";
    std::string results;
    for (BufferId id : written_buffers(plan_.kernels[k])) results += address(id) + ", ";
    return after ? fmt::format("    void* const results[] = {{{}nullptr}};\n    if (coil_tuning.hook) coil_tuning.hook(coil_tuning.owner, {}, results);\n",
                               results, k)
                 : fmt::format("    if (coil_tuning.hook) coil_tuning.hook(coil_tuning.owner, {}, nullptr);\n", k);
  }

  // Where several workers have images of their own, each tells of its kernels.
  std::string begin_trace(size_t k) const { return trace_begin_text(k, in_images_ ? "worker" : "0"); }
  std::string end_trace(size_t k) const { return trace_end_text(k, in_images_ ? "worker" : "0"); }

  std::string host(size_t k) const { return chooses(k) ? number_of(k, &cpu::OtherChoice::threads) + " == 1 ? &one_thread : host" : "host"; }

  std::string address(BufferId id) const { return buffer_address(plan_, id); }

  std::string args(size_t k) {
    const auto& launch = program_.launches[k];
    std::string text = "    void* p[] = {";
    for (BufferId id : launch.buffers) text += address(id) + ", ";
    std::string flag = "nullptr";
    if (checks_index(plan_.kernels[k])) flag = fmt::format("&flags[{}]", new_flag(k));
    text += "nullptr};\n";
    if (launch.symbols.empty()) return text + "    coil_args args = {p, s, " + flag + "};\n";
    text += "    const long symbols[] = {";
    for (const int symbol : launch.symbols) text += fmt::format("s[{}], ", symbol);
    return text + "};\n    coil_args args = {p, symbols, " + flag + "};\n";
  }

  std::vector<std::string> further_files() const {
    std::vector<std::string> files;
    const std::string tables = choices_table(HostFile::further) + (reads_sizes(plan_) ? most_function() : "") + table_.support(HostFile::further);
    for (const HostCalls::Part& part : calls_.parts(one_thread()))
      files.push_back(prologue_text(plan_, program_, options_, {chunk_work(), tuning(), HostFile::further, &part.offsets}) + tables + part.text);
    return files;
  }

  std::string one_thread() const { return tuning() ? "  const CoilHost one_thread = {1, nullptr, nullptr};\n" : ""; }

  std::string kernel_calls(size_t begin, size_t end) {
    std::vector<HostCalls::Level> open(1);
    open[0].whole = in_images_;
    for (size_t k = begin; k < end; ++k) {
      if (const size_t n = in_images_ || options_.watched || !options_.timed.empty() ? 0 : table_.run_length(k, end)) {
        add_table(open.back(), k, k + n);
        k += n - 1;
        continue;
      }
      const auto* mark = std::get_if<ControlMark>(&plan_.kernels[k].def);
      if (!mark) {
        const auto* copy = std::get_if<CopyKernel>(&plan_.kernels[k].def);
        if (copy && copies_elements(plan_, *copy)) open.back().definitions += copy_function(*copy, k);
        calls_.add(open.back(), kernel_call(k) + (watches(open) ? watch_call(plan_, k) : ""), calls_.offsets(k, k + 1));
      } else if (mark->kind == ControlMark::Kind::images) {
        const size_t first = k + 1;
        while (!std::holds_alternative<ControlMark>(plan_.kernels[k + 1].def)) ++k;
        const std::string call = images(*mark, first, ++k, open.back().definitions);
        calls_.add(open.back(), call + (watches(open) ? watch_call(plan_, k) : ""), calls_.offsets(first - 1, k + 1));
      } else if (mark->opens()) {
        open.push_back({.text = control(*mark), .text_offsets = calls_.offsets(k, k + 1), .whole = in_images_});
      } else {
        open.back().close();
        open.back().text += control(*mark);
        open.back().text_offsets.merge(calls_.offsets(k, k + 1));
        if (mark->kind != ControlMark::Kind::end) continue;
        HostCalls::Level inner = std::move(open.back());
        open.pop_back();
        open.back().definitions += inner.definitions;
        calls_.add(open.back(), inner.text + (watches(open) ? watch_call(plan_, k) : ""), std::move(inner.text_offsets), inner.count + 1);
      }
    }
    CHECK(open.size() == 1, "a control mark is not closed");
    open.back().close();
    calls_.finish(open.back());
    return open.back().text;
  }

  // What is inside of control flow is shown when that is over.
  bool watches(const std::vector<HostCalls::Level>& open) const { return options_.watched && !in_images_ && open.size() == 1; }

  void add_table(HostCalls::Level& level, size_t begin, size_t end) {
    const LaunchTable::Run run = table_.run(begin, end, [&](size_t k) { return checks_index(plan_.kernels[k]) ? new_flag(k) : -1; });
    level.definitions += run.definitions;
    calls_.add(level, run.call, calls_.offsets(begin, end));
  }

  // To an input with gaps, element by element.
  std::string copy_function(const CopyKernel& copy, size_t k) const {
    const BufferInfo &from = plan_.buffer(copy.from).info, &to = plan_.buffer(copy.to).info;
    std::string loops, read = "0", write = "0";
    for (size_t d = 0; d < to.sizes.size(); ++d) {
      loops += fmt::format("  for (long i{0} = 0; i{0} < {1}; ++i{0})\n", d, host_index(to.sizes[d]));
      read += fmt::format(" + i{} * ({})", d, host_index(from.strides[d]));
      write += fmt::format(" + i{} * ({})", d, host_index(to.strides[d]));
    }
    return fmt::format(
        "static void copy_{0}(void* to, const void* from, const long* s) {{\n  (void)s;\n{1}    __builtin_memcpy((char*)to + {2} * ({3}), (const char*)from + {2} * ({4}), {2});\n}}\n\n",
        k, loops, byte_size(to.dtype), write, read);
  }

  int new_flag(size_t k) {
    flags_.push_back(static_cast<int>(k));
    return static_cast<int>(flags_.size()) - 1;
  }

  // Kernels that run image by image are a function. While kernels are timed, images come one after the other.
  std::string images(const ControlMark& mark, size_t begin, size_t end, std::string& definitions) {
    const std::string name = fmt::format("images_{}", begin);
    in_images_ = true;
    definitions += images_function(plan_, name, kernel_calls(begin, end), not_optimised());
    in_images_ = false;
    return images_call(plan_, mark, name, std::none_of(options_.timed.begin(), options_.timed.end(), [](bool t) { return t; }));
  }

  // Straight-line code that runs once a call: optimising it would cost more than compiling the kernels of a deep model.
  const char* not_optimised() const { return plan_.kernels.size() > kOptimisedCalls ? "__attribute__((noinline, optnone)) " : ""; }

  std::string kernel_call(size_t k) {
    const Kernel& kernel = plan_.kernels[k];
    if (const auto* mark = std::get_if<ControlMark>(&kernel.def)) return control(*mark);
    std::string text = call_comment(kernel);
    if (const auto* copy = std::get_if<CopyKernel>(&kernel.def); copy && copies_elements(plan_, *copy)) {
      return text + begin_trace(k) + fmt::format("    copy_{}({}, {}, s);\n", k, address(copy->to), address(copy->from)) + end_trace(k) + "  }\n";
    } else if (copy) {
      const BufferInfo& b = plan_.buffer(copy->from).info;
      std::string to = address(copy->to);
      if (copy->to_element) to = fmt::format("(char*)({}) + {}", to, host_index(copy->to_element * byte_size(b.dtype)));
      return text + begin_trace(k) +
             fmt::format("    memcpy({}, {}, (size_t){});\n", to, address(copy->from), host_index(product(pool(), b.sizes) * byte_size(b.dtype))) +
             end_trace(k) + "  }\n";
    }
    if (const auto* library = std::get_if<LibraryKernel>(&kernel.def))
      return text + begin_trace(k) + library_call_text(plan_, *library, kernel, flag_checks()) + end_trace(k) + "  }\n";
    if (const auto* read = std::get_if<ReadKernel>(&kernel.def)) {
      return text + begin_trace(k) + fmt::format("    s[{}] = *(const long*)({});\n", read->symbol.index, address(read->source)) +
             after_reads().text(*read, kernel) + end_trace(k) + "  }\n";
    }
    text += choice(k);
    if (const auto* call = std::get_if<TemplateKernel>(&kernel.def))
      return text + hook(k, false) + begin_trace(k) + template_call(k, *call) + end_trace(k) + hook(k, true) + "  }\n";
    if (const auto* user = std::get_if<UserCallKernel>(&kernel.def)) return text + begin_trace(k) + user_call(k, *user) + end_trace(k) + "  }\n";
    text += begin_trace(k) + args(k) + hook(k, false) + launch_text(k);
    return text + hook(k, true) + end_trace(k) + "  }\n";
  }

  // Whether the kernel's choice at hand asks for what this one does: a user's configuration, a form of a loop.
  std::string asks_for(size_t k, const Choice& choice) const {
    if (std::holds_alternative<UserCallKernel>(plan_.kernels[k].def))
      return fmt::format("{} == {}", number_of(k, &cpu::UserChoice::config), as<cpu::UserChoice>(choice).config);
    const auto loop = as<cpu::LoopChoice>(choice);
    return fmt::format("{} == {}", number_of(k, &cpu::LoopChoice::form), loop.form) +
           (loop.size ? fmt::format(" && {} == {}", number_of(k, &cpu::LoopChoice::size), loop.size) : "");
  }

  // Of the function that the kernel's choice asks for, where there are several.
  std::string launch_text(size_t k) const {
    const cpu::CpuLaunch& launch = program_.launches[k];
    const auto chosen = [&](const std::function<std::string(const cpu::CpuLaunch::Config&)>& what) {
      std::string all = what({{}, launch.function, launch.items, launch.work});
      for (size_t c = 1; c < launch.configs.size(); ++c) {
        if (launch.configs[c].function >= 0) all = fmt::format("{} ? {} : {}", asks_for(k, launch.configs[c].choice), what(launch.configs[c]), all);
      }
      return all;
    };
    return fmt::format("    launch({}, kFunctions[chosen][{}], {}, {}, &args{});\n", host(k), chosen([](const auto& c) { return std::to_string(c.function); }),
                       chosen([](const auto& c) { return host_index(c.items); }), chosen([](const auto& c) { return host_index(c.work); }),
                       chooses(k) ? ", " + number_of(k, &cpu::LoopChoice::chunk_work) : "");
  }

  // What the kernel changes in place is put there first.
  std::string user_call(size_t k, const UserCallKernel& user) {
    std::string text = hook(k, false);
    size_t written = static_cast<size_t>(user.def.kernel->returns);
    for (size_t i = 0; i < user.operands.size(); ++i) {
      const auto* t = std::get_if<UserCall::Tensor>(&user.def.args[i]);
      if (!t || !user.def.kernel->args[i].written) continue;
      const int64_t bytes = byte_size(plan_.buffer(user.operands[i].buffer).info.dtype);
      text += fmt::format("    memcpy({}, {}, (size_t){});\n", address(user.results[written++]),
                          element_address(plan_, user.operands[i], static_cast<int>(t->sizes.size())), host_index(product(pool(), t->sizes) * bytes));
    }
    text += args(k) + launch_text(k);
    return text + hook(k, true);
  }

  const AfterReads& after_reads() {
    if (!after_reads_) after_reads_.emplace(plan_, size_limits(plan_, kHostInterface));
    return *after_reads_;
  }

  std::string control(const ControlMark& mark) {
    const auto holds = [&] { return fmt::format("*(const unsigned char*)({})", address(mark.predicate)); };
    switch (mark.kind) {
      case ControlMark::Kind::branch: flags_before_.push_back(-1); return fmt::format("  if ({}) {{\n", holds());
      case ControlMark::Kind::otherwise: return "  } else {\n";
      case ControlMark::Kind::loop:
        flags_before_.push_back(static_cast<int>(flags_.size()));
        return fmt::format("  for (s[{0}] = 0; {1}; ++s[{0}]) {{\n", mark.step.index,
                           mark.steps ? fmt::format("s[{}] < {}", mark.step.index, host_index(mark.steps)) : "");
      case ControlMark::Kind::stop_unless: return fmt::format("  if (!{}) break;\n", holds());
      case ControlMark::Kind::images:
      case ControlMark::Kind::end: break;
    }
    // A step that went wrong is the last one.
    const int first = flags_before_.back();
    flags_before_.pop_back();
    return (first < 0 ? "" : flag_checks(static_cast<size_t>(first))) + "  }\n";
  }

  std::string template_call(size_t k, const TemplateKernel& t) {
    std::string text;
    if (!t.epilogue.empty() || checks_index(plan_.kernels[k])) text += args(k);
    text += cpu::fields_text(cpu::template_fields(plan_, t));
    if (chooses(k)) {
      visit_template(t.def, [&](const auto& def) { text += method_fields(cpu::TemplateUse{plan_, t}, def); });
      text += fmt::format("    t.block_tiles = {};\n    t.block_panels = {};\n", number_of(k, &cpu::ProductChoice::block_tiles),
                          number_of(k, &cpu::ProductChoice::block_panels));
    }
    if (!t.epilogue.empty()) {
      text += fmt::format("    t.epilogue = (CoilEpilogue)kFunctions[chosen][{}];\n    t.epilogue_context = &args;\n", program_.launches[k].function);
    }
    text += cpu::field("scratch", cpu::scratch_field(plan_, t).value);
    const std::string table = function_table(device_object(plan_, t));
    if (asks_onednn(plan_, options_, k)) return text + onednn_call(k, t, table);
    return text + fmt::format("    {}[chosen](&t, {});\n", table, host(k));
  }

  // What the library does not take, our own kernel computes.
  std::string onednn_call(size_t k, const TemplateKernel& t, const std::string& table) const {
    const PlanConstant* weight = cpu::packed_constant(plan_, cpu::onednn_weight_of(plan_, plan_.kernels[k]).operand->buffer);
    std::string text = fmt::format("    const int32_t taken = {} == {} ? cd::onednn_{}(&t, {}, {}) : 0;\n", number_of(k, &cpu::ProductChoice::method),
                                   static_cast<int>(cpu::kOneDnn), template_name(t.def), weight ? fmt::format("{}L", weight->offset) : "-1", host(k));
    if (in_images_) return text + fmt::format("    if (taken <= 0) {}[chosen](&t, {});\n", table, host(k));  // no thread ends the others' call
    text += fmt::format(
        "    if (taken < 0) return cd::fail(error, {}, \"%s\", {});\n", static_cast<int>(ErrorCode::out_of_memory),
        message_literal("oneDNN could not compute " + plan_.kernels[k].name + ", most likely for want of memory; COIL_ONEDNN=/none does without it"));
    return text + fmt::format("    if (!taken) {}[chosen](&t, {});\n", table, host(k));
  }

  // What the kernels found at fault, assertions first: they are the program's own words.
  std::string flag_checks(size_t first = 0) {
    std::vector<std::string> assertions, indices;
    for (size_t i = first; i < flags_.size(); ++i) {
      const Kernel& k = plan_.kernels[static_cast<size_t>(flags_[i])];
      const bool asserts = !k.assertion.empty();
      const std::string at = k.origins.empty() ? "" : k.origins[0].source;
      const std::string message = asserts ? k.assertion
                                          : "an index is out of range in " + k.name + (at.empty() ? "" : " (" + at + ")") +
                                                ": the data that selects rows is negative or too large; check the ids against the table's size";
      (asserts ? assertions : indices)
          .push_back(fmt::format("  if (flags[{}]) return cd::fail(error, {}, \"%s\", {});\n", i,
                                 static_cast<int>(asserts ? ErrorCode::runtime_assert : ErrorCode::input_value), message_literal(message)));
    }
    HostCalls::Level level{.whole = in_images_};
    for (const auto* list : {&assertions, &indices}) {
      for (const std::string& check : *list) calls_.add(level, check, {});
    }
    return level.text + level.calls;
  }

  std::string run_function(const std::string& calls) const {
    const size_t n = plan_.pool->num_symbols();
    std::string text = fmt::format(
        "static int64_t arena_bytes(const int64_t* symbols, int32_t num_workers) {{\n  int64_t s[{}];\n"
        "  for (int i = 0; i < {}; ++i) s[i] = symbols[i];\n  s[{}] = num_workers;\n  (void)s;\n  return {};\n}}\n\n",
        n, n - 1, plan_.workers.index, host_index(plan_.arena_bytes));
    text += fmt::format(
        "{}static int32_t run_kernels(const cd::TracedCall* call, CoilError* error) {{\n  long s[{}];\n  for (int i = 0; i < {}; ++i) s[i] = call->symbols[i];\n"
        "  const CoilHost* host = call->host;\n  s[{}] = host->num_workers;\n  int flags[{}] = {{0}};\n  (void)flags, (void)error;\n",
        not_optimised(), n, n - 1, plan_.workers.index, flags_.size() + 1);
    return text + late_declarations(plan_) + calls + "  return 0;\n}\n\n" +
           "static int32_t run_traced(const CoilCall* call, const CoilTrace* trace, CoilError* error) {\n  const cd::TracedCall traced = {*call, trace};\n  return run_kernels(&traced, error);\n}\n"
           "static int32_t run(const CoilCall* call, CoilError* error) { return run_traced(call, nullptr, error); }\n\n";
  }

  const KernelPlan& plan_;
  const cpu::CpuProgram& program_;
  const HostOptions& options_;
  HostCalls calls_{plan_};
  bool in_images_ = false;
  LaunchTable table_{plan_, program_};
  std::optional<AfterReads> after_reads_;  // made when first needed
  std::vector<Choice> choices_ = {Choice{}};
  std::vector<int> flags_;
  std::vector<int> flags_before_;  // of the open regions: loops' first flag, -1 for branches
};

}  // namespace

HostText host_program_text(const KernelPlan& plan, const cpu::CpuProgram& program, const HostOptions& options) {
  return HostWriter(plan, program, options).run();
}

}  // namespace coil
