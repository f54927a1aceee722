#include "loop/templates/template.h"

namespace coil {
namespace {

// f of the template that the definition has to be.
template <class F>
auto of_template(const LoopDef& def, F&& f) {
  std::optional<std::decay_t<decltype(f(std::declval<const Gemm&>()))>> found;
  const bool is = visit_template(def, [&](const auto& d) { found = f(d); });
  CHECK(is, "a definition that is no template");
  return *std::move(found);
}

}  // namespace

bool is_template(const LoopDef& def) {
  return visit_template(def, [](const auto&) {});
}

bool takes_epilogue(const LoopDef& def) {
  bool takes = false;
  visit_template(def, [&](const auto& d) { takes = d.kTakesEpilogue; });
  return takes;
}

bool checks_data(const LoopDef& def) {
  bool checks = false;
  visit_template(def, [&](const auto& d) { checks = d.kChecksData; });
  return checks;
}

const char* template_name(const LoopDef& def) {
  const char* name = nullptr;
  visit_template(def, [&](const auto& d) { name = d.kName; });
  return name;
}

TemplateParts parts_of(LoopDef& def) {
  TemplateParts found;
  visit_template(def, [&](auto& d) { found = parts(d); });
  return found;
}

TemplateParts parts_of(const LoopDef& def) { return parts_of(const_cast<LoopDef&>(def)); }

std::vector<Expr> operand_ranges(const LoopDef& def) { return parts_of(def).ranges; }

const char* summed_word(const LoopDef& def) {
  return of_template(def, [](const auto& d) { return d.kSummed; });
}

std::string template_problem(const LoopProgram& program, const Loop& loop) {
  return of_template(loop.def, [&](const auto& d) { return problem(program, loop, d); });
}

TemplateTiles template_tiles(ExprPool& pool, const LoopDef& def, const std::vector<Expr>& results) {
  return of_template(def, [&](const auto& d) { return tiles(pool, d, results); });
}

std::optional<std::vector<Expr>> template_strides(ExprPool& pool, const LoopDef& def, const std::vector<Expr>& results) {
  return of_template(def, [&](const auto& d) { return own_strides(pool, d, results); });
}

Expr template_operations(ExprPool& pool, const LoopDef& def, const std::vector<Expr>& results) {
  return of_template(def, [&](const auto& d) { return operations(pool, d, results); });
}

std::vector<Expr> template_work_sizes(const LoopDef& def, const std::vector<Expr>& results) {
  return of_template(def, [&](const auto& d) { return work_sizes(d, results); });
}

TemplateLimits template_limits(ExprPool& pool, const LoopDef& def, const std::vector<Expr>& results) {
  return of_template(def, [&](const auto& d) { return limits(pool, d, results); });
}

}  // namespace coil
