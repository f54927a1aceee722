// How it works. Every tensor of the old graph is either a base or a view of another tensor (chain of views up to a base). A
// write to a tensor makes a new value and carries it up the chain to the base, whose version goes up by one. A use of a tensor
// whose base has a newer version than the value at hand re-makes the value by repeating its view of its parent.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "graph/rewrite.h"
#include "passes/alias.h"
#include "passes/inplace.h"
#include "passes/passes.h"
#include "passes/tensor_forms.h"

namespace coil {
namespace {

// Views are made again after each write to what they see: a program of deep views that are written in turn becomes as long as their product.
constexpr size_t kFewPieces = 8;
constexpr size_t kMaxGrowth = 16, kLeastNodes = 1 << 16;

class Functionalizer {
 public:
  explicit Functionalizer(const Graph& graph) : graph_(graph), builder_(graph), forms_(graph), values_(graph.values.size()) {
    for (size_t i = 0; i < values_.size(); ++i) values_[i].now = values_[i].base = ValueId(i);
    name_once();
  }

  Result<Graph> run() {
    for (const Node& node : graph_.nodes) TRY_STATUS(visit(node));
    TRY_STATUS(finish_outputs());
    Graph next = builder_.finish();
    next.functional = true;
    return next;
  }

 private:
  struct Tensor {
    ValueId now;                 // its value in the new graph...
    int version = 0;             // ...as of this version of the base
    ValueId base;                // itself if not a view
    const Node* view = nullptr;  // makes it from `parent`; null for a base, and for a second name of its parent
    size_t output = 0;
    ValueId parent;
    bool maybe = false;  // torch decides at run time whether this is a view
  };

  // Exports that trace a module's own calls have its caches twice, as buffers and as constants of the very same memory: what is
  // written by one name is read by the other.
  void name_once() {
    std::map<const uint8_t*, std::vector<const GraphInput*>> names;
    const auto add = [&](const GraphInput& in) {
      if (!in.value.valid() || in.data.bytes.empty()) return;
      std::vector<const GraphInput*>& known = names[in.data.bytes.identity()];
      for (const GraphInput* first : known) {
        if (!is_same_memory(*first, in)) continue;
        Tensor& second = at(in.value);
        second.base = second.parent = second.now = first->value;
        return;
      }
      known.push_back(&in);
    };
    for (const GraphInput& in : graph_.inputs) {
      if (in.kind != GraphInput::Kind::constant) add(in);
    }
    for (const GraphInput& in : graph_.inputs) {
      if (in.kind == GraphInput::Kind::constant) add(in);  // a buffer's name is the user's
    }
  }

  static bool is_same_memory(const GraphInput& a, const GraphInput& b) {
    const TensorData &x = a.data, &y = b.data;
    return x.bytes.identity() == y.bytes.identity() && x.dtype == y.dtype && x.offset == y.offset && x.sizes == y.sizes && x.strides == y.strides;
  }

  Tensor& at(ValueId v) { return values_[static_cast<size_t>(v.index)]; }

  bool is_current(ValueId v) { return at(v).version == at(at(v).base).version || at(v).base == v; }

  // The value of `v` with all writes so far. What it is a view of comes first, from the nearest value that is known on.
  Result<ValueId> current(ValueId v, const Node* user) {
    std::vector<ValueId> chain;
    for (ValueId next = v; !is_current(next); next = at(next).parent) {
      if (at(next).maybe) return stale(next, user);
      chain.push_back(next);
    }
    for (; !chain.empty(); chain.pop_back()) TRY_STATUS(make_again(chain.back(), user));
    return at(v).now;
  }

  // `v` from its parent, which is current.
  Status make_again(ValueId v, const Node* user) {
    Tensor& t = at(v);
    const int version = at(t.base).version;
    const ValueId parent = at(t.parent).now;
    if (!t.view) {
      t.now = parent;
      t.version = version;
      return ok_status();
    }
    if (builder_.graph().nodes.size() > budget()) return too_long(user);
    std::optional<Node> alone;  // writes to the pieces one after the other make each of them stale again
    if (t.view->outputs.size() > kFewPieces) alone = piece_alone(graph_, *t.view, t.output);
    Node again = alone ? std::move(*alone) : *t.view;
    again.args[0] = parent;
    for (size_t i = 0; i < again.outputs.size(); ++i) {
      const ValueInfo& info = graph_.value(again.outputs[i]);
      ValueId fresh = builder_.new_value(info.name, info.type);
      Tensor& sibling = at(again.outputs[i]);
      // Siblings of a multi-output view are views of the same parent: one node serves them all.
      sibling.now = fresh;
      sibling.version = version;
      again.outputs[i] = fresh;
    }
    append(std::move(again));
    return ok_status();
  }

