// The pool: construction and interning of nodes.
#include "expr/expr.h"

#include <bit>
#include <cmath>
#include <limits>

#include "base/result.h"

namespace coil {
namespace {

uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdu;
}

ExprNode leaf_node(ExprKind kind, DType dtype, int32_t id, int64_t bits = 0) {
  ExprNode node{};
  node.kind = kind;
  node.dtype = dtype;
  node.id = id;
  node.bits = bits;
  return node;
}

}  // namespace

double ExprNode::as_double() const {
  CHECK(is_constant(), "not a constant");
  return is_float(dtype) ? std::bit_cast<double>(bits) : static_cast<double>(bits);
}

size_t ExprPool::NodeHash::operator()(const ExprNode* n) const {
  uint64_t h = mix(static_cast<uint64_t>(n->kind), static_cast<uint64_t>(n->op));
  h = mix(h, static_cast<uint64_t>(n->dtype));
  h = mix(h, static_cast<uint32_t>(n->id));
  h = mix(h, static_cast<uint64_t>(n->bits));
  for (Expr a : n->args) h = mix(h, static_cast<uint32_t>(a->serial));
  return static_cast<size_t>(h ^ (h >> 29));
}

bool ExprPool::NodeEqual::operator()(const ExprNode* a, const ExprNode* b) const {
  return a->kind == b->kind && a->op == b->op && a->dtype == b->dtype && a->id == b->id && a->bits == b->bits && a->args == b->args;
}

Expr ExprPool::make(ExprNode node) {
  for (Expr a : node.args) CHECK(a && a->pool == this, "an operand is null or of another pool");
  if (auto it = index_.find(&node); it != index_.end()) return Expr(it->second);
  node.pool = this;
  node.serial = static_cast<int32_t>(nodes_.size());
  const ExprNode* kept = &nodes_.emplace_back(std::move(node));
  index_.emplace(kept, kept);
  return Expr(kept);
}

Expr ExprPool::constant(double value, DType dtype) {
  const Value v = convert(Value{.f = value}, DType::f64, dtype);
  if (!is_float(dtype)) return make(leaf_node(ExprKind::constant, dtype, 0, v.i));
  // One NaN, so that interning sees equal constants.
  const double kept = std::isnan(v.f) ? std::numeric_limits<double>::quiet_NaN() : v.f;
  return make(leaf_node(ExprKind::constant, compute_type(dtype), 0, std::bit_cast<int64_t>(kept)));
}

Expr ExprPool::constant_int(int64_t value, DType dtype) {
  const Value v = convert(Value{.i = value}, DType::i64, dtype);
  return is_float(dtype) ? constant(v.f, dtype) : make(leaf_node(ExprKind::constant, dtype, 0, v.i));
}

std::shared_ptr<ExprPool> ExprPool::copy() const {
  auto made = std::make_shared<ExprPool>();
  for (ExprNode node : nodes_) {
    for (Expr& a : node.args) a = made->twin(a);
    made->make(std::move(node));
  }
  made->symbols_ = symbols_;
  for (const ExprNode* one : ones_) made->ones_.insert(made->twin(Expr(one)).node());
  return made;
}

SymbolId ExprPool::add_symbol(Symbol symbol) {
  CHECK(symbol.min <= symbol.max, "a symbol's range is empty");
  if (symbol.label.empty()) symbol.label = symbol.name;
  symbols_.push_back(std::move(symbol));
  return SymbolId(symbols_.size() - 1);
}

Expr ExprPool::symbol(SymbolId id) {
  CHECK(id.valid() && static_cast<size_t>(id.index) < symbols_.size(), "unknown symbol");
  return make(leaf_node(ExprKind::symbol, DType::index, id.index));
}

Expr ExprPool::var(int32_t number) {
  CHECK(number >= 0, "a variable's number is negative");
  return make(leaf_node(ExprKind::var, DType::index, number));
}

Expr ExprPool::load(BufferId buffer, DType dtype, std::vector<Expr> coordinates) {
  CHECK(buffer.valid(), "a load needs a buffer");
  CHECK(dtype != DType::index, "a buffer's elements have a tensor's type");
  for (Expr c : coordinates) CHECK(c && c->dtype == DType::index, "coordinates are index expressions");
  ExprNode node = leaf_node(ExprKind::load, compute_type(dtype), buffer.index);
  node.args = std::move(coordinates);
  return make(std::move(node));
}

Expr ExprPool::temp(TempId id, DType dtype) {
  CHECK(id.valid(), "a temporary needs an id");
  return make(leaf_node(ExprKind::temp, compute_type(dtype), id.index));
}

std::optional<SymbolId> ExprPool::find_symbol(std::string_view name) const {
  for (size_t i = 0; i < symbols_.size(); ++i) {
    if (symbols_[i].name == name) return SymbolId(i);
  }
  return std::nullopt;
}

}  // namespace coil
