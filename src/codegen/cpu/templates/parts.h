// What a template tells the CPU target of itself: each in a file of its own (gemm.cc, grouped_gemm.cc, conv2d.cc,
// attention.cc), by the functions below. template.h calls them without asking which template a kernel is of; a new template
// that lacks one of them does not compile.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "codegen/cpu/choice_types.h"
#include "codegen/hint.h"
#include "loop/templates/template.h"
#include "schedule/kernel_plan.h"

namespace coil::cpu {

class CallWriter;

// A kernel of a plan.
struct TemplateUse {
  const KernelPlan& plan;
  const TemplateKernel& kernel;

  ExprPool& pool() const { return *plan.pool; }
  const BufferInfo& info(size_t operand) const { return plan.buffer(kernel.operands[operand].buffer).info; }
  Packing packing(size_t operand) const;
};
// How a buffer lies, if it is a constant; else plain.
Packing packing_of(const KernelPlan& plan, BufferId id);

// lanes: floats in a vector of the instruction set in question.
struct Machine {
  int threads = 1;
  int lanes = 16;
  bool onednn = false;  // the library is there and may be used
};
// What candidates are asked for: the sizes of a call, and how many of them are worth timing.
struct Sought {
  const std::function<int64_t(SymbolId)>& sizes;
  const Machine& machine;
  size_t most;

  double value(Expr e) const { return static_cast<double>(evaluate_index(e, sizes)); }
};

// The weight that oneDNN reads, and how many elements its own copy has where it keeps one; null: it does not compute this
// kernel.
struct OneDnnWeight {
  const PlanOperand* operand = nullptr;
  int64_t copied = 0;
};

// --- what candidates are made of

// "[64, s0]": sizes in the text of a problem.
std::string size_texts(const std::vector<Expr>& sizes);

// A product as the blocked kernel of device/kernels/block.h sees it.
struct Blocked {
  double batch, rows, columns, depth;
  int64_t bytes = 4;  // of an element, as it is computed with
  double multiply_adds() const { return batch * rows * columns * depth; }
};
constexpr double kSmallProduct = 1 << 23;  // multiply-adds that one thread may do as fast
using Priced = std::vector<std::pair<double, Choice>>;
// Its blocks of tiles and panels, with their predicted time in nanoseconds.
void add_blocks(const Blocked& product, int32_t method, const Machine& machine, Priced& out);

Choice by(Method method);
Choice one_thread();  // of any kernel
// The default, `first` in their order, then the cheapest of `rest`.
std::vector<Choice> ordered(const std::vector<Choice>& first, Priced rest, size_t most);

// --- hints

constexpr int64_t kMostPadding = 10;       // per cent of the work
constexpr int64_t kWorthSaying = 1 << 22;  // multiply-adds
// The kernels compute columns in such steps.
int64_t column_step(DType dtype);
int64_t padding_percent(int64_t columns, int64_t step);
// "33 output channels are no multiple of 16: 31 % of the sums are padding; 48 would take as long"
KernelHint padded(std::string_view what, int64_t columns, int64_t step, std::string_view of);

// --- of each template

// What is chosen for: equal texts are one problem. Empty: there is nothing to choose.
#define X(T) std::string problem(const TemplateUse& use, const T& def);
COIL_TEMPLATES(X)
#undef X

// The number by which the choices of a kernel differ.
#define X(T) Expr key(const TemplateUse& use, const T& def);
COIL_TEMPLATES(X)
#undef X

// The names of a choice's numbers.
#define X(T) const ChoiceNames& choice_names(const T& def);
COIL_TEMPLATES(X)
#undef X

// What readers call a method (choice_types.h); empty: the default.
#define X(T) std::string method_text(const T& def, int32_t method);
COIL_TEMPLATES(X)
#undef X

// Whether the plan has what a method other than oneDNN's asks for.
#define X(T) bool has_method(const TemplateUse& use, const T& def, int32_t method);
COIL_TEMPLATES(X)
#undef X

// The weight as oneDNN would read it, in types that it multiplies as we do and layouts of which it can make its own.
#define X(T) OneDnnWeight onednn_weight(const TemplateUse& use, const T& def);
COIL_TEMPLATES(X)
#undef X

// Choices worth timing, the default first, then by a cost model.
#define X(T) std::vector<Choice> candidates(const TemplateUse& use, const T& def, const Sought& sought);
COIL_TEMPLATES(X)
#undef X

// What in its shapes costs speed.
#define X(T) KernelHint hint(const TemplateUse& use, const T& def);
COIL_TEMPLATES(X)
#undef X

// The fields of its call but for those that a choice or an epilogue decides, and the scratch (call_fields.h).
#define X(T) void add_fields(CallWriter& to, const T& def);
COIL_TEMPLATES(X)
#undef X

// Statements of the host program that make the fields such as the chosen method wants them; empty: all methods take the same.
#define X(T) std::string method_fields(const TemplateUse& use, const T& def);
COIL_TEMPLATES(X)
#undef X

// The object of the device library with its kernels: "gemm_f64" (device/kernels/gemm_f64.cc).
#define X(T) std::string device_object(const TemplateUse& use, const T& def);
COIL_TEMPLATES(X)
#undef X

// Bytes that its kernel wants, as device/kernels.h states them, for any of its choices; null: none.
#define X(T) Expr scratch(const TemplateUse& use, const T& def);
COIL_TEMPLATES(X)
#undef X

}  // namespace coil::cpu
