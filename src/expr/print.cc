// Expressions as text: `exp(load(x, i0, 8*i1 + 3)) + 1.0`. parse_expr (parse.h) reads it back.
//
// Infix for arithmetic and comparisons, function calls for the rest. Constants carry their type after a colon unless it is f32
// (1.5), index (3) or bool (true). A large expression with shared parts is printed as `v0 = ...; v1 = ...; result`.
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "base/result.h"
#include "expr/expr.h"
#include "expr/infix.h"

namespace coil {
namespace {

enum Precedence { kCompare = 1, kSum, kProduct, kUnary, kPrimary };

constexpr double kMaxTreeSize = 64;  // nodes, shared ones counted at each use: beyond, shared parts get names
constexpr size_t kMaxText = 300;     // characters: a longer part gets a name too, so that chains print in linear time

Precedence precedence_of(ScalarOp op) {
  if (info(op).result == ResultRule::boolean) return kCompare;
  return op == ScalarOp::add || op == ScalarOp::sub ? kSum : kProduct;
}

template <class T>
std::string shortest(T x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, x).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string constant_text(Expr e) {
  switch (e->dtype) {
    case DType::boolean: return e->bits != 0 ? "true" : "false";
    case DType::index: return std::to_string(e->bits);
    case DType::f32: return shortest(static_cast<float>(e->as_double()));
    case DType::f64: return shortest(e->as_double()) + ":f64";
    default: return std::to_string(e->bits) + ":" + std::string(name(e->dtype));
  }
}

struct Text {
  std::string text;
  Precedence precedence;
};

class Printer {
 public:
  explicit Printer(const PrintNames& names) : names_(names) {}

  std::string print(Expr root) {
    std::unordered_map<const ExprNode*, int> uses;
    std::unordered_map<const ExprNode*, double> tree_size;
    visit(root, [&](Expr e) {
      double size = 1;
      for (Expr a : e->args) {
        ++uses[a.node()];
        size += tree_size.at(a.node());
      }
      tree_size[e.node()] = size;
    });
    const bool named = tree_size.at(root.node()) > kMaxTreeSize;
    std::string lines;
    int count = 0;
    visit(root, [&](Expr e) {
      Text t = text_of(e);
      const bool shared = uses[e.node()] > 1 && tree_size.at(e.node()) > 3;
      if (named && e != root && e->kind == ExprKind::op && (shared || t.text.size() > kMaxText)) {
        std::string v = "v";
        v += std::to_string(count++);
        lines += v + " = " + t.text + "; ";
        t = {std::move(v), kPrimary};
      }
      done_.emplace(e.node(), std::move(t));
    });
    return lines + done_.at(root.node()).text;
  }

 private:
  std::string operand(Expr e, int at_least) const {
    const Text& t = done_.at(e.node());
    return t.precedence >= at_least ? t.text : "(" + t.text + ")";
  }

  std::string call(std::string head, const std::vector<Expr>& args, size_t from = 0) const {
    for (size_t i = from; i < args.size(); ++i) head += (i == from ? "" : ", ") + operand(args[i], kCompare);
    return head + ")";
  }

  Text text_of(Expr e) const {
    switch (e->kind) {
      case ExprKind::constant: {
        std::string text = constant_text(e);
        const Precedence p = text[0] == '-' ? kUnary : kPrimary;
        return {std::move(text), p};
      }
      case ExprKind::symbol: return {e->pool->symbol_info(SymbolId(e->id)).label, kPrimary};
      case ExprKind::var: return {names_.var ? names_.var(e->id) : "i" + std::to_string(e->id), kPrimary};
      case ExprKind::temp: return {"t" + std::to_string(e->id), kPrimary};
      case ExprKind::load: {
        std::string head = "load(" + (names_.buffer ? names_.buffer(BufferId(e->id)) : "b" + std::to_string(e->id));
        return {call(head + (e->args.empty() ? "" : ", "), e->args), kPrimary};
      }
      case ExprKind::op: return op_text(e);
    }
    return {};
  }

  Text op_text(Expr e) const {
    if (e->op == ScalarOp::iadd) return sum_text(e);
    if (e->op == ScalarOp::imul) {
      std::string text = operand(e->args[0], kUnary);
      for (size_t i = 1; i < e->args.size(); ++i) text += "*" + operand(e->args[i], kUnary);
      return {std::move(text), kProduct};
    }
    if (e->op == ScalarOp::cast) return {call("to_" + std::string(name(e->dtype)) + "(", e->args), kPrimary};
    if (e->op == ScalarOp::imin || e->op == ScalarOp::imax) {
      return {call(e->op == ScalarOp::imin ? "min(" : "max(", e->args), kPrimary};
    }
    if (e->op == ScalarOp::neg && !e->args[0]->is_constant()) return {"-" + operand(e->args[0], kPrimary), kUnary};
    if (const std::string infix(infix_of(e->op)); !infix.empty()) {
      // Left-associative; comparisons do not chain.
      const Precedence precedence = precedence_of(e->op);
      const int left = precedence == kCompare ? kSum : precedence;
      return {operand(e->args[0], left) + (is_index_op(e->op) ? infix : " " + infix + " ") + operand(e->args[1], precedence + 1), precedence};
    }
    return {call(std::string(info(e->op).name) + "(", e->args), kPrimary};
  }

  // a - 3*b - 1: the sign of a term's coefficient joins the terms.
  Text sum_text(Expr e) const {
    std::string text;
    for (Expr t : e->args) {
      std::string part = operand(t, kProduct);
      // Only a coefficient's sign may join: in -1*i0//2 the sign belongs to the dividend.
      const Expr c = t->is_op(ScalarOp::imul) ? t->args[0] : t;
      const bool negative = c->is_constant() && c->bits < 0 && c->bits != INT64_MIN;
      if (text.empty()) {
        text = std::move(part);
      } else if (negative) {
        text += " - " + part.substr(part.starts_with("-1*") ? 3 : 1);
      } else {
        text += " + " + (part[0] == '-' ? "(" + part + ")" : part);
      }
    }
    return {std::move(text), kSum};
  }

  const PrintNames& names_;
  std::unordered_map<const ExprNode*, Text> done_;
};

}  // namespace

std::string to_string(Expr e, const PrintNames& names) { return e ? Printer(names).print(e) : "null"; }

}  // namespace coil
