// Graphs as text, for dumps, tests and people; parse.cc reads it back.
#include <cmath>
#include <map>
#include <unordered_set>

#include <fmt/format.h>

#include "base/text.h"
#include "expr/constant_text.h"
#include "graph/graph_words.h"

namespace coil {
namespace {

template <class... F>
struct overload : F... {
  using F::operator()...;
};

// Always with a point or exponent, so that 2.0 does not read as the integer 2.
std::string float_text(double v) {
  if (std::isnan(v)) return "nan";
  std::string s = fmt::format("{}", v);
  return s.find_first_of(".en") == std::string::npos ? s + ".0" : s;
}

template <class List, class F>
std::string bracketed(const List& list, F&& text) {
  std::string out = "[";
  for (size_t i = 0; i < list.size(); ++i) out += (i ? ", " : "") + std::string(text(list[i]));
  return out + "]";
}

std::string plain_text(Expr e) { return e ? to_string(e) : "?"; }

// Where it stands among other arguments: what begins like one of those is told apart from it.
std::string size_text(Expr e) {
  const std::string text = plain_text(e);
  return is_argument_word(first_word(text)) || text.find(';') != std::string::npos ? "size(" + text + ")" : text;
}

// Row-major strides without regard to dimensions of size 1, whose strides mean nothing.
bool is_contiguous(const TensorType& t) {
  if (t.strides.size() != t.sizes.size() || t.sizes.empty()) return true;
  Expr expected;
  for (size_t i = t.sizes.size(); i-- > 0;) {
    if (!t.sizes[i] || !t.strides[i]) return true;
    if (!expected) expected = t.sizes[i]->pool->index(1);
    const int64_t size = t.sizes[i]->is_constant() ? t.sizes[i]->as_int() : -1;
    if (size != 1 && t.strides[i] != expected) return false;
    if (size != 1 && size != 0) expected = expected * t.sizes[i];  // torch counts 0 as 1
  }
  return true;
}

// Whether the weight lies in memory as its type says.
bool is_stored_so(const TensorData& data, const TensorType& type) {
  const auto same = [](int64_t stride, Expr e) { return e && e->is_constant() && e->as_int() == stride; };
  return std::equal(data.strides.begin(), data.strides.end(), type.strides.begin(), type.strides.end(), same);
}

bool is_tied(const TensorData& a, const TensorData& b) {
  return !a.bytes.empty() && a.bytes.identity() == b.bytes.identity() && a.dtype == b.dtype && a.sizes == b.sizes && a.strides == b.strides &&
         a.offset == b.offset;
}

std::string type_text(const TensorType& type, bool row_major) {
  std::string text = std::string(name(type.dtype)) + bracketed(type.sizes, plain_text);
  if (!row_major) text += " strides " + bracketed(type.strides, plain_text);
  if (type.device != DeviceType::cpu) text += fmt::format(" on {}", kDeviceWords[static_cast<size_t>(type.device)]);
  return text;
}

// A single line's worth of it, for the reader of a text.
std::string line_text(const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
  return plain && !text.empty() && text[0] != '"' && text[0] != ' ' && text.back() != ' ' ? text : quoted_name(text);
}

// "model.py:13, model.py:20": where the node comes from.
std::string sources_text(const Node& node) {
  std::string sources;
  for (const Origin& o : node.origins) {
    std::string place = shown(std::string_view(o.source).substr(0, o.source.find(" in ")));
    place.erase(place.find_last_not_of(' ') + 1);
    place.erase(0, place.find_first_not_of(' '));
    if (place.empty() || sources.find(place) != std::string::npos) continue;
    sources += (sources.empty() ? "" : ", ") + place;
  }
  return sources;
}

class Printer {
 public:
  explicit Printer(const Graph& graph) : graph_(graph) { name_values(); }

