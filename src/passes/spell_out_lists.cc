// aten._foreach_add.List(as, bs) -> aten.add.Tensor(a, b) for each pair. Optimizers and gradient clipping are written in these operators; one tensor at
// a time their chains fuse, which the lists would hide.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "graph/rewrite.h"
#include "passes/inplace.h"
#include "passes/passes.h"
#include "passes/spell_out_optimizers.h"

namespace coil {
namespace {

constexpr std::string_view kPrefix = "_foreach_";

// An argument of the operator for one tensor: `from` names the list operator's; where it is empty, the argument is None, or false.
struct Wiring {
  std::string_view name, from;
};

struct Row {
  std::string_view overload;  // of the list operator
  std::string_view target;    // for one tensor, without "aten."; "*" stands for the list operator's name
  std::string_view inplace;   // as a write to its first argument; "*" stands for the name with its "_"
  std::initializer_list<Wiring> args;
};

constexpr Wiring kSelf = {"self", "self"};
const Row kUnary = {"default", "*.default", "*.default", {kSelf}};
const Row kArithmetic[] = {
    {"Scalar", "*.Scalar", "*.Scalar", {kSelf, {"other", "scalar"}}},
    {"ScalarList", "*.Scalar", "*.Scalar", {kSelf, {"other", "scalars"}}},
    {"List", "*.Tensor", "*.Tensor", {kSelf, {"other", "other"}, {"alpha", "alpha"}}},
    {"Tensor", "*.Tensor", "*.Tensor", {kSelf, {"other", "other"}, {"alpha", "alpha"}}},
};
const Row kCombined[] = {
    {"Scalar", "*.default", "*.default", {kSelf, {"tensor1", "tensor1"}, {"tensor2", "tensor2"}, {"value", "value"}}},
    {"ScalarList", "*.default", "*.default", {kSelf, {"tensor1", "tensor1"}, {"tensor2", "tensor2"}, {"value", "scalars"}}},
};
const Row kLowerBound[] = {
    {"Scalar", "clamp_min.default", "clamp_min_.default", {kSelf, {"min", "scalar"}}},
    {"ScalarList", "clamp_min.default", "clamp_min_.default", {kSelf, {"min", "scalars"}}},
    {"List", "clamp_min.Tensor", "clamp_min_.Tensor", {kSelf, {"min", "other"}}},
};
const Row kUpperBound[] = {
    {"Scalar", "clamp_max.default", "clamp_max_.default", {kSelf, {"max", "scalar"}}},
    {"ScalarList", "clamp_max.default", "clamp_max_.default", {kSelf, {"max", "scalars"}}},
    {"List", "clamp_max.Tensor", "clamp_max_.Tensor", {kSelf, {"max", "other"}}},
};
const Row kLerp[] = {
    {"Scalar", "*.Scalar", "*.Scalar", {kSelf, {"end", "tensors1"}, {"weight", "weight"}}},
    {"ScalarList", "*.Scalar", "*.Scalar", {kSelf, {"end", "tensors1"}, {"weight", "weight"}}},
    {"List", "*.Tensor", "*.Tensor", {kSelf, {"end", "tensors1"}, {"weight", "weights"}}},
};
const Row kPow[] = {
    {"Scalar", "pow.Tensor_Scalar", "pow_.Scalar", {kSelf, {"exponent", "exponent"}}},
    {"ScalarList", "pow.Tensor_Scalar", "pow_.Scalar", {kSelf, {"exponent", "exponent"}}},
    {"List", "pow.Tensor_Tensor", "pow_.Tensor", {kSelf, {"exponent", "exponent"}}},
    {"ScalarAndTensor", "pow.Scalar", "", {kSelf, {"exponent", "exponent"}}},
};
const Row kNorm[] = {{"Scalar", "linalg_vector_norm.default", "", {kSelf, {"ord", "ord"}, {"dim", ""}, {"keepdim", ""}, {"dtype", "dtype"}}}};
const Row kClone[] = {{"default", "clone.default", "", {kSelf, {"memory_format", "memory_format"}}}};
const Row kCopy[] = {{"default", "copy.default", "copy_.default", {kSelf, {"src", "src"}, {"non_blocking", "non_blocking"}}}};
const Row kProduct[] = {{"default", "mm.default", "", {kSelf, {"mat2", "mat2"}}}};
const Row kLargest[] = {{"default", "max.default", "", {kSelf}}};

struct Family {
  std::string_view name;
  std::span<const Row> rows;
};
const Family kFamilies[] = {
    {"add", kArithmetic},
    {"sub", kArithmetic},
    {"mul", kArithmetic},
    {"div", kArithmetic},
    {"addcmul", kCombined},
    {"addcdiv", kCombined},
    {"clamp_min", kLowerBound},
    {"maximum", kLowerBound},
    {"clamp_max", kUpperBound},
    {"minimum", kUpperBound},
    {"lerp", kLerp},
    {"pow", kPow},
    {"norm", kNorm},
    {"clone", kClone},
    {"copy", kCopy},
    {"mm", kProduct},
    {"max", kLargest},
};
constexpr std::string_view kUnaryNames[] = {"abs",     "acos", "asin",   "atan", "ceil",  "cos",   "cosh", "erf",   "erfc",       "exp",   "expm1",
                                            "floor",   "frac", "lgamma", "log",  "log10", "log1p", "log2", "neg",   "reciprocal", "round", "rsqrt",
                                            "sigmoid", "sign", "sin",    "sinh", "sqrt",  "tan",   "tanh", "trunc", "zero"};

// "add" and "add_" for _foreach_add and _foreach_add_; null for what is not spelled out.
const Row* row_of(std::string_view name, std::string_view overload) {
  if (name.ends_with('_')) name.remove_suffix(1);
  if (std::find(std::begin(kUnaryNames), std::end(kUnaryNames), name) != std::end(kUnaryNames)) return overload == kUnary.overload ? &kUnary : nullptr;
  for (const Family& family : kFamilies) {
    if (family.name != name) continue;
    for (const Row& row : family.rows) {
      if (row.overload == overload) return &row;
    }
  }
  return nullptr;
}

// What the operator for tensor `i` takes where the list operator takes `whole`; nullopt: the list is too short, or holds None.
std::optional<Argument> element(ExprPool& pool, const Argument& whole, size_t i) {
  if (const auto* values = std::get_if<std::vector<ValueId>>(&whole)) {
    if (i >= values->size() || !(*values)[i].valid()) return std::nullopt;
    return (*values)[i];
  }
  if (const auto* ints = std::get_if<std::vector<Expr>>(&whole)) return i < ints->size() ? std::optional<Argument>((*ints)[i]) : std::nullopt;
  if (const auto* floats = std::get_if<std::vector<double>>(&whole)) return i < floats->size() ? std::optional<Argument>((*floats)[i]) : std::nullopt;
  if (const auto* bools = std::get_if<std::vector<bool>>(&whole)) {
    if (i >= bools->size()) return std::nullopt;
    return Argument(pool.index((*bools)[i]));
  }
  return whole;
}

class Speller {
 public:
  explicit Speller(const Graph& graph) : graph_(graph), builder_(graph) {}

