#include "codegen/interface/interface_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "codegen/foreign_text.h"
#include "codegen/index_text.h"
#include "codegen/interface/limits.h"

namespace coil {
namespace {

// Of a function that is one switch: clang's time grows faster than its cases, so those of many are not optimised.
const char* of_cases(size_t cases) { return cases > 256 ? "__attribute__((noinline, optnone)) " : ""; }

class InterfaceWriter {
 public:
  InterfaceWriter(const KernelPlan& plan, const InterfaceTraits& target, const std::vector<SizeLimit>& more) : plan_(plan), target_(target), more_(more) {}

  std::string run() {
    std::string inputs = input_tables();
    first_check_ = expressions_.size();
    add_size_checks();
    // Guards first: the assertions are the last ones of the list.
    for (const bool asserted : {false, true}) {
      for (const SizeCheck& c : plan_.checks) {
        if (c.message.empty() == asserted || depends_on_data(c.condition)) continue;
        num_assertions_ += asserted;
        expressions_.push_back(holds(*plan_.pool, c.condition));
        texts_[expressions_.size() - 1] = check_text(c);
      }
    }
    const std::string measures = limits();  // before the signature, which says how many there are
    return symbols() + inputs + evaluators() + measures + signature() + outputs() + hidden_symbols();
  }

 private:
  std::string symbols() const {
    std::string text = "static const cd::Symbol kSymbols[] = {\n";
    for (size_t i = 0; i < plan_.pool->num_symbols(); ++i) {
      const Symbol& s = plan_.pool->symbol_info(SymbolId(i));
      const std::string max = s.max == INT64_MAX ? "cd::kUnbounded" : std::to_string(s.max) + "L";
      text += fmt::format("    {{{}, {}L, {}}},\n", c_string(s.label), s.from_data ? std::max<int64_t>(s.min, 0) : s.min, max);
    }
    return text + "};\n";
  }

  // What integers that may be negative make of sizes. Those that data gives are checked once it is read.
  void add_size_checks() {
    std::set<const ExprNode*> seen;
    for (const PlanBuffer& b : plan_.buffers) {
      for (Expr e : b.info.sizes) {
        if (depends_on_data(e) || !may_be_negative(e) || !seen.insert(e.node()).second) continue;
        const SizeCheck check = {Condition::compare(Condition::Kind::less_equal, plan_.pool->index(0), e), "", ""};
        expressions_.push_back(holds(*plan_.pool, check.condition));
        texts_[expressions_.size() - 1] = check_text(check);
      }
    }
  }

  bool may_be_negative(Expr size) const {
    const auto negative = [&](Expr n) { return n->kind == ExprKind::symbol && plan_.pool->symbol_info(SymbolId(n->id)).min < 0; };
    return any_of(size, negative) && !provably_nonnegative(size);
  }

  // A number, a * symbol + b, or an expression of its own.
  std::string size(Expr e) {
    if (e->is_constant()) return fmt::format("cd::fixed({}L)", e->as_int());
    if (e->kind == ExprKind::symbol) return fmt::format("cd::symbol({})", e->id);
    int symbol = -1;
    bool single = true;
    visit(e, [&](Expr n) {
      if (n->kind != ExprKind::symbol) return;
      single = single && (symbol < 0 || symbol == n->id);
      symbol = n->id;
    });
    if (single && symbol >= 0 && !any_of(e, [](Expr n) { return n->kind == ExprKind::op && n->op != ScalarOp::iadd && n->op != ScalarOp::imul; })) {
      const auto at = [&](int64_t v) { return evaluate_index(e, [&](SymbolId) { return v; }); };
      const int64_t b = at(0), a = at(1) - b;
      if (a > 0 && at(2) == 2 * a + b && at(3) == 3 * a + b) return fmt::format("cd::linear({}, {}L, {}L)", symbol, a, b);
    }
    expressions_.push_back(e);
    return fmt::format("cd::expr({})", expressions_.size() - 1);
  }

  static std::vector<const ExprNode*> nodes_of(const std::vector<Expr>& values) {
    std::vector<const ExprNode*> nodes;
    for (Expr e : values) nodes.push_back(e.node());
    return nodes;
  }