  std::string body() {
    for (const SizeCheck& c : graph_.checks) print(c);
    for (const GraphInput& in : graph_.inputs) print(in);
    for (ValueId id : integers_) line("integer {}", typed(id));
    for (const Node& n : graph_.nodes) print(n);
    for (const GraphOutput& out : graph_.outputs) print(out);
    for (const std::string& s : subgraphs_) text_ += s;
    if (!graph_.in_spec.empty()) line("in_spec {}", line_text(graph_.in_spec));
    if (!graph_.out_spec.empty()) line("out_spec {}", line_text(graph_.out_spec));
    if (!graph_.forward_arg_names.empty()) line("arguments {}", bracketed(graph_.forward_arg_names, name_text));
    return std::move(text_);
  }

 private:
  template <class... A>
  void line(fmt::format_string<A...> format, A&&... args) {
    text_ += fmt::format(format, std::forward<A>(args)...);
    text_ += '\n';
  }

  bool in_range(ValueId id) const { return id.valid() && static_cast<size_t>(id.index) < graph_.values.size(); }

  // Passes look at ids alone, so that values may have one name: those that are defined get names of their own here.
  void name_values() {
    names_.resize(graph_.values.size());
    for (const GraphInput& in : graph_.inputs) give_name(in.value);
    std::vector<bool> integers(graph_.values.size(), false);
    const auto use = [&](ValueId id) {
      if (in_range(id) && std::holds_alternative<Expr>(graph_.value(id).type)) integers[static_cast<size_t>(id.index)] = true;
    };
    for (const Node& n : graph_.nodes) {
      for (const Argument& a : n.args) {
        if (const auto* v = std::get_if<ValueId>(&a)) use(*v);
        if (const auto* list = std::get_if<std::vector<ValueId>>(&a)) std::for_each(list->begin(), list->end(), use);
      }
    }
    for (const GraphOutput& out : graph_.outputs) {
      if (const auto* v = std::get_if<ValueId>(&out.value)) use(*v);
    }
    for (const Node& n : graph_.nodes) {
      for (ValueId id : n.outputs) give_name(id);
    }
    for (size_t i = 0; i < integers.size(); ++i) {
      if (!integers[i] || names_[i]) continue;
      give_name(ValueId(i));
      integers_.push_back(ValueId(i));
    }
  }

  void give_name(ValueId id) {
    if (!in_range(id) || names_[static_cast<size_t>(id.index)]) return;
    const std::string& wanted = graph_.value(id).name;
    std::string name = wanted;
    for (int& n = next_number_[wanted]; !taken_.insert(name).second; ++n) name = fmt::format("{}_{}", wanted, n + 2);
    names_[static_cast<size_t>(id.index)] = std::move(name);
  }

  const std::string& plain_name(ValueId id) const {
    const auto& given = names_[static_cast<size_t>(id.index)];
    return given ? *given : graph_.value(id).name;
  }

  std::string value_name(ValueId id) const {
    if (!id.valid()) return "None";
    if (!in_range(id)) return fmt::format("%<bad id {}>", id.index);
    return "%" + name_text(plain_name(id));
  }

  // Also where a dimension has size 1: what eager returns has its strides, and so has what the lowering makes.
  bool is_row_major(const TensorType& t) const {
    if (t.strides.size() != t.sizes.size() || std::find(t.sizes.begin(), t.sizes.end(), Expr()) != t.sizes.end()) return true;
    return contiguous_strides(*graph_.pool, t.sizes) == t.strides;
  }

  std::string typed(ValueId id) const {
    if (!in_range(id)) return value_name(id);
    return std::visit(overload{[&](const TensorType& t) { return value_name(id) + ": " + type_text(t, is_row_major(t)); },
                               [&](const Expr& e) { return value_name(id) + ": " + size_text(e); }, [&](std::monostate) { return value_name(id) + ": None"; }},
                      graph_.value(id).type);
  }

  static std::string device(const DeviceArg& d) {
    const std::string_view word = kDeviceWords[static_cast<size_t>(d.type)];
    return d.index < 0 ? std::string(word) : fmt::format("{}:{}", word, d.index);
  }

