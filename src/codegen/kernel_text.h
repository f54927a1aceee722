// What the generators of all targets share: how types, constants and buffers are named in generated C++, and the coordinates of a
// template's result.
#pragma once

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "schedule/kernel_plan.h"

namespace coil {

std::string register_type(DType dtype);     // "float", "cd::i32"
std::string scalar_literal(Expr constant);  // "1.5f", "(cd::i64)3"
std::string memory_type(DType dtype);       // "cd::bf16"

// Names that a kernel's text shares: buffers become p0, p1... in order of first use, headers are noted as their functions appear.
class KernelNames {
 public:
  // symbols: those that the text numbers from 0 on in this order; empty: all have the program's numbers.
  explicit KernelNames(const KernelPlan& plan, std::vector<int> symbols = {}) : plan_(plan), symbols_(std::move(symbols)) {}

  std::string pointer(BufferId id) { return "p" + std::to_string(number(id)); }
  size_t number(BufferId id);        // of a buffer's pointer
  size_t symbol_number(int symbol);  // in the text
  const std::vector<int>& symbols() const { return symbols_; }
  const std::vector<BufferId>& buffers() const { return buffers_; }
  void need_header(const std::string& header) { headers_.insert(header); }
  const std::set<std::string>& headers() const { return headers_; }
  const KernelPlan& plan() const { return plan_; }

 private:
  const KernelPlan& plan_;
  std::vector<BufferId> buffers_;
  std::vector<int> symbols_;
  std::set<std::string> headers_;
};
// The symbols that a kernel's text may name, each once, in an order that kernels have in common which differ by their sizes' names alone.
std::vector<int> kernel_symbols(const KernelPlan& plan, const Kernel& kernel);

// Names of a program's functions: what a kernel is called and eight digits of its text's hash. Among 10,000 texts two may well have the same digits,
// so a name that is taken gets all sixteen, and a number where those are equal too.
class FunctionNames {
 public:
  std::string add(const std::string& kernel, const std::string& body);

 private:
  std::set<std::string> taken_;
};

// "// ops" and the source lines that a kernel computes.
std::string head_comment(const Kernel& kernel);
void replace_all(std::string& text, const std::string& from, const std::string& to);

// x of erf(x) + 1, which has a function of its own; else nothing.
Expr erf_beside_one(Expr e);
// Whether an offset moves by one element along an axis.
bool unit_stride(Expr offset, int axis);
// Loads of buffers that are always evaluated, each once: what fills a tile does not ask for conditions. Those in another's offset are left out.
std::vector<Expr> unconditional_loads(const std::vector<Stmt>& stmts);
// Whether an offset is known only when values are computed: read from memory, or checked.
bool from_data(Expr offset);

// Rewrites every index of an expression for new variables and simplifies it in their ranges.
Expr reindex(Expr e, const std::vector<Expr>& vars, const std::vector<Expr>& sizes);

}  // namespace coil
