#include <array>

#include "graph/rewrite.h"
#include "passes/passes.h"

namespace coil {
namespace {

class Accumulator {
 public:
  explicit Accumulator(const Graph& graph) : graph_(graph), builder_(graph), uses_(use_counts(graph)) {}

  Graph run() {
    for (const Node& node : graph_.nodes) {
      if (!is_sum(node) || !joined(node)) builder_.copy(node);  // a joined gradient's own node is left without users
    }
    return builder_.finish();
  }

 private:
  const TensorType& type(ValueId v) const { return graph_.value(v).tensor(); }

  bool is_sum(const Node& node) const {
    if (node.target != "aten.add.Tensor" || number_arg(node, "alpha").value_or(1) != 1) return false;
    const ValueId a = value_arg(node, "self"), b = value_arg(node, "other");
    if (!a.valid() || !b.valid() || !graph_.value(a).is_tensor() || !graph_.value(b).is_tensor()) return false;
    const TensorType& out = type(node.outputs[0]);
    const auto same = [&](ValueId v) { return type(v).dtype == out.dtype && type(v).sizes == out.sizes; };
    return (out.dtype == DType::f32 || out.dtype == DType::f64) && same(a) && same(b);
  }

  // The gradient of an embedding that only this sum reads; null: v is something else.
  const Node* gradient(ValueId v) const {
    const Node* made = uses_[static_cast<size_t>(v.index)] == 1 ? producer(graph_, v) : nullptr;
    const bool is_one = made && made->target == "aten.embedding_dense_backward.default" && !bool_arg(*made, "scale_grad_by_freq", true);
    return is_one ? made : nullptr;
  }

  bool joined(const Node& sum) {
    std::array<ValueId, 2> terms = {value_arg(sum, "other"), value_arg(sum, "self")};
    if (terms[0] == terms[1]) return false;
    const Node* made = gradient(terms[0]);
    if (!made) std::swap(terms[0], terms[1]), made = gradient(terms[0]);
    if (!made) return false;
    Node put = *made;
    put.target = "coil.add_embedding_gradient";
    put.name = sum.name;
    put.outputs = sum.outputs;
    put.arg_names.emplace_back("onto");
    put.args.emplace_back(terms[1]);
    put.origins = merge_origins(made->origins, sum.origins);
    builder_.append(std::move(put));
    return true;
  }

  const Graph& graph_;
  GraphBuilder builder_;
  std::vector<int> uses_;
};

}  // namespace

Result<Graph> accumulate_rows(const Graph& graph) { return Accumulator(graph).run(); }

}  // namespace coil
