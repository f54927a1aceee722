// A program's copy with a pool of its own.
#include <concepts>
#include <map>

#include "graph/graph.h"

namespace coil {
namespace {

class Copier {
 public:
  explicit Copier(std::shared_ptr<ExprPool> pool) : pool_(std::move(pool)) {}

  Graph graph(const Graph& from) {
    Graph made = from;
    made.pool = pool_;
    for (ValueInfo& value : made.values) {
      if (auto* number = std::get_if<Expr>(&value.type)) rebase(*number);
      if (auto* tensor = std::get_if<TensorType>(&value.type)) {
        rebase(tensor->sizes);
        rebase(tensor->strides);
      }
    }
    for (Node& node : made.nodes) {
      for (Argument& argument : node.args) std::visit([this](auto& a) { rebase(a); }, argument);
    }
    for (SizeCheck& check : made.checks) rebase(check.condition);
    return made;
  }

 private:
  template <class T>
    requires(!std::derived_from<T, std::vector<Expr>>)
  void rebase(T&) {}  // what holds no expressions
  void rebase(Expr& e) { e = pool_->twin(e); }
  void rebase(std::vector<Expr>& list) {
    for (Expr& e : list) rebase(e);
  }
  void rebase(Condition& c) {
    rebase(c.a);
    rebase(c.b);
    for (Condition& part : c.parts) rebase(part);
  }
  // A graph that several nodes share is one graph in the copy too.
  void rebase(SubgraphRef& nested) {
    std::shared_ptr<const Graph>& made = nested_[nested.graph.get()];
    if (!made && nested.graph) made = std::make_shared<const Graph>(graph(*nested.graph));
    nested.graph = made;
  }

  std::shared_ptr<ExprPool> pool_;
  std::map<const Graph*, std::shared_ptr<const Graph>> nested_;
};

}  // namespace

Graph with_own_pool(const Graph& graph) { return Copier(graph.pool->copy()).graph(graph); }

}  // namespace coil
