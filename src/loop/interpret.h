// The reference interpreter: evaluates loop programs on concrete tensors. Slow beside generated code, but quick enough to fold
// tens of megabytes of weights at compile time (bodies run in blocks of points).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/function_ref.h"
#include "loop/block_eval.h"
#include "loop/templates/template.h"

namespace coil {

class Interpreter {
 public:
  // symbols: values by SymbolId. The program is borrowed and must not change.
  Interpreter(const LoopProgram& program, std::vector<int64_t> symbols);

  // Gives an input (or any other buffer) its contents; `data` is borrowed through its owner.
  void set(BufferId buffer, TensorData data);
  // Evaluates one definition; what it reads must have contents. Errors: input_value (an index from data is out of range).
  Status run(const Loop& loop);
  int64_t symbol(SymbolId id) const { return symbols_[static_cast<size_t>(id.index)]; }
  // A buffer's contents: dense row-major for computed ones.
  const TensorData& get(BufferId buffer) const;

  std::vector<int64_t> sizes(const std::vector<Expr>& exprs) const;

 private:
  Status run_scan(const Loop& loop, const Scan& def);
  Status run_sort(const Loop& loop, const Sort& def);
  Status run_concat(const Loop& loop, const Concat& def);
  Status run_reduction(const Loop& loop, const Reduction& def);
  Status run_compact(const Loop& loop, const Compact& def);
  Status run_read(const Loop& loop, const ReadSize& def);
  Status run_region(const Loop& loop, const Region& def);
  Result<std::vector<TensorData>> run_part(const RegionPart& part);
  // In the templates' own files.
#define X(T) Status run_template(const Loop& loop, const T& def);
  COIL_TEMPLATES(X)
#undef X
  template <class T>
  Status run_product(const Loop& loop, const Gemm& def);
  template <class T>
  Status dequantise(const Gemm::Quantised& q, size_t columns, std::vector<T>& b);
  template <class T>
  Status run_convolution(const Loop& loop, const Conv2d& def);
  // These two are in interpret_operands.h.
  // All values of an operand over `domain`; vars[i] is the operand's variable that dimension i of the domain is.
  template <class T>
  Result<std::vector<T>> gathered(const Operand& operand, const std::vector<int64_t>& domain, const std::vector<int>& vars);
  template <class T>
  void store(BufferId buffer, const std::vector<T>& values);
  Status evaluate(Expr body, const std::vector<int64_t>& domain, FunctionRef<void(const interpreter::BlockView&)> sink);
  uint8_t* allocate(BufferId buffer);

  const LoopProgram& program_;
  std::vector<int64_t> symbols_;
  std::vector<std::optional<TensorData>> values_;
  interpreter::TensorOf tensor_of_;
  interpreter::SymbolOf symbol_of_;
};

// Symbol values from the inputs' sizes and the symbolic integer inputs (0-d i64). Errors: input_count, input_dtype, input_rank,
// input_size.
Result<std::vector<int64_t>> bind_symbols(const LoopProgram& program, std::span<const TensorData> inputs);

// Runs the whole program; inputs in the order of program.inputs, results in the order of program.outputs, dense row-major.
Result<std::vector<TensorData>> interpret(const LoopProgram& program, std::span<const TensorData> inputs);

}  // namespace coil
