// What the rules about sizes share (size_rules.h).
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "lower/lowering.h"

namespace coil::lowering::sizes {

// By the name of the operator without its overload.
using Rules = std::map<std::string_view, std::function<void(const Op&)>>;
// Operators that read or write at positions (size_rules_positions.cc).
void add_positions(Rules& rules);

[[noreturn]] inline void refuse(const Op& op, const std::string& what) {
  fail(ErrorCode::bad_program, fmt::format("{}: {}", op.node.target, what), "eager refuses it as well");
}

inline bool has_tensor(const Op& op, const char* arg) {
  const Argument* a = op.node.find(arg);
  const ValueId* id = a ? std::get_if<ValueId>(a) : nullptr;
  return id && id->valid() && op.graph.value(*id).is_tensor();
}

inline const Sizes& sizes_of(const Op& op, const char* arg) {
  if (!has_tensor(op, arg)) fail(ErrorCode::bad_program, fmt::format("{}: argument '{}' is not a tensor", op.node.target, arg));
  return op.graph.value(std::get<ValueId>(*op.node.find(arg))).tensor().sizes;
}

inline const std::vector<ValueId>* list_of(const Op& op, const char* arg) {
  const Argument* a = op.node.find(arg);
  return a ? std::get_if<std::vector<ValueId>>(a) : nullptr;
}

inline std::string text_of(const Sizes& sizes) {
  std::string text;
  for (Expr s : sizes) text += (text.empty() ? "[" : ", ") + to_string(s);
  return text.empty() ? "[]" : text + "]";
}

inline bool differ(Expr a, Expr b) { return a->is_constant() && b->is_constant() && a != b; }

inline bool is_empty(const Sizes& sizes) {
  return std::any_of(sizes.begin(), sizes.end(), [](Expr s) { return is_const(s, 0); });
}

// Dimensions from `first` on hold something.
inline void non_empty(const Op& op, const char* arg, size_t first, const char* what) {
  const Sizes& sizes = sizes_of(op, arg);
  for (size_t d = first; d < sizes.size(); ++d) {
    if (is_const(sizes[d], 0)) refuse(op, fmt::format("{} of sizes {} is empty in dimension {}", what, text_of(sizes), d));
  }
}

inline void positive(const Op& op, const char* arg) {
  if (!op.has(arg)) return;
  for (Expr e : op.indices(arg)) {
    if (e->is_constant() && e->as_int() <= 0) refuse(op, fmt::format("'{}' has to be positive, not {}", arg, to_string(e)));
  }
}

inline void same_sizes(const Op& op, const char* arg, const Sizes& wanted, const char* what) {
  const Sizes& sizes = sizes_of(op, arg);
  bool same = sizes.size() == wanted.size();
  for (size_t d = 0; same && d < sizes.size(); ++d) same = !differ(sizes[d], wanted[d]);
  if (!same) refuse(op, fmt::format("'{}' has sizes {}, {} has {}", arg, text_of(sizes), what, text_of(wanted)));
}

}  // namespace coil::lowering::sizes
