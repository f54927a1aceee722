// What a template tells the CUDA target of itself: each in a file of its own (gemm.cc, grouped_gemm.cc, conv2d.cc,
// attention.cc), by the functions below. template.h calls them without asking which template a kernel is of; a new template
// that lacks one of them does not compile.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "codegen/hint.h"
#include "device/alignment.h"
#include "loop/templates/template.h"
#include "schedule/kernel_plan.h"
#include "templates/cuda_variants.h"

namespace coil::cuda {

// A kernel of a plan.
struct TemplateUse {
  const KernelPlan& plan;
  const TemplateKernel& kernel;

  ExprPool& pool() const { return *plan.pool; }
  // The type of the elements of an operand.
  DType dtype(size_t operand) const { return plan.buffer(kernel.operands[operand].buffer).info.dtype; }
};
using AddressOf = std::function<std::string(BufferId)>;
using SizeOf = std::function<int64_t(Expr)>;

// --- what they are made of

// Where an operand's first element is, in elements from its buffer's.
Expr base_of(const KernelPlan& plan, const PlanOperand& operand);
// How far an operand moves with one of the template's variables.
Expr coefficient(Expr offset, int var);
// What the address of an operand's first element is surely a multiple of. Does not depend on placements: scratch is asked for
// before they are known.
int64_t alignment_of(const KernelPlan& plan, const PlanOperand& operand);
// "s0, 4, s0*64": sizes in the text of a problem.
std::string size_texts(const std::vector<Expr>& sizes);

// Host statements that fill in the struct `t`, or a part of one.
class Params {
 public:
  Params(const TemplateUse& use, const AddressOf& address, std::string place = "t") : use_(use), address_(address), place_(std::move(place)) {}

  void set(const std::string& field, const std::string& value);
  void set(const std::string& field, Expr value);
  // The address of its first element.
  void operand(const std::string& field, const PlanOperand& operand);
  std::string address(BufferId id) const { return address_(id); }

  std::string text;

 private:
  TemplateUse use_;
  const AddressOf& address_;
  std::string place_;
};

// --- of products, which 1x1 convolutions are too
std::string product_problem(const templates::CudaGemmFacts& facts);
std::vector<templates::CudaVariant> product_variants(const templates::CudaGemmFacts& facts, const CudaMachine& machine, bool libraries);
std::optional<templates::CudaVariant> product_variant(const templates::CudaGemmFacts& facts, const CudaMachine& machine, const templates::CudaWay& way);
void product_params(Params& params, const TemplateUse& use, const templates::CudaGemmFacts& facts);

// --- of each template

// What is chosen for: equal texts are one problem. Empty: there is nothing to choose.
#define X(T) std::string problem(const TemplateUse& use, const T& def);
COIL_TEMPLATES(X)
#undef X

// The number by which the choices of a kernel differ: rows of a product, pixels of a convolution.
#define X(T) Expr key(const TemplateUse& use, const T& def);
COIL_TEMPLATES(X)
#undef X

// In order of preference; never empty. libraries: those that call NVIDIA's too.
#define X(T) std::vector<templates::CudaVariant> variants(const TemplateUse& use, const T& def, const CudaMachine& machine, bool libraries);
COIL_TEMPLATES(X)
#undef X

// The variant of a choice, kLibraryCall among them. nullopt: there is no such one.
#define X(T) std::optional<templates::CudaVariant> variant(const TemplateUse& use, const T& def, const CudaMachine& machine, const templates::CudaWay& way);
COIL_TEMPLATES(X)
#undef X

// What a tuner may time, the cheapest by the cost model first; the library's call is not among them.
#define X(T) std::vector<templates::CudaCandidate> ranked(const TemplateUse& use, const T& def, const CudaMachine& machine, const SizeOf& sizes);
COIL_TEMPLATES(X)
#undef X

// The struct of device/cuda/params.h that its kernels take.
#define X(T) const char* params_type(const TemplateUse& use, const T& def);
COIL_TEMPLATES(X)
#undef X

#define X(T) void fill_params(Params& params, const TemplateUse& use, const T& def);
COIL_TEMPLATES(X)
#undef X

// What in its shapes costs speed.
#define X(T) KernelHint hint(const TemplateUse& use, const T& def);
COIL_TEMPLATES(X)
#undef X

}  // namespace coil::cuda
