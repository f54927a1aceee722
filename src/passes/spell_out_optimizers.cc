// Each operator is written out for one parameter (Update) as eager's kernels for processors compute it: 16-bit numbers are computed in f32, what depends on
// the step alone in f64. Where a step was found to have overflowed (found_inf), everything keeps its value.
#include "passes/spell_out_optimizers.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "passes/inplace.h"

namespace coil {
namespace {

using Args = std::vector<std::pair<std::string, Argument>>;

// Appends operators in the place of `node`. Numbers are arguments like tensors.
class Operators {
 public:
  Operators(const Graph& graph, GraphBuilder& builder, const Node& node) : graph_(graph), builder_(builder), node_(node) {}

  const Node& node() const { return node_; }
  const TensorType& type(ValueId v) const { return builder_.value(v).tensor(); }
  bool flag(std::string_view name) const { return bool_arg(node_, name, false); }
  double number(std::string_view name) const { return number_arg(node_, name).value_or(0); }

  ValueId add_node(std::string_view target, Args args, TensorType type) {
    return builder_.add(fmt::format("aten.{}", target), target.substr(0, target.find('.')), std::move(args), std::move(type), node_.origins);
  }
  ValueId unary(std::string_view target, ValueId x, std::optional<DType> dtype = {}) { return add_node(target, {{"self", x}}, typed(x, dtype)); }
  ValueId binary(std::string_view target, ValueId x, Argument y, std::optional<DType> dtype = {}) {
    return add_node(target, {{"self", x}, {"other", std::move(y)}}, typed(x, dtype));
  }
  ValueId add(ValueId x, Argument y) { return add_node("add.Tensor", {{"self", x}, {"other", std::move(y)}, {"alpha", index(1)}}, type(x)); }
  ValueId sub(ValueId x, Argument y) { return add_node("sub.Tensor", {{"self", x}, {"other", std::move(y)}, {"alpha", index(1)}}, type(x)); }
  ValueId mul(ValueId x, Argument y) { return binary("mul.Tensor", x, std::move(y)); }
  ValueId div(ValueId x, Argument y) { return binary("div.Tensor", x, std::move(y)); }
  ValueId select(ValueId condition, ValueId x, ValueId y) { return add_node("where.self", {{"condition", condition}, {"self", x}, {"other", y}}, type(y)); }
  ValueId fill(ValueId x, ValueId mask, double value) { return add_node("masked_fill.Scalar", {{"self", x}, {"mask", mask}, {"value", value}}, type(x)); }
  ValueId copy(ValueId x) { return add_node("clone.default", {{"self", x}, {"memory_format", NoneArg{}}}, type(x)); }
  // 1 - x
  ValueId from_one(ValueId x) { return add(mul(x, -1.0), 1.0); }

  ValueId cast(ValueId x, DType dtype) {
    if (type(x).dtype == dtype) return x;
    return add_node("_to_copy.default",
                    {{"self", x},
                     {"dtype", dtype},
                     {"layout", NoneArg{}},
                     {"device", NoneArg{}},
                     {"pin_memory", NoneArg{}},
                     {"non_blocking", false},
                     {"memory_format", NoneArg{}}},
                    typed(x, dtype));
  }

  ValueId reshape(ValueId x, const Sizes& sizes) {
    if (type(x).sizes == sizes) return x;
    TensorType result = type(x);
    result.sizes = sizes;
    result.strides = contiguous_strides(*graph_.pool, sizes);
    return add_node("view.default", {{"self", x}, {"size", sizes}}, std::move(result));
  }
  // A tensor of one element as a number of that type, which promotes nothing.
  ValueId scalar(ValueId x, DType dtype) { return cast(reshape(x, {}), dtype); }

  // What the node has for `old`, by the name of `result` where it has results, by a write where it has none.
  void give(ValueId old, ValueId fresh, ValueId result) {
    fresh = cast(fresh, type(old).dtype);
    if (!writes()) {
      // A result that is an argument is memory of its own.
      builder_.replace(result, fresh == old ? copy(old) : fresh);
      return;
    }
    if (fresh == old) return;
    const ValueId written = add_node("copy_.default", {{"self", old}, {"src", fresh}, {"non_blocking", false}}, type(old));
    if (result.valid()) builder_.replace(result, written);
  }
  bool writes() const { return aten_name(node_).ends_with('_'); }

 private:
  Argument index(int64_t i) const { return graph_.pool->index(i); }
  TensorType typed(ValueId x, std::optional<DType> dtype) const {
    TensorType t = type(x);
    t.dtype = dtype.value_or(t.dtype);
    return t;
  }

