// The argument union of the program's JSON -> Argument, and the types that an operator's schema asks for.
#pragma once

#include <string_view>

#include "frontend/json_access.h"
#include "frontend/schema.h"
#include "frontend/srepr.h"
#include "graph/graph.h"

namespace coil {

// Where names in arguments lead.
class ArgumentSource {
 public:
  virtual ~ArgumentSource() = default;
  virtual Result<ValueId> value(std::string_view name) = 0;  // tensors, and symbolic integers as values
  virtual Result<Expr> sym_int(std::string_view name) = 0;
  virtual Result<Condition> sym_bool(std::string_view name) = 0;
  virtual Result<double> sym_float(std::string_view name) = 0;
  // A symbolic number that the program reads from a tensor (or computes from such): its 0-d tensor. Invalid: it is none.
  virtual ValueId data_number(std::string_view name) = 0;
  virtual Result<SubgraphRef> subgraph(JsonValue graph) = 0;
  virtual ExprPool& pool() = 0;
};

// Errors: bad_json, bad_program (unknown names), unsupported_feature, unsupported_dtype.
Result<Argument> read_argument(ArgumentSource& source, JsonValue json);

// The argument as the schema types it: an integer given for a float or for int[2], an empty list, and so on. A Scalar and a
// Tensor parameter may hold a number (torch writes `x * 2` as mul.Tensor with an integer). Errors: bad_program.
Result<Argument> coerce(ExprPool& pool, Argument argument, const SchemaArg& schema);

// The schema's default. Errors: bad_program if there is none, or it cannot be read.
Result<Argument> default_argument(ExprPool& pool, const SchemaArg& schema);

// Numbers of torch's export format.
Result<DType> read_dtype(int64_t export_number);
Result<DeviceArg> read_device(JsonValue json);

}  // namespace coil
