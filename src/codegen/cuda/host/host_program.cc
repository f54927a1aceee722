#include "codegen/cuda/host/host_program.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "codegen/cuda/choices.h"
#include "codegen/cuda/grids.h"
#include "codegen/cuda/host/call_forms.h"
#include "codegen/cuda/host/control_text.h"
#include "codegen/cuda/host/routine_text.h"
#include "codegen/cuda/images.h"
#include "codegen/cuda/machine.h"
#include "codegen/cuda/templates/template.h"
#include "codegen/foreign_text.h"
#include "codegen/interface/call_text.h"
#include "codegen/index_text.h"
#include "codegen/interface/interface_text.h"
#include "codegen/interface/read_text.h"
#include "codegen/interface/watch_text.h"
#include "loop/templates/template.h"

namespace coil::cuda {
namespace {

constexpr size_t kFewLaunches = 2;          // with which a call may do without a graph
constexpr int64_t kOperationsOfByte = 200;  // of the fastest tensor cores (500 T multiply-adds/s) in the time of a byte
constexpr size_t kCallsOfAFunction = 256;   // longer programs are several functions: clang's time grows faster than a function beyond that
constexpr size_t kOptimisedCalls = 8;       // programs of more kernels get a `run` that is not optimised: it would cost more than it gains

class HostWriter {
 public:
  HostWriter(const KernelPlan& plan, const CudaProgram& program, const HostOptions& options) : plan_(plan), program_(program), options_(options) {}

  std::string run() {
    std::string calls, functions, open;
    size_t count = 0, number = 0;
    const bool plain = !options_.watched && options_.timed.empty() && !changes_sizes(plan_) && !waits(plan_);
    CallForms forms(plain ? plan_.kernels.size() : 0, [this](size_t k, CallValues& values) { return call_form(k, values); });
    for (size_t k = 0; k < plan_.kernels.size(); ++k) {
      if (const size_t n = k < together_until_ ? 0 : forms.run_length(k)) {
        functions += forms.table(k, n);
        open += CallForms::statement(k);
        k += n - 1;
      } else {
        open += kernel_call(k) + (depth_ == 0 ? watch(k) : "");
      }
      if (++count < kCallsOfAFunction || depth_ > 0) continue;
      functions += call_function(number, open);
      calls += fmt::format("  if (const int32_t failed = calls_{}({})) return failed;\n", number++, parameters_.passed);
      open.clear();
      count = 0;
    }
    return prologue() + tuning() + (options_.watched ? watch_table() : "") + tables() + interface_text(plan_, kInterface, grid_limits(plan_, program_)) +
           (waits(plan_) ? "static void flag_error(int32_t flag, CoilError* error);\n\n" : "") + forms.functions() + functions + run_function(calls + open) +
           model();
  }

 private:
  std::string call_function(size_t number, const std::string& calls) const {
    return fmt::format("__attribute__((noinline, optnone)) static int32_t calls_{}({}) {{\n  {};\n{}  return 0;\n}}\n\n", number, parameters_.declared,
                       parameters_.unused, calls);
  }

  std::string prologue() const {
    std::string libraries;
    if (!program_.libraries.empty()) libraries = "#include \"cuda_blas.h\"\n#include \"cuda_dnn.h\"\n";
    if (program_.choice) libraries += "#include \"cuda_sample.h\"\n";
    return libraries + fmt::format("#include \"cuda_host.h\"\n#include \"host_support.h\"\n#include \"{}\"\n\n{}", kIndexHeader, kUsesIndex) +
           routine_declarations(plan_) + offset_functions(plan_) + "\n";
  }

  bool timed(size_t k) const { return k < options_.timed.size() && options_.timed[k]; }
  std::string tuning() const {
    return options_.timed.empty() ? "" : "extern \"C\" __attribute__((visibility(\"default\"))) CoilTuning coil_tuning;\nCoilTuning coil_tuning;\n\n";
  }
  std::string hook(size_t k, bool after) const {
    if (!timed(k)) return "";
    if (!after)
      return declare_choice(value_names(plan_.kernels[k]), fmt::format("coil_tuning.choices[{}]", k)) +
             fmt::format("    if (coil_tuning.hook) coil_tuning.hook(coil_tuning.owner, {}, nullptr);\n", k);
    std::string results;
    for (BufferId id : written_buffers(plan_.kernels[k])) results += address(id) + ", ";
    return fmt::format("    void* const results[] = {{{}nullptr}};\n    if (coil_tuning.hook) coil_tuning.hook(coil_tuning.owner, {}, results);\n", results, k);
  }

