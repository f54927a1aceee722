#include "lower/outputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "loop/dense.h"
#include "loop/templates/template.h"

namespace coil::lowering {
namespace {

class Outputs {
 public:
  Outputs(Session& session, Scope& scope) : rec_(session.recorder), scope_(scope) {}

  void add(const GraphOutput& out) {
    if (out.kind == GraphOutput::Kind::user) return user(out);
    LoopOutput write;
    write.kind = out.kind == GraphOutput::Kind::buffer_mutation ? LoopOutput::Kind::state_write : LoopOutput::Kind::input_write;
    write.name = out.name;
    write.target = target(out);
    check_places(out, rec_.program().buffer(write.target));
    View v = value(out);
    const TensorFace to = face(rec_.program().buffer(write.target));
    if (v.body->kind == ExprKind::load && v.sizes == to.sizes && v.dtype == to.dtype && rec_.stored(v, "update") == write.target) return;  // unchanged
    for (size_t d = 0; d < std::max(v.rank(), to.sizes.size()); ++d) {
      const bool known = d < v.rank() && d < to.sizes.size();
      if (known && (v.sizes[d] == to.sizes[d] || !v.sizes[d]->is_constant() || !to.sizes[d]->is_constant())) continue;
      throw LowerError{
          {ErrorCode::bad_program, fmt::format("output '{}' has other sizes than '{}', which it is written to", out.name, out.target), {}, {}, out.name}};
    }
    write.source = computed(v, to.dtype, to.sizes, "update");
    rec_.program().outputs.push_back(std::move(write));
  }

 private:
  [[noreturn]] void refuse(const GraphOutput& out, std::string_view what, const char* hint = "return tensors or numbers") {
    throw LowerError{{ErrorCode::unsupported_feature, fmt::format("output '{}' is {}", out.name, what), {}, hint, out.name}};
  }

  // Eager refuses this as well: one place would hold several elements.
  void check_places(const GraphOutput& out, const BufferInfo& to) {
    for (size_t d = 0; d < to.strides.size(); ++d) {
      if (!is_const(to.strides[d], 0) || is_const(to.sizes[d], 0) || is_const(to.sizes[d], 1)) continue;
      throw LowerError{{ErrorCode::unsupported_feature,
                        fmt::format("input '{}' is written to, and several of its elements are in one place", out.target),
                        {},
                        "export the program with a tensor that is not expanded: x.clone()",
                        out.name}};
    }
  }

  View value(const GraphOutput& out) {
    ExprPool& pool = rec_.pool();
    if (const int64_t* i = std::get_if<int64_t>(&out.value)) return {DType::i64, {}, pool.constant_int(*i, DType::i64)};
    if (const double* d = std::get_if<double>(&out.value)) return {DType::f32, {}, pool.constant(*d, DType::f32)};
    if (const bool* b = std::get_if<bool>(&out.value)) return {DType::boolean, {}, pool.boolean(*b)};
    if (std::holds_alternative<std::string>(out.value)) refuse(out, "a string");
    const ValueId id = std::get<ValueId>(out.value);
    const ValueInfo& info = scope_.graph.value(id);
    if (const Expr* e = std::get_if<Expr>(&info.type)) return {DType::i64, {}, pool.cast(*e, DType::i64)};
    if (!info.is_tensor()) refuse(out, "no tensor");
    const View& v = scope_.values[static_cast<size_t>(id.index)];
    if (!v.body)
      refuse(
          out, "a result that coil does not compute",
          "return other results; PyTorch 2.11 records the last states of lstm, gru and rnn with a dimension too many: for these export the program with another version");
    return v;
  }

  BufferId target(const GraphOutput& out) {
    if (targets_.empty()) {
      for (const GraphInput& in : scope_.graph.inputs) {
        if (!in.value.valid()) continue;
        const View& v = scope_.values[static_cast<size_t>(in.value.index)];
        if (v.body && v.body->kind == ExprKind::load) targets_.emplace(in.name, BufferId(v.body->id));
      }
    }
    if (const auto found = targets_.find(out.target); found != targets_.end()) return found->second;
    throw LowerError{{ErrorCode::bad_program, fmt::format("output '{}' writes to '{}', which does not exist", out.name, out.target), {}, {}, out.name}};
  }

  // Whether an output has this buffer already.
  bool is_taken(BufferId id) {
    const std::vector<LoopOutput>& outputs = rec_.program().outputs;
    for (; outputs_seen_ < outputs.size(); ++outputs_seen_) taken_.insert(outputs[outputs_seen_].source);
    return taken_.contains(id);
  }

  // What computes the buffer; null: nothing does.
  const Loop* producer(BufferId id) {
    const std::vector<Loop>& loops = rec_.program().loops;
    for (; loops_seen_ < loops.size(); ++loops_seen_) {
      for (BufferId made : loops[loops_seen_].outputs) producers_.emplace(made, loops_seen_);
    }
    const auto found = producers_.find(id);
    return found == producers_.end() ? nullptr : &loops[found->second];
  }

  // A computed buffer that holds v and nothing else uses as an output.
  BufferId computed(const View& v, DType dtype, const Sizes& sizes, const char* name, const Sizes& strides = {}) {
    LoopProgram& program = rec_.program();
    const bool is_load = v.body->kind == ExprKind::load && v.dtype == dtype && v.sizes == sizes;
    if (is_load) {
      BufferId stored = rec_.stored(v, name);
      const BufferInfo& info = program.buffer(stored);
      if (info.kind == BufferInfo::Kind::computed && info.strides.empty() && !is_taken(stored) && stores_so(stored, strides)) return stored;
    }
    View copy = rec_.pointwise(name, dtype, sizes, [&](Coordinates c) { return as(rec_.at(v, c), dtype); });
    return BufferId(copy.body->id);
  }

