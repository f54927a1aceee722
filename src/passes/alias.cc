#include "passes/alias.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "passes/named_ops.h"

namespace coil {
namespace {

constexpr std::string_view kSameStorage[] = {"alias", "detach", "detach_", "lift_fresh", "positive", "resolve_conj", "resolve_neg", "requires_grad_"};
constexpr std::string_view kAliasReshapes[] = {"view", "unflatten", "unsqueeze", "squeeze", "view_as", "_reshape_alias", "unsqueeze_", "squeeze_"};
constexpr std::string_view kMaybeReshapes[] = {"reshape", "flatten", "reshape_as", "ravel"};
constexpr std::string_view kAliasTransposes[] = {"transpose", "swapaxes", "swapdims", "t",          "numpy_T", "mT",        "mH",
                                                 "adjoint",   "permute",  "matrix_H", "transpose_", "t_",      "swapaxes_", "swapdims_"};
constexpr std::string_view kPieces[] = {"slice", "select", "narrow", "diagonal", "unbind", "split", "split_with_sizes", "chunk"};
constexpr std::string_view kOneWay[] = {"expand",          "expand_as", "broadcast_to", "as_strided", "unfold",     "movedim",    "moveaxis",
                                        "tensor_split",    "hsplit",    "vsplit",       "dsplit",     "real",       "imag",       "view_as_real",
                                        "view_as_complex", "conj",      "_conj",        "resize_",    "resize_as_", "as_strided_"};
constexpr std::string_view kSplits[] = {"split", "split_with_sizes", "chunk", "tensor_split", "hsplit", "vsplit", "dsplit"};
constexpr std::string_view kIdentityDropouts[] = {"dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout"};

bool same_layout(const TensorType& a, const TensorType& b) {
  return a.dtype == b.dtype && a.device == b.device && a.sizes == b.sizes && a.strides == b.strides;
}

const TensorType* first_arg_type(const Graph& graph, const Node& node) {
  const auto* v = node.args.empty() ? nullptr : std::get_if<ValueId>(&node.args[0]);
  return v && v->valid() && graph.value(*v).is_tensor() ? &graph.value(*v).tensor() : nullptr;
}

bool is_row_major(const TensorType& t) { return t.sizes.empty() || contiguous_strides(*t.sizes[0]->pool, t.sizes) == t.strides; }

// The permutation of a transposing node: result dimension i is dimension p[i] of the argument. Empty: arguments are nonsense.
std::vector<int64_t> permutation(const Node& node, int64_t rank) {
  std::vector<int64_t> p(static_cast<size_t>(rank));
  std::iota(p.begin(), p.end(), 0);
  auto wrap = [&](std::optional<int64_t> d) { return d && *d < 0 ? *d + rank : d.value_or(-1); };
  std::string_view name = aten_name(node);
  if (name == "permute") {
    const auto* dims = ints_arg(node, "dims");
    if (!dims || dims->size() != p.size()) return {};
    std::vector<bool> seen(p.size(), false);
    for (size_t i = 0; i < p.size(); ++i) {
      p[i] = (*dims)[i]->is_constant() ? wrap((*dims)[i]->as_int()) : -1;
      if (p[i] < 0 || p[i] >= rank || seen[static_cast<size_t>(p[i])]) return {};
      seen[static_cast<size_t>(p[i])] = true;
    }
    return p;
  }
  if (name == "numpy_T") {
    std::reverse(p.begin(), p.end());
    return p;
  }
  int64_t a = rank - 2, b = rank - 1;
  if (name == "t" || name == "t_") {
    if (rank < 2) return p;
  } else if (node.find("dim0")) {
    a = wrap(int_arg(node, "dim0"));
    b = wrap(int_arg(node, "dim1"));
  } else if (node.find("axis0")) {
    a = wrap(int_arg(node, "axis0"));
    b = wrap(int_arg(node, "axis1"));
  }
  if (rank == 0) return p;  // torch lets a scalar be transposed
  if (a < 0 || b < 0 || a >= rank || b >= rank) return {};
  std::swap(p[static_cast<size_t>(a)], p[static_cast<size_t>(b)]);
  return p;
}

// The dimension that a split is along.
std::optional<int64_t> split_dim(const Node& split, const TensorType& whole) {
  const std::string_view name = aten_name(split);
  if (name == "vsplit") return 0;
  if (name == "hsplit") return whole.sizes.size() == 1 ? 0 : 1;
  if (name == "dsplit") return 2;
  return int_arg(split, "dim");
}

// Where a piece of a split begins. Pieces of equal length, as all splits but those by a list of lengths have them, need no sum over all before them.
Expr start_of(const Graph& graph, const Node& split, size_t piece, size_t dim) {
  const auto size = [&](size_t i) { return graph.value(split.outputs[i]).tensor().sizes[dim]; };
  const std::string_view name = aten_name(split);
  if (name == "chunk" || (name == "split" && overload_name(split) != "sizes")) return size(0) * static_cast<int64_t>(piece);
  Expr start = graph.pool->index(0);
  for (size_t i = 0; i < piece; ++i) start = start + size(i);
  return start;
}

class Writer {
 public:
  Writer(GraphBuilder& builder, const Graph& graph, const Node& view, size_t output, ValueId base, ValueId written)
      : builder_(builder), graph_(graph), view_(view), output_(output), base_(base), written_(written), type_(builder.value(base).tensor()) {}