  template <class T, class F>
  static std::string list(const std::vector<T>& all, const char* kind, F&& text) {
    return all.empty() ? fmt::format("{} []", kind) : bracketed(all, text);
  }

  std::string argument(const Argument& a) {
    const auto truth_text = [](bool v) { return v ? "True" : "False"; };
    return std::visit(overload{[](const NoneArg&) { return std::string("None"); }, [&](ValueId v) { return value_name(v); },
                               [&](const std::vector<ValueId>& all) { return list(all, "tensors", [&](ValueId v) { return value_name(v); }); },
                               [&](const Expr& e) { return size_text(e); }, [&](const std::vector<Expr>& all) { return bracketed(all, size_text); },
                               [](double v) { return float_text(v); }, [](const std::vector<double>& all) { return list(all, "floats", float_text); },
                               [&](bool v) { return std::string(truth_text(v)); }, [&](const std::vector<bool>& all) { return list(all, "bools", truth_text); },
                               [](const std::string& s) { return quoted_name(s); }, [](DType d) { return std::string(name(d)); },
                               [](MemoryFormat f) { return std::string(kFormatWords[static_cast<size_t>(f)]); }, [](const DeviceArg& d) { return device(d); },
                               [](const LayoutArg& l) { return l.export_number == 7 ? "strided" : fmt::format("layout({})", l.export_number); },
                               [](const std::complex<double>& c) { return fmt::format("complex({}, {})", float_text(c.real()), float_text(c.imag())); },
                               [&](const SubgraphRef& s) { return subgraph(s); }, [](const OpaqueArg& o) { return "opaque(" + quoted_name(o.text) + ")"; }},
                      a);
  }

  void print(const SizeCheck& c) {
    line("{} {}{}{}{}", c.message.empty() ? "assumes" : "asserts", to_string(c.condition), c.also_asserted ? " also asserted" : "",
         c.message.empty() ? "" : " else " + quoted_name(c.message), c.where.empty() ? "" : " at " + quoted_name(c.where));
  }

  // Values stand by position where that says what they are, everything else carries its name.
  void print(const Node& n) {
    std::string text;
    for (size_t i = 0; i < n.outputs.size(); ++i) text += (i ? ", " : "") + typed(n.outputs[i]);
    if (!n.outputs.empty()) text += " = ";
    text += (n.user ? "user " : "") + name_text(n.target) + "(";
    const bool by_position = has_known_arguments(n.target) || n.user;
    for (size_t i = 0; i < n.args.size(); ++i) {
      if (i) text += ", ";
      const bool is_value = std::holds_alternative<ValueId>(n.args[i]) || std::holds_alternative<std::vector<ValueId>>(n.args[i]);
      if (!(is_value && by_position) && i < n.arg_names.size() && !n.arg_names[i].empty()) text += name_text(n.arg_names[i]) + "=";
      text += argument(n.args[i]);
    }
    text += ")";
    for (size_t i = 0; i < n.binds.size(); ++i) text += (i ? ", " : " binds ") + name_text(graph_.pool->symbol_info(n.binds[i]).label);
    const std::string follows = n.outputs.empty() || !in_range(n.outputs[0]) ? "" : plain_name(n.outputs[0]);
    if (n.name != follows) text += " named " + name_text(n.name);
    if (const std::string sources = sources_text(n); !sources.empty()) text += "  # " + sources;
    line("{}", text);
  }

  template <class... T>
  static std::string constant_text(const std::variant<T...>& constant) {
    return std::visit(overload{[](std::monostate) { return std::string("None"); }, [](int64_t v) { return fmt::format("{}", v); },
                               [](double v) { return float_text(v); }, [](bool v) { return std::string(v ? "True" : "False"); },
                               [](const std::string& v) { return quoted_name(v); }, [](ValueId) { return std::string(); }},
                      constant);
  }