  std::string input_tables() {
    std::string sizes, rows, descs;
    std::map<std::vector<const ExprNode*>, int> firsts;  // inputs of the same sizes and strides share them
    int n = 0;
    for (const LoopInput& in : plan_.inputs) {
      if (!in.buffer.valid()) {
        rows += fmt::format("    {{.name = {}, .dtype = COIL_INT64, .symbol = {}}},\n", message_literal(in.name), in.symint->id);
        descs += fmt::format("    {{{}, COIL_INT64, 0}},\n", c_string(in.name));
        continue;
      }
      const TensorFace b = face(plan_.buffer(in.buffer).info);
      const int rank = static_cast<int>(b.sizes.size()), dtype = info(b.dtype).shim_number;
      const bool strided = rank > 0 && b.strides != contiguous_strides(*plan_.pool, b.sizes);
      std::vector<Expr> measures = b.sizes;
      if (strided) measures.insert(measures.end(), b.strides.begin(), b.strides.end());
      const auto [first, is_new] = firsts.try_emplace(nodes_of(measures), n);
      if (is_new) {
        for (Expr e : measures) sizes += fmt::format("    {},\n", size(e));
        n += static_cast<int>(measures.size());
      }
      const std::string strides = strided ? fmt::format("kSizes + {}", first->second + rank) : "nullptr";
      const bool on_host = target_.device == kHostInterface.device;  // what cd::Input says by itself
      const std::string last = in.exact_strides ? fmt::format(", -1, {}, true", target_.device) : on_host ? "" : fmt::format(", -1, {}", target_.device);
      rows += fmt::format("    {{{}, {}, {}, kSizes + {}, {}{}}},\n", message_literal(in.name), dtype, rank, first->second, strides, last);
      descs += fmt::format("    {{{}, {}, {}}},\n", c_string(in.name), dtype, rank);
    }
    const std::string empty_size = n ? "" : "    cd::fixed(0),\n";
    return "static const cd::Size kSizes[] = {\n" + sizes + empty_size + "};\nstatic const cd::Input kInputs[] = {\n" + rows +
           (rows.empty() ? "    {},\n" : "") + "};\nstatic const CoilTensorDesc kInputDescs[] = {\n" + descs + (descs.empty() ? "    {},\n" : "") + "};\n";
  }

  static std::string check_text(const SizeCheck& c) {
    if (c.message.empty()) return to_string(c.condition);
    return c.message + (c.where.empty() ? "" : " (" + c.where + ")") + ": " + to_string(c.condition);
  }

  std::string evaluators() const {
    std::string text = "static const char* const kTexts[] = {";
    for (size_t i = 0; i < expressions_.size(); ++i) {
      const auto own = texts_.find(i);
      text += message_literal(own == texts_.end() ? size_text(expressions_[i]) : own->second) + ", ";
    }
    text += fmt::format("nullptr}};\n{}", of_cases(expressions_.size())) + "static int64_t evaluate(int32_t i, const int64_t* s) {\n  switch (i) {\n";
    for (size_t i = 0; i < expressions_.size(); ++i) text += fmt::format("    case {}: return {};\n", i, host_index(expressions_[i]));
    return text + "  }\n  (void)s;\n  return 0;\n}\n";
  }

  std::string limits() {
    std::vector<SizeLimit> limits = size_limits(plan_, target_);
    limits.insert(limits.end(), more_.begin(), more_.end());
    const bool any = !limits.empty();
    std::erase_if(limits, [](const SizeLimit& l) { return depends_on_data(l.amount); });  // measured when the data is read
    num_limits_ = limits.size();
    std::string rows, cases;
    for (size_t i = 0; i < limits.size(); ++i) {
      const std::string most = limits[i].counted ? fmt::format(", {:.1f}", limits[i].most) : "";
      rows += fmt::format("    {{{}, {}{}}},\n", message_literal(limits[i].what), message_literal(size_text(limits[i].amount)), most);
      const std::string amount = limits[i].exact ? fmt::format("(double)({})", host_index(limits[i].amount)) : measure_text(plan_, limits[i].amount);
      cases += fmt::format("    case {}: return {};\n", i, limits[i].condition.empty() ? amount : fmt::format("{} ? {} : 0.0", limits[i].condition, amount));
    }
    const std::string most = any ? most_function() : "";
    if (limits.empty()) return most;
    return most + "static const cd::Limit kLimits[] = {\n" + rows + "};\n" + of_cases(limits.size()) +
           "static double measure(int32_t i, const int64_t* s) {\n  (void)s, (void)most;\n  switch (i) {\n" + cases + "  }\n  return 0;\n}\n";
  }

