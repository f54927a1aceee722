#include "codegen/cuda/choices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/hash.h"
#include "codegen/cuda/loop_way.h"
#include "codegen/cuda/template_facts.h"
#include "codegen/index_text.h"
#include "codegen/user_text.h"
#include "templates/cuda_library.h"

namespace coil::cuda {
namespace {

using templates::CudaCandidate;
using templates::CudaVariant;
using templates::CudaWay;

const TemplateKernel* as_template(const Kernel& k) { return std::get_if<TemplateKernel>(&k.def); }
const UserCallKernel* as_user(const Kernel& k) { return std::get_if<UserCallKernel>(&k.def); }
const LoopKernel* as_loop(const Kernel& k) { return std::get_if<LoopKernel>(&k.def); }

// Whether the kernel may share a launch with its neighbours.
bool has_neighbours(const KernelPlan& plan, const Kernel& k) {
  const size_t next = static_cast<size_t>(&k - plan.kernels.data()) + 1;
  return k.beside || (next < plan.kernels.size() && plan.kernels[next].beside);
}

std::string texts(const std::vector<Expr>& sizes) {
  std::vector<std::string> parts;
  for (Expr e : sizes) parts.push_back(size_text(e));
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace

const ChoiceNames& value_names(const Kernel& kernel) { return as_user(kernel) ? UserChoice::kNames : as_loop(kernel) ? LoopWay::kNames : CudaWay::kNames; }

bool can_run(const KernelPlan& plan, const Kernel& kernel, int sm, const Choice& choice) {
  if (const UserCallKernel* user = as_user(kernel)) return static_cast<size_t>(as<UserChoice>(choice).config) < user->def.launches.size();
  if (const LoopKernel* loop = as_loop(kernel)) return as<LoopWay>(choice).none == 0 && loop_text(plan, *loop, as<LoopWay>(choice));
  return choice == Choice{} || (as_template(kernel) && chosen_variant(plan, *as_template(kernel), sm, choice));
}

std::string choice_text(const Kernel& kernel, const Choice& choice) {
  if (const UserCallKernel* user = as_user(kernel)) {
    const auto config = static_cast<size_t>(as<UserChoice>(choice).config);
    return config > 0 && config < user->def.kernel->configs.size() ? config_text(user->def.kernel->configs[config]) : "default";
  }
  if (as_loop(kernel)) return way_text(as<LoopWay>(choice));
  static constexpr std::array<const char*, 15> kKinds = {"default",       "cuda cores",        "mma.sync", "wgmma",         "wgmma pair",
                                                         "wgmma tile", "wgmma without tma", "few rows", "library", "wgmma two",
                                                         "wgmma side by side",
                                                         "wgmma two by two", "wgmma tile pair", "wgmma tile side by side", "wgmma tile two by two"};
  const auto v = as<CudaWay>(choice);
  const auto kind = static_cast<size_t>(v.kind);
  std::string text = kind < kKinds.size() ? kKinds[kind] : fmt::format("kind {}", v.kind);
  const TemplateKernel* t = as_template(kernel);
  const bool attention = t && std::holds_alternative<Attention>(t->def);
  if (v.rows) text += v.columns ? fmt::format(" {} x {}", v.rows, v.columns) : fmt::format(", {} at once", v.rows);
  if (v.split > 1) text += fmt::format(", {} in {} parts", attention ? "keys" : "k", v.split);
  return text;
}

std::string problem_text(const KernelPlan& plan, const TemplateKernel& k) {
  if (const auto f = product_facts(plan, k)) {
    return fmt::format("gemm {} [{}], a strides [{}] at {}, b strides [{}] at {}", f->tf32 ? "tf32" : name(f->dtype), texts({f->batch, f->m, f->n, f->k}), texts({f->a_batch, f->a_row, f->a_col}),
                       f->a_alignment, texts({f->b_batch, f->b_row, f->b_col}), f->b_alignment);
  }
  if (const auto* a = std::get_if<Attention>(&k.def)) {
    const templates::CudaAttentionFacts f = attention_facts(plan, k, *a);
    return fmt::format("attention {} [{}]{}{}, scale {} at {}", name(f.dtype), texts({a->batch, a->heads, a->kv_heads, a->q_len, a->kv_len, a->dim, a->v_dim}), a->causal ? " causal" : "",
                       a->mask ? fmt::format(" masked by {}", name(f.mask_dtype)) : "", a->scale > 0 ? "> 0" : "<= 0", f.alignment);
  }
  const auto* c = std::get_if<Conv2d>(&k.def);
  if (!c) return "";
  const templates::CudaConvFacts f = conv_facts(plan, k, *c);
  return fmt::format("conv2d {} x [{}] strides [{}] at {}, result [{}], kernel {}x{} stride {}x{} padding {}x{} dilation {}x{} groups {}", f.tf32 ? "tf32" : name(f.dtype), texts(c->x_sizes),
                     texts({f.x_n, f.x_c, f.x_h, f.x_w}), f.x_alignment, texts(f.result_sizes), c->kernel[0], c->kernel[1], c->stride[0], c->stride[1], c->padding[0],
                     c->padding[1], c->dilation[0], c->dilation[1], c->groups);
}

std::string problem_text(const KernelPlan& plan, const Kernel& kernel) {
  if (const UserCallKernel* user = as_user(kernel)) return user_problem_text(plan, *user, fmt::format("{:016x}", hash64(std::string_view(user->def.kernel->cuda->source))));
  if (const LoopKernel* loop = as_loop(kernel)) {
    return has_neighbours(plan, kernel) ? "" : fmt::format("loop {}_{:08x}", kernel.name, static_cast<uint32_t>(hash64(std::string_view(loop_text(plan, *loop).body))));
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
  const TemplateKernel& t = *as_template(kernel);
  if (const auto f = product_facts(plan, t)) return f->batch * f->m;
  if (const auto* a = std::get_if<Attention>(&t.def)) return a->batch * a->q_len * a->kv_len;
  if (std::holds_alternative<GroupedGemm>(t.def)) return product(*plan.pool, t.result_sizes);
  return t.result_sizes[0] * t.result_sizes[2] * t.result_sizes[3];
}

std::vector<Choice> candidates(const KernelPlan& plan, const Kernel& kernel, int sm, bool libraries, const std::function<int64_t(SymbolId)>& sizes, size_t most) {
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
  const auto product = product_facts(plan, t);
  const auto* conv = std::get_if<Conv2d>(&t.def);
  const auto* attention = std::get_if<Attention>(&t.def);
  const Choice library = choice_of(CudaWay{.kind = templates::kLibraryCall});
  const bool has_library = libraries && chosen_variant(plan, t, sm, library);
  std::vector<CudaCandidate> ranked;
  if (product) ranked = templates::cuda_gemm_candidates(*product, sm, size);
  else if (attention) ranked = templates::cuda_attention_candidates(attention_facts(plan, t, *attention), sm, size);
  else if (conv) ranked = templates::cuda_conv_candidates(conv_facts(plan, t, *conv), sm, size);
  for (const CudaCandidate& c : ranked) {
    if (out.size() == 2 && has_library) out.push_back(library);
    if (out.size() < most) out.push_back(choice_of(c.way));
  }
  return out;
}

std::optional<CudaVariant> chosen_variant(const KernelPlan& plan, const TemplateKernel& k, int sm, const Choice& choice) {
  const bool library = choice == choice_of(CudaWay{.kind = templates::kLibraryCall});
  if (const auto f = product_facts(plan, k)) {
    return library ? templates::cuda_gemm_library(*f, sm, true) : templates::cuda_gemm_variant(*f, sm, as<CudaWay>(choice));
  }
  if (const auto* a = std::get_if<Attention>(&k.def)) return templates::cuda_attention_variant(attention_facts(plan, k, *a), sm, as<CudaWay>(choice));
  const auto* c = std::get_if<Conv2d>(&k.def);
  if (!c) return std::nullopt;
  const templates::CudaConvFacts f = conv_facts(plan, k, *c);
  return library ? templates::cuda_conv_library(f, sm, true) : templates::cuda_conv_variant(f, sm, as<CudaWay>(choice));
}

}  // namespace coil::cuda