  // What the launch of kernel k wrote, of itself and of those that run beside it.
  std::string watch(size_t k) const {
    if (!options_.watched || program_.calls[k].joined) return "";
    std::string text;
    for (size_t j = k; j == k || (j < plan_.kernels.size() && program_.calls[j].joined); ++j) {
      std::string results;
      for (BufferId id : results_of(plan_, j)) results += address(id) + ", ";
      text += fmt::format(
          "  if (coil_watch.hook) {{\n    void* const results[] = {{{}nullptr}};\n    coil_watch.hook(coil_watch.owner, {}, results, s);\n  }}\n", results, j);
    }
    return text;
  }

  std::string tables() const {
    std::string text, rows;
    for (const HostImage& i : options_.images) {
      text += fmt::format("extern \"C\" __attribute__((visibility(\"hidden\"))) const unsigned char {}[];\n", i.symbol);
      rows += fmt::format("    {{{}, {}, {}, {}UL}},\n", i.sm, i.kind, i.symbol, i.bytes);
    }
    text += "static const CudaImage kImages[] = {\n" + rows + "    {}};\nstatic const CudaKernel kKernels[] = {\n";
    for (size_t f = 0; f < program_.functions.size(); ++f) text += kernel_row(f);
    return text + fmt::format("    {{}}}};\nstatic const CudaCode kCode = {{kImages, {}, kKernels, {}, {}}};\n\n", options_.images.size(),
                              program_.functions.size(), c_string(options_.architectures));
  }

  std::string kernel_row(size_t number) const {
    const CudaFunction& f = program_.functions[number];
    const auto image = std::find_if(options_.images.begin(), options_.images.end(), [&](const HostImage& i) { return i.function == static_cast<int>(number); });
    const auto only = f.image ? image - options_.images.begin() + 1 : 0;
    return fmt::format("    {{{}, {}, {}, {}, {}, {}}},\n", c_string(f.name), f.threads, f.shared_bytes, f.cluster, message_literal(f.label), only);
  }

  std::string address(BufferId id) const {
    const Placement::Kind kind = plan_.buffer(id).placement.kind;
    const std::string text = buffer_address(plan_, id);
    if (values_) return values_->address(plan_, id, text);
    return kind == Placement::Kind::state || kind == Placement::Kind::arena ? "(void*)(" + text + ")" : text;
  }

  // The call as one of many that are alike; nothing where the kernel is one of those that run together, or a user's.
  std::optional<std::string> call_form(size_t k, CallValues& values) {
    if (program_.calls[k].together) together_form_until_ = k + program_.calls[k].together->kernels;
    if (k < together_form_until_ || std::holds_alternative<UserCallKernel>(plan_.kernels[k].def)) return std::nullopt;
    values_ = &values;
    form_kernel_ = k;
    std::string text = own_call(k);
    values_ = nullptr;
    return text;
  }

  std::string function(int number) const { return values_ ? values_->function(number) : std::to_string(number); }
  std::string begins(size_t k) const { return values_ ? "    COIL_BEGIN(kernel, 0);\n" : trace_begin_text(k); }
  std::string ends(size_t k) const { return values_ ? "    COIL_END(kernel, 0);\n" : trace_end_text(k); }

  // The kernel's call, or that of all kernels that it is together with; those have none of their own then.
  std::string kernel_call(size_t k) {
    if (k < together_until_) return "";
    const CudaCall& call = program_.calls[k];
    if (!call.together) return own_call(k);
    together_until_ = k + call.together->kernels;
    std::string text = "  {\n    bool together = false;\n", apart;
    for (const CudaLaunch& l : call.together->launches) text += together_text(l, k);
    if (call.together->always) apart = absent(call.together->launches.back(), "      ");
    for (size_t j = k; j < together_until_ && !call.together->always; ++j) apart += own_call(j);
    return text + "    if (!together) {\n" + apart + "    }\n  }\n";
  }

