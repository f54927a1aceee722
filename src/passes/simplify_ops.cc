#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <unordered_set>

#include "graph/rewrite.h"
#include "passes/named_ops.h"
#include "passes/passes.h"

namespace coil {
namespace {

using Args = std::vector<std::pair<std::string, Argument>>;

constexpr std::string_view kSame[] = {"alias",       "detach", "lift_fresh", "lift_fresh_copy", "positive",   "resolve_conj",
                                      "resolve_neg", "clone",  "contiguous", "detach_copy",     "alias_copy", "requires_grad"};
constexpr std::string_view kDropouts[] = {"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout", "native_dropout"};
constexpr std::string_view kReshapes[] = {"view",       "_unsafe_view", "reshape",   "flatten",        "unflatten",     "view_as",
                                          "reshape_as", "ravel",        "view_copy", "_reshape_alias", "_reshape_copy", "_reshape_alias_copy"};
constexpr std::string_view kTransposes[] = {"transpose", "swapaxes", "swapdims", "t", "numpy_T", "mT", "mH", "adjoint", "transpose_copy", "t_copy"};
constexpr std::string_view kCasts[] = {"to", "_to_copy", "type_as"};
constexpr std::string_view kCopies[] = {"permute_copy",  "expand_copy", "slice_copy",      "select_copy", "unsqueeze_copy",        "squeeze_copy",
                                        "diagonal_copy", "unfold_copy", "as_strided_copy", "split_copy",  "split_with_sizes_copy", "unbind_copy"};
constexpr std::string_view kZeros[] = {"zeros",     "zeros_like",    "new_zeros",         "empty",         "empty_like",
                                       "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"};
constexpr std::string_view kOnes[] = {"ones", "ones_like", "new_ones"};
constexpr std::string_view kFulls[] = {"full", "full_like", "new_full", "scalar_tensor"};

class Simplifier {
 public:
  explicit Simplifier(const Graph& graph) : graph_(graph), builder_(graph) {
    for (const GraphOutput& out : graph.outputs) {
      if (const auto* v = std::get_if<ValueId>(&out.value)) outputs_.insert(v->index);
    }
    for (const Node& node : graph.nodes) {
      const bool counts = aten_name(node).starts_with("as_strided") || aten_name(node).starts_with("resize");
      if (!counts || node.args.empty()) continue;
      ValueId v = first(node);
      while (v.valid() && counted_.insert(v.index).second) {
        const NodeId producer = graph.value(v).producer;
        v = producer.valid() ? first(graph.node(producer)) : ValueId();
      }
    }
  }

  Graph run() {
    for (const Node& original : graph_.nodes) {
      Node node = without_copy(original);
      if (aten_name(node).empty() || node.outputs.empty() || !node.binds.empty()) {
        builder_.copy(node);
      } else if (node.outputs.size() > 1 || is_list_op(node)) {
        if (!several(node)) builder_.copy(node);
      } else if (!graph_.value(node.outputs[0]).is_tensor() || !(identity(node) || rewrite(node))) {
        builder_.copy(node);
      }
    }
    return builder_.finish();
  }

 private:
  ExprPool& pool() { return *graph_.pool; }

  // "slice_copy.Tensor" -> "slice.Tensor": values have no memory to share.
  static Node without_copy(Node node) {
    std::string_view name = aten_name(node);
    if (contains(kCopies, name)) node.target.erase(5 + name.size() - 5, 5);
    return node;
  }

  static bool is_list_op(const Node& node) {
    std::string_view name = aten_name(node);
    return name == "unbind" || name == "split" || name == "split_with_sizes" || name == "chunk" || name == "unsafe_split" || name == "unsafe_chunk" ||
           name == "unsafe_split_with_sizes" || name == "tensor_split";
  }

  const TensorType& result(const Node& node) const { return graph_.value(node.outputs[0]).tensor(); }
  ValueId first(const Node& node) const {
    const auto* v = node.args.empty() ? nullptr : std::get_if<ValueId>(&node.args[0]);
    return v && v->valid() && graph_.value(*v).is_tensor() ? *v : ValueId();
  }

