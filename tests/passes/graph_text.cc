#include "tests/passes/graph_text.h"

#include <fmt/format.h>

#include <map>

#include "expr/parse.h"
#include "frontend/arguments.h"
#include "frontend/schema.h"
#include "graph/rewrite.h"

namespace coil {
namespace {

std::string_view trim(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

// Splits at `separator` outside of brackets and strings.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  bool quoted = false;
  size_t start = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    char c = i < text.size() ? text[i] : separator;
    if (c == '"') quoted = !quoted;
    if (quoted && i < text.size()) continue;
    if (c == '[' || c == '(') ++depth;
    if (c == ']' || c == ')') --depth;
    if (i < text.size() && (c != separator || depth > 0)) continue;
    std::string_view part = trim(text.substr(start, i - start));
    if (!part.empty()) parts.push_back(part);
    start = i + 1;
  }
  return parts;
}

class TextParser {
 public:
  TextParser() { graph_.pool = std::make_shared<ExprPool>(); }

  Result<Graph> run(std::string_view text) {
    while (!text.empty()) {
      size_t end = text.find('\n');
      std::string_view line = text.substr(0, end);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      size_t comment = line.find('#');
      source_ = comment == std::string_view::npos ? "" : std::string(trim(line.substr(comment + 1)));
      line = trim(line.substr(0, comment));
      if (line == "functional") graph_.functional = true;
      if (line.starts_with("dim ")) TRY_STATUS(dim(line.substr(4)));
      if (line.starts_with("input ")) TRY_STATUS(input(line.substr(6)));
      if (line.starts_with("%")) TRY_STATUS(node(line));
      if (line.starts_with("return ")) TRY_STATUS(output(line.substr(7)));
    }
    TRY_STATUS(verify(graph_));
    return std::move(graph_);
  }

 private:
  Error bad(std::string_view what) { return Error{ErrorCode::bad_program, fmt::format("cannot read '{}'", what), {}, {}}; }

  Status dim(std::string_view text) {
    size_t colon = text.find(": "), dots = text.find("..");
    if (colon == std::string_view::npos || dots == std::string_view::npos) return bad(text);
    Symbol s;
    s.name = s.label = std::string(text.substr(0, colon));
    s.min = std::stoll(std::string(text.substr(colon + 2, dots - colon - 2)));
    std::string max(text.substr(dots + 2));
    if (!max.empty()) s.max = std::stoll(max);
    graph_.pool->add_symbol(s);
    return ok_status();
  }

  Result<std::vector<Expr>> exprs(std::string_view text) {
    std::vector<Expr> list;
    for (std::string_view part : split(text.substr(1, text.size() - 2), ',')) {
      TRY(Expr e, parse_expr(*graph_.pool, part));
      list.push_back(e);
    }
    return list;
  }

  // "f32[2, 3] strides [1, 2]"
  Result<TensorType> type(std::string_view text) {
    size_t open = text.find('['), close = text.find(']');
    std::optional<DType> dtype = open == std::string_view::npos ? std::nullopt : dtype_from_name(text.substr(0, open));
    if (!dtype) return bad(text);
    TensorType t;
    t.dtype = *dtype;
    TRY(t.sizes, exprs(text.substr(open, close - open + 1)));
    t.strides = contiguous_strides(*graph_.pool, t.sizes);
    if (size_t at = text.find("strides "); at != std::string_view::npos) {
      TRY(t.strides, exprs(text.substr(at + 8)));
    }
    return t;
  }

  // "%x: f32[2]"
  Result<ValueId> define(std::string_view text, NodeId producer) {
    size_t colon = text.find(": ");
    if (!text.starts_with('%') || colon == std::string_view::npos) return bad(text);
    TRY(TensorType t, type(text.substr(colon + 2)));
    std::string name(text.substr(1, colon - 1));
    return names_[name] = graph_.add_value({name, std::move(t), producer});
  }

