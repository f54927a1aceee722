// The size expressions of a package's manifest ("2*batch + 1"): evaluated for given sizes, without running the package.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "archive_kind.h"
#include "expr/expr.h"

namespace coil::tool {

struct DynamicSize {
  std::string name;
  int64_t min = 0;
  int64_t max = INT64_MAX;
  bool from_data = false;  // read while the program runs: no input has it
  bool internal = false;   // a counter of the program's own loops: nobody is asked for it or told
  bool of_inputs() const { return !from_data && !internal; }
};

// Whether a symbol of a manifest is such a counter.
bool is_internal(const Json& symbol);

class Sizes {
 public:
  // bad_package when the manifest's symbols are malformed.
  static Result<Sizes> read(const Json& manifest);

  const std::vector<DynamicSize>& symbols() const { return symbols_; }

  // Sets what is known; an unknown name or a value outside of its range is an error (bad_dimension, input_size).
  Status set(const std::string& name, int64_t value);
  // Learns symbols from the sizes of an input; sizes that do not fit are left to the runtime to refuse.
  void learn(const Json& shape, const std::vector<int64_t>& sizes);
  // Symbols that nothing set get min(max, 8), or their minimum if that is larger. Returns those that a call may choose.
  std::map<std::string, int64_t> fill_defaults();
  void set_workers(int64_t workers) { workers_ = workers; }

  // A number, or an expression's text. bad_package when it is malformed or uses a symbol without a value.
  Result<int64_t> evaluate(const Json& size);
  Result<std::vector<int64_t>> evaluate_all(const Json& sizes);
  // One formula for the sum of several, and for the bytes of dense tensors: like terms are collected.
  Result<std::string> sum_text(const std::vector<Json>& sizes);
  Result<std::string> bytes_text(const Json& tensors);

 private:
  int index_of(const std::string& name) const;
  Result<Expr> parse(const Json& size);
  Result<Expr> bytes_of(const Json& tensors);

  std::shared_ptr<ExprPool> pool_ = std::make_shared<ExprPool>();
  std::vector<DynamicSize> symbols_;
  std::vector<int64_t> values_;  // -1: unknown
  int64_t workers_ = 1;
};

}  // namespace coil::tool