  void print(const GraphInput& in) {
    const bool is_weight = in.kind < GraphInput::Kind::user;
    std::string text = fmt::format("input {} ", kInputWords[static_cast<size_t>(in.kind)]);
    if (in.kind == GraphInput::Kind::fixed) {
      text += name_text(in.name) + " = " + constant_text(in.fixed_value);
    } else {
      text += typed(in.value);
      if (!in_range(in.value) || in.name != plain_name(in.value)) text += " = " + name_text(in.name);
    }
    const int follows = is_weight ? -1 : next_position_++;
    if (in.position != follows) text += fmt::format(" at position {}", in.position);
    if (is_weight && in_range(in.value) && graph_.value(in.value).is_tensor()) text += weight_text(in, graph_.value(in.value).tensor());
    line("{}", text);
  }

  std::string weight_text(const GraphInput& in, const TensorType& type) {
    for (const GraphInput* other : weights_[in.data.bytes.identity()]) {
      if (is_tied(other->data, in.data)) return " tied to " + name_text(other->name);
    }
    weights_[in.data.bytes.identity()].push_back(&in);
    std::string text;
    if (!is_stored_so(in.data, type)) text += " stored " + bracketed(in.data.strides, [](int64_t s) { return fmt::format("{}", s); });
    const std::string contents = contents_text(in.data);
    return contents.empty() ? text : text + " holds " + contents;
  }

  void print(const GraphOutput& out) {
    const auto* value = std::get_if<ValueId>(&out.value);
    std::string text = value ? value_name(*value) : constant_text(out.value);
    if (out.name != (value && in_range(*value) ? plain_name(*value) : "")) text += " named " + name_text(out.name);
    if (out.kind == GraphOutput::Kind::user) return line("return {}", text);
    line("return {} {} = {}", out.kind == GraphOutput::Kind::buffer_mutation ? "buffer" : "input", name_text(out.target), text);
  }

  // A graph that several nodes share is one graph in the text too.
  std::string subgraph(const SubgraphRef& s) {
    if (!s.graph) return "<no graph>";
    const auto [known, fresh] = numbers_.try_emplace(s.graph.get(), numbers_.size());
    const std::string id = fmt::format("graph{}", known->second);
    if (!fresh) return id;
    std::string nested = "  " + id + (s.graph->functional == graph_.functional ? "" : s.graph->functional ? " functional" : " in place") + ":\n";
    const std::string text = Printer(*s.graph).body();
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      nested += "    " + text.substr(at, end - at) + "\n";
      at = end + 1;
    }
    subgraphs_.push_back(std::move(nested));
    return id;
  }

  const Graph& graph_;
  std::string text_;
  std::vector<std::string> subgraphs_;
  std::map<const Graph*, size_t> numbers_;
  std::vector<std::optional<std::string>> names_;  // by id; of values that something defines
  std::unordered_set<std::string> taken_;
  std::map<std::string, int> next_number_;
  std::vector<ValueId> integers_;  // that are used and nothing defines: expressions with a name
  std::map<const uint8_t*, std::vector<const GraphInput*>> weights_;
  int next_position_ = 0;
};

std::string dim_text(const Symbol& s) {
  std::string text = "dim " + name_text(s.label);
  if (s.label != s.name) text += fmt::format(" ({})", name_text(s.name));
  text += s.max == INT64_MAX ? fmt::format(": {}..", s.min) : fmt::format(": {}..{}", s.min, s.max);
  return text + (s.from_data ? " from data\n" : "\n");
}

}  // namespace

std::string to_string(const Graph&, const TensorType& type) { return type_text(type, is_contiguous(type)); }

std::string to_string(const Graph& graph) {
  std::string text = graph.functional ? "functional program" : "program";
  if (!graph.torch_version.empty()) text += " of PyTorch " + line_text(graph.torch_version);
  text += "\n";
  for (size_t i = 0; graph.pool && i < graph.pool->num_symbols(); ++i) text += dim_text(graph.pool->symbol_info(SymbolId(i)));
  return text + Printer(graph).body();
}

}  // namespace coil
