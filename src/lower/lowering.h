// What the files of this folder share: access to a node's arguments, broadcasting, promotion, and the table of lowerings.
//
// A lowering refuses a program by fail(), which throws LowerError; lower() and lower_alone() turn it into a Result. Nothing else
// throws it, and it never leaves this folder: some 400 short lowerings stay readable this way.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/function_ref.h"
#include "graph/graph.h"
#include "loop/recorder.h"
#include "loop/simplify_body.h"
#include "lower/lower.h"

namespace coil::lowering {

struct LowerError {
  Error error;
};
[[noreturn]] void fail(ErrorCode code, std::string message, std::string hint = {});

using Views = std::vector<View>;
class Part;

// What lives through the lowering of a program and its subgraphs.
struct Session {
  Recorder recorder;
  // A view whose first dimension stands for several of another view, by body: what a matrix product may un-flatten.
  std::unordered_map<const ExprNode*, View> unflattened;
  // Conditions (bool, of rank 0) under which the graph that is being lowered counts: those of the branches around it.
  std::vector<Expr> taken;

  LowerOptions options;
  Part* around = nullptr;  // of a region's part: what captures for it
  bool in_loop = false;    // of a region's part: it runs more than once

  // Seed and number of the call, if an operator is random (random.cc), and how many are.
  View random_state;
  int64_t random_operators = 0;

  Session(std::shared_ptr<ExprPool> pool, const LowerOptions& given) : recorder(std::move(pool)), options(given) {}
};

// The values of one graph (the program's or a branch's); an empty body: not computed.
struct Scope {
  const Graph& graph;
  Views values;
};

// One node during its lowering. Accessors take schema names and fail() if the argument has another kind.
class Op {
 public:
  Op(Session& session, Scope& scope, const Node& node);

  Session& session;
  Scope& scope;
  Recorder& rec;
  ExprPool& pool;
  const Graph& graph;
  const Node& node;
  std::string name;  // "softmax"

  const TensorType& out(size_t i = 0) const;
  bool has(std::string_view arg) const;  // there and not None
  View value(ValueId id) const;          // a tensor of the graph, or an integer as a view of rank 0
  View tensor(std::string_view arg) const;
  std::optional<View> maybe_tensor(std::string_view arg) const;
  Views tensors(std::string_view arg) const;
  std::vector<std::optional<View>> maybe_tensors(std::string_view arg) const;
  // A tensor, or a scalar as a view of rank 0 (i64, f32 or bool: a Python scalar's dtype).
  View operand(std::string_view arg) const;
  bool is_scalar(std::string_view arg) const;                // a Python scalar, not a tensor
  bool is_number(std::string_view arg, double value) const;  // a scalar that is known to be this
  int64_t integer(std::string_view arg) const;
  Expr index(std::string_view arg) const;
  CheckedList<int64_t> integers(std::string_view arg) const;
  Sizes indices(std::string_view arg) const;
  double number(std::string_view arg) const;
  bool flag(std::string_view arg) const;
  std::string text(std::string_view arg) const;
  std::optional<DType> dtype(std::string_view arg) const;
  // The tensors of argument i (of a higher-order operator, whose arguments have no names): one or a list.
  Views tensors_at(size_t i) const;

  // Arguments of these names are seen as complex (float8, unsigned) numbers.
  void promote(std::string_view names, DType dtype) {
    promoted_ = names;
    promoted_type_ = dtype;
  }

  // How tensors among the arguments are seen, and numbers of operand().
  using Seen = std::function<View(const View&)>;
  void see(Seen tensors, Seen numbers = {}) {
    seen_ = std::move(tensors);
    number_seen_ = std::move(numbers);
  }
  // Results as out() tells them while a row for other types runs; none: as the program says.
  void replace_outs(std::vector<TensorType> outs) { outs_ = std::move(outs); }

  // A real scalar argument as a constant of the compute type of `dtype`.
  Expr scalar(std::string_view arg, DType dtype) const;
  Expr constant(double value, DType dtype) const { return pool.constant(value, compute_type(dtype)); }

 private:
  View promoted(std::string_view arg, View v) const;
  const Argument& argument(std::string_view arg) const;
  std::optional<Expr> index_of(const Argument& a) const;
  [[noreturn]] void wrong(std::string_view arg, std::string_view wanted) const;

