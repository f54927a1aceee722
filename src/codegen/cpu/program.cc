// All kernels of a plan: names, head comments, and one function for equal texts.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "codegen/cpu/choices.h"
#include "codegen/index_text.h"
#include "codegen/kernel_text.h"
#include "codegen/user_text.h"

namespace coil::cpu {
namespace {

// Of programs with more symbols, kernels that differ by their sizes' names alone are one function. (Where there are few, the host program says less
// with the program's own numbers.)
constexpr size_t kFewSymbols = 64;

class ProgramWriter {
 public:
  ProgramWriter(const KernelPlan& plan, const std::vector<std::vector<Choice>>& timed) : plan_(plan), timed_(timed) {}

  CpuProgram run() {
    for (const Kernel& k : plan_.kernels) {
      CpuLaunch launch;
      if (const auto* loop = std::get_if<LoopKernel>(&k.def)) {
        launch = loop_launch(k, *loop);
      } else if (const auto* sort = std::get_if<SortKernel>(&k.def)) {
        launch = launched(k, sort_kernel_text(plan_, *sort, own_symbols(k)));
      } else if (const auto* call = std::get_if<TemplateKernel>(&k.def); call && !call->epilogue.empty()) {
        launch = launched(k, epilogue_text(plan_, *call, own_symbols(k)));
      } else if (const auto* user = std::get_if<UserCallKernel>(&k.def)) {
        launch = user_launch(k, *user);
      }
      program_.launches.push_back(std::move(launch));
    }
    return std::move(program_);
  }

 private:
  // Forms of one kernel get the same arguments, so that they keep the program's numbers.
  std::vector<int> own_symbols(const Kernel& k) const {
    const bool own = plan_.pool->num_symbols() > kFewSymbols && k.choices.rows.empty() && timed_.empty();
    return own ? kernel_symbols(plan_, k) : std::vector<int>();
  }

  CpuLaunch launched(const Kernel& k, KernelText t) {
    CpuLaunch launch;
    launch.buffers = t.buffers;
    launch.symbols = t.symbols;
    launch.items = t.items;
    launch.work = t.work;
    const auto [it, fresh] = known_.try_emplace(t.body, static_cast<int>(program_.functions.size()));
    launch.function = it->second;
    if (!fresh) return launch;
    CpuFunction f;
    f.name = names_.add(k.name, t.body);
    replace_all(t.body, "@NAME@", "COIL_NAME(" + f.name + ")");
    f.text = head_comment(k);
    f.comment_bytes = f.text.size();
    f.text += t.body;
    f.headers = t.headers;
    f.buffers = t.buffers;
    program_.functions.push_back(std::move(f));
    return launch;
  }

  CpuLaunch user_launch(const Kernel& k, const UserCallKernel& user) {
    CHECK(user.def.kernel->cpu.has_value(), "a user kernel without code for the CPU");
    std::vector<CpuLaunch> all;
    for (size_t c = 0; c < user.def.launches.size(); ++c) {
      all.push_back(launched(k, user_kernel_text(plan_, user, c)));
      CpuFunction& f = program_.functions[static_cast<size_t>(all.back().function)];
      f.user = user.def.kernel;
      f.user_call = user_call_text(plan_, user, *user.def.kernel->cpu, "coil::Range range");
    }
    CpuLaunch launch = all[0];
    for (size_t c = 0; c < all.size(); ++c) {
      launch.configs.push_back({{}, all[c].function, all[c].items, all[c].work});
      launch.configs.back().choice = choice_of(UserChoice{.config = static_cast<int32_t>(c)});
    }
    return launch;
  }