  size_t budget() const { return kLeastNodes + kMaxGrowth * graph_.nodes.size(); }

  Error too_long(const Node* user) const {
    return Error{
        ErrorCode::unsupported_feature,
        fmt::format(
            "written without in-place operators the program would have more than {} nodes, the budget of this pass: views of views are made again after each write",
            budget()),
        user ? where(*user) : std::string(), "write to the tensor itself, or to .clone() of the view"};
  }

  Error stale(ValueId v, const Node* user) const {
    std::string message = fmt::format("'{}' may or may not share memory with a tensor that is written to in between", graph_.value(v).name);
    return Error{ErrorCode::unsupported_feature, message, user ? where(*user) : std::string(), "use .clone() where the value is taken"};
  }

  // Arguments of the old graph -> current values.
  Status map_arguments(Node& node, const Node& user) {
    for (Argument& a : node.args) {
      if (auto* v = std::get_if<ValueId>(&a)) {
        TRY(*v, current(*v, &user));
      }
      if (auto* list = std::get_if<std::vector<ValueId>>(&a)) {
        for (ValueId& v : *list) {
          if (!v.valid()) continue;
          TRY(v, current(v, &user));
        }
      }
    }
    return ok_status();
  }

  // The builder's own map is not used: arguments are current already.
  void append(Node node) { builder_.append(std::move(node)); }

  Status visit(const Node& node) {
    if (node.user) return user_node(node);
    TRY_STATUS(refuse_hidden_writes(node));
    if (is_inplace(node) || writes_out(node)) return write_node(node);
    Node copy = node;
    TRY_STATUS(map_arguments(copy, node));
    if (updates_statistics(node)) return update_statistics(node, std::move(copy));
    Aliasing kind = aliasing(graph_, node);
    if (reshapes_in_place(node)) {
      copy.target.erase(copy.target.rfind('.') - 1, 1);
      forms_.change(node);
    }
    if (kind != Aliasing::none) {
      ValueId parent = std::get<ValueId>(node.args[0]);
      for (size_t i = 0; i < node.outputs.size(); ++i) {
        Tensor& t = at(node.outputs[i]);
        t.parent = parent;
        t.base = at(parent).base;
        t.version = at(t.base).version;
        t.view = &renamed(node, copy.target);
        t.output = i;
        t.maybe = kind == Aliasing::maybe || at(parent).maybe;
      }
    }
    append(std::move(copy));
    return ok_status();
  }

  // The operator gets two more results, the new statistics, which are written to the arguments.
  Status update_statistics(const Node& node, Node copy) {
    const ValueId mean = value_arg(node, "running_mean"), variance = value_arg(node, "running_var");
    if (!variance.valid()) return unsupported(node, "running_mean without running_var");
    std::vector<ValueId> fresh;
    for (ValueId old : {mean, variance}) {
      fresh.push_back(builder_.new_value(graph_.value(old).name + "_new", graph_.value(old).type));
      copy.outputs.push_back(fresh.back());
    }
    append(std::move(copy));
    TRY_STATUS(write(mean, fresh[0], node));
    return write(variance, fresh[1], node);
  }