  // Same elements in the same places. Strides matter to the caller, for outputs, and to what counts in a tensor's storage: a
  // copy there is one whatever the strides of a call's inputs are.
  bool same_type(const Node& node, ValueId v) const {
    const TensorType& a = graph_.value(v).tensor();
    const TensorType& b = result(node);
    if (a.dtype != b.dtype || a.device != b.device || a.sizes != b.sizes) return false;
    const int32_t id = node.outputs[0].index;
    return !counted_.contains(id) && (a.strides == b.strides || !outputs_.contains(id));
  }

  // Nodes that return their first argument.
  bool identity(const Node& node) {
    ValueId v = first(node);
    if (!v.valid() || !same_type(node, v)) return false;
    std::string_view name = aten_name(node);
    bool reinterprets = overload_name(node) == "dtype" && !contains(kCasts, name);  // view.dtype
    bool is_same = contains(kSame, name) || (contains(kReshapes, name) && !reinterprets) || contains(kCasts, name) || name == "expand" || name == "expand_as" ||
                   name == "broadcast_to" || name == "squeeze" || (contains(kDropouts, name) && !drops(node)) || (name == "permute" && is_ordered(node)) ||
                   (name == "slice" && int_arg(node, "step") == 1);
    return is_same && replace(node, v);
  }

  bool replace(const Node& node, ValueId v) {
    builder_.replace(node.outputs[0], v);
    return true;
  }

  static bool drops(const Node& node) {
    bool training = bool_arg(node, "train", false);
    return training && number_arg(node, "p") != 0.0;
  }

  bool is_ordered(const Node& node) const {
    const auto* dims = ints_arg(node, "dims");
    if (!dims) return false;
    for (size_t i = 0; i < dims->size(); ++i) {
      if (!(*dims)[i]->is_constant() || (*dims)[i]->as_int() != static_cast<int64_t>(i)) return false;
    }
    return true;
  }

  // The node with another target and arguments; the same result.
  bool become(const Node& node, std::string target, Args args) {
    Node next = node;
    next.target = std::move(target);
    next.arg_names.clear();
    next.args.clear();
    for (auto& [name, arg] : args) {
      next.arg_names.push_back(std::move(name));
      next.args.push_back(std::move(arg));
    }
    builder_.append(std::move(next));
    return true;
  }

  bool rewrite(const Node& node) {
    std::string_view name = aten_name(node);
    const TensorType& type = result(node);
    ValueId v = first(node);
    if (contains(kZeros, name)) return full(node, pool().index(0));
    if (contains(kOnes, name)) return full(node, pool().index(1));
    if (contains(kFulls, name)) {
      const Argument* value = node.find(name == "scalar_tensor" ? "s" : "fill_value");
      return value && full(node, *value);
    }
    if (name == "arange") return arange(node);
    if (!v.valid()) return false;
    if (contains(kReshapes, name) && overload_name(node) != "dtype") return become(node, "aten.reshape.default", {{"self", v}, {"shape", type.sizes}});
    const bool conjugates = is_complex(result(node).dtype) && (name == "mH" || name == "adjoint");
    if (contains(kTransposes, name) && !conjugates) return permute(node, v);
    if (name == "permute") return permute_wrapped(node, v);
    if (name == "squeeze") return squeeze(node, v);
    if (contains(kCasts, name) || name == "convert_element_type") return cast(node, v);
    if (name == "expand" || name == "expand_as" || name == "broadcast_to") {
      return become(node, "aten.expand.default", {{"self", v}, {"size", type.sizes}, {"implicit", false}});
    }
    if (name == "narrow" && overload_name(node) == "default") return narrow(node, v);
    return false;
  }

  bool full(const Node& node, Argument value) {
    const TensorType& type = result(node);
    return become(node, "aten.full.default",
                  {{"size", type.sizes},
                   {"fill_value", std::move(value)},
                   {"dtype", type.dtype},
                   {"layout", NoneArg{}},
                   {"device", NoneArg{}},
                   {"pin_memory", NoneArg{}}});
  }

