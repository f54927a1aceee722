// Computes buffers of a loop program with bounds of their errors, from buffers whose contents are known (found in a kernel's memory, or given).
// What lies between is computed too, and kept as wide as float64 is: a kernel may round it to the program's type, or not, and the bound allows both.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "loop/join_rows.h"
#include "loop/templates/template.h"
#include "loop/tf32.h"
#include "reference/evaluate.h"

namespace coil::reference {

struct Arithmetic {
  Tf32 tf32;              // which float32 factors may be rounded to 10 bits of mantissa
  bool winograd = false;  // 3x3 convolutions may be computed by Winograd's filtering
};

// An operand of a template: values, and errors where there are any (else empty).
struct Values {
  std::vector<double> f, e;
};

// Of sizes: the number of elements.
int64_t product(const std::vector<int64_t>& sizes);

class Interpreter {
 public:
  // The program is borrowed and must not change. symbols: by SymbolId.
  Interpreter(const LoopProgram& program, std::vector<int64_t> symbols, Arithmetic arithmetic = {});

  void set(BufferId buffer, TensorData contents) { known_[buffer] = exact(std::move(contents)); }
  void set(BufferId buffer, Tensor contents) { known_[buffer] = std::move(contents); }
  bool knows(BufferId buffer) const { return known_.contains(buffer); }
  void set_symbol(SymbolId id, int64_t value) { symbols_[static_cast<size_t>(id.index)] = value; }

  // The buffer's contents as the program computes them from what was set. Errors: input_value (an index from data is out of range),
  // unsupported_feature for what has no reference (most of the library's routines, a user's kernel).
  Result<const Tensor*> compute(BufferId buffer);
  // Forgets what compute() made.
  void forget() { made_.clear(); }
  // The rows of program.loops that the last compute() ran, in order.
  const std::vector<size_t>& ran() const { return ran_; }
  // Known or computed.
  const Tensor& get(BufferId buffer) const;
  bool has(BufferId buffer) const { return known_.contains(buffer) || made_.contains(buffer); }

  const LoopProgram& program() const { return program_; }
  std::vector<int64_t> sizes(const std::vector<Expr>& exprs) const;
  int64_t symbol(SymbolId id) const { return symbols_[static_cast<size_t>(id.index)]; }
  const TensorOf& tensors() const { return tensor_of_; }
  const SymbolOf& symbols() const { return symbol_of_; }

 private:
  Status run(const Loop& loop);
  Status run_pointwise(const Loop& loop, const Pointwise& def);
  Status run_reduction(const Loop& loop, const Reduction& def);
  Status run_scan(const Loop& loop, const Scan& def);
  Status run_concat(const Loop& loop, const Concat& def);
  Status run_sort(const Loop& loop, const Sort& def);
  Status run_compact(const Loop& loop, const Compact& def);
  Status run_region(const Loop& loop, const Region& def);
  Status run_routine(const Loop& loop, const Library& def);
  Status join_rows(const Loop& loop, const Library& def, const JoinRows& join);
  Result<std::vector<Tensor>> run_part(const RegionPart& part);
#define X(T) Status run_template(const Loop& loop, const T& def);
  COIL_TEMPLATES(X)
#undef X
  // All values of an operand over `domain`; vars[i] is the operand's variable that dimension i of the domain is.
  Result<Values> gathered(const Operand& operand, const std::vector<int64_t>& domain, const std::vector<int>& vars);
  Status dequantise(const Gemm::Quantised& q, size_t columns, Values& b);
  DType type_of(BufferId buffer) const { return program_.buffer(buffer).dtype; }
  // As a value of the buffer's type that may or may not have been rounded to it.
  void store(BufferId buffer, std::vector<Num> values);
  void store_product(BufferId buffer, DType read, const struct Products& sums, double chain, bool tf32);
  std::vector<Num> room(BufferId buffer, std::vector<int64_t>* sizes = nullptr) const;

  const LoopProgram& program_;
  std::vector<int64_t> symbols_;
  Arithmetic arithmetic_;
  std::map<BufferId, Tensor> known_, made_;
  std::map<BufferId, size_t> loop_of_;
  std::vector<size_t> ran_;
  TensorOf tensor_of_;
  SymbolOf symbol_of_;
};

}  // namespace coil::reference
