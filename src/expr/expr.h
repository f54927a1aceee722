// Expressions: one interned, immutable, typed node for index and value arithmetic.
//
// Semantics. Equality is identity within a pool. Every node has a DType. Index expressions (DType::index) are exact integers in a
// normal form (sums of products, constants folded), so equal polynomials are the same node; integer rules never touch other types.
// Value expressions are computed in compute_type(): f16 and bf16 data are f32 values, rounded only when stored. Floating-point
// expressions are never reassociated. `load(buffer, index...)` reads one element of a buffer at logical coordinates; a view is a
// substitution of the coordinates, fusing a producer is a substitution of its body. `masked(c, a, b)` does not perform a's loads
// where c is false; every other operand is always evaluated. Variables are numbered by position in the loop nest that holds the
// expression. A pool is not thread-safe; nodes live as long as their pool.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/function_ref.h"
#include "base/ids.h"
#include "ops/dtype.h"
#include "ops/scalar_ops.h"

namespace coil {

class ExprPool;
struct ExprNode;

using SymbolId = Id<struct SymbolTag>;
using BufferId = Id<struct BufferTag>;
using TempId = Id<struct TempTag>;

enum class ExprKind : uint8_t { constant, symbol, var, load, temp, op };

// A handle: cheap to copy, null by default.
class Expr {
 public:
  Expr() = default;
  explicit Expr(const ExprNode* node) : node_(node) {}
  const ExprNode* operator->() const { return node_; }
  const ExprNode& operator*() const { return *node_; }
  const ExprNode* node() const { return node_; }
  explicit operator bool() const { return node_ != nullptr; }
  bool operator==(const Expr&) const = default;

 private:
  const ExprNode* node_ = nullptr;
};

struct ExprNode {
  ExprKind kind;
  ScalarOp op;  // kind == op
  DType dtype;
  int32_t id;    // symbol, variable number, buffer or temp
  int64_t bits;  // constant: the integer, or the double's bits
  std::vector<Expr> args;
  ExprPool* pool;
  int32_t serial;  // order of creation in the pool; gives canonical orders

  bool is_constant() const { return kind == ExprKind::constant; }
  bool is_op(ScalarOp o) const { return kind == ExprKind::op && op == o; }
  int64_t as_int() const { return bits; }
  double as_double() const;  // the constant's value, whatever its type
};

// A dynamic size. `name` is the program's ("s77"), `label` the user's word if known ("batch"), else the name.
struct Symbol {
  std::string name;
  std::string label;
  int64_t min = 0;
  int64_t max = INT64_MAX;  // INT64_MAX: unbounded
  bool from_data = false;   // no input's size gives it: the program reads it from a tensor while it runs
};

class ExprPool {
 public:
  ExprPool() = default;
  ExprPool(const ExprPool&) = delete;
  ExprPool& operator=(const ExprPool&) = delete;

  Expr constant(double value, DType dtype);  // value expressions; rounded to the type
  Expr constant_int(int64_t value, DType dtype);
  Expr index(int64_t value) { return constant_int(value, DType::index); }
  Expr boolean(bool value) { return constant_int(value, DType::boolean); }
  SymbolId add_symbol(Symbol symbol);
  Expr symbol(SymbolId id);
  Expr var(int32_t number);
  // dtype: the buffer's element type; the node's type is its compute_type.
  Expr load(BufferId buffer, DType dtype, std::vector<Expr> coordinates);
  Expr temp(TempId id, DType dtype);
  // A value operation; operands must agree in type (CHECKed). Folds constants where exact and safe.
  Expr op(ScalarOp op, std::vector<Expr> args);
  Expr op(ScalarOp op, std::initializer_list<Expr> args);  // operands that are written in place: less code where it is called
  Expr cast(Expr value, DType to);
  // An i64 value as an index in [0, bound); see scalar_ops.def.
  Expr checked_index(Expr value, Expr bound);
  Expr select(Expr condition, Expr a, Expr b) { return op(ScalarOp::select, {condition, a, b}); }

  const Symbol& symbol_info(SymbolId id) const { return symbols_[static_cast<size_t>(id.index)]; }
  void set_symbol_label(SymbolId id, std::string label) { symbols_[static_cast<size_t>(id.index)].label = std::move(label); }
  size_t num_symbols() const { return symbols_.size(); }
  std::optional<SymbolId> find_symbol(std::string_view name) const;

  // Sizes that are 1 wherever the program runs, though their expressions do not say so: the program assumes it.
  void assume_one(Expr size) { ones_.insert(size.node()); }
  bool is_one(Expr size) const { return ones_.contains(size.node()); }