  bool arange(const Node& node) {
    auto number = [&](std::string_view name) -> Argument {
      const Argument* a = node.find(name);
      return a ? *a : Argument(pool().index(name == "step" ? 1 : 0));
    };
    if (overload_name(node) == "out" || overload_name(node) == "start_out") return false;
    return become(node, "aten.arange.start_step",
                  {{"start", number("start")},
                   {"end", number("end")},
                   {"step", number("step")},
                   {"dtype", result(node).dtype},
                   {"layout", NoneArg{}},
                   {"device", NoneArg{}},
                   {"pin_memory", NoneArg{}}});
  }

  // The result keeps the device of its type, so a move between devices is still one.
  bool cast(const Node& node, ValueId v) {
    const TensorType& type = result(node);
    Argument device = NoneArg{};
    if (type.device != graph_.value(v).tensor().device) device = DeviceArg{type.device, -1};
    return become(node, "aten._to_copy.default",
                  {{"self", v},
                   {"dtype", type.dtype},
                   {"layout", NoneArg{}},
                   {"device", std::move(device)},
                   {"pin_memory", NoneArg{}},
                   {"non_blocking", false},
                   {"memory_format", NoneArg{}}});
  }

  bool emit_permute(const Node& node, ValueId v, const std::vector<int64_t>& p) {
    std::vector<Expr> dims;
    for (int64_t d : p) dims.push_back(pool().index(d));
    return become(node, "aten.permute.default", {{"self", v}, {"dims", std::move(dims)}});
  }

  bool permute(const Node& node, ValueId v) {
    int64_t rank = static_cast<int64_t>(graph_.value(v).tensor().sizes.size());
    if (result(node).sizes.size() != static_cast<size_t>(rank)) return false;
    std::vector<int64_t> p(static_cast<size_t>(rank));
    std::iota(p.begin(), p.end(), 0);
    std::string_view name = aten_name(node);
    if (name == "numpy_T") {
      std::reverse(p.begin(), p.end());
    } else if (rank > 1) {
      std::optional<int64_t> a = rank - 2, b = rank - 1;
      for (auto [first_name, second_name] : {std::pair("dim0", "dim1"), std::pair("axis0", "axis1")}) {
        if (!node.find(first_name)) continue;
        a = int_arg(node, first_name);
        b = int_arg(node, second_name);
      }
      if (!a || !b) return false;
      if (*a < 0) *a += rank;
      if (*b < 0) *b += rank;
      if (*a < 0 || *b < 0 || *a >= rank || *b >= rank) return false;
      std::swap(p[static_cast<size_t>(*a)], p[static_cast<size_t>(*b)]);
    }
    return emit_permute(node, v, p);
  }

  // Negative dimensions are counted from the end.
  bool permute_wrapped(const Node& node, ValueId v) {
    const auto* dims = ints_arg(node, "dims");
    int64_t rank = static_cast<int64_t>(graph_.value(v).tensor().sizes.size());
    if (!dims || dims->size() != static_cast<size_t>(rank)) return false;
    std::vector<int64_t> p;
    for (Expr d : *dims) {
      if (!d->is_constant() || d->as_int() < -rank || d->as_int() >= rank) return false;
      p.push_back(d->as_int() < 0 ? d->as_int() + rank : d->as_int());
    }
    return emit_permute(node, v, p);
  }

  bool squeeze(const Node& node, ValueId v) {
    // Which dimensions go depends on the sizes; the type of the result says it all.
    return become(node, "aten.reshape.default", {{"self", v}, {"shape", result(node).sizes}});
  }

  bool narrow(const Node& node, ValueId v) {
    const Argument* start = node.find("start");
    const Argument* length = node.find("length");
    const auto* s = start ? std::get_if<Expr>(start) : nullptr;
    const auto* l = length ? std::get_if<Expr>(length) : nullptr;
    if (!s || !l || !node.find("dim") || !provably_nonnegative(*s)) return false;
    return become(node, "aten.slice.Tensor", {{"self", v}, {"dim", *node.find("dim")}, {"start", *s}, {"end", *s + *l}, {"step", pool().index(1)}});
  }

