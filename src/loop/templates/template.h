// Definitions that are templates, without asking which one. Each function here finds the template's own of the same name; other
// definitions have no part in it (nullopt, null, false), which callers say for themselves.
#pragma once

#include <optional>

#include "loop/loop.h"

namespace coil {

template <class T>
concept Template = requires { T::kTakesEpilogue; };

// The templates among LoopDef. What each has to have (functions of the targets, of the interpreters, of the scheduler) is declared by this list, and one that
// lacks a part does not compile.
#define COIL_TEMPLATES(X) X(Gemm) X(GroupedGemm) X(Conv2d) X(Attention)

template <class... Defs>
constexpr size_t count_templates(const std::variant<Defs...>*) {
  return (size_t{Template<Defs>} + ...);
}
#define X(T) +1
static_assert(count_templates(static_cast<const LoopDef*>(nullptr)) == 0 COIL_TEMPLATES(X), "COIL_TEMPLATES lists the templates of LoopDef");
#undef X

// Calls f with the template that the definition is. False: it is none.
template <class Def, class F>
bool visit_template(Def& def, F&& f) {
  return std::visit(
      [&](auto& d) {
        if constexpr (Template<std::remove_cvref_t<decltype(d)>>) {
          f(d);
          return true;
        } else {
          return false;
        }
      },
      def);
}

bool is_template(const LoopDef& def);
// The constants of parts.h; false of other definitions.
bool takes_epilogue(const LoopDef& def);
bool checks_data(const LoopDef& def);

// What it reads, and its sizes; of another definition nothing. Those of a constant definition are not to be changed.
TemplateParts parts_of(LoopDef& def);
TemplateParts parts_of(const LoopDef& def);

// The sizes of the variables that mean the same in all of its operands.
std::vector<Expr> operand_ranges(const LoopDef& def);

// --- of templates alone (CHECK)

const char* summed_word(const LoopDef& def);  // kSummed

// What does not go together in it, for verify(): "multiplies different types". Empty: nothing. Its operands and whole buffers
// exist and have the right ranks.
std::string template_problem(const LoopProgram& program, const Loop& loop);
// The result as an epilogue's tiles see it.
TemplateTiles template_tiles(ExprPool& pool, const LoopDef& def, const std::vector<Expr>& results);
// The strides in which it stores results of those sizes by itself; nullopt: in any.
std::optional<std::vector<Expr>> template_strides(ExprPool& pool, const LoopDef& def, const std::vector<Expr>& results);
// How many additions and multiplications a call makes, and sizes whose product is of that order: where it is no number of 64
// bits, neither are the former.
Expr template_operations(ExprPool& pool, const LoopDef& def, const std::vector<Expr>& results);
std::vector<Expr> template_work_sizes(const LoopDef& def, const std::vector<Expr>& results);
TemplateLimits template_limits(ExprPool& pool, const LoopDef& def, const std::vector<Expr>& results);

}  // namespace coil
