#include "codegen/kernel_text.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/hash.h"
#include "codegen/foreign_text.h"

namespace coil {
namespace {

std::string float_literal(double v, bool f32) {
  const std::string suffix = f32 ? "f" : "";
  if (std::isnan(v)) return f32 ? "__builtin_nanf(\"\")" : "__builtin_nan(\"\")";
  if (std::isinf(v)) return std::string(v < 0 ? "-" : "") + (f32 ? "__builtin_inff()" : "__builtin_inf()");
  std::string text = f32 ? fmt::format("{}", static_cast<float>(v)) : fmt::format("{}", v);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return v < 0 || std::signbit(v) ? "(" + text + suffix + ")" : text + suffix;
}

void collect_loads(Expr e, std::vector<Expr>& loads, std::set<const ExprNode*>& seen) {
  if (!seen.insert(e.node()).second) return;
  if (e->kind == ExprKind::load) {
    if (e->id < kScratchBase) loads.push_back(e);
    return;  // its offset: an index from data is not tiled
  }
  if (e->is_op(ScalarOp::masked)) return collect_loads(e->args[0], loads, seen);
  for (Expr a : e->args) collect_loads(a, loads, seen);
}

}  // namespace

std::string register_type(DType dtype) {
  switch (compute_type(dtype)) {
    case DType::boolean: return "bool";
    case DType::u8: return "cd::u8";
    case DType::i8: return "cd::i8";
    case DType::i16: return "cd::i16";
    case DType::i32: return "cd::i32";
    case DType::f32: return "float";
    case DType::f64: return "double";
    default: return "cd::i64";
  }
}

std::string memory_type(DType dtype) {
  switch (dtype) {
    case DType::boolean: return "cd::b8";
    case DType::f16: return "cd::f16";
    case DType::bf16: return "cd::bf16";
    default: return register_type(dtype);
  }
}

std::string scalar_literal(Expr c) {
  if (is_float(c->dtype)) return float_literal(c->as_double(), c->dtype != DType::f64);
  if (is_bool(c->dtype)) return c->as_int() ? "true" : "false";
  if (c->as_int() == INT64_MIN) return "(cd::i64)(-9223372036854775807L - 1)";
  return fmt::format("({}){}", register_type(c->dtype), c->as_int());
}

size_t KernelNames::number(BufferId id) {
  const auto known = std::find(buffers_.begin(), buffers_.end(), id);
  const auto number = static_cast<size_t>(known - buffers_.begin());
  if (known == buffers_.end()) buffers_.push_back(id);
  return number;
}

size_t KernelNames::symbol_number(int symbol) {
  if (symbols_.empty()) return static_cast<size_t>(symbol);
  const auto known = std::find(symbols_.begin(), symbols_.end(), symbol);
  const auto number = static_cast<size_t>(known - symbols_.begin());
  if (known == symbols_.end()) symbols_.push_back(symbol);
  return number;
}

std::vector<int> kernel_symbols(const KernelPlan& plan, const Kernel& kernel) {
  std::vector<int> symbols;
  const auto look = [&](Expr e) {
    if (!e) return;
    visit(e, [&](Expr n) {
      if (n->kind == ExprKind::symbol && std::find(symbols.begin(), symbols.end(), n->id) == symbols.end()) symbols.push_back(n->id);
    });
  };
  const auto look_at = [&](const std::vector<Stmt>& stmts) {
    for (const Stmt& s : stmts) look(s.offset), look(s.value), look(s.condition);
  };
  if (const auto* loop = std::get_if<LoopKernel>(&kernel.def)) {
    for (const Axis& a : loop->axes) look(a.size);
    look_at(loop->stmts);
    for (const WorkerScratch& s : loop->scratch) look(plan.buffer(s.buffer).info.strides[1]);
  } else if (const auto* call = std::get_if<TemplateKernel>(&kernel.def)) {
    for (const Expr size : call->result_sizes) look(size);
    look_at(call->epilogue);
  } else if (const auto* sort = std::get_if<SortKernel>(&kernel.def)) {
    for (const Expr size : sort->sizes) look(size);
    look(sort->def.length), look(sort->body), look(sort->values_offset), look(sort->indices_offset);
  }
  return symbols;
}

std::string head_comment(const Kernel& k) {
  std::string text = "// ";
  for (size_t i = 0; i < k.ops.size(); ++i) text += (i ? " -> " : "") + comment_text(k.ops[i]);
  text += "\n";
  for (const Origin& o : k.origins) {
    if (o.source.empty() && o.module_path.empty()) continue;
    text += "//   " + comment_text(o.source) + (o.module_path.empty() ? "" : " [" + comment_text(o.module_path) + "]") +
            (o.source_line.empty() ? "" : ": " + comment_text(o.source_line)) + "\n";
  }
  return text;
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
}

Expr erf_beside_one(Expr e) {
  if (!e->is_op(ScalarOp::add) || e->args.size() != 2) return {};
  for (size_t i = 0; i < 2; ++i) {
    const Expr erf = e->args[i], one = e->args[1 - i];
    if (erf->is_op(ScalarOp::erf) && one->is_constant() && one == e->pool->constant(1, e->dtype)) return erf->args[0];
  }
  return {};
}

bool unit_stride(Expr offset, int axis) {
  const auto affine = as_affine(offset, axis);
  return affine && affine->coefficient == offset->pool->index(1);
}

std::vector<Expr> unconditional_loads(const std::vector<Stmt>& stmts) {
  std::vector<Expr> loads;
  std::set<const ExprNode*> seen;
  for (const Stmt& s : stmts) collect_loads(s.value, loads, seen);
  return loads;
}

bool from_data(Expr offset) {
  return any_of(offset, [](Expr n) { return n->kind == ExprKind::load || n->kind == ExprKind::temp || n->is_op(ScalarOp::checked_index); });
}

std::string FunctionNames::add(const std::string& kernel, const std::string& body) {
  const std::string digits = hex(hash64(std::string_view(body)));
  std::string name = kernel + "_" + digits.substr(8);
  if (taken_.insert(name).second) return name;
  const std::string whole = name = kernel + "_" + digits;
  for (int n = 2; !taken_.insert(name).second; ++n) name = fmt::format("{}_{}", whole, n);
  return name;
}

// Rewrites every index of an expression for new variables and simplifies it in their ranges.
Expr reindex(Expr e, const std::vector<Expr>& vars, const std::vector<Expr>& sizes) {
  const Expr moved = substitute_vars(e, vars);
  if (moved->dtype == DType::index) return simplify_index(moved, {sizes});
  return rewrite(moved, [&](Expr n) -> Expr {
    if (n->kind != ExprKind::load) return Expr();
    return n->pool->load(BufferId(n->id), n->dtype, {simplify_index(n->args[0], {sizes})});
  });
}

}  // namespace coil
