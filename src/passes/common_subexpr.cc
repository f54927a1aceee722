#include <bit>
#include <unordered_map>

#include "graph/rewrite.h"
#include "passes/passes.h"

namespace coil {
namespace {

template <class... F>
struct overload : F... {
  using F::operator()...;
};

// Same arguments, different results.
bool is_random(const Node& node) {
  std::string_view name = aten_name(node);
  for (std::string_view word :
       {"rand", "bernoulli", "multinomial", "dropout", "normal", "exponential", "uniform", "poisson", "rrelu", "binomial", "cauchy", "geometric"}) {
    if (name.find(word) != std::string_view::npos) {
      // layer_norm and its kind are not random.
      if (word == "normal" && name.find("normalized") != std::string_view::npos) continue;
      return true;
    }
  }
  return false;
}

// A text that is equal for equal nodes, whose results lie alike: copies in another memory format were removed before. Empty if the node must stay apart.
class Key {
 public:
  Key(const Graph& graph, const Node& node) {
    bool is_pure = (node.target.starts_with("aten.") || node.target.starts_with("prims.")) && !node.outputs.empty() && !is_random(node) &&
                   node.target.find("_assert") == std::string::npos;
    if (!is_pure) {
      valid_ = false;
      return;
    }
    text_ = node.target;
    for (const Argument& a : node.args) add(a);
    for (const ValueId v : node.outputs) {
      if (graph.value(v).is_tensor()) put_list('r', graph.value(v).tensor().strides);
    }
  }
  std::string text() && { return valid_ ? std::move(text_) : std::string(); }

 private:
  void put(char tag, uint64_t bits) {
    text_ += tag;
    text_.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
  }
  void put(char tag, ValueId v) { put(tag, static_cast<uint64_t>(static_cast<int64_t>(v.index))); }
  void put(char tag, Expr e) { put(tag, reinterpret_cast<uintptr_t>(e.node())); }
  void put(char tag, double d) { put(tag, std::bit_cast<uint64_t>(d)); }
  template <class List>
  void put_list(char tag, const List& list) {
    put(tag, static_cast<uint64_t>(list.size()));
    for (const auto& item : list) put(tag, item);
  }

  void add(const Argument& a) {
    std::visit(overload{[&](NoneArg) { text_ += 'N'; }, [&](ValueId v) { put('v', v); }, [&](const std::vector<ValueId>& l) { put_list('V', l); },
                        [&](Expr e) { put('e', e); }, [&](const std::vector<Expr>& l) { put_list('E', l); }, [&](double d) { put('d', d); },
                        [&](const std::vector<double>& l) { put_list('D', l); }, [&](bool b) { put('b', static_cast<uint64_t>(b)); },
                        [&](const std::vector<bool>& l) {
                          put('B', static_cast<uint64_t>(l.size()));
                          for (bool b : l) put('b', static_cast<uint64_t>(b));
                        },
                        [&](const std::string& s) {
                          put('s', static_cast<uint64_t>(s.size()));
                          text_ += s;
                        },
                        [&](DType d) { put('t', static_cast<uint64_t>(d)); }, [&](MemoryFormat f) { put('m', static_cast<uint64_t>(f)); },
                        [&](const DeviceArg& d) { put('p', static_cast<uint64_t>(d.type) << 32 | static_cast<uint32_t>(d.index)); },
                        [&](const LayoutArg& l) { put('l', static_cast<uint64_t>(l.export_number)); },
                        [&](const std::complex<double>& c) {
                          put('c', c.real());
                          put('c', c.imag());
                        },
                        [&](const SubgraphRef&) { valid_ = false; }, [&](const OpaqueArg&) { valid_ = false; }},
               a);
  }

  std::string text_;
  bool valid_ = true;
};

}  // namespace

Result<Graph> common_subexpr(const Graph& graph) {
  GraphBuilder builder(graph);
  std::unordered_map<std::string, NodeId> seen;
  for (const Node& node : graph.nodes) {
    Node mapped = node;
    for (Argument& a : mapped.args) a = builder.map(a);
    std::string key = Key(graph, mapped).text();
    auto it = key.empty() ? seen.end() : seen.find(key);
    // What gives a size its value stays; the same operator later may use its result.
    if (it != seen.end() && node.binds.empty() && builder.graph().node(it->second).outputs.size() == node.outputs.size()) {
      Node& first = builder.graph().nodes[static_cast<size_t>(it->second.index)];
      first.origins = merge_origins(first.origins, node.origins);
      for (size_t i = 0; i < node.outputs.size(); ++i) builder.replace(node.outputs[i], first.outputs[i]);
      continue;
    }
    NodeId id = builder.append(std::move(mapped));
    if (!key.empty()) seen.emplace(std::move(key), id);
  }
  return builder.finish();
}

}  // namespace coil