  Result<ValueId> run() {
    std::string_view name = aten_name(view_);
    if (contains(kSameStorage, name) || contains(kIdentityDropouts, name) || name == "contiguous" || name == "to" || name == "type_as") return written_;
    bool reshapes = contains(kAliasReshapes, name) || contains(kMaybeReshapes, name);
    if (reshapes && overload_name(view_) != "dtype") return add("aten.reshape.default", {{"self", written_}, {"shape", type_.sizes}});
    if (contains(kAliasTransposes, name)) {
      const bool conjugates = is_complex(type_.dtype) && (name == "mH" || name == "adjoint" || name == "matrix_H");
      if (conjugates) written_ = conjugated();
      return transposed();
    }
    if (name == "movedim" || name == "moveaxis") return moved_back();
    if (name == "conj" || name == "_conj") return is_complex(type_.dtype) ? conjugated() : written_;
    if (name == "real" || name == "imag") return part_of_pairs(name == "real");
    // Bits seen as another type of as many.
    if (name == "view" && byte_size(type_.dtype) == byte_size(graph_.value(view_.outputs[output_]).tensor().dtype))
      return add("aten.view.dtype", {{"self", written_}, {"dtype", type_.dtype}});
    if (name == "view_as_real") return add("aten.view_as_complex.default", {{"self", written_}});
    if (name == "view_as_complex") return add("aten.view_as_real.default", {{"self", written_}});
    Expr one = pool().index(1);
    if (name == "slice") {
      return add("aten.slice_scatter.default",
                 {{"self", base_}, {"src", written_}, {"dim", arg("dim")}, {"start", arg("start")}, {"end", arg("end")}, {"step", arg("step")}});
    }
    if (name == "select") return add("aten.select_scatter.default", {{"self", base_}, {"src", written_}, {"dim", arg("dim")}, {"index", arg("index")}});
    if (name == "unbind") {
      return add("aten.select_scatter.default",
                 {{"self", base_}, {"src", written_}, {"dim", arg("dim")}, {"index", pool().index(static_cast<int64_t>(output_))}});
    }
    if (name == "diagonal" && view_.find("dim1")) {
      return add("aten.diagonal_scatter.default",
                 {{"self", base_}, {"src", written_}, {"offset", arg("offset")}, {"dim1", arg("dim1")}, {"dim2", arg("dim2")}});
    }
    if (name == "narrow" && overload_name(view_) == "default") {
      const auto* start = view_.find("start");
      const auto* length = view_.find("length");
      const auto* s = start ? std::get_if<Expr>(start) : nullptr;
      const auto* l = length ? std::get_if<Expr>(length) : nullptr;
      if (s && l && provably_nonnegative(*s)) return slice(arg("dim"), *s, *s + *l, one);
    }
    if (contains(kSplits, name)) return split();
    if (name == "unfold") return unfolded();
    if (name == "as_strided") {
      return add("aten.as_strided_scatter.default",
                 {{"self", base_}, {"src", written_}, {"size", arg("size")}, {"stride", arg("stride")}, {"storage_offset", arg("storage_offset")}});
    }
    return unsupported();
  }