  // Whether each part begins where the one before ends: positions that tensor_split is given need not ascend.
  static bool one_after_the_other(const Node& node) {
    const auto* places = ints_arg(node, "indices");
    if (!places) return true;
    int64_t last = 0;
    for (Expr place : *places) {
      if (!place->is_constant() || place->as_int() < last) return false;
      last = place->as_int();
    }
    return true;
  }

  // Nodes of several results: lists of views become one view each.
  bool several(const Node& node) {
    ValueId v = first(node);
    std::string_view name = aten_name(node);
    if (name == "native_dropout" && v.valid() && !drops(node) && same_type(node, v) && use_count(node.outputs[1]) == 0) return replace(node, v);
    if (v.valid() && values_alone(node, v)) return true;
    if (!is_list_op(node) || !v.valid() || !one_after_the_other(node)) return false;
    int64_t rank = static_cast<int64_t>(graph_.value(v).tensor().sizes.size());
    std::optional<int64_t> dim = int_arg(node, "dim");
    if (!dim || *dim < -rank || *dim >= rank) return false;
    if (*dim < 0) *dim += rank;
    bool unbind = name == "unbind";
    size_t result_rank = static_cast<size_t>(unbind ? rank - 1 : rank);
    for (ValueId out : node.outputs) {
      if (!graph_.value(out).is_tensor() || graph_.value(out).tensor().sizes.size() != result_rank) return false;
    }
    Expr start = pool().index(0);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      Node piece = node;
      piece.name = graph_.value(node.outputs[i]).name;
      piece.outputs = {node.outputs[i]};
      Expr d = pool().index(*dim);
      if (unbind) {
        become(piece, "aten.select.int", {{"self", v}, {"dim", d}, {"index", pool().index(static_cast<int64_t>(i))}});
      } else {
        Expr end = start + graph_.value(node.outputs[i]).tensor().sizes[static_cast<size_t>(*dim)];
        become(piece, "aten.slice.Tensor", {{"self", v}, {"dim", d}, {"start", start}, {"end", end}, {"step", pool().index(1)}});
        start = end;
      }
    }
    return true;
  }

  // Singular values and eigenvalues whose vectors nobody reads: PyTorch traces `svdvals` and `eigvalsh` with vectors, which take most of the time.
  bool values_alone(const Node& node, ValueId matrix) {
    static constexpr std::tuple<std::string_view, size_t, std::string_view, std::string_view> kSpectra[] = {{"_linalg_svd", 1, "A", "linalg_svdvals"},
                                                                                                            {"linalg_svd", 1, "A", "linalg_svdvals"},
                                                                                                            {"_linalg_eigh", 0, "self", "linalg_eigvalsh"},
                                                                                                            {"linalg_eigh", 0, "self", "linalg_eigvalsh"},
                                                                                                            {"linalg_eig", 0, "self", "linalg_eigvals"}};
    for (const auto& [name, values, argument, alone] : kSpectra) {
      if (aten_name(node) != name) continue;
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        if (i != values && use_count(node.outputs[i]) > 0) return false;
      }
      Args args{{std::string(argument), matrix}};
      if (const Argument* triangle = node.find("UPLO")) args.emplace_back("UPLO", *triangle);
      Node only = node;
      only.outputs = {node.outputs[values]};
      become(only, fmt::format("aten.{}.default", alone), std::move(args));
      return true;
    }
    return false;
  }

  int use_count(ValueId v) {
    if (counts_.empty()) counts_ = use_counts(graph_);
    return counts_[static_cast<size_t>(v.index)];
  }

  const Graph& graph_;
  GraphBuilder builder_;
  std::unordered_set<int32_t> outputs_;
  std::unordered_set<int32_t> counted_;  // tensors in whose memory as_strided and resize count, and what they are made of
  std::vector<int> counts_;
};

}  // namespace

Result<Graph> simplify_ops(const Graph& graph) { return Simplifier(graph).run(); }

}  // namespace coil