  // The computed buffer of which v is all elements, row by row, in other sizes: it can be the result as it is, and nothing has to be copied.
  std::optional<BufferId> same_rows(const View& v, DType dtype, const Sizes& strides) {
    if (v.body->kind != ExprKind::load || v.dtype != dtype || v.sizes.empty() || strides != contiguous_strides(rec_.pool(), v.sizes)) return std::nullopt;
    const BufferId id(static_cast<size_t>(v.body->id));
    const BufferInfo& info = rec_.program().buffer(id);
    const bool free = info.kind == BufferInfo::Kind::computed && info.strides.empty() && info.dtype == dtype && !info.pairs && !info.meant && !is_taken(id);
    if (!free || info.sizes == v.sizes || !(product(rec_.pool(), info.sizes) == product(rec_.pool(), v.sizes))) return std::nullopt;
    const Sizes own = contiguous_strides(rec_.pool(), info.sizes);
    if (!stores_so(id, own) || std::any_of(v.sizes.begin(), v.sizes.end(), [](Expr s) { return depends_on_data(s); })) return std::nullopt;
    Expr place = rec_.pool().index(0), wanted = place;
    for (size_t d = 0; d < own.size(); ++d) place = place + v.body->args[d] * own[d];
    for (size_t d = 0; d < strides.size(); ++d) wanted = wanted + rec_.pool().var(static_cast<int>(d)) * strides[d];
    return simplify_index(place, {v.sizes}) == simplify_index(wanted, {v.sizes}) ? std::optional(id) : std::nullopt;
  }

  // Templates and calls of libraries alone write in an order of their own; an elementwise copy after a template is fused into its epilogue, which writes
  // anywhere.
  bool stores_so(BufferId buffer, const Sizes& strides) {
    const Loop* loop = producer(buffer);
    if (!loop) return true;
    const Sizes sizes = face(rec_.program().buffer(buffer)).sizes;
    if (defines_whole(loop->def)) return strides == contiguous_strides(rec_.pool(), sizes);
    if (!is_template(loop->def)) return true;
    const std::optional<Sizes> own = template_strides(rec_.pool(), loop->def, sizes);
    return !own || strides == *own;
  }

  // Of results that the program gives as Python numbers.
  std::string number_kind(const GraphOutput& out) const {
    if (std::holds_alternative<int64_t>(out.value)) return "int";
    if (std::holds_alternative<double>(out.value)) return "float";
    if (std::holds_alternative<bool>(out.value)) return "bool";
    const ValueId* id = std::get_if<ValueId>(&out.value);
    return id && std::holds_alternative<Expr>(scope_.graph.value(*id).type) ? "int" : "";
  }

  bool is_none(const GraphOutput& out) const {
    if (std::holds_alternative<std::monostate>(out.value)) return true;
    const ValueId* id = std::get_if<ValueId>(&out.value);
    return id && std::holds_alternative<std::monostate>(scope_.graph.value(*id).type);
  }

  void user(const GraphOutput& out) {
    const int place = num_results_++;
    if (is_none(out)) {
      rec_.program().none_results.push_back(place);
      return;
    }
    View v = value(out);
    DType dtype = v.dtype;
    Sizes sizes = v.sizes, strides;
    const ValueId* id = std::get_if<ValueId>(&out.value);
    if (id && scope_.graph.value(*id).is_tensor()) {
      const TensorType& type = scope_.graph.value(*id).tensor();
      dtype = type.dtype;
      strides = type.strides;
      sizes = type.sizes;
    }
    LoopOutput user;
    user.name = out.name;
    user.number = number_kind(out);
    if (!is_dense(sizes, strides)) strides = contiguous_strides(rec_.pool(), sizes);  // expanded results overlap in memory
    const View whole{v.dtype, sizes, v.body};
    if (const std::optional<BufferId> same = same_rows(whole, dtype, strides)) {
      user.source = *same;
      BufferInfo& buffer = rec_.program().buffer(*same);
      buffer.shown = sizes;
      buffer.strides = contiguous_strides(rec_.pool(), buffer.sizes);
      rec_.program().outputs.push_back(std::move(user));
      return;
    }
    user.source = computed(whole, dtype, sizes, "output", strides);
    BufferInfo& buffer = rec_.program().buffer(user.source);
    if (buffer.pairs) {
      for (Expr& s : strides) s = s * 2;
      strides.push_back(rec_.pool().index(1));
    }
    buffer.strides = strides;
    rec_.program().outputs.push_back(std::move(user));
  }

  Recorder& rec_;
  Scope& scope_;
  std::unordered_map<std::string_view, BufferId> targets_;  // what a name of the signature is stored in
  std::set<BufferId> taken_;
  std::map<BufferId, size_t> producers_;  // rows of loops
  size_t outputs_seen_ = 0, loops_seen_ = 0;
  int num_results_ = 0;
};

}  // namespace

void add_outputs(Session& session, Scope& scope) {
  Outputs outputs(session, scope);
  session.recorder.set_origins({});
  for (const GraphOutput& out : scope.graph.outputs) outputs.add(out);
}

}  // namespace coil::lowering