  // A pool with the same nodes in the same order, the same symbols and assumptions: whatever is made in one of the two from now on, the other orders
  // its expressions as if it were alone.
  std::shared_ptr<ExprPool> copy() const;
  // The node of this pool that was made when that of the pool it is a copy of was (or the other way round); null stays null.
  Expr twin(Expr e) const { return e ? Expr(&nodes_[static_cast<size_t>(e->serial)]) : e; }

  // Interns; used by the functions of this folder only.
  Expr make(ExprNode node);

 private:
  struct NodeHash {
    size_t operator()(const ExprNode* n) const;
  };
  struct NodeEqual {
    bool operator()(const ExprNode* a, const ExprNode* b) const;
  };
  std::deque<ExprNode> nodes_;
  std::unordered_map<const ExprNode*, const ExprNode*, NodeHash, NodeEqual> index_;
  std::vector<Symbol> symbols_;
  std::unordered_set<const ExprNode*> ones_;
};

// Why `op` does not take these operands (count, types, integers where mathematics needs floats); empty if it does.
std::string_view operand_error(ScalarOp op, std::span<const Expr> args);

// Index arithmetic in normal form (index_math.cc). Division and remainder are by positive numbers.
Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator*(Expr a, Expr b);
Expr operator+(Expr a, int64_t b);
Expr operator-(Expr a, int64_t b);
Expr operator*(Expr a, int64_t b);
Expr floor_div(Expr a, Expr b);
Expr floor_mod(Expr a, Expr b);
Expr ceil_div(Expr a, Expr b);
Expr index_min(Expr a, Expr b);
Expr index_max(Expr a, Expr b);
Expr product(ExprPool& pool, std::span<const Expr> factors);
// Row-major strides. As torch: a dimension of constant size 0 counts as 1.
std::vector<Expr> contiguous_strides(ExprPool& pool, const std::vector<Expr>& sizes);

// --- traversal
// Replaces variable i by replacements[i] (variables beyond the end stay).
Expr substitute_vars(Expr e, std::span<const Expr> replacements);
// Bottom-up rewrite: `leaf` is asked for every load (with rewritten coordinates), temp, variable and symbol; a null Expr keeps it.
Expr rewrite(Expr e, FunctionRef<Expr(Expr)> leaf);
// Each distinct node once, operands before users.
void visit(Expr e, FunctionRef<void(Expr)> f);
bool any_of(Expr e, FunctionRef<bool(Expr)> f);
bool depends_on_var(Expr e, int32_t var);
// Whether a symbol in it is read from a tensor (Symbol::from_data).
bool depends_on_data(Expr e);
// Sum of the operations' costs, shared nodes once.
int cost(Expr e);

// --- text
// Symbols print by label, variables as i0, i1..., buffers through `buffer_name`.
struct PrintNames {
  std::function<std::string(BufferId)> buffer;
  std::function<std::string(int32_t)> var;
};
std::string to_string(Expr e, const PrintNames& names = {});

// --- evaluation (scalar, slow, exact semantics): the reference
struct Value {
  double f = 0;   // floating types
  int64_t i = 0;  // integers, booleans and indices
};
struct EvalContext {
  std::function<int64_t(SymbolId)> symbol;
  std::span<const int64_t> vars;
  std::function<Value(BufferId, std::span<const int64_t>)> load;
  std::function<Value(TempId)> temp;
};
Value evaluate(Expr e, const EvalContext& context);
int64_t evaluate_index(Expr e, FunctionRef<int64_t(SymbolId)> symbol, std::span<const int64_t> vars = {});
// Applies one operation to constants. `dtype` is the operands' type (operand 1's for select and masked).
Value apply_scalar(ScalarOp op, DType dtype, std::span<const Value> args);
Value convert(Value v, DType from, DType to);

// --- what is known of index expressions (ranges.cc)
// sizes[k]: variable k lies in [0, sizes[k]). Symbols have their declared ranges.
struct VarRanges {
  std::span<const Expr> sizes;
};
bool provably_nonnegative(Expr e, const VarRanges& ranges = {});
bool provably_less(Expr a, Expr b, const VarRanges& ranges = {});  // a < b
bool provably_equal(Expr a, Expr b);
// Divisions, remainders, minima and maxima that the ranges decide are removed.
Expr simplify_index(Expr e, const VarRanges& ranges);
// Smallest and largest value over the declared ranges; nullopt: unbounded.
std::optional<int64_t> upper_bound(Expr e, const VarRanges& ranges = {});
std::optional<int64_t> lower_bound(Expr e, const VarRanges& ranges = {});
// If e = base + coefficient * var with neither depending on var: both. Otherwise nullopt.
struct Affine {
  Expr base, coefficient;
};
std::optional<Affine> as_affine(Expr e, int32_t var);

}  // namespace coil