  // A user's operator gets the new contents of what it writes as further results, unless the program has it so already.
  Status user_node(const Node& node) {
    Node copy = node;
    TRY_STATUS(map_arguments(copy, node));
    const UserKernel& k = *node.user;
    std::vector<std::pair<ValueId, ValueId>> writes;
    if (node.outputs.size() == static_cast<size_t>(k.returns)) {
      for (size_t i = 0; i < k.args.size(); ++i) {
        if (!k.args[i].written) continue;
        const auto* old = std::get_if<ValueId>(&node.args[i]);
        if (!old || !old->valid() || !graph_.value(*old).is_tensor()) return unsupported(node, "'" + k.args[i].name + "' is not a tensor");
        writes.emplace_back(*old, builder_.new_value(graph_.value(*old).name + "_new", graph_.value(*old).type));
        copy.outputs.push_back(writes.back().second);
      }
    }
    append(std::move(copy));
    for (const auto& [old, fresh] : writes) TRY_STATUS(write(old, fresh, node));
    return ok_status();
  }

  // Nodes whose target changed are kept here, so that views can be repeated.
  const Node& renamed(const Node& node, const std::string& target) {
    if (node.target == target) return node;
    auto [it, fresh] = renamed_.try_emplace(&node, node);
    it->second.target = target;
    return it->second;
  }

  Status write_node(const Node& node) {
    const ValueId out = value_arg(node, "out");
    const auto* self = writes_out(node) ? &out : node.args.empty() ? nullptr : std::get_if<ValueId>(&node.args[0]);
    if (!self || !self->valid() || !graph_.value(*self).is_tensor()) return unsupported(node, "the first argument is not a tensor");
    if (out.valid() && graph_.value(node.outputs[0]).tensor().sizes != graph_.value(out).tensor().sizes)
      return unsupported(node, "the argument that is written has other sizes than the result");
    TRY(ValueId written, new_content(node, *self));
    TRY_STATUS(write(*self, written, node));
    for (ValueId out : node.outputs) {  // the result is the written tensor by another name
      Tensor& t = at(out);
      const Tensor& s = at(*self);
      bool is_other_name = !s.view && s.base != *self;
      t.parent = is_other_name ? s.parent : *self;
      t.base = s.base;
      t.version = at(t.base).version;
      t.now = written;
      t.maybe = s.maybe;
      forms_.rename(out, *self);
    }
    return ok_status();
  }

  // What the in-place node writes, as a new value of self's type.
  Result<ValueId> new_content(const Node& node, ValueId self) {
    const TensorType& type = graph_.value(self).tensor();
    std::string_view name = aten_name(node);
    if (name == "zero_" || node.target == "aten.fill_.Scalar") {
      const Argument* value = node.find("value");
      return builder_.add("aten.full.default", out_name(node),
                          {{"size", type.sizes},
                           {"fill_value", value ? *value : Argument(builder_.graph().pool->index(0))},
                           {"dtype", type.dtype},
                           {"layout", NoneArg{}},
                           {"device", NoneArg{}},
                           {"pin_memory", NoneArg{}}},
                          type, node.origins);
    }
    if (name == "copy_" || node.target == "aten.fill_.Tensor") {
      ValueId source = value_arg(node, name == "copy_" ? "src" : "value");
      if (!source.valid()) return unsupported(node, "the source is not a tensor");
      TRY(ValueId v, current(source, &node));
      return broadcast(cast(v, type, node), type, node);
    }
    Node call = node;
    call.target = functional_target(node);
    if (call.target.empty()) return unsupported(node, "the functional form of this in-place operator is not known");
    TRY_STATUS(map_arguments(call, node));
    if (writes_out(node)) {
      const auto at = std::find(call.arg_names.begin(), call.arg_names.end(), "out");
      call.args.erase(call.args.begin() + (at - call.arg_names.begin()));
      call.arg_names.erase(at);
    }
    TensorType result = type;
    result.dtype = functional_dtype(graph_, node, type.dtype);
    ValueId out = builder_.new_value(out_name(node), result);
    call.outputs = {out};
    append(std::move(call));
    return cast(out, type, node);
  }

  // "add" for "add_".
  static std::string out_name(const Node& node) {
    std::string name = node.name;
    while (name.ends_with('_')) name.pop_back();
    return name.empty() ? "written" : name;
  }

  ValueId cast(ValueId v, const TensorType& type, const Node& node) {
    TensorType result = builder_.value(v).tensor();
    if (result.dtype == type.dtype) return v;
    result.dtype = type.dtype;
    return builder_.add("aten._to_copy.default", out_name(node),
                        {{"self", v},
                         {"dtype", type.dtype},
                         {"layout", NoneArg{}},
                         {"device", NoneArg{}},
                         {"pin_memory", NoneArg{}},
                         {"non_blocking", false},
                         {"memory_format", NoneArg{}}},
                        std::move(result), node.origins);
  }