  // What the AOTInductor adapter looks for beside the model.
  std::string hidden_symbols() const {
    const auto declared = [](const char* type, const char* name) {
      return fmt::format("extern \"C\" __attribute__((visibility(\"hidden\"))) const {} {};\n", type, name);
    };
    std::string text =
        declared("char", "COIL_ARENA_FORMULA_SYMBOL[]") + fmt::format("const char COIL_ARENA_FORMULA_SYMBOL[] = {};\n", c_string(size_text(plan_.arena_bytes)));
    if (!plan_.kernels.empty()) {
      text += declared("char", "COIL_KERNEL_LABELS_SYMBOL[]") + "const char COIL_KERNEL_LABELS_SYMBOL[] =\n";
      for (const Kernel& k : plan_.kernels) text += fmt::format("    {} \"\\0\"\n", c_string(comment_text(label(k))));
      text += "    ;\n";
    }
    std::string whole;
    for (size_t i = 0; i < plan_.inputs.size(); ++i) {
      if (plan_.inputs[i].whole_storage) whole += fmt::format("{}, ", i);
    }
    if (!whole.empty()) text += declared("int32_t", "coil_whole_inputs[]") + "const int32_t coil_whole_inputs[] = {" + whole + "-1};\n";
    if (plan_.none_results.empty()) return text;
    std::string places;
    int place = 0;
    const auto skip = [&] {
      while (std::find(plan_.none_results.begin(), plan_.none_results.end(), place) != plan_.none_results.end()) ++place;
    };
    for (const LoopOutput& o : plan_.outputs) {
      if (o.kind != LoopOutput::Kind::user) continue;
      skip();
      places += fmt::format("{}, ", place++);
    }
    skip();
    return text + "static const int32_t kPlaces[] = {" + places + "-1};\n" + declared("CoilResults", "COIL_RESULTS_SYMBOL") +
           fmt::format("const CoilResults COIL_RESULTS_SYMBOL = {{{}, kPlaces}};\n", place);
  }

  // "add_layer_norm: encoder.layer.0 (model.py:12)". Marks of control flow have none.
  static std::string label(const Kernel& k) {
    if (std::holds_alternative<ControlMark>(k.def)) return "";
    std::string text = k.name;
    if (k.origins.empty()) return text;
    const Origin& o = k.origins[0];
    if (!o.module_path.empty()) text += ": " + o.module_path;
    if (!o.source.empty()) text += " (" + o.source.substr(0, o.source.find(" in ")) + ")";
    return text;
  }

  std::string signature() const {
    return fmt::format("static const cd::Signature kSignature = {{kInputs, {}, kSymbols, {}, evaluate, kTexts, {}, {}, {}{}}};\n", plan_.inputs.size(),
                       plan_.pool->num_symbols() - 1, first_check_, expressions_.size() - first_check_, num_assertions_,
                       num_limits_ ? fmt::format(", kLimits, {}, measure", num_limits_) : "");
  }

  // Which outputs only the data sizes.
  std::string late_outputs() const {
    std::string flags;
    bool any = false;
    for (const LoopOutput& o : plan_.outputs) {
      if (o.kind != LoopOutput::Kind::user) continue;
      const bool late = last_data_symbol(plan_, plan_.buffer(o.source).info.sizes).valid();
      any |= late;
      flags += late ? "1, " : "0, ";
    }
    return any ? "static const uint8_t kLateOutputs[] = {" + flags + "};\n" : "";
  }

  // What sets the sizes and strides of an output of this shape.
  static std::string shape_text(const TensorFace& b) {
    std::string text;
    for (size_t d = 0; d < b.sizes.size(); ++d) {
      text += fmt::format("      sizes[{}] = {};\n      strides[{}] = {};\n", d, host_index(b.sizes[d]), d, host_index(b.strides[d]));
    }
    return text;
  }

  std::string outputs() const {
    std::string descs, cases, table;
    std::unordered_map<std::string, size_t> shapes;  // outputs of one shape share its case: of 100,000 cases clang alone took 1.3 GB
    size_t n = 0;
    for (const LoopOutput& o : plan_.outputs) {
      if (o.kind != LoopOutput::Kind::user) continue;
      const TensorFace b = face(plan_.buffer(o.source).info);
      descs += fmt::format("    {{{}, {}, {}}},\n", c_string(o.name), info(b.dtype).shim_number, b.sizes.size());
      const std::string text = shape_text(b);
      const auto [shape, is_new] = shapes.try_emplace(text, shapes.size());
      if (is_new) cases += fmt::format("    case {}:\n{}      break;\n", shape->second, text);
      table += fmt::format("{},{}", shape->second, ++n % 32 ? " " : "\n    ");
    }
    const bool shared = shapes.size() < n;
    return "static const CoilTensorDesc kOutputDescs[] = {\n" + descs + (descs.empty() ? "    {},\n" : "") + "};\n" + late_outputs() +
           (shared ? "static const int32_t kShapes[] = {\n    " + table + "};\n" : "") + of_cases(shapes.size()) +
           "static void output_shape(const int64_t* s, int32_t i, int64_t* sizes, int64_t* strides) {\n  (void)s, (void)sizes, (void)strides;\n"
           "  switch (" +
           (shared ? "kShapes[i]" : "i") + ") {\n" + cases + "  }\n}\n";
  }

  const KernelPlan& plan_;
  const InterfaceTraits& target_;
  const std::vector<SizeLimit>& more_;
  std::vector<Expr> expressions_;
  std::map<size_t, std::string> texts_;  // of expressions that are conditions
  size_t first_check_ = 0, num_assertions_ = 0, num_limits_ = 0;
};

}  // namespace

std::string interface_text(const KernelPlan& plan, const InterfaceTraits& target, const std::vector<SizeLimit>& more) {
  return InterfaceWriter(plan, target, more).run();
}

}  // namespace coil