  // The own form, and those that are asked for.
  CpuLaunch loop_launch(const Kernel& k, const LoopKernel& loop) {
    CpuLaunch launch = launched(k, loop_kernel_text(plan_, loop, own_form(plan_, loop), {}, own_symbols(k)));
    const auto add = [&](const Choice& choice) {
      const auto wanted = as<LoopChoice>(choice);
      const Choice form = choice_of(LoopChoice{.form = wanted.form, .size = wanted.size});
      const auto has = [&](const CpuLaunch::Config& c) { return c.choice == form; };
      if (form == Choice{} || std::any_of(launch.configs.begin(), launch.configs.end(), has)) return;
      const std::optional<LoopForm> chosen = chosen_form(plan_, loop, form);
      CHECK(chosen.has_value(), "a form that the loop does not have");
      if (launch.configs.empty()) launch.configs.push_back({{}, launch.function, launch.items, launch.work});
      const CpuLaunch other = launched(k, loop_kernel_text(plan_, loop, *chosen, launch.buffers));
      CHECK(other.buffers == launch.buffers, "forms of a loop have the same arguments");
      launch.configs.push_back({form, other.function, other.items, other.work});
    };
    for (const ChoiceTable::Row& r : k.choices.rows) add(r.choice);
    const auto row = static_cast<size_t>(&k - plan_.kernels.data());
    if (row < timed_.size()) std::for_each(timed_[row].begin(), timed_[row].end(), add);
    return launch;
  }

  const KernelPlan& plan_;
  const std::vector<std::vector<Choice>>& timed_;
  CpuProgram program_;
  std::map<std::string, int> known_;
  FunctionNames names_;
};

}  // namespace

CpuProgram generate_kernels(const KernelPlan& plan, const std::vector<std::vector<Choice>>& timed) { return ProgramWriter(plan, timed).run(); }

KernelText user_kernel_text(const KernelPlan& plan, const UserCallKernel& k, size_t config) {
  const UserKernelCode& code = *k.def.kernel->cpu;
  const UserText u = user_text(plan, k, code, config, ", coil::Range{begin, end, worker}");
  KernelText t;
  // Names of the source stay in it: several configurations and operators are linked into one program.
  t.body = hoisted_includes(code) + u.constants + "namespace {\n" + u.source + "}  // namespace\n" + u.undefine + "namespace coil_call {\n" + kUsesIndex;
  t.body +=
      "extern \"C\" COIL_KERNEL void @NAME@(void* context, int64_t begin, int64_t end, int32_t worker) {\n"
      "  [[maybe_unused]] const coil_args& a = *(const coil_args*)context;\n  [[maybe_unused]] const long* const s = a.s;\n" +
      u.arguments + "  " + u.call + ";\n}\n}  // namespace coil_call\n";
  t.headers = {"user/kernel.h", kIndexHeader};
  t.buffers = u.buffers;
  t.items = k.def.launches[config].range;
  t.work = k.def.launches[config].work;
  return t;
}

void drop_configs(CpuProgram& program, const KernelPlan& plan, const std::vector<bool>& timed) {
  std::vector<bool> kept;
  for (const CpuFunction& f : program.functions) kept.push_back(!f.user);
  for (size_t k = 0; k < plan.kernels.size(); ++k) {
    if (!std::holds_alternative<UserCallKernel>(plan.kernels[k].def)) continue;  // forms of loops are those that were asked for
    std::vector<CpuLaunch::Config>& configs = program.launches[k].configs;
    std::vector<bool> used(configs.size(), k < timed.size() && timed[k]);
    if (!used.empty()) used[0] = true;
    for (const ChoiceTable::Row& r : plan.kernels[k].choices.rows) {
      const auto c = static_cast<size_t>(as<UserChoice>(r.choice).config);
      if (c < used.size()) used[c] = true;
    }
    for (size_t c = 0; c < configs.size(); ++c) {
      if (used[c]) kept[static_cast<size_t>(configs[c].function)] = true;
      else configs[c].function = -1;
    }
  }
  std::vector<int> rows;
  std::vector<CpuFunction> functions;
  for (size_t i = 0; i < kept.size(); ++i) {
    rows.push_back(kept[i] ? static_cast<int>(functions.size()) : -1);
    if (kept[i]) functions.push_back(std::move(program.functions[i]));
  }
  program.functions = std::move(functions);
  for (CpuLaunch& l : program.launches) {
    if (l.function >= 0) l.function = rows[static_cast<size_t>(l.function)];
    for (CpuLaunch::Config& c : l.configs) {
      if (c.function >= 0) c.function = rows[static_cast<size_t>(c.function)];
    }
  }
}

}  // namespace coil::cpu