  Status input(std::string_view text) {
    static const std::map<std::string_view, GraphInput::Kind> kKinds = {{"user", GraphInput::Kind::user},
                                                                        {"parameter", GraphInput::Kind::parameter},
                                                                        {"buffer", GraphInput::Kind::buffer},
                                                                        {"constant", GraphInput::Kind::constant}};
    size_t space = text.find(' ');
    auto kind = kKinds.find(text.substr(0, space));
    if (kind == kKinds.end()) return bad(text);
    GraphInput in;
    in.kind = kind->second;
    std::string_view rest = text.substr(space + 1);
    size_t equals = rest.find(" = ");
    TRY(in.value, define(rest.substr(0, equals), NodeId()));
    in.name = equals == std::string_view::npos ? graph_.value(in.value).name : std::string(rest.substr(equals + 3));
    in.position = static_cast<int>(graph_.inputs.size());
    if (in.kind != GraphInput::Kind::user) {
      const TensorType& t = graph_.value(in.value).tensor();
      int64_t count = 1;
      for (size_t i = 0; i < t.sizes.size(); ++i) {
        in.data.sizes.push_back(t.sizes[i]->as_int());
        in.data.strides.push_back(t.strides[i]->as_int());
        count *= t.sizes[i]->as_int();
      }
      in.data.dtype = t.dtype;
      auto storage = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(count * byte_size(t.dtype)));
      in.data.bytes = *storage;
      in.data.owner = storage;
    }
    graph_.inputs.push_back(std::move(in));
    return ok_status();
  }

  Result<Argument> argument(std::string_view text) {
    if (text == "None") return Argument(NoneArg{});
    if (text == "True" || text == "False") return Argument(text == "True");
    if (text.starts_with('%')) {
      auto it = names_.find(std::string(text.substr(1)));
      return it == names_.end() ? Result<Argument>(bad(text)) : Argument(it->second);
    }
    if (text.starts_with('"')) return Argument(std::string(text.substr(1, text.size() - 2)));
    if (text == "contiguous") return Argument(MemoryFormat::contiguous);
    if (std::optional<DType> d = dtype_from_name(text)) return Argument(*d);
    if (text.starts_with('[')) return list(text);
    if (text.find_first_of(".") != std::string_view::npos || text.find("inf") != std::string_view::npos) return Argument(std::stod(std::string(text)));
    TRY(Expr e, parse_expr(*graph_.pool, text));
    return Argument(e);
  }

  Result<Argument> list(std::string_view text) {
    std::vector<ValueId> values;
    for (std::string_view part : split(text.substr(1, text.size() - 2), ',')) {
      if (!part.starts_with('%') && part != "None") {
        TRY(std::vector<Expr> ints, exprs(text));
        return Argument(std::move(ints));
      }
      TRY(Argument v, argument(part));
      values.push_back(std::holds_alternative<NoneArg>(v) ? ValueId() : std::get<ValueId>(v));
    }
    return Argument(std::move(values));
  }

  Status node(std::string_view line) {
    size_t equals = line.find(" = ");
    std::string_view call = line.substr(equals + 3);
    size_t open = call.find('(');
    if (equals == std::string_view::npos || open == std::string_view::npos) return bad(line);
    Node n;
    n.target = std::string(call.substr(0, open));
    std::optional<Schema> schema = find_schema(n.target);
    if (!schema) return bad(n.target);
    std::map<std::string_view, Argument> given;
    for (std::string_view part : split(call.substr(open + 1, call.size() - open - 2), ',')) {
      size_t named = part.starts_with('"') || part.starts_with('[') ? std::string_view::npos : part.find('=');
      std::string_view name = named == std::string_view::npos ? schema->args.at(given.size()).name : part.substr(0, named);
      TRY(Argument a, argument(named == std::string_view::npos ? part : part.substr(named + 1)));
      given.emplace(name, std::move(a));
    }
    for (const SchemaArg& s : schema->args) {
      auto it = given.find(s.name);
      TRY(Argument a, it == given.end() ? default_argument(*graph_.pool, s) : coerce(*graph_.pool, it->second, s));
      n.arg_names.emplace_back(s.name);
      n.args.push_back(std::move(a));
    }
    for (std::string_view out : split(line.substr(0, equals), ',')) {
      TRY(ValueId v, define(out, NodeId(graph_.nodes.size())));
      n.outputs.push_back(v);
    }
    n.name = graph_.value(n.outputs.at(0)).name;
    if (!source_.empty()) n.origins.push_back({"", source_, ""});
    graph_.nodes.push_back(std::move(n));
    return ok_status();
  }

  Status output(std::string_view text) {
    GraphOutput out;
    auto it = names_.find(std::string(text.substr(1)));
    if (it == names_.end()) return bad(text);
    out.value = it->second;
    out.name = it->first;
    graph_.outputs.push_back(std::move(out));
    return ok_status();
  }

  Graph graph_;
  std::map<std::string, ValueId> names_;
  std::string source_;
};

}  // namespace

Result<Graph> parse_graph(std::string_view text) { return TextParser().run(text); }

}  // namespace coil
