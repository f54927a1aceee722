// Define-by-run at the edge, data inside: lowerings write lambdas over coordinates, the recorder runs each once and keeps the
// expression.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "loop/loop.h"

namespace coil {

// A tensor as a lowering sees it: an expression over variables 0..rank-1. A stored tensor's body is a plain load; a view's is a
// load at other coordinates; a generator's (full, arange) has no load at all. Not stored anywhere by itself.
struct View {
  DType dtype = DType::f32;
  std::vector<Expr> sizes;
  Expr body;  // of compute_type(dtype)

  size_t rank() const { return sizes.size(); }
};

using Coordinates = std::span<const Expr>;

class Recorder {
 public:
  explicit Recorder(std::shared_ptr<ExprPool> pool);

  ExprPool& pool() { return *program_.pool; }
  // Set before each node's lowering; copied into the loops that it makes.
  void set_origins(std::vector<Origin> origins) { origins_ = std::move(origins); }

  View input(std::string name, DType dtype, std::vector<Expr> sizes, std::vector<Expr> strides);
  View constant(std::string name, TensorData data);
  View state(std::string name, TensorData data);

  // A view: the body at other coordinates, simplified. `map` gives one coordinate per dimension of `source`.
  View view(const View& source, std::vector<Expr> sizes, const std::function<std::vector<Expr>(Coordinates)>& map);
  // The body's value at coordinates.
  Expr at(const View& v, Coordinates coordinates);

  // New stored values. Names are made unique.
  View pointwise(std::string op, DType dtype, std::vector<Expr> sizes, const std::function<Expr(Coordinates)>& body);
  View reduce(std::string op, ReduceOp reduce, DType dtype, std::vector<Expr> sizes, std::vector<Expr> domain,
              const std::function<Expr(Coordinates, Coordinates reduced)>& body);
  View scan(std::string op, ScanOp scan, DType dtype, std::vector<Expr> sizes, int dim, const std::function<Expr(Coordinates)>& body);
  View concat(std::string op, DType dtype, std::vector<Expr> sizes, int dim, const std::vector<View>& pieces);
  std::pair<View, View> sort(std::string op, const View& source, int dim, Expr kept, bool descending);
  // The program must stop with `message` where `condition` (bool, of rank 0) does not hold.
  void check(std::string op, std::string message, Expr condition);
  View define(std::string op, DType dtype, std::vector<Expr> sizes, LoopDef def);  // templates

  // An operand for a template: if v is a load at affine coordinates, that; else a stored copy.
  Operand operand(const View& v);
  // v as a stored buffer with identity coordinates (a copy is made unless it is one already).
  BufferId stored(const View& v, std::string_view name);

  LoopProgram& program() { return program_; }
  LoopProgram take() { return std::move(program_); }

 private:
  View load_of(BufferId buffer);
  BufferId add_buffer(BufferInfo info);

  LoopProgram program_;
  std::vector<Origin> origins_;
  std::unordered_map<std::string, int> names_;
};

}  // namespace coil