 private:
  ExprPool& pool() { return *builder_.graph().pool; }
  Argument arg(std::string_view name) const {
    const Argument* a = view_.find(name);
    return a ? *a : Argument(NoneArg{});
  }

  Result<ValueId> unsupported() const {
    return Error{ErrorCode::unsupported_feature, fmt::format("writing in place to the result of {} is not supported", view_.target), where(view_),
                 "write to the tensor itself, or to a clone"};
  }

  ValueId add(std::string target, std::vector<std::pair<std::string, Argument>> args) {
    return builder_.add(std::move(target), builder_.value(base_).name, std::move(args), type_, view_.origins);
  }

  Result<ValueId> slice(Argument dim, Expr start, Expr end, Expr step) {
    return add("aten.slice_scatter.default", {{"self", base_}, {"src", written_}, {"dim", std::move(dim)}, {"start", start}, {"end", end}, {"step", step}});
  }

  // New nodes of this type.
  ValueId conjugated() {
    const TensorType& type = builder_.value(written_).tensor();
    return builder_.add("aten.conj_physical.default", builder_.value(base_).name, {{"self", written_}}, type, view_.origins);
  }

  // Real or imaginary parts that were written, beside the others as they were.
  Result<ValueId> part_of_pairs(bool real) {
    if (!is_complex(type_.dtype)) return written_;
    const TensorType& part = graph_.value(view_.outputs[output_]).tensor();
    const ValueId other = builder_.add(real ? "aten.imag.default" : "aten.real.default", builder_.value(base_).name, {{"self", base_}}, part, view_.origins);
    return add("aten.complex.default", {{"real", real ? written_ : other}, {"imag", real ? other : written_}});
  }

  Result<ValueId> moved_back() {
    const auto* source = view_.find("source");
    const auto* destination = view_.find("destination");
    if (!source || !destination) return unsupported();
    return add(overload_name(view_) == "int" ? "aten.movedim.int" : "aten.movedim.intlist",
               {{"self", written_}, {"source", *destination}, {"destination", *source}});
  }

  Result<ValueId> transposed() {
    std::vector<int64_t> p = permutation(view_, static_cast<int64_t>(type_.sizes.size()));
    if (p.size() != type_.sizes.size()) return unsupported();
    std::vector<Expr> inverse(p.size());
    for (size_t i = 0; i < p.size(); ++i) inverse[static_cast<size_t>(p[i])] = pool().index(static_cast<int64_t>(i));
    return add("aten.permute.default", {{"self", written_}, {"dims", inverse}});
  }

  // Result i starts where the ones before it end.
  Result<ValueId> split() {
    std::optional<int64_t> dim = split_dim(view_, type_);
    int64_t rank = static_cast<int64_t>(type_.sizes.size());
    if (!dim || *dim < -rank || *dim >= rank) return unsupported();
    size_t d = static_cast<size_t>(*dim < 0 ? *dim + rank : *dim);
    auto size = [&](size_t i) { return graph_.value(view_.outputs[i]).tensor().sizes[d]; };
    const Expr start = start_of(graph_, view_, output_, d);
    return slice(pool().index(static_cast<int64_t>(d)), start, start + size(output_), pool().index(1));
  }

