// What a template tells the scheduler of itself: each in a file of its own (gemm.cc, grouped_gemm.cc, conv2d.cc, attention.cc), by the functions below. Their
// callers do not ask which template it is; a new template that lacks one of them does not compile.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "loop/templates/template.h"
#include "schedule/interpret_template.h"
#include "schedule/operand_copies.h"
#include "schedule/template_operands.h"

namespace coil {

// Copies what its kernels cannot read where it lies. May change the definition to one of the same values whose operands lie better.
#define X(T) void legalise(OperandCopies& copies, Loop& loop, T& def);
COIL_TEMPLATES(X)
#undef X

// How rows lie best in the result of kernels that store whole rows, and nothing else. nullopt: its result may lie in any way.
struct ResultRows {
  std::vector<Expr> strides;
  std::string reason;
};
#define X(T) std::optional<ResultRows> result_rows(ExprPool& pool, const T& def, const std::vector<Expr>& sizes);
COIL_TEMPLATES(X)
#undef X

// Appends its kernel's operands, in the order of TemplateParts. `loop`: its row in the program.
#define X(T) void add_operands(TemplateOperands& to, TemplateKernel& kernel, const T& def, int loop);
COIL_TEMPLATES(X)
#undef X

// Makes it the definition of the same values that reads what a plan's kernel reads, as vectors at linear offsets.
#define X(T) void read_from_plan(TemplateRun& run, T& def);
COIL_TEMPLATES(X)
#undef X

// --- of attention: rows of past keys and values that others read with the new ones are copied in front of these (PastKeys::keep_k).
Status keep_past(PlanMemory& memory, const TemplateKernel& kernel);

}  // namespace coil