  std::string_view promoted_;  // separated by spaces
  DType promoted_type_ = DType::c64;
  Seen seen_, number_seen_;
  std::vector<TensorType> outs_;
};

using Lowering = std::function<Views(Op&)>;
using Table = std::map<std::string, Lowering, std::less<>>;

// Has the call write the state of the random numbers back.
void add_random_update(Session& session);

const Table& table();
// The rows for nodes that take or give complex numbers, and no others (complex.cc): own ones, and those of table() that are right
// for numbers of two parts as they are.
const Table& complex_table();
// Likewise for nodes that take or give float8 numbers (float8.cc).
const Table& float8_table();
bool is_float8_node(const Graph& graph, const Node& node);
// The values of a float8 view as f32; a view (of any type) as float8 numbers of `type`. Nothing is stored.
View decoded(const View& v);
View encoded(const View& v, DType type);
// Likewise for nodes with unsigned numbers of 16 bits and more (unsigned.cc): the row for a node, if there is one; a view (of any type)
// as such numbers of `type`. Nothing is stored.
bool is_unsigned_node(const Graph& graph, const Node& node);
std::optional<Lowering> unsigned_row(const Graph& graph, const Node& node);
View as_unsigned(const View& v, DType type);
// Whether complex_table() serves the node: those with parts of 16 bits have fewer operators.
bool has_complex_row(const Graph& graph, const Node& node);
void add_complex_pointwise(Table& complex);
void add_complex_reductions(Table& complex);
// Whether a tensor or a number among the node's arguments or results is complex.
bool is_complex_node(const Graph& graph, const Node& node);
// Lowers every node of the scope's graph.
void lower_nodes(Session& session, Scope& scope);
// "aten._softmax.default" -> "softmax"
std::string short_name(std::string_view target);

// --- values
// e in the compute type of `dtype`.
Expr as(Expr e, DType dtype);
// v at the coordinates of a broadcast result: aligned at the right, dimensions of size 1 are read at 0.
Expr read(const View& v, Coordinates c);
// v seen with these sizes (expand).
View broadcast(Op& op, const View& v, const Sizes& sizes);
// A stored elementwise result of the node's first output type. f sees operands already broadcast, in the compute type of
// `compute` (default: the result's).
View map1(Op& op, const View& a, FunctionRef<Expr(Expr)> f, std::optional<DType> compute = {});
View map2(Op& op, const View& a, const View& b, FunctionRef<Expr(Expr, Expr)> f, std::optional<DType> compute = {});
// v in another dtype: itself where the compute types agree and nothing is rounded, else a stored result.
View converted(Op& op, const View& v, DType dtype);
// v as complex numbers of `dtype`; a real view gets imaginary parts of 0. Nothing is stored.
View as_complex(const View& v, DType dtype);
// view_as_real and view_as_complex.
View pairs_of(const View& complex);
View complex_of_pairs(const View& pairs);
// v, or a stored copy of it if its body does arithmetic; for values that are read many times.
View cheap(Op& op, const View& v);

// torch.result_type of the node's arguments.
DType result_type(const Op& op, std::initializer_list<std::string_view> args);

// --- shapes
bool is_const(Expr e, int64_t value);
std::optional<int64_t> const_int(Expr e);
size_t wrap_dim(int64_t dim, size_t rank);
// Dimensions of a list argument, wrapped, ascending; empty means all.
std::vector<size_t> wrap_dims(const std::vector<int64_t>& dims, size_t rank);
Expr count(ExprPool& pool, const Sizes& sizes);
// The same elements in row-major order with other sizes.
View reshaped(Op& op, const View& v, const Sizes& sizes);
View permuted(Op& op, const View& v, const std::vector<size_t>& order);  // dimension i of the result is order[i] of v
View squeezed(Op& op, const View& v, size_t dim);
View unsqueezed(Op& op, const View& v, size_t dim);
// v[..., start + step * i, ...] for i < size
View sliced(Op& op, const View& v, size_t dim, Expr start, Expr size, int64_t step = 1);
Expr row_major(ExprPool& pool, Coordinates c, const Sizes& sizes);
Sizes from_row_major(Expr linear, const Sizes& sizes);

// --- booleans, folded where constant
Expr both(Expr a, Expr b);
Expr inside(Expr index, Expr size);  // 0 <= index < size
Expr masked(Expr condition, Expr value, Expr otherwise);

// --- reductions over dimensions `dims` of v, shared by the families. `keep`: reduced dimensions stay with size 1.
View reduced(Op& op, const std::string& name, ReduceOp reduce, DType dtype, const View& v, const std::vector<size_t>& dims, bool keep,
             FunctionRef<Expr(Expr value, Coordinates at)> body = {});
// f32 for f16, bf16 and f32; f64 and complex types themselves
inline DType accumulate_type(DType dtype) { return dtype == DType::f64 || is_complex(dtype) ? dtype : DType::f32; }
// Identity of max (or min) for a type.
Expr lowest(ExprPool& pool, DType dtype);
Expr highest(ExprPool& pool, DType dtype);

// An operand whose variable i becomes variable to[i] of a template.
Operand renumbered(ExprPool& pool, Operand operand, const std::vector<size_t>& to);
// out[batch..., m..., n] = sum over k of a[batch..., m..., k] * b[batch..., k, n]
View matrix_product(Op& op, const std::string& name, DType dtype, const View& a, const View& b, size_t num_batch);
// A position that is data, as ATen's advanced indexing takes it: negative ones count from the end.
Expr wrapped_position(Op& op, Expr position, Expr size);
// The same of the argument `name`, where that is a tensor of one number: a position that is read from data.
Expr position_from_data(Op& op, const char* name, Expr size);
// A position that is data as an index below `size`; another one fails the call, unless it stands in a branch that is not taken.
Expr checked_position(Op& op, Expr position, Expr size);
// --- sizes from data (data_sizes.cc)
// The size of a result that only data decides is `value` (i64, of rank 0), at most `limit` (null: no bound is known): its symbol is
// read, or, where the export says which size it is, that is checked.
void bind_size(Op& op, Expr size, Expr value, Expr limit);
// Row-major positions (i64, [size]) of the elements below `count` that `keep` (bool) holds for, ascending; binds `size`.
View kept_positions(Op& op, Expr size, Expr count, FunctionRef<Expr(Expr position)> keep);
// The number of elements of an ascending row (not empty where it is read) that are at most `value`, compared in its type: by bisection, in as
// many steps as the longest row takes.
Expr count_up_to(Op& op, const View& row, Expr value);
// softmax over dimension dim, in f32 (f64) until the result of type dtype
View softmax_of(Op& op, const std::string& name, const View& x, size_t dim, DType dtype, bool log, bool masked_rows_zero = false);

}  // namespace coil::lowering