  // Windows that have nothing in common: a strided view of the base. (Eager writes to no others either.)
  Result<ValueId> unfolded() {
    const std::optional<int64_t> dim = int_arg(view_, "dimension"), size = int_arg(view_, "size"), step = int_arg(view_, "step");
    const int64_t rank = static_cast<int64_t>(type_.sizes.size());
    if (!dim || !size || !step || *dim < -rank || *dim >= rank || *step < *size || type_.strides.size() != type_.sizes.size()) return unsupported();
    std::vector<Expr> strides = type_.strides;
    Expr& along = strides[static_cast<size_t>(*dim < 0 ? *dim + rank : *dim)];
    const Expr within = along;
    along = along * pool().index(*step);
    strides.push_back(within);
    return add("aten.as_strided_scatter.default", {{"self", base_},
                                                   {"src", written_},
                                                   {"size", graph_.value(view_.outputs[output_]).tensor().sizes},
                                                   {"stride", strides},
                                                   {"storage_offset", NoneArg{}}});
  }

  GraphBuilder& builder_;
  const Graph& graph_;
  const Node& view_;
  size_t output_;
  ValueId base_, written_;
  TensorType type_;
};

}  // namespace

Aliasing aliasing(const Graph& graph, const Node& node) {
  std::string_view name = aten_name(node);
  const TensorType* type = first_arg_type(graph, node);
  if (name.empty() || !type || node.outputs.empty() || !graph.value(node.outputs[0]).is_tensor()) return Aliasing::none;
  const TensorType& result = graph.value(node.outputs[0]).tensor();
  if (contains(kSameStorage, name) || contains(kAliasReshapes, name) || contains(kAliasTransposes, name) || contains(kPieces, name) || contains(kOneWay, name))
    return Aliasing::view;
  if (contains(kMaybeReshapes, name)) return is_row_major(*type) || type->sizes == result.sizes ? Aliasing::view : Aliasing::maybe;
  if (contains(kIdentityDropouts, name)) return bool_arg(node, "train", true) ? Aliasing::none : Aliasing::view;
  if (name == "contiguous") return same_layout(*type, result) ? Aliasing::view : Aliasing::none;
  if (name == "to" || name == "type_as") {
    return !bool_arg(node, "copy", false) && same_layout(*type, result) ? Aliasing::view : Aliasing::none;
  }
  return Aliasing::none;
}

std::optional<Node> piece_alone(const Graph& graph, const Node& view, size_t output) {
  const std::string_view name = aten_name(view);
  const TensorType* type = first_arg_type(graph, view);
  const std::optional<int64_t> dim = int_arg(view, "dim");
  const auto rank = type ? static_cast<int64_t>(type->sizes.size()) : 0;
  if (!dim || *dim < -rank || *dim >= rank) return std::nullopt;
  const auto d = static_cast<size_t>(*dim < 0 ? *dim + rank : *dim);
  ExprPool& pool = *graph.pool;
  const Expr along = pool.index(static_cast<int64_t>(d));
  Node node;  // no copy: the room of all pieces' outputs would stay with each of them
  node.name = view.name;
  node.outputs = {view.outputs[output]};
  node.origins = view.origins;
  if (name == "unbind") {
    node.target = "aten.select.int";
    node.arg_names = {"self", "dim", "index"};
    node.args = {view.args[0], along, pool.index(static_cast<int64_t>(output))};
  } else if (name == "split" || name == "split_with_sizes" || name == "chunk") {
    const Expr start = start_of(graph, view, output, d);
    node.target = "aten.slice.Tensor";
    node.arg_names = {"self", "dim", "start", "end", "step"};
    node.args = {view.args[0], along, start, start + graph.value(view.outputs[output]).tensor().sizes[d], pool.index(1)};
  } else {
    return std::nullopt;
  }
  return node;
}

Result<ValueId> write_through(GraphBuilder& builder, const Graph& graph, const Node& view, size_t output, ValueId base, ValueId written) {
  return Writer(builder, graph, view, output, base, written).run();
}

}  // namespace coil
