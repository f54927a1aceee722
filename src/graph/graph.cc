// Looking things up in a graph, and printing it as text.
#include "graph/graph.h"

#include <fmt/format.h>

namespace coil {

const Argument* Node::find(std::string_view arg_name) const {
  for (size_t i = 0; i < arg_names.size() && i < args.size(); ++i) {
    if (arg_names[i] == arg_name) return &args[i];
  }
  return nullptr;
}

ValueId Graph::add_value(ValueInfo info) {
  values.push_back(std::move(info));
  return ValueId(values.size() - 1);
}

std::string where(const Node& node) {
  for (const Origin& o : node.origins) {
    if (o.source.empty()) continue;
    return o.source_line.empty() ? o.source : o.source + ": " + o.source_line;
  }
  return {};
}

namespace {

template <class... F>
struct overload : F... {
  using F::operator()...;
};

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + '"';
}

// Always with a point or exponent, so that 2.0 does not read as the integer 2.
std::string float_text(double v) {
  std::string s = fmt::format("{}", v);
  return s.find_first_of(".en") == std::string::npos ? s + ".0" : s;
}

std::string_view format_name(MemoryFormat f) {
  switch (f) {
    case MemoryFormat::contiguous: return "contiguous";
    case MemoryFormat::channels_last: return "channels_last";
    case MemoryFormat::channels_last_3d: return "channels_last_3d";
    case MemoryFormat::preserve: return "preserve";
  }
  return "?";
}

std::string_view device_name(DeviceType d) {
  switch (d) {
    case DeviceType::cpu: return "cpu";
    case DeviceType::cuda: return "cuda";
    case DeviceType::other: return "other";
  }
  return "?";
}

template <class List, class F>
std::string bracketed(const List& list, F&& text) {
  std::string out = "[";
  for (size_t i = 0; i < list.size(); ++i) out += (i ? ", " : "") + std::string(text(list[i]));
  return out + "]";
}

// Row-major strides without regard to dimensions of size 1, whose strides mean nothing.
bool is_contiguous(const TensorType& t) {
  if (t.strides.size() != t.sizes.size() || t.sizes.empty()) return true;
  Expr expected;
  for (size_t i = t.sizes.size(); i-- > 0;) {
    if (!t.sizes[i] || !t.strides[i]) return true;
    if (!expected) expected = t.sizes[i]->pool->index(1);
    bool is_one = t.sizes[i]->is_constant() && t.sizes[i]->as_int() == 1;
    if (!is_one && t.strides[i] != expected) return false;
    if (!is_one) expected = expected * t.sizes[i];
  }
  return true;
}

class Printer {
 public:
  explicit Printer(const Graph& graph) : graph_(graph) {}

  std::string value_name(ValueId id) const {
    if (!id.valid()) return "None";
    if (static_cast<size_t>(id.index) >= graph_.values.size()) return fmt::format("%<bad id {}>", id.index);
    return "%" + graph_.value(id).name;
  }

  std::string typed(ValueId id) const {
    if (!id.valid() || static_cast<size_t>(id.index) >= graph_.values.size()) return value_name(id);
    return std::visit(
        overload{[&](const TensorType& t) { return value_name(id) + ": " + to_string(graph_, t); },
                 [&](const Expr& e) { return value_name(id) + ": " + (e ? to_string(e) : "?"); }, [&](std::monostate) { return value_name(id) + ": None"; }},
        graph_.value(id).type);
  }

  std::string argument(const Argument& a) {
    auto expr = [](Expr e) { return e ? to_string(e) : std::string("?"); };
    return std::visit(
        overload{[](const NoneArg&) { return std::string("None"); }, [&](ValueId v) { return value_name(v); },
                 [&](const std::vector<ValueId>& list) { return bracketed(list, [&](ValueId v) { return value_name(v); }); },
                 [&](const Expr& e) { return expr(e); }, [&](const std::vector<Expr>& list) { return bracketed(list, expr); },
                 [](double v) { return float_text(v); }, [](const std::vector<double>& list) { return bracketed(list, float_text); },
                 [](bool v) { return std::string(v ? "True" : "False"); },
                 [](const std::vector<bool>& list) { return bracketed(list, [](bool v) { return v ? "True" : "False"; }); },
                 [](const std::string& s) { return quoted(s); }, [](DType d) { return std::string(name(d)); },
                 [](MemoryFormat f) { return std::string(format_name(f)); },
                 [](const DeviceArg& d) { return d.index < 0 ? std::string(device_name(d.type)) : fmt::format("{}:{}", device_name(d.type), d.index); },
                 [](const LayoutArg& l) { return l.export_number == 7 ? "strided" : fmt::format("layout#{}", l.export_number); },
                 [](const std::complex<double>& c) { return fmt::format("({} + {}j)", float_text(c.real()), float_text(c.imag())); },
                 [&](const SubgraphRef& s) { return subgraph(s); }, [](const OpaqueArg& o) { return "<" + o.text + ">"; }},
        a);
  }