  Result<Graph> run() {
    for (const Node& node : graph_.nodes) {
      const std::string_view name = aten_name(node);
      const Row* row = name.starts_with(kPrefix) ? row_of(name.substr(kPrefix.size()), overload_name(node)) : nullptr;
      const bool writes = name.ends_with('_');
      if (is_optimizer(node)) {
        TRY_STATUS(spell_out_optimizer(graph_, builder_, node));
      } else if (row && !(writes && row->inplace.empty())) {
        TRY_STATUS(spell(node, *row, writes));
      } else {
        builder_.copy(node);
      }
    }
    return builder_.finish();
  }

 private:
  Status spell(const Node& node, const Row& row, bool writes) {
    const size_t count = writes ? length(node) : node.outputs.size();
    for (size_t i = 0; i < count; ++i) {
      Node one;  // without the lists themselves: copies of those, one for each tensor in them, would be as many as the square
      one.name = node.name, one.origins = node.origins, one.binds = node.binds;
      const std::string_view target = writes ? row.inplace : row.target;
      one.target =
          target.starts_with('*') ? fmt::format("aten.{}{}", aten_name(node).substr(kPrefix.size()), target.substr(1)) : fmt::format("aten.{}", target);
      for (const Wiring& wiring : row.args) {
        const Argument* whole = node.find(wiring.from);
        if (!whole && !wiring.from.empty()) continue;  // alpha, which not all have
        std::optional<Argument> argument = whole ? element(*graph_.pool, *whole, i) : wiring.name == "keepdim" ? Argument(false) : Argument(NoneArg());
        if (!argument)
          return Error{ErrorCode::bad_program, fmt::format("{}: its list '{}' has no tensor or number {}", node.target, wiring.from, i), where(node), {}};
        one.arg_names.emplace_back(wiring.name);
        one.args.push_back(std::move(*argument));
      }
      if (writes) TRY_STATUS(name_written(node, one));
      else one.outputs = {node.outputs[i]};
      builder_.append(std::move(one));
    }
    return ok_status();
  }

  static size_t length(const Node& node) {
    const Argument* self = node.find("self");
    const auto* list = self ? std::get_if<std::vector<ValueId>>(self) : nullptr;
    return list ? list->size() : 0;
  }

  // A write has its first argument as its result; the list's writes have none.
  Status name_written(const Node& node, Node& one) {
    const auto* self = std::get_if<ValueId>(&one.args[0]);
    if (!self || !graph_.value(*self).is_tensor())
      return Error{ErrorCode::bad_program, fmt::format("{}: what it writes to is no tensor", node.target), where(node), {}};
    one.outputs = {builder_.new_value(node.name, graph_.value(*self).type)};
    return ok_status();
  }

  const Graph& graph_;
  GraphBuilder builder_;
};

}  // namespace

Result<Graph> spell_out_lists(const Graph& graph) { return Speller(graph).run(); }

}  // namespace coil