  std::string together_text(const CudaLaunch& l, size_t k) const {
    std::string members, values;
    for (size_t i = 0; i < l.args.size(); ++i) {
      members += fmt::format("{} m{}; ", args_type(l.args[i]), i);
      values += fmt::format("        {{{}}},\n", args_value(l.args[i], static_cast<size_t>(l.args[i].kernel)));
    }
    return call_comment(plan_.kernels[k]) + l.setup + fmt::format("    if (!together && cd::cuda_has(call, {}) && {}) {{\n", l.function, l.condition) +
           trace_begin_text(k) + fmt::format("      const struct {{ {}}} args = {{\n{}      }};\n", members, values) +
           "      const cd::CudaParam params[] = {{&t, sizeof t}, {&args, sizeof args}};\n" + enqueue(l, l.grid_x, 2, "      ") + trace_end_text(k) +
           "      together = true;\n    }\n  }\n";
  }

  // None of the launches has its function on the device: the last one, which asks for least, says why.
  std::string absent(const CudaLaunch& l, const std::string& indent) const {
    return fmt::format("{}return cd::cuda_absent(call, {}, error);\n", indent, function(l.function));
  }

  std::string control(const ControlMark& mark) {
    depth_ += mark.opens() ? 1 : mark.kind == ControlMark::Kind::end ? -1 : 0;
    return control_text(mark, mark.predicate.valid() ? address(mark.predicate) : "");
  }

  std::string copy_text(const CopyKernel& copy) const {
    const BufferInfo& b = plan_.buffer(copy.from).info;
    std::string to = address(copy.to);
    if (copy.to_element) to = fmt::format("(char*)({}) + {}", to, host_index(copy.to_element * byte_size(b.dtype)));
    return fmt::format("    if (const int32_t failed = cd::cuda_copy(call, {}, {}, (uint64_t){}, error)) return failed;\n", to, address(copy.from),
                       host_index(product(*plan_.pool, b.sizes) * byte_size(b.dtype)));
  }

  std::string read_text(const ReadKernel& read, const Kernel& kernel) {
    if (!after_reads_) {
      std::vector<SizeLimit> limits = size_limits(plan_, kInterface), grids = grid_limits(plan_, program_);
      limits.insert(limits.end(), grids.begin(), grids.end());
      after_reads_.emplace(plan_, std::move(limits));
    }
    return wait_text(fmt::format("s[{}]", read.symbol.index), address(read.source), "    ") + after_reads_->text(read, kernel);
  }

  std::string own_call(size_t k) {
    const Kernel& kernel = plan_.kernels[k];
    const CudaCall& call = program_.calls[k];
    if (call.joined) return "";
    if (const auto* mark = std::get_if<ControlMark>(&kernel.def)) return control(*mark);
    std::string text = values_ ? "  {\n" : call_comment(kernel);
    if (const auto* copy = std::get_if<CopyKernel>(&kernel.def); copy && call.launches.empty()) return text + begins(k) + copy_text(*copy) + ends(k) + "  }\n";
    if (const auto* library = std::get_if<LibraryKernel>(&kernel.def); library && is_host_routine(*library))
      return text + begins(k) + routine_text(plan_, *library, kernel, [this](BufferId id) { return address(id); }) + ends(k) + "  }\n";
    if (const auto* read = std::get_if<ReadKernel>(&kernel.def)) return text + begins(k) + read_text(*read, kernel) + ends(k) + "  }\n";
    if (const auto* user = std::get_if<UserCallKernel>(&kernel.def)) {
      if (!user->def.kernel->cuda->images.empty()) text += image_checks(*user, program_.functions[static_cast<size_t>(call.launches[0].function)].label);
      text += initial_copies(*user);
    }
    const auto* t = std::get_if<TemplateKernel>(&kernel.def);
    if (t) text += template_params(plan_, *t, [this](BufferId id) { return address(id); });
    const bool only_params = t && !takes_epilogue(t->def);
    text += hook(k, false) + begins(k);
    if (call.launches.size() == 1 && call.launches[0].condition.empty())
      return text + launch(call.launches[0], k, t != nullptr, only_params, "    ") + further(call, k) + ends(k) + hook(k, true) + "  }\n";
    text += "    ";
    for (const CudaLaunch& l : call.launches) {
      const std::string has = fmt::format("cd::cuda_has(call, {})", function(l.function));
      text += fmt::format("if ({}{}) {{\n{}    }} else ", has, l.condition.empty() ? "" : " && (" + l.condition + ")",
                          launch(l, k, t != nullptr, only_params, "      "));
    }
    text += "{\n" + absent(call.launches.back(), "      ") + "    }\n";
    return text + ends(k) + hook(k, true) + "  }\n";
  }

