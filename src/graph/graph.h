// The graph IR: a program of ATen operators over tensors with symbolic sizes, as torch.export gives it.
//
// Semantics. Values are immutable except through in-place operators ("add_") of training IR, which the pass `functionalize`
// removes; later passes require a functional graph. Nodes are in topological order. Arguments are in schema order with defaults
// filled in, so passes never look at schemas. Integers computed from sizes are expressions, not nodes. A size that depends on data is
// a symbol that one node binds: the operator whose results have it, or "coil.read_size"(self: a 0-d i64 tensor), which x.item() becomes.
#pragma once

#include <cstdint>
#include <complex>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/origin.h"
#include "base/result.h"
#include "expr/condition.h"
#include "expr/expr.h"
#include "expr/sizes.h"
#include "ops/tensor_data.h"
#include "ops/user_kernel.h"

namespace coil {

struct Graph;
using NodeId = Id<struct NodeTag>;
using ValueId = Id<struct ValueTag>;

enum class DeviceType : uint8_t { cpu, cuda, other };
enum class MemoryFormat : uint8_t { contiguous, channels_last, channels_last_3d, preserve };

struct TensorType {
  DType dtype = DType::f32;
  Sizes sizes;
  Sizes strides;  // in elements
  DeviceType device = DeviceType::cpu;
};

// What a value is: a tensor, a symbolic scalar, or a list is spelled as several values.
struct ValueInfo {
  std::string name;
  std::variant<TensorType, Expr, std::monostate> type;  // Expr: a symbolic integer (index); monostate: None or unused
  NodeId producer;                                      // invalid for inputs

  bool is_tensor() const { return std::holds_alternative<TensorType>(type); }
  const TensorType& tensor() const { return std::get<TensorType>(type); }
};

struct SubgraphRef {
  std::shared_ptr<const Graph> graph;
};
struct NoneArg {};
struct DeviceArg {
  DeviceType type = DeviceType::cpu;
  int index = -1;
};
struct LayoutArg {
  int export_number = 7;  // strided
};
struct OpaqueArg {  // an argument kind that no lowering understands; the text says what it was
  std::string text;
};

// One argument of a node. Symbolic integers are Exprs of type index; a list of integers is always vector<Expr>.
using Argument = std::variant<NoneArg, ValueId, std::vector<ValueId> /* invalid id: None */, Expr, std::vector<Expr>, double, std::vector<double>, bool,
                              std::vector<bool>, std::string, DType, MemoryFormat, DeviceArg, LayoutArg, std::complex<double>, SubgraphRef, OpaqueArg>;

struct Node {
  std::string target;                  // "aten.add.Tensor", "higher_order.cond"
  std::string name;                    // the FX node's
  std::vector<std::string> arg_names;  // schema order
  std::vector<Argument> args;
  std::vector<ValueId> outputs;  // a Tensor[] result is its elements
  std::vector<Origin> origins;
  std::vector<SymbolId> binds;  // sizes of its results that only its data decides
  // Of a user's operator. In a functional graph the new contents of what it writes are further results, in the order of the signature.
  std::shared_ptr<const UserKernel> user;

  const Argument* find(std::string_view arg_name) const;
};

struct GraphInput {
  enum class Kind : uint8_t { parameter, buffer, constant, user, user_symint, fixed };
  Kind kind = Kind::user;
  ValueId value;     // invalid for fixed
  std::string name;  // argument name ("input_ids"), or the parameter's FQN
  TensorData data;   // parameter, buffer, constant
  // fixed: a non-tensor input whose value the export fixed. `position` counts flattened user inputs, for these and for user ones.
  std::variant<std::monostate, int64_t, double, bool, std::string> fixed_value;
  int position = -1;
};

struct GraphOutput {
  enum class Kind : uint8_t { user, buffer_mutation, input_mutation };
  Kind kind = Kind::user;
  // A tensor or symbolic value; or a constant result: None, integer, float, bool, string.
  std::variant<ValueId, std::monostate, int64_t, double, bool, std::string> value;
  std::string name;
  std::string target;  // mutated buffer's FQN or input's name
};

struct Graph {
  std::shared_ptr<ExprPool> pool;
  std::vector<ValueInfo> values;
  std::vector<Node> nodes;
  std::vector<GraphInput> inputs;
  std::vector<GraphOutput> outputs;
  std::vector<SizeCheck> checks;
  std::string in_spec, out_spec;  // pytree specs as torch wrote them (JSON text)
  std::vector<std::string> forward_arg_names;
  std::string torch_version, schema_version;
  bool functional = false;  // no in-place operators

  const ValueInfo& value(ValueId id) const { return values[static_cast<size_t>(id.index)]; }
  ValueInfo& value(ValueId id) { return values[static_cast<size_t>(id.index)]; }
  const Node& node(NodeId id) const { return nodes[static_cast<size_t>(id.index)]; }
  ValueId add_value(ValueInfo info);
};

// "f32[batch, 3, 224, 224]" (with strides where they are not row-major) and whole programs, for dumps and goldens; parse.h reads these back.
std::string to_string(const Graph& graph, const TensorType& type);
std::string to_string(const Graph& graph);

// The same program with a copy of its pool (ExprPool::copy), nested graphs included. Weights are shared.
Graph with_own_pool(const Graph& graph);

// Ids in range, defined before use, one producer each, argument names match, constants fit their storage.
Status verify(const Graph& graph);

// "model.py:13 in forward: x = F.relu(x)", the first origin; empty if unknown.
std::string where(const Node& node);

}  // namespace coil