  ValueId broadcast(ValueId v, const TensorType& type, const Node& node) {
    if (builder_.value(v).tensor().sizes == type.sizes) return v;
    return builder_.add("aten.expand.default", out_name(node), {{"self", v}, {"size", type.sizes}, {"implicit", false}}, type, node.origins);
  }

  // `written` becomes the content of v, and of everything it shares memory with: through each view up to the base.
  Status write(ValueId v, ValueId written, const Node& node) {
    std::vector<std::pair<ValueId, ValueId>> known;  // views, and what they are now
    for (; at(v).base != v; v = at(v).parent) {
      const Tensor& t = at(v);
      if (t.maybe) return stale(v, &node);
      known.emplace_back(v, written);
      if (!t.view) continue;
      TRY(ValueId parent, current(t.parent, &node));
      Result<ValueId> whole = write_through(builder_, graph_, *t.view, t.output, parent, written);
      if (!whole.ok()) {
        Error error = std::move(whole).error();
        error.where = where(node);
        return error;
      }
      if (builder_.graph().nodes.size() > budget()) return too_long(&node);
      written = whole.value();
    }
    if (at(v).maybe) return stale(v, &node);
    ++at(v).version;
    at(v).now = written;
    for (const auto& [view, now] : known) {
      at(view).now = now;
      at(view).version = at(v).version;
    }
    return ok_status();
  }

  Status finish_outputs() {
    for (const GraphInput& in : graph_.inputs) TRY_STATUS(forms_.check(in));
    std::vector<GraphOutput> mutations;
    std::set<std::string_view> declared;
    std::map<const uint8_t*, const GraphInput*> first;  // of the inputs that begin at the same byte
    std::map<const uint8_t*, const GraphInput*> second;
    for (const GraphInput& in : graph_.inputs) {
      if (in.data.bytes.empty() || at(in.value).base != in.value) continue;
      if (!first.try_emplace(in.data.bytes.identity(), &in).second) second.try_emplace(in.data.bytes.identity(), &in);
    }
    for (const GraphOutput& out : graph_.outputs) declared.insert(out.target);
    for (const GraphInput& in : graph_.inputs) {
      if (!in.value.valid() || !graph_.value(in.value).is_tensor() || at(in.value).version == 0 || at(in.value).base != in.value) continue;
      if (second.contains(in.data.bytes.identity()))
        return shared(in, *(first.at(in.data.bytes.identity()) == &in ? second : first).at(in.data.bytes.identity()));
      if (declared.contains(in.name)) return Error{ErrorCode::bad_program, fmt::format("'{}' is written in place and by the signature", in.name), {}, {}};
      GraphOutput out;
      out.kind = in.kind == GraphInput::Kind::user ? GraphOutput::Kind::input_mutation : GraphOutput::Kind::buffer_mutation;
      out.value = at(in.value).now;
      out.name = builder_.value(at(in.value).now).name;
      out.target = in.name;
      mutations.push_back(std::move(out));
    }
    for (GraphOutput& out : builder_.graph().outputs) {
      if (auto* v = std::get_if<ValueId>(&out.value)) {
        TRY(*v, current(*v, nullptr));
      }
    }
    // As run_decompositions() orders them: mutations first.
    auto& outputs = builder_.graph().outputs;
    outputs.insert(outputs.begin(), mutations.begin(), mutations.end());
    return ok_status();
  }

  static Error shared(const GraphInput& in, const GraphInput& other) {
    return Error{ErrorCode::unsupported_feature,
                 fmt::format("'{}' is written to and shares its memory with '{}'", in.name, other.name),
                 {},
                 "give the two their own memory"};
  }

  const Graph& graph_;
  GraphBuilder builder_;
  TensorForms forms_;
  std::vector<Tensor> values_;
  std::map<const Node*, Node> renamed_;
};

}  // namespace

Result<Graph> functionalize(const Graph& graph) { return Functionalizer(graph).run(); }

}  // namespace coil