  std::string further(const CudaCall& call, size_t k) {
    std::string text;
    for (const CudaLaunch& l : call.further)
      text += fmt::format("    {}{{\n{}    }}\n", l.condition.empty() ? "" : "if (" + l.condition + ") ", launch(l, k, false, false, "      "));
    return text;
  }

  std::string initial_copy(const UserCallKernel& user, size_t argument, BufferId result) const {
    const auto& t = std::get<UserCall::Tensor>(user.def.args[argument]);
    const PlanOperand& o = user.operands[argument];
    const int64_t bytes = byte_size(plan_.buffer(o.buffer).info.dtype);
    const Expr begin = substitute_vars(o.offset, std::vector<Expr>(t.sizes.size(), plan_.pool->index(0)));
    return fmt::format("    if (const int32_t failed = cd::cuda_copy(call, {}, (char*)({}) + {}, (uint64_t){}, error)) return failed;\n", address(result),
                       address(o.buffer), host_index(begin * bytes), host_index(product(*plan_.pool, t.sizes) * bytes));
  }

  // What a user's kernel changes in place is put there first.
  std::string initial_copies(const UserCallKernel& user) const {
    std::string text;
    const UserKernel& kernel = *user.def.kernel;
    for (size_t r = 0; r < kernel.initial.size(); ++r) {
      for (size_t i = 0; i < kernel.args.size(); ++i) {
        if (kernel.args[i].name == kernel.initial[r] && user.operands[i].buffer != user.results[r]) text += initial_copy(user, i, user.results[r]);
      }
    }
    size_t written = static_cast<size_t>(user.def.kernel->returns);
    for (size_t i = 0; i < user.operands.size(); ++i) {
      const auto* t = std::get_if<UserCall::Tensor>(&user.def.args[i]);
      if (!t || !user.def.kernel->args[i].written) continue;
      text += initial_copy(user, i, user.results[written++]);
    }
    return text;
  }

  std::string args_type(const CudaArgs& a) const {
    return fmt::format("struct {{ void* p[{}]; int64_t s[{}]; int32_t* flag; int32_t kernel, wide; }}", std::max<size_t>(a.buffers.size(), 1),
                       program_.arg_symbols);
  }

  std::string args_value(const CudaArgs& a, size_t k) const {
    std::string pointers, wide, sizes;
    for (BufferId id : a.buffers) pointers += address(id) + ", ";
    for (const auto& [buffer, bytes] : a.aligned) wide += fmt::format("aligned({}, {}) && ", address(buffer), bytes);
    for (const std::string& e : a.divisible) wide += fmt::format("({}) == 0 && ", e);
    for (size_t i = 0; i + 1 < plan_.pool->num_symbols(); ++i) sizes += fmt::format("s[{}], ", i);
    return fmt::format("{{{}}}, {{{}}}, call->flag, {}, {}true", pointers, sizes,
                       values_ ? fmt::format("kernel + {}", k + 1 - form_kernel_) : std::to_string(k + 1), wide);
  }

