// One "graph" object of the program's JSON -> nodes and values. The signature is read elsewhere (signature.h).
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "frontend/arguments.h"
#include "frontend/json_access.h"
#include "frontend/schema.h"
#include "frontend/symbols.h"
#include "graph/graph.h"

namespace coil {

// What all graphs of one program share.
struct ReaderContext {
  std::shared_ptr<ExprPool> pool;
  SymbolTable symbols;
  std::unordered_map<std::string_view, std::optional<Schema>> schemas;  // by target, as the JSON spells it
  int64_t nodes_left = 5'000'000;                                       // hostile files repeat themselves
  std::set<SymbolId> bound;                                             // sizes from data that a node read so far binds

  const UserKernels* kernels = nullptr;

  explicit ReaderContext(std::shared_ptr<ExprPool> p) : pool(p), symbols(p) {}
  std::shared_ptr<const UserKernel> user_kernel(std::string_view target) const;
  const std::optional<Schema>& schema(std::string_view target);
};

class GraphReader : public ArgumentSource {
 public:
  // `json` must outlive the reader. `depth`: how many graphs this one is nested in.
  GraphReader(ReaderContext& context, JsonValue json, int depth) : context_(context), json_(json), depth_(depth) {}

  // In this order:
  Status read_values();                                 // the tables of types
  void note_input(std::string_view name);               // for each input of the program, before any is defined: which symbols are sizes
  Result<ValueId> define_input(std::string_view name);  // for each input
  Status read_nodes();
  Status settle_data_sizes();  // last: which numbers that are read from data are sizes
  Graph& graph() { return graph_; }
  JsonValue json() const { return json_; }

  // A nested graph as a whole: its inputs are plain user inputs.
  static Result<Graph> read_nested(ReaderContext& context, JsonValue json, int depth);

  // ArgumentSource: names of values that are defined so far.
  Result<ValueId> value(std::string_view name) override;
  Result<Expr> sym_int(std::string_view name) override;
  Result<Condition> sym_bool(std::string_view name) override;
  Result<double> sym_float(std::string_view name) override;
  ValueId data_number(std::string_view name) override;
  Result<SubgraphRef> subgraph(JsonValue graph) override;
  ExprPool& pool() override { return *context_.pool; }

 private:
  Result<TensorType> tensor_type(JsonValue meta, std::string_view name);
  Result<ValueId> define_tensor(std::string_view name, NodeId producer);
  Status read_node(JsonValue json);
  Status read_effect(JsonValue json, Node& node);
  Status read_functionalized(JsonValue json, Node& node);
  Status read_outputs(JsonValue json, Node& node, size_t skipped = 0);
  Status read_arguments(JsonValue json, Node& node, const Schema* schema);
  static size_t place_of_argument(const Schema& schema, size_t place, const std::vector<std::string_view>& names);
  Status bind_arguments(Node& node, const Schema* schema, std::vector<std::string_view> names, std::vector<Argument> given);
  // Nodes that compute sizes or check them: nothing is left of them but checks, their values are expressions. Numbers that are
  // read from data become 0-d tensors.
  Result<bool> is_size_computation(JsonValue json, const Node& node);
  Status read_assertion(JsonValue json, const Node& node);
  Status read_range_assertion(JsonValue json, const Node& node);
  Status read_data_number(JsonValue json, const Node& node, std::string_view output, DType dtype);
  void read_size(const Node& item, ValueId number, std::string_view name);
  void bind_sizes(Node& node);
  void read_number_assertions();
  bool bind(Node& node, SymbolId symbol);
  bool drop_offset(SymbolId symbol);
  void assert_sizes(Condition condition, std::string message, const Node& node);
  Result<Argument> known_number(Argument argument, const SchemaArg& schema);

  ReaderContext& context_;
  JsonValue json_;
  int depth_;
  Graph graph_;
  using Table = std::unordered_map<std::string_view, JsonValue>;
  Table tensors_, sym_ints_, sym_bools_, sym_floats_;
  std::unordered_map<std::string_view, ValueId> defined_;
  std::unordered_map<std::string_view, ValueId> data_numbers_;  // also in defined_
  // Assertions about numbers from data: loops check them, and the host as well where the numbers are sizes.
  struct NumberAssertion {
    std::string_view condition;  // its name among the sym_bool_values
    std::string message, where;
  };
  std::vector<NumberAssertion> number_assertions_;
  std::set<std::string, std::less<>> item_symbols_;  // of numbers that item() reads
  std::set<std::string, std::less<>> offsets_;       // of numbers that say where in a storage a view begins
};

// An argument in the place of a graph's output: a value, or a constant.
Result<GraphOutput> read_result(GraphReader& reader, JsonValue argument);

}  // namespace coil
