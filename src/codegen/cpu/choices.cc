#include "codegen/cpu/choices.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "codegen/user_text.h"
#include "loop/templates/template.h"

namespace coil::cpu {
namespace {

using Sizes = std::function<int64_t(SymbolId)>;

constexpr double kLibraryGain = 0.05;
constexpr double kSmallWork = 1 << 18;  // vector operations of a loop that one thread may do as fast
constexpr double kLeastLoop = 1 << 11;  // vector operations of a loop whose form can matter: others take a microsecond
constexpr size_t kMostForms = 3;        // of a loop: each is a function to compile

const TemplateKernel* as_template(const Kernel& k) { return std::get_if<TemplateKernel>(&k.def); }
const UserCallKernel* as_user(const Kernel& k) { return std::get_if<UserCallKernel>(&k.def); }

// f(its use, its template) of a template's kernel; `otherwise` of another one.
template <class Found, class F>
Found of_template(const KernelPlan& plan, const Kernel& kernel, Found otherwise, F&& f) {
  const TemplateKernel* t = as_template(kernel);
  if (t) visit_template(t->def, [&](const auto& def) { otherwise = f(TemplateUse{plan, *t}, def); });
  return otherwise;
}

// work: of the whole loop, in vector operations.
std::vector<Choice> loop_candidates(const KernelPlan& plan, const LoopKernel& loop, double work, const Sizes& sizes, const Machine& machine, size_t most) {
  std::vector<Choice> first;
  if (work >= kLeastLoop) first = form_choices(plan, loop, sizes);
  if (first.size() > kMostForms) first.resize(kMostForms);
  if (machine.threads > 1) {
    if (work < kSmallWork) first.push_back(one_thread());
    for (const int32_t chunk : {2048, 32768}) {
      if (work > 2 * chunk) first.push_back(choice_of(LoopChoice{.chunk_work = chunk}));
    }
  }
  return ordered(first, {}, most);
}

}  // namespace

bool can_run(const KernelPlan& plan, const Kernel& kernel, const Choice& choice) {
  if (const UserCallKernel* user = as_user(kernel)) return static_cast<size_t>(as<UserChoice>(choice).config) < user->def.launches.size();
  if (const auto* loop = std::get_if<LoopKernel>(&kernel.def)) return chosen_form(plan, *loop, choice).has_value();
  const int32_t method = as<ProductChoice>(choice).method;
  return of_template(plan, kernel, true, [&](const TemplateUse& use, const auto& def) {
    return method == kOneDnn ? onednn_weight(use, def).operand != nullptr : has_method(use, def, method);
  });
}

double needed_gain(const Kernel& kernel, const Choice& choice) { return as_template(kernel) && as<ProductChoice>(choice).method == kOneDnn ? kLibraryGain : 0; }

OneDnnWeight onednn_weight_of(const KernelPlan& plan, const Kernel& kernel) {
  return of_template(plan, kernel, OneDnnWeight{}, [](const TemplateUse& use, const auto& def) { return onednn_weight(use, def); });
}

WeightCopy onednn_copy(const KernelPlan& plan, const Kernel& kernel) {
  const OneDnnWeight found = onednn_weight_of(plan, kernel);
  if (!found.copied) return {};
  const PlanBuffer& weight = plan.buffer(found.operand->buffer);
  if (weight.placement.kind != Placement::Kind::constant) return {};
  return {found.operand->buffer, static_cast<uint64_t>(found.copied * byte_size(weight.info.dtype))};
}

bool asks_onednn(const KernelPlan& plan, const Kernel& kernel, bool timed) {
  const auto names_it = [](const ChoiceTable::Row& r) { return as<ProductChoice>(r.choice).method == kOneDnn; };
  if (!onednn_weight_of(plan, kernel).operand) return false;
  return timed || std::any_of(kernel.choices.rows.begin(), kernel.choices.rows.end(), names_it);
}

const ChoiceNames& value_names(const Kernel& kernel) {
  if (std::holds_alternative<LoopKernel>(kernel.def)) return LoopChoice::kNames;
  if (as_user(kernel)) return UserChoice::kNames;
  const ChoiceNames* names = &OtherChoice::kNames;
  if (const TemplateKernel* t = as_template(kernel)) visit_template(t->def, [&](const auto& def) { names = &choice_names(def); });
  return *names;
}

static std::string block_text(int32_t tiles, int32_t panels) {
  if (!tiles && !panels) return "";
  return "blocks of " + (tiles ? fmt::format("{} tiles", tiles) : "") + (tiles && panels ? " x " : "") + (panels ? fmt::format("{} panels", panels) : "");
}

std::string choice_text(const Kernel& kernel, const Choice& choice) {
  std::vector<std::string> parts;
  const auto chunks = [&](int32_t work) {
    if (work) parts.push_back(fmt::format("chunks of {} operations", work));
  };
  if (const UserCallKernel* user = as_user(kernel)) {
    const auto v = as<UserChoice>(choice);
    const auto config = static_cast<size_t>(v.config);
    if (config > 0 && config < user->def.kernel->configs.size()) parts.push_back(config_text(user->def.kernel->configs[config]));
    chunks(v.chunk_work);
  } else if (const auto* loop = std::get_if<LoopKernel>(&kernel.def)) {
    const auto v = as<LoopChoice>(choice);
    if (v.form) parts.push_back(form_text(*loop, choice));
    chunks(v.chunk_work);
  } else {
    const auto v = as<ProductChoice>(choice);
    if (const TemplateKernel* t = as_template(kernel)) visit_template(t->def, [&](const auto& def) { parts.push_back(method_text(def, v.method)); });
    parts.push_back(block_text(v.block_tiles, v.block_panels));
  }
  if (const int32_t threads = as<OtherChoice>(choice).threads) parts.push_back(threads == 1 ? "one thread" : fmt::format("{} threads", threads));
  std::erase(parts, "");
  return parts.empty() ? "default" : fmt::format("{}", fmt::join(parts, ", "));
}

std::string problem_text(const KernelPlan& plan, const Kernel& kernel, const std::string& function) {
  if (std::holds_alternative<LoopKernel>(kernel.def)) return "loop " + function;
  if (const UserCallKernel* user = as_user(kernel)) return user_problem_text(plan, *user, function);
  return of_template(plan, kernel, std::string(), [](const TemplateUse& use, const auto& def) { return problem(use, def); });
}

// "batch" of "64*batch": as good to decide by, and what a reader knows.
static Expr without_factor(ExprPool& pool, Expr e) {
  for (size_t i = 0; i < pool.num_symbols(); ++i) {
    const Expr symbol = pool.symbol(SymbolId(i));
    if (symbol == e) return e;
    const int64_t factor = evaluate_index(e, [&](SymbolId id) { return id == SymbolId(i) ? 1 : 0; });
    if (factor > 0 && e == symbol * factor) return symbol;
  }
  return e;
}

static Expr plain_key(const KernelPlan& plan, const Kernel& kernel, const CpuLaunch& launch) {
  if (as_user(kernel)) return user_key(*as_user(kernel));
  return of_template(plan, kernel, launch.items, [](const TemplateUse& use, const auto& def) { return key(use, def); });
}

Expr choice_key(const KernelPlan& plan, const Kernel& kernel, const CpuLaunch& launch) { return without_factor(*plan.pool, plain_key(plan, kernel, launch)); }

std::vector<Choice> candidates(const KernelPlan& plan, const Kernel& kernel, const CpuLaunch& launch, const Sizes& sizes, const Machine& machine, size_t most) {
  const auto value = [&](Expr e) { return static_cast<double>(evaluate_index(e, sizes)); };
  const bool several = machine.threads > 1;
  if (const auto* loop = std::get_if<LoopKernel>(&kernel.def))
    return loop_candidates(plan, *loop, value(launch.items) * (value(launch.work) + 1), sizes, machine, most);
  if (const UserCallKernel* user = as_user(kernel)) {  // every configuration that the user gives is tried
    std::vector<Choice> out;
    for (size_t c = 0; c < user->def.launches.size(); ++c) out.push_back(choice_of(UserChoice{.config = static_cast<int32_t>(c)}));
    if (several && value(launch.items) > 1 && value(launch.items) * (value(launch.work) + 1) < kSmallWork) out.push_back(one_thread());
    return out;
  }
  const Sought sought{sizes, machine, most};
  return of_template(plan, kernel, std::vector<Choice>{Choice{}}, [&](const TemplateUse& use, const auto& def) { return candidates(use, def, sought); });
}

}  // namespace coil::cpu