  const Graph& graph_;
  GraphBuilder& builder_;
  const Node& node_;
};

// One parameter, its gradient and its state.
struct Update {
  std::vector<ValueId> old;    // of each list
  std::vector<ValueId> fresh;  // as numbers that are computed with; what is not changed keeps its old one
  ValueId step;                // f64; invalid for optimizers that count none
  DType dtype;                 // of the arithmetic
};

// lr as the operator has it, a number or a tensor of one element.
Argument learning_rate(Operators& op) {
  const Argument* lr = op.node().find("lr");
  if (const auto* v = lr ? std::get_if<ValueId>(lr) : nullptr) return op.scalar(*v, DType::f64);
  return op.number("lr");
}

// factor * lr + constant; `apply` multiplies or divides by it.
Argument of_rate(Operators& op, const Argument& lr, double factor, double constant, DType dtype) {
  if (const auto* v = std::get_if<ValueId>(&lr)) return op.cast(op.add(op.mul(*v, factor), constant), dtype);
  return std::get<double>(lr) * factor + constant;
}

// lr / x, for a number x of the step.
ValueId rate_over(Operators& op, const Argument& lr, ValueId x, DType dtype) { return op.cast(op.mul(op.unary("reciprocal.default", x), lr), dtype); }

// Lists: self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs.
void adam(Operators& op, Update& u) {
  const bool decoupled = aten_name(op.node()).starts_with("_fused_adamw");
  const double beta1 = op.number("beta1"), beta2 = op.number("beta2"), decay = op.number("weight_decay");
  const Argument lr = learning_rate(op);
  ValueId &p = u.fresh[0], grad = u.fresh[1], &mean = u.fresh[2], &square = u.fresh[3];
  if (op.flag("maximize")) grad = op.unary("neg.default", grad);
  if (decay != 0 && decoupled) p = op.mul(p, of_rate(op, lr, -decay, 1, u.dtype));
  if (decay != 0 && !decoupled) grad = op.add(grad, op.mul(p, decay));
  mean = op.add_node("lerp.Scalar", {{"self", mean}, {"end", grad}, {"weight", 1 - beta1}}, op.type(mean));
  square = op.add(op.mul(square, beta2), op.mul(op.mul(grad, 1 - beta2), grad));
  const auto correction = [&](double beta) { return op.from_one(op.add_node("pow.Scalar", {{"self", beta}, {"exponent", u.step}}, op.type(u.step))); };
  ValueId largest = square;
  if (op.flag("amsgrad")) largest = u.fresh[4] = op.binary("maximum.default", u.fresh[4], square);
  const ValueId root = op.cast(op.unary("sqrt.default", correction(beta2)), u.dtype);
  const ValueId divisor = op.add(op.div(op.unary("sqrt.default", largest), root), op.number("eps"));
  p = op.sub(p, op.div(op.mul(mean, rate_over(op, lr, correction(beta1), u.dtype)), divisor));
}

// Lists: self, grads, momentum_buffer_list.
void sgd(Operators& op, Update& u) {
  const double decay = op.number("weight_decay"), momentum = op.number("momentum");
  ValueId &p = u.fresh[0], grad = u.fresh[1];
  if (op.flag("maximize")) grad = op.unary("neg.default", grad);
  if (decay != 0) grad = op.add(grad, op.mul(p, decay));
  if (momentum != 0) {
    ValueId& mean = u.fresh[2];
    mean = op.flag("is_first_step") ? op.copy(grad) : op.add(op.mul(mean, momentum), op.mul(grad, 1 - op.number("dampening")));
    grad = op.flag("nesterov") ? op.add(grad, op.mul(mean, momentum)) : mean;
  }
  p = op.sub(p, op.mul(grad, of_rate(op, learning_rate(op), 1, 0, u.dtype)));
}

// Lists: self, grads, state_sums.
void adagrad(Operators& op, Update& u) {
  const double decay = op.number("weight_decay");
  ValueId &p = u.fresh[0], grad = u.fresh[1], &sum = u.fresh[2];
  if (op.flag("maximize")) grad = op.unary("neg.default", grad);
  if (decay != 0) grad = op.add(grad, op.mul(p, decay));
  sum = op.add(sum, op.mul(grad, grad));
  const ValueId slowed = op.add(op.mul(op.sub(u.step, 1.0), op.number("lr_decay")), 1.0);
  p = op.sub(p, op.div(op.mul(grad, rate_over(op, learning_rate(op), slowed, u.dtype)), op.add(op.unary("sqrt.default", sum), op.number("eps"))));
}

struct Optimizer {
  std::string_view name;
  std::initializer_list<std::string_view> lists;
  size_t always;  // how many of the lists have an element for each parameter; the others may be empty
  bool counts_steps;
  void (*update)(Operators&, Update&);
};

const Optimizer kOptimizers[] = {
    {"_fused_adam", {"self", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"}, 4, true, adam},
    {"_fused_adamw", {"self", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"}, 4, true, adam},
    {"_fused_sgd", {"self", "grads", "momentum_buffer_list"}, 2, false, sgd},
    {"_fused_adagrad", {"self", "grads", "state_sums"}, 3, true, adagrad},
};

const Optimizer* optimizer_of(const Node& node) {
  std::string_view name = aten_name(node);
  if (name.ends_with('_')) name.remove_suffix(1);
  for (const Optimizer& o : kOptimizers) {
    if (o.name == name) return &o;
  }
  return nullptr;
}

std::vector<ValueId> list_of(const Node& node, std::string_view name) {
  const Argument* whole = node.find(name);
  const auto* list = whole ? std::get_if<std::vector<ValueId>>(whole) : nullptr;
  return list ? *list : std::vector<ValueId>();
}

Error bad_lists(const Node& node) { return Error{ErrorCode::bad_program, node.target + ": its lists are of different lengths", where(node), {}}; }

class OptimizerSpeller {
 public:
  OptimizerSpeller(const Graph& graph, GraphBuilder& builder, const Node& node) : graph_(graph), builder_(builder), node_(node), op_(graph, builder, node) {}

  Status run(const Optimizer& o) {
    std::vector<std::vector<ValueId>> lists;
    for (std::string_view name : o.lists) lists.push_back(mapped(list_of(node_, name)));
    const std::vector<ValueId> steps = mapped(list_of(node_, "state_steps"));
    const bool needs_last = o.update == adam ? op_.flag("amsgrad") : o.update == sgd && op_.number("momentum") != 0;
    const size_t count = lists[0].size();
    size_t results = 0;
    for (size_t i = 0; i < lists.size(); ++i) {
      const bool optional = i >= o.always && !needs_last && lists[i].empty();
      if (!optional && lists[i].size() != count) return bad_lists(node_);
      results += lists[i].size();
    }
    if (o.counts_steps && steps.size() != count) return bad_lists(node_);
    if (!op_.writes() && node_.outputs.size() < results) return bad_lists(node_);
    for (size_t i = 0; i < count; ++i) TRY_STATUS(one(o, lists, o.counts_steps ? steps[i] : ValueId(), i));
    // Counts of steps, which some give as well.
    for (size_t i = results; !op_.writes() && i < node_.outputs.size() && i - results < steps.size(); ++i) {
      op_.give(steps[i - results], steps[i - results], node_.outputs[i]);
    }
    return ok_status();
  }

  Status unscale() {
    const std::vector<ValueId> grads = mapped(list_of(node_, "self"));
    const ValueId found = builder_.map(value_arg(node_, "found_inf")), scale = builder_.map(value_arg(node_, "inv_scale"));
    if (!tensors({found, scale}) || !tensors(grads) || (!op_.writes() && node_.outputs.size() != grads.size() + 1)) return bad_lists(node_);
    ValueId overflows;
    for (size_t i = 0; i < grads.size(); ++i) {
      const DType dtype = op_.type(grads[i]).dtype;
      if (!is_float(dtype)) return unsupported(node_, "gradients that are not floating point");
      const ValueId finite = op_.unary("isfinite.default", grads[i], DType::boolean);
      TensorType flag = op_.type(finite);
      flag.sizes = flag.strides = {};
      const ValueId any = op_.unary("logical_not.default", op_.add_node("all.default", {{"self", finite}}, flag));
      overflows = overflows.valid() ? op_.binary("logical_or.default", overflows, any) : any;
      const DType math = arithmetic(dtype);
      op_.give(grads[i], op_.mul(op_.cast(grads[i], math), op_.scalar(scale, math)), op_.writes() ? ValueId() : node_.outputs[i]);
    }
    op_.give(found, overflows.valid() ? op_.fill(found, overflows, 1) : found, op_.writes() ? ValueId() : node_.outputs.back());
    return ok_status();
  }

  Status update_scale() {
    const ValueId scale = builder_.map(value_arg(node_, "self")), tracker = builder_.map(value_arg(node_, "growth_tracker")),
                  found_inf = builder_.map(value_arg(node_, "found_inf"));
    const std::optional<int64_t> interval = int_arg(node_, "growth_interval");
    if (!tensors({scale, tracker, found_inf}) || node_.outputs.size() != (op_.writes() ? 1 : 2)) return bad_lists(node_);
    if (!interval) return unsupported(node_, "a growth_interval that is no constant");
    const DType dtype = op_.type(scale).dtype;
    const ValueId found = op_.binary("ne.Scalar", op_.reshape(found_inf, {}), 0.0, DType::boolean);
    const auto times = [&](std::string_view factor) { return op_.cast(op_.mul(op_.scalar(scale, DType::f64), op_.number(factor)), dtype); };
    const ValueId grown = times("scale_growth_factor"), steps = op_.add(op_.reshape(tracker, {}), Argument(graph_.pool->index(1)));
    const ValueId due = op_.binary("eq.Scalar", steps, Argument(graph_.pool->index(*interval)), DType::boolean);
    const ValueId grows = op_.binary("logical_and.default", due, op_.unary("isfinite.default", grown, DType::boolean));
    const ValueId unless_found = op_.select(grows, grown, op_.reshape(scale, {}));
    const ValueId fresh = op_.select(found, times("scale_backoff_factor"), unless_found);
    const ValueId count = op_.fill(steps, op_.binary("logical_or.default", found, due), 0);
    op_.give(tracker, op_.reshape(count, op_.type(tracker).sizes), op_.writes() ? ValueId() : node_.outputs[1]);
    op_.give(scale, op_.reshape(fresh, op_.type(scale).sizes), node_.outputs[0]);
    return ok_status();
  }

 private:
  static DType arithmetic(DType dtype) { return dtype == DType::f64 ? DType::f64 : DType::f32; }

  std::vector<ValueId> mapped(std::vector<ValueId> list) const {
    for (ValueId& v : list) v = v.valid() ? builder_.map(v) : v;
    return list;
  }

  bool tensors(const std::vector<ValueId>& values) const {
    return std::all_of(values.begin(), values.end(), [&](ValueId v) { return v.valid() && builder_.value(v).is_tensor(); });
  }

  // The parameter at `i`; `step` is its count of steps.
  Status one(const Optimizer& o, const std::vector<std::vector<ValueId>>& lists, ValueId step, size_t i) {
    Update u;
    std::vector<ValueId> results;
    size_t first = 0;  // of the list's results
    for (const std::vector<ValueId>& list : lists) {
      if (list.empty()) continue;
      u.old.push_back(list[i]);
      results.push_back(op_.writes() ? ValueId() : node_.outputs[first + i]);
      first += list.size();
    }
    if (!tensors(u.old) || (step.valid() && !tensors({step}))) return unsupported(node_, "a list with something that is no tensor");
    const DType dtype = op_.type(u.old[0]).dtype;
    for (ValueId v : u.old) {
      if (!is_float(op_.type(v).dtype)) return unsupported(node_, "parameters that are not floating point");
    }
    u.dtype = arithmetic(dtype);
    if (step.valid()) u.step = op_.scalar(step, DType::f64);
    for (ValueId v : u.old) u.fresh.push_back(op_.cast(v, u.dtype));
    const ValueId scale = value_arg(node_, "grad_scale");
    if (scale.valid()) u.fresh[1] = op_.div(u.fresh[1], op_.scalar(builder_.map(scale), u.dtype));
    const std::vector<ValueId> before = u.fresh;
    o.update(op_, u);
    for (size_t k = 0; k < u.old.size(); ++k) {
      const bool changed = k == 1 ? scale.valid() : u.fresh[k] != before[k];
      u.fresh[k] = changed ? op_.cast(u.fresh[k], op_.type(u.old[k]).dtype) : u.old[k];
    }
    finish(u, value_arg(node_, "found_inf"), results);
    return ok_status();
  }

  // Everything is computed before anything is written.
  void finish(Update& u, ValueId found, const std::vector<ValueId>& results) {
    if (found.valid()) {
      const ValueId overflow = op_.binary("eq.Scalar", op_.reshape(builder_.map(found), {}), 1.0, DType::boolean);
      for (size_t i = 0; i < u.old.size(); ++i) u.fresh[i] = u.fresh[i] == u.old[i] ? u.old[i] : op_.select(overflow, u.old[i], u.fresh[i]);
    }
    for (size_t i = 0; i < u.old.size(); ++i) op_.give(u.old[i], u.fresh[i], results[i]);
  }

  const Graph& graph_;
  GraphBuilder& builder_;
  const Node& node_;
  Operators op_;
};

bool is_unscale(std::string_view name) { return name.starts_with("_amp_foreach_non_finite_check_and_unscale"); }
bool is_update_of_scale(std::string_view name) { return name.starts_with("_amp_update_scale"); }

}  // namespace

bool is_optimizer(const Node& node) {
  const std::string_view name = aten_name(node), overload = overload_name(node);
  if (overload != "default" && overload != "tensor_lr") return false;
  return is_unscale(name) || is_update_of_scale(name) || optimizer_of(node);
}

Status spell_out_optimizer(const Graph& graph, GraphBuilder& builder, const Node& node) {
  OptimizerSpeller speller(graph, builder, node);
  if (is_unscale(aten_name(node))) return speller.unscale();
  if (is_update_of_scale(aten_name(node))) return speller.update_scale();
  return speller.run(*optimizer_of(node));
}

}  // namespace coil
