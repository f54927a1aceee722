// Gradients that PyTorch names and that are one write into zeros: gather_backward(grad, x, dim, index) -> zeros.scatter_add(dim, index, grad).
// torch.export keeps their names where a program asks for gradients.
#include "graph/rewrite.h"
#include "passes/named_ops.h"
#include "passes/passes.h"

namespace coil {
namespace {

struct WriteArgument {
  std::string_view name, from;  // an argument of the write, and the gradient's one that it is
};

struct WriteRow {
  std::string_view gradient, write;
  std::initializer_list<WriteArgument> args;
};

const WriteRow kWriteRows[] = {
    {"aten.gather_backward.default", "aten.scatter_add.default", {{"dim", "dim"}, {"index", "index"}, {"src", "grad"}}},
    {"aten.cummaxmin_backward.default", "aten.scatter_add.default", {{"dim", "dim"}, {"index", "indices"}, {"src", "grad"}}},
    {"aten.index_select_backward.default", "aten.index_add.default", {{"dim", "dim"}, {"index", "index"}, {"source", "grad"}}},
    {"aten.masked_select_backward.default", "aten.masked_scatter.default", {{"mask", "mask"}, {"source", "grad"}}},
};

const WriteRow* write_row_of(const Node& node) {
  for (const WriteRow& row : kWriteRows) {
    if (row.gradient != node.target || bool_arg(node, "sparse_grad", false)) continue;  // sparse ones stay, to be refused
    return &row;
  }
  return nullptr;
}

void spell_out_write(GraphBuilder& builder, const Graph& graph, const Node& node, const WriteRow& row) {
  const TensorType& type = graph.value(node.outputs[0]).tensor();
  const ValueId zeros = builder.add("aten.full.default", "zeros",
                                    {{"size", type.sizes},
                                     {"fill_value", graph.pool->index(0)},
                                     {"dtype", type.dtype},
                                     {"layout", NoneArg{}},
                                     {"device", NoneArg{}},
                                     {"pin_memory", NoneArg{}}},
                                    type, node.origins);
  std::vector<std::pair<std::string, Argument>> args{{"self", zeros}};
  for (const WriteArgument& wiring : row.args) args.emplace_back(wiring.name, builder.map(*node.find(wiring.from)));
  if (row.write == "aten.index_add.default") args.emplace_back("alpha", graph.pool->index(1));
  builder.replace(node.outputs[0], builder.add(std::string(row.write), node.name, std::move(args), type, node.origins));
}

}  // namespace

Result<Graph> spell_out_gradients(const Graph& graph) {
  GraphBuilder builder(graph);
  for (const Node& node : graph.nodes) {
    const WriteRow* row = node.outputs.size() == 1 ? write_row_of(node) : nullptr;
    if (row) spell_out_write(builder, graph, node, *row);
    else builder.copy(node);
  }
  return builder.finish();
}

}  // namespace coil