  // Of several kernels (device/cuda/beside.h): `grid` becomes the blocks of all.
  std::string joined_args(const CudaLaunch& l, size_t k, const std::string& indent, std::string& grid) const {
    const size_t n = l.args.size();
    std::string text = fmt::format("{}const uint32_t blocks[] = {{", indent), turns = fmt::format("{}uint32_t turns = blocks[0];\n", indent), members, values,
                ends, end;
    for (size_t i = 0; i < n; ++i) {
      text += fmt::format("{}(uint32_t)({})", i ? ", " : "", l.args[i].blocks);
      if (i) turns += fmt::format("{0}if (blocks[{1}] < turns) turns = blocks[{1}];\n", indent, i);
      members += fmt::format("{} m{}; ", args_type(l.args[i]), i);
      values += fmt::format("{}    {{{}}},\n", indent, args_value(l.args[i], k + i));
      end += fmt::format("{}blocks[{}] - turns", i ? " + " : "", i);
      if (i + 1 < n) ends += end + ", ";
    }
    grid = fmt::format("{} * turns + {}", n, end);
    return text + "};\n" + turns +
           fmt::format("{0}struct {{ {1}uint32_t turns, end[{2}]; }} args = {{\n{3}{0}    turns, {{{4}}}}};\n", indent, members, n - 1, values, ends);
  }

  std::string launch(const CudaLaunch& l, size_t k, bool is_template, bool only_params, const std::string& indent) {
    std::string text, grid_x = l.grid_x;
    if (l.image) {
      const ImageParams p = image_params(plan_, std::get<UserCallKernel>(plan_.kernels[k].def), *l.image, [this](BufferId id) { return address(id); }, indent);
      return p.text + enqueue(l, grid_x, p.count, indent);
    }
    if (l.args.size() > 1) {
      text += joined_args(l, k, indent, grid_x);
    } else if (!only_params) {
      text += fmt::format("{0}{1} args = {{\n{0}    {2}}};\n", indent, args_type(l.args[0]), args_value(l.args[0], k));
    }
    if (!l.setup.empty()) text += indent + l.setup + "\n";
    if (l.number) text += fmt::format("{}const int64_t number = {};\n", indent, *l.number);
    const size_t num_params = (is_template && !only_params) || l.number ? 2 : 1;
    text += fmt::format("{}const cd::CudaParam params[] = {{{}{}}};\n", indent, is_template ? "{&t, sizeof t}" : "",
                        only_params   ? ""
                        : is_template ? ", {&args, sizeof args}"
                        : l.number    ? "{&args, sizeof args}, {&number, sizeof number}"
                                      : "{&args, sizeof args}");
    return text + enqueue(l, grid_x, num_params, indent);
  }

  std::string enqueue(const CudaLaunch& l, const std::string& grid_x, size_t num_params, const std::string& indent) const {
    return fmt::format("{}if (const int32_t failed = cd::cuda_launch(call, {}, {}, {}, {}, params, {}, error)) return failed;\n", indent, function(l.function),
                       grid_x, l.grid_y, l.grid_z, num_params);
  }

  std::string run_function(const std::string& calls) const {
    const size_t n = plan_.pool->num_symbols();
    std::string text = fmt::format(
        "static int64_t arena_bytes(const int64_t* symbols, int32_t) {{\n  int64_t s[{}];\n  for (int i = 0; i < {}; ++i) s[i] = symbols[i];\n  s[{}] = 1;\n"
        "  (void)s;\n  return {};\n}}\n\n",
        n, n - 1, n - 1, host_index(plan_.arena_bytes));
    const bool long_program = plan_.kernels.size() > kOptimisedCalls;
    text += fmt::format(
        "{}static int32_t enqueue(const cd::CudaCall* call, CoilError* error) {{\n  int64_t s[{}];\n  for (int i = 0; i < {}; ++i) s[i] = call->symbols[i];\n"
        "  s[{}] = 1;\n  (void)s, (void)error;\n",
        long_program ? "__attribute__((noinline, optnone)) " : "", n, n - 1, n - 1);
    text += call_variables(plan_) + calls + "  return 0;\n}\n\n";
    return text + flag_error_text(plan_, program_);
  }

