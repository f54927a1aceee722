#include "codegen/cuda/choices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/hash.h"
#include "codegen/cuda/loop_way.h"
#include "codegen/cuda/templates/template.h"
#include "codegen/index_text.h"
#include "codegen/user_text.h"

namespace coil::cuda {
namespace {

using templates::CudaCandidate;
using templates::CudaWay;

const TemplateKernel* as_template(const Kernel& k) { return std::get_if<TemplateKernel>(&k.def); }
const UserCallKernel* as_user(const Kernel& k) { return std::get_if<UserCallKernel>(&k.def); }
const LoopKernel* as_loop(const Kernel& k) { return std::get_if<LoopKernel>(&k.def); }

// Whether the kernel may share a launch with its neighbours.
bool has_neighbours(const KernelPlan& plan, const Kernel& k) {
  const size_t next = static_cast<size_t>(&k - plan.kernels.data()) + 1;
  return k.beside || (next < plan.kernels.size() && plan.kernels[next].beside);
}

}  // namespace

const ChoiceNames& value_names(const Kernel& kernel) { return as_user(kernel) ? UserChoice::kNames : as_loop(kernel) ? LoopWay::kNames : CudaWay::kNames; }

bool can_run(const KernelPlan& plan, const Kernel& kernel, const CudaMachine& machine, const Choice& choice) {
  if (const UserCallKernel* user = as_user(kernel)) return static_cast<size_t>(as<UserChoice>(choice).config) < user->def.launches.size();
  if (const LoopKernel* loop = as_loop(kernel)) return as<LoopWay>(choice).none == 0 && loop_text(plan, *loop, as<LoopWay>(choice));
  return choice == Choice{} || (as_template(kernel) && chosen_variant(plan, *as_template(kernel), machine, choice));
}

std::string choice_text(const Kernel& kernel, const Choice& choice) {
  if (const UserCallKernel* user = as_user(kernel)) {
    const auto config = static_cast<size_t>(as<UserChoice>(choice).config);
    return config > 0 && config < user->def.kernel->configs.size() ? config_text(user->def.kernel->configs[config]) : "default";
  }
  if (as_loop(kernel)) return way_text(as<LoopWay>(choice));
  static constexpr std::array<const char*, 15> kKinds = {"default",
                                                         "cuda cores",
                                                         "mma.sync",
                                                         "wgmma",
                                                         "wgmma pair",
                                                         "wgmma tile",
                                                         "wgmma without tma",
                                                         "few rows",
                                                         "library",
                                                         "wgmma two",
                                                         "wgmma side by side",
                                                         "wgmma two by two",
                                                         "wgmma tile pair",
                                                         "wgmma tile side by side",
                                                         "wgmma tile two by two"};
  const auto v = as<CudaWay>(choice);
  const auto kind = static_cast<size_t>(v.kind);
  std::string text = kind < kKinds.size() ? kKinds[kind] : fmt::format("kind {}", v.kind);
  const TemplateKernel* t = as_template(kernel);
  if (v.rows) text += v.columns ? fmt::format(" {} x {}", v.rows, v.columns) : fmt::format(", {} at once", v.rows);
  if (v.split > 1) text += fmt::format(", {} in {} parts", t ? summed_word(t->def) : "k", v.split);
  return text;
}

std::string problem_text(const KernelPlan& plan, const Kernel& kernel) {
  if (const UserCallKernel* user = as_user(kernel))
    return user_problem_text(plan, *user, fmt::format("{:016x}", hash64(std::string_view(user->def.kernel->cuda->source))));
  if (const LoopKernel* loop = as_loop(kernel)) {
    return has_neighbours(plan, kernel)
               ? ""
               : fmt::format("loop {}_{:08x}", kernel.name, static_cast<uint32_t>(hash64(std::string_view(loop_text(plan, *loop).body))));
  }
  const TemplateKernel* t = as_template(kernel);
  return t ? problem_text(plan, *t) : "";
}

Expr choice_key(const KernelPlan& plan, const Kernel& kernel) {
  if (const UserCallKernel* user = as_user(kernel)) return user_key(*user);
  if (const LoopKernel* loop = as_loop(kernel)) {
    Expr points = plan.pool->index(1);
    for (const Axis& a : loop->axes) points = points * a.size;
    return points;
  }
  return template_key(plan, *as_template(kernel));
}

std::vector<Choice> candidates(const KernelPlan& plan, const Kernel& kernel, const CudaMachine& machine, bool libraries,
                               const std::function<int64_t(SymbolId)>& sizes, size_t most) {
  std::vector<Choice> out = {Choice{}};
  if (const UserCallKernel* user = as_user(kernel)) {  // every configuration that the user gives is tried
    for (size_t c = 1; c < user->def.launches.size(); ++c) out.push_back(choice_of(UserChoice{.config = static_cast<int32_t>(c)}));
    return out;
  }
  if (const LoopKernel* loop = as_loop(kernel)) {
    for (const Choice& c : loop_choices(plan, *loop, sizes)) {
      if (out.size() < most) out.push_back(c);
    }
    return out;
  }
  const TemplateKernel& t = *as_template(kernel);
  const auto size = [&](Expr e) { return evaluate_index(e, sizes); };
  const Choice library = choice_of(CudaWay{.kind = templates::kLibraryCall});
  const bool has_library = libraries && chosen_variant(plan, t, machine, library);
  for (const CudaCandidate& c : template_candidates(plan, t, machine, size)) {
    if (out.size() == 2 && has_library) out.push_back(library);
    if (out.size() < most) out.push_back(choice_of(c.way));
  }
  return out;
}

}  // namespace coil::cuda