  // Values stand by position, everything else carries its name.
  std::string node(const Node& n) {
    std::string text;
    for (size_t i = 0; i < n.outputs.size(); ++i) text += (i ? ", " : "") + typed(n.outputs[i]);
    if (!n.outputs.empty()) text += " = ";
    text += n.target + "(";
    for (size_t i = 0; i < n.args.size(); ++i) {
      if (i) text += ", ";
      bool is_value = std::holds_alternative<ValueId>(n.args[i]) || std::holds_alternative<std::vector<ValueId>>(n.args[i]);
      if (!is_value && i < n.arg_names.size() && !n.arg_names[i].empty()) text += n.arg_names[i] + "=";
      text += argument(n.args[i]);
    }
    text += ")";
    std::string sources;
    for (const Origin& o : n.origins) {
      std::string_view place = std::string_view(o.source).substr(0, o.source.find(" in "));
      if (place.empty() || sources.find(place) != std::string::npos) continue;
      sources += (sources.empty() ? "" : ", ") + std::string(place);
    }
    if (!sources.empty()) text += "  # " + sources;
    return text;
  }

  std::string input(const GraphInput& in) const {
    static constexpr std::string_view kKinds[] = {"parameter", "buffer", "constant", "user", "symint", "fixed"};
    std::string text = fmt::format("{} ", kKinds[static_cast<size_t>(in.kind)]);
    if (in.kind == GraphInput::Kind::fixed) {
      return text + in.name + " = " +
             std::visit(overload{[](std::monostate) { return std::string("None"); }, [](int64_t v) { return fmt::format("{}", v); },
                                 [](double v) { return float_text(v); }, [](bool v) { return std::string(v ? "True" : "False"); },
                                 [](const std::string& v) { return quoted(v); }},
                        in.fixed_value);
    }
    text += typed(in.value);
    std::string id = value_name(in.value);
    if (in.name != id.substr(1)) text += " = " + in.name;
    return text;
  }

  std::string output(const GraphOutput& out) const {
    std::string text = std::visit(overload{[&](ValueId v) { return value_name(v); }, [](std::monostate) { return std::string("None"); },
                                           [](int64_t v) { return fmt::format("{}", v); }, [](double v) { return float_text(v); },
                                           [](bool v) { return std::string(v ? "True" : "False"); }, [](const std::string& v) { return quoted(v); }},
                                  out.value);
    if (out.kind == GraphOutput::Kind::user) return text;
    return fmt::format("{} {} = {}", out.kind == GraphOutput::Kind::buffer_mutation ? "buffer" : "input", out.target, text);
  }

  std::string body(const std::string& indent) {
    std::string text;
    for (const GraphInput& in : graph_.inputs) text += indent + "input " + input(in) + "\n";
    for (const Node& n : graph_.nodes) text += indent + node(n) + "\n";
    for (const GraphOutput& out : graph_.outputs) text += indent + "return " + output(out) + "\n";
    for (const std::string& s : subgraphs_) text += s;
    return text;
  }

 private:
  std::string subgraph(const SubgraphRef& s) {
    std::string id = fmt::format("graph{}", subgraphs_.size());
    if (!s.graph) return "<no graph>";
    std::string text = id + ":\n" + Printer(*s.graph).body("  ");
    std::string nested;
    for (size_t at = 0; at < text.size();) {
      size_t end = text.find('\n', at);
      nested += "  " + text.substr(at, end - at) + "\n";
      at = end + 1;
    }
    subgraphs_.push_back(nested);
    return id;
  }

  const Graph& graph_;
  std::vector<std::string> subgraphs_;
};

}  // namespace

std::string to_string(const Graph&, const TensorType& type) {
  auto expr = [](Expr e) { return e ? to_string(e) : std::string("?"); };
  std::string text = std::string(name(type.dtype)) + bracketed(type.sizes, expr);
  if (!is_contiguous(type)) text += " strides " + bracketed(type.strides, expr);
  if (type.device != DeviceType::cpu) text += fmt::format(" on {}", device_name(type.device));
  return text;
}

std::string to_string(const Graph& graph) {
  std::string text = graph.functional ? "functional program" : "program";
  if (!graph.torch_version.empty()) text += " of PyTorch " + graph.torch_version.substr(0, graph.torch_version.find('+'));
  text += "\n";
  for (size_t i = 0; graph.pool && i < graph.pool->num_symbols(); ++i) {
    const Symbol& s = graph.pool->symbol_info(SymbolId(i));
    text += fmt::format("dim {}", s.label);
    if (s.label != s.name) text += fmt::format(" ({})", s.name);
    text += s.max == INT64_MAX ? fmt::format(": {}..\n", s.min) : fmt::format(": {}..{}\n", s.min, s.max);
  }
  for (const SizeCheck& c : graph.checks) {
    text += c.message.empty() ? "assumes " + to_string(c.condition) : fmt::format("asserts {} # {}", to_string(c.condition), c.message);
    text += "\n";
  }
  return text + Printer(graph).body("");
}

}  // namespace coil