  // Graphs of few launches: what they save is the host's time, and their first kernel starts late (cuda_graph.h).
  std::string outlasts() const {
    size_t launches = 0;
    for (const CudaCall& c : program_.calls) launches += !c.joined;
    if (launches > kFewLaunches || waits(plan_)) return "";
    const size_t n = plan_.pool->num_symbols();
    Expr bytes = plan_.pool->index(0);  // that memory could move in the time that the program takes at least
    for (const PlanBuffer& b : plan_.buffers) bytes = bytes + product(*plan_.pool, b.info.sizes) * byte_size(b.info.dtype);
    for (const Kernel& k : plan_.kernels) {
      const auto* t = std::get_if<TemplateKernel>(&k.def);
      if (t) bytes = bytes + floor_div(template_operations(*plan_.pool, t->def, t->result_sizes), plan_.pool->index(kOperationsOfByte));
    }
    return fmt::format(
        "static bool outlasts(const int64_t* symbols) {{\n  int64_t s[{}];\n  for (int i = 0; i < {}; ++i) s[i] = symbols[i];\n  s[{}] = 1;\n"
        "  (void)s;\n  return {} > {};\n}}\n\n",
        n, n - 1, n - 1, host_index(bytes), static_cast<int64_t>(launches) * bytes_of_a_launch(plan_));
  }

  std::string choice() const {
    if (!program_.choice) return "";
    return fmt::format(
        "static int32_t sample(const CoilCall* call, const CudaSample* rows, int32_t num_rows, CoilError* error) {{\n"
        "  return cd::cuda_sample(call, {}, {}, rows, num_rows, error);\n}}\n",
        program_.choice->function, program_.choice->vocabulary);
  }

  std::string model() const {
    const std::string bytes = outlasts();
    size_t outputs = 0;
    for (const LoopOutput& o : plan_.outputs) outputs += o.kind == LoopOutput::Kind::user;
    return bytes + choice() +
           fmt::format(
               "static const cd::CudaProgram kProgram = {{enqueue, {2}, {0}, {1}, {9}, {10}}};\n"
               "static int32_t run(const CoilCall* call, CoilError* error) {{ return cd::cuda_run(kProgram, call, error); }}\n"
               "static int32_t run_traced(const CoilCall* call, const CoilTrace* trace, CoilError* error) {{ return cd::cuda_run_traced(kProgram, call, trace, error); }}\n"
               "static int32_t load_device(int32_t ordinal, void** device, CoilError* error) {{ return cd::cuda_load(kCode, ordinal, device, error); }}\n"
               "static const CoilModel kModel = {{\n    COIL_ABI_VERSION, sizeof(CoilModel), {0}, {1}, {2}, COIL_CUDA, kInputDescs, kOutputDescs,\n    {3},\n    {4},\n"
               "    {5}UL, 0x{6:016x}UL, {7}UL, {8}UL, cd::select_cuda, cd::bind<kSignature>, output_shape, arena_bytes, run, load_device, cd::cuda_unload, flag_error, cd::cuda_count_graphs, {12}, {13}, run_traced, cd::find_fault<kSignature>{11}}};\n"
               "extern \"C\" __attribute__((visibility(\"default\"))) const CoilModel* coil_model(void) {{ return &kModel; }}\n",
               plan_.inputs.size(), outputs, plan_.pool->num_symbols() - 1, c_string(options_.in_spec), c_string(options_.out_spec), plan_.constants_bytes,
               options_.constants_hash, plan_.state_offset, plan_.state_bytes, options_.graphs && !waits(plan_), bytes.empty() ? "nullptr" : "outlasts",
               program_.choice ? ", sample, sizeof(CudaSample)" : "", reads_sizes(plan_) ? 1 : 0, has_late_outputs(plan_) ? "kLateOutputs" : "nullptr");
  }

  const KernelPlan& plan_;
  const CudaProgram& program_;
  const HostOptions& options_;
  const CallParameters parameters_ = call_parameters(plan_);
  std::optional<AfterReads> after_reads_;  // made when first needed
  int depth_ = 0;                          // of control flow
  size_t together_until_ = 0;              // kernels before this one are in a call that is written
  size_t together_form_until_ = 0;         // the same while forms are found
  size_t form_kernel_ = 0;
  CallValues* values_ = nullptr;  // of the call that is written as one of many
};

}  // namespace

std::string host_program_text(const KernelPlan& plan, const CudaProgram& program, const HostOptions& options) {
  return HostWriter(plan, program, options).run();
}

}  // namespace coil::cuda
