// Define-by-run at the edge, data inside: lowerings write lambdas over coordinates, the recorder runs each once and keeps the
// expression.
//
// Complex numbers. A view of a complex dtype has the sizes that the program says; its body is real, of the parts' type, and gives
// the part that one more variable names: part() is 0 for the real part, 1 for the imaginary one. A body that only moves data
// carries part() along without knowing of it. Storing appends an axis of size 2 to the buffer (as PyTorch lays complex numbers out)
// and puts its coordinate in the place of part(). So nothing after the recorder knows of complex numbers.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "expr/sizes.h"
#include "loop/loop.h"

namespace coil {

// A tensor as a lowering sees it: an expression over variables 0..rank-1. A stored tensor's body is a plain load; a view's is a
// load at other coordinates; a generator's (full, arange) has no load at all. Not stored anywhere by itself.
struct View {
  DType dtype = DType::f32;
  Sizes sizes;
  Expr body;  // of compute_type(dtype); of a complex view: its part number part()

  size_t rank() const { return sizes.size(); }
};

// The variable that chooses a complex number's part: far beyond those of any rank.
inline constexpr int32_t kPartVariable = 1 << 20;
Expr part(ExprPool& pool);
// A complex body as its two parts, and back.
struct Complex {
  Expr re, im;
};
Complex parts_of(Expr body);
Expr joined(const Complex& z);
Expr at_part(Expr body, Expr number);

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
  View view(const View& source, std::vector<Expr> sizes, FunctionRef<std::vector<Expr>(Coordinates)> map);
  // The body's value at coordinates.
  Expr at(const View& v, Coordinates coordinates);

  // New stored values. Names are made unique.
  View pointwise(std::string op, DType dtype, std::vector<Expr> sizes, FunctionRef<Expr(Coordinates)> body);
  View reduce(std::string op, ReduceOp reduce, DType dtype, std::vector<Expr> sizes, std::vector<Expr> domain,
              FunctionRef<Expr(Coordinates, Coordinates reduced)> body);
  View scan(std::string op, ScanOp scan, DType dtype, std::vector<Expr> sizes, int dim, FunctionRef<Expr(Coordinates)> body);
  View concat(std::string op, DType dtype, std::vector<Expr> sizes, int dim, const std::vector<View>& pieces);
  // below: see Sort.
  std::pair<View, View> sort(std::string op, const View& source, int dim, Expr kept, bool descending, int64_t below = 0);
  // Kept values of all blocks one after the other, in a buffer of `size` elements; see Compact. `start` has one variable.
  View compact(std::string op, Expr size, Expr blocks, Expr length, FunctionRef<Expr(Coordinates)> keep, FunctionRef<Expr(Expr block)> start,
               FunctionRef<Expr(Coordinates)> value);
  // Gives the symbol the value of an i64 expression of rank 0, which is to be in the symbol's range and at most `limit` (null: none).
  void read_size(SymbolId symbol, Expr value, Expr limit);
  // The program must stop with `message` where `condition` (bool, of rank 0) does not hold.
  void check(std::string op, std::string message, Expr condition);
  // Calls a library routine: inputs are stored first, row-major and dense. One view per result.
  struct Result {
    DType dtype;
    std::vector<Expr> sizes;
  };
  std::vector<View> library(std::string op, Library call, const std::vector<View>& inputs, const std::vector<Result>& results);
  // One view per result of a user's kernel: new tensors, then what it writes to.
  std::vector<View> user_call(std::string op, UserCall call, const std::vector<Result>& results);
  // One view per result; what the region captures and begins with are buffers of this program.
  std::vector<View> region(std::string op, Region def, const std::vector<Result>& results);
  View define(std::string op, DType dtype, std::vector<Expr> sizes, LoopDef def);  // templates
  // For a region's part: an input (or constant) of this program that is a buffer of the program around it.
  BufferId capture(const BufferInfo& outer);
  // For a region's part: gives `v` as the next result.
  void result(const View& v, DType dtype, const std::vector<Expr>& sizes);

  // An operand for a template: if v is a load at affine coordinates, that; else a stored copy.
  Operand operand(const View& v);
  // v as a stored buffer with identity coordinates (a copy is made unless it is one already).
  BufferId stored(const View& v, std::string_view name);

  View load_of(BufferId buffer);
  // What a reader is told of a value that was stored just now (BufferInfo::why).
  void say_why(const View& stored, std::string reason) { program_.buffer(BufferId(stored.body->id)).why = std::move(reason); }

  LoopProgram& program() { return program_; }
  std::shared_ptr<ExprPool> pool_pointer() const { return program_.pool; }
  LoopProgram take() { return std::move(program_); }

 private:
  std::vector<View> several(const std::string& op, LoopDef def, const std::vector<Result>& results);
  // Sizes of the buffer that holds a value of this type; a recorded body over them (`rank` coordinates before the part's).
  void describe(BufferInfo& info, DType dtype, std::vector<Expr> sizes);
  std::vector<Expr> stored_sizes(DType dtype, std::vector<Expr> sizes);
  Expr recorded(Expr body, DType dtype, size_t rank, std::span<const Expr> domain);
  BufferId add_buffer(BufferInfo info);

  LoopProgram program_;
  std::vector<Origin> origins_;
  std::unordered_map<std::string, int> names_;
};

}  // namespace coil
