#include "graph/parse.h"

#include <algorithm>

#include <fmt/format.h>

#include "expr/constant_text.h"
#include "graph/graph_words.h"
#include "graph/line_reader.h"

namespace coil {
namespace {

constexpr int kMaxNesting = 12;          // of graphs in graphs, as in programs' files
constexpr size_t kMaxSymbols = 10000;    // likewise
constexpr size_t kMaxLines = 5'000'000;  // likewise, of nodes
constexpr int64_t kMostSize = int64_t{1} << 62;

using TextLines = std::span<const std::string_view>;

// What all graphs of one text share.
struct TextContext {
  std::shared_ptr<ExprPool> pool;
  const OperatorSchemas& schemas;
  uint64_t contents = 0;  // bytes of weights so far
};

class Parser {
 public:
  Parser(TextContext& context, bool functional, int nesting) : context_(context), nesting_(nesting) {
    graph().pool = context.pool;
    graph().functional = functional;
  }

  // The lines behind the first one of the text, or of a nested graph without their indentation. Sizes first, then nested graphs, which nodes refer to.
  Result<Graph> run(TextLines lines, size_t first_number) {
    for (size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].starts_with("dim ")) TRY_STATUS(read(lines[i], first_number + i, &Parser::read_dim));
    }
    for (size_t i = 0; i < lines.size();) {
      size_t end = i + 1;
      if (is_inner(lines[i])) {
        while (end < lines.size() && lines[end].starts_with("    ")) ++end;
        TRY_STATUS(read_nested(lines.subspan(i, end - i), first_number + i));
      }
      i = end;
    }
    for (size_t i = 0; i < lines.size(); ++i) {
      if (!is_inner(lines[i]) && !lines[i].starts_with("dim ")) TRY_STATUS(read(lines[i], first_number + i, &Parser::read_line));
    }
    return std::move(scope_.graph);
  }

 private:
  static bool is_inner(std::string_view line) { return line.starts_with("  "); }

  Graph& graph() { return scope_.graph; }

  Status read(std::string_view line, size_t number, void (Parser::*what)(LineReader&)) {
    LineReader words(scope_, line);
    if (words.at_end()) return ok_status();
    (this->*what)(words);
    if (!words.failed() && !words.at_end()) words.fail("unexpected text");
    return words.failed() ? words.problem_in(number) : ok_status();
  }

  // "  graph0:" and the graph's own lines, four spaces to the right.
  Status read_nested(TextLines lines, size_t number) {
    LineReader words(scope_, lines[0]);
    words.expect(fmt::format("graph{}", scope_.subgraphs.size()));
    const bool functional = words.accept("functional") || (!words.accept("in place") && graph().functional);
    words.expect(":");
    if (!words.failed() && !words.at_end()) words.fail("unexpected text");
    if (!words.failed() && nesting_ >= kMaxNesting) words.fail("graphs are nested too deeply");
    if (words.failed()) return words.problem_in(number);
    std::vector<std::string_view> inside;
    for (size_t i = 1; i < lines.size(); ++i) inside.push_back(lines[i].substr(4));
    TRY(Graph nested, Parser(context_, functional, nesting_ + 1).run(inside, number + 1));
    scope_.subgraphs.push_back({std::make_shared<const Graph>(std::move(nested))});
    return ok_status();
  }

  // "dim batch (s77): 1..64 from data"
  void read_dim(LineReader& words) {
    words.expect("dim");
    if (nesting_ > 0) words.fail("sizes are those of the whole program: its first lines say them");
    Symbol s;
    s.label = s.name = words.name();
    if (words.accept("(")) {
      s.name = words.name();
      words.expect(")");
    }
    words.expect(":");
    s.min = words.integer();
    words.expect(".");
    words.expect(".");
    if (!words.at_end() && !words.next("from")) s.max = words.integer();
    s.from_data = words.accept("from data");
    ExprPool& pool = *context_.pool;
    if (reads_otherwise(s.label)) words.fail(fmt::format("'{}' cannot be the name of a size here: expressions read it as something else", s.label));
    else if (pool.find_symbol(s.name)) words.fail(fmt::format("two sizes are named '{}'", s.name));
    else if (s.min > s.max) words.fail("the range is empty");
    else if (s.min < -kMostSize || (s.max > kMostSize && s.max != INT64_MAX)) words.fail(fmt::format("a range ends at {} at most", kMostSize));
    else if (pool.num_symbols() >= kMaxSymbols) words.fail(fmt::format("the program has more than {} dynamic dimensions", kMaxSymbols));
    if (!words.failed()) pool.add_symbol(std::move(s));
  }

  // A space behind the word: operators may be named so, and a parenthesis follows their names.
  void read_line(LineReader& words) {
    if (words.accept("assumes ")) return read_check(words, false);
    if (words.accept("asserts ")) return read_check(words, true);
    if (words.accept("input ")) return read_input(words);
    if (words.accept("integer ")) return read_integer(words);
    if (words.accept("return ")) return read_output(words);
    if (words.accept("in_spec ")) return (void)(graph().in_spec = words.to_end());
    if (words.accept("out_spec ")) return (void)(graph().out_spec = words.to_end());
    if (words.accept("arguments ")) return read_arguments(words);
    read_node(words);
  }

  void read_check(LineReader& words, bool asserted) {
    SizeCheck check;
    check.condition = words.condition();
    check.also_asserted = words.accept("also asserted");
    if (asserted) {
      words.expect("else");
      check.message = words.quoted();
      if (check.message.empty()) words.fail("an assertion says what is wrong where it does not hold");
    }
    if (words.accept("at")) check.where = words.quoted();
    if (words.failed()) return;
    if (!asserted) assume_ones(*context_.pool, check.condition);
    graph().checks.push_back(std::move(check));
  }

  ValueId define(LineReader& words, std::string name, ValueType type, NodeId producer) {
    if (words.failed()) return {};
    const ValueId id = graph().add_value({name, std::move(type), producer});
    if (!scope_.values.emplace(std::move(name), id).second) words.fail(fmt::format("two values are named '%{}'", graph().value(id).name));
    return id;
  }

  ValueId read_defined(LineReader& words) {
    std::string name = words.new_name();
    words.expect(":");
    ValueType type = words.type();
    return define(words, std::move(name), std::move(type), NodeId());
  }

  void read_integer(LineReader& words) {
    const ValueId id = read_defined(words);
    if (!words.failed() && !std::holds_alternative<Expr>(graph().value(id).type)) words.fail("an integer is an expression of sizes");
  }

  void read_input(LineReader& words) {
    GraphInput in;
    const auto kind = std::find_if(kInputWords.begin(), kInputWords.end(), [&](std::string_view word) { return words.accept(word); });
    if (kind == kInputWords.end()) return words.fail(fmt::format("expected what the input is: {}", fmt::join(kInputWords, ", ")));
    in.kind = static_cast<GraphInput::Kind>(kind - kInputWords.begin());
    const bool is_weight = in.kind < GraphInput::Kind::user;
    if (in.kind == GraphInput::Kind::fixed) {
      in.name = words.name();
      words.expect("=");
      in.fixed_value = words.constant();
    } else {
      in.value = read_defined(words);
      if (words.failed()) return;
      const ValueInfo& info = graph().value(in.value);
      if (info.is_tensor() != (in.kind != GraphInput::Kind::user_symint)) return words.fail(info.is_tensor() ? "a symint is no tensor" : "expected a tensor");
      if (!info.is_tensor() && !std::holds_alternative<Expr>(info.type)) return words.fail("expected an expression of sizes");
      in.name = words.accept("=") ? words.name() : info.name;
    }
    in.position = is_weight ? -1 : next_position_++;
    if (words.accept("at position")) in.position = static_cast<int>(std::clamp<int64_t>(words.integer(), -1, 1'000'000));
    if (is_weight && !words.failed()) read_weight(words, in);
    graph().inputs.push_back(std::move(in));
  }

  void read_weight(LineReader& words, GraphInput& in) {
    const TensorType& type = graph().value(in.value).tensor();
    std::vector<Expr> strides = type.strides;
    if (words.accept("tied to")) {
      const std::string name = words.name();
      const auto other =
          std::find_if(graph().inputs.begin(), graph().inputs.end(), [&](const GraphInput& i) { return i.name == name && !i.data.bytes.empty(); });
      if (other == graph().inputs.end()) return words.fail(fmt::format("there is no weight '{}' before this line", name));
      in.data = other->data;
      const bool same = in.data.dtype == type.dtype && std::equal(in.data.sizes.begin(), in.data.sizes.end(), type.sizes.begin(), type.sizes.end(), is_number);
      if (!same) words.fail(fmt::format("'{}' has another type", name));
      return;
    }
    if (words.accept("stored")) strides = words.sizes();
    const std::optional<StoredAs> stored = stored_as(words, type.dtype, type.sizes, strides, &context_.contents);
    if (stored) in.data = words.accept("holds") ? read_contents(words, *stored) : drawn_contents(in.name, *stored);
  }

  static bool is_number(int64_t number, Expr e) { return e->is_constant() && e->as_int() == number; }

  void read_output(LineReader& words) {
    GraphOutput out;
    if (words.accept("buffer ")) out.kind = GraphOutput::Kind::buffer_mutation;
    else if (words.accept("input ")) out.kind = GraphOutput::Kind::input_mutation;
    if (out.kind != GraphOutput::Kind::user) {
      out.target = words.name();
      words.expect("=");
    }
    if (words.next("%") || out.kind != GraphOutput::Kind::user) {
      const ValueId id = words.value();
      if (words.failed()) return;
      out.value = id;
      out.name = graph().value(id).name;
      if (out.kind != GraphOutput::Kind::user && !graph().value(id).is_tensor()) words.fail("what is written is a tensor");
    } else {
      const auto constant = words.constant();
      std::visit([&](const auto& c) { out.value = c; }, constant);
    }
    if (words.accept("named")) out.name = words.name();
    graph().outputs.push_back(std::move(out));
  }

  void read_arguments(LineReader& words) {
    words.expect("[");
    do graph().forward_arg_names.push_back(words.name());
    while (!words.failed() && words.accept(","));
    words.expect("]");
  }

  // "%a: f32[2], %b: f32[2] = aten.split.Tensor(%x, split_size=2, dim=0) named split  # model.py:3"
  void read_node(LineReader& words) {
    std::vector<std::pair<std::string, ValueType>> results;
    while (words.next("%")) {
      std::string name = words.new_name();
      words.expect(":");
      results.emplace_back(std::move(name), words.type());
      if (!words.accept(",")) break;
    }
    if (!results.empty()) words.expect("=");
    if (words.accept("user ")) return words.fail("a user's kernel, whose code is not in the text");
    Node node;
    node.target = words.name();
    words.expect("(");
    if (words.failed()) return;
    read_call(words, node);
    if (words.accept("binds")) {
      do node.binds.push_back(words.symbol());
      while (!words.failed() && words.accept(","));
    }
    node.name = words.accept("named") ? words.name() : results.empty() ? "" : results[0].first;
    if (words.failed()) return;
    if (context_.schemas.check) {
      const Status fits = context_.schemas.check(*context_.pool, node);
      if (!fits.ok()) return words.fail(fits.error().message);
    }
    for (auto& [name, type] : results) node.outputs.push_back(define(words, std::move(name), std::move(type), NodeId(graph().nodes.size())));
    if (!words.failed() && words.at_end()) node.origins = origins_of(words.comment());
    graph().nodes.push_back(std::move(node));
  }

  void read_call(LineReader& words, Node& node) {
    std::optional<std::vector<std::string>> names;  // looked up where one is needed
    while (!words.failed() && !words.accept(")")) {
      if (!node.args.empty()) words.expect(",");
      std::string name = words.argument_name();
      if (name.empty()) {
        if (!names) names = context_.schemas.arguments ? context_.schemas.arguments(node.target) : std::vector<std::string>();
        if (node.args.size() < names->size()) name = (*names)[node.args.size()];
        else if (!names->empty()) words.fail(fmt::format("{} has {} arguments", node.target, names->size()));
      }
      if (!name.empty() && node.find(name)) words.fail(fmt::format("argument '{}' is given twice", name));
      Argument argument = words.argument();
      node.arg_names.push_back(std::move(name));
      node.args.push_back(std::move(argument));
    }
  }

  static std::vector<Origin> origins_of(std::string_view comment) {
    std::vector<Origin> origins;
    while (!comment.empty()) {
      const size_t end = std::min(comment.find(", "), comment.size());
      std::string_view place = comment.substr(0, end);
      comment.remove_prefix(std::min(end + 2, comment.size()));
      while (place.starts_with(' ')) place.remove_prefix(1);
      while (place.ends_with(' ')) place.remove_suffix(1);
      if (!place.empty()) origins.push_back({"", std::string(place), ""});
    }
    return origins;
  }

  TextContext& context_;
  TextScope scope_;
  const int nesting_;
  int next_position_ = 0;
};

// "functional program of PyTorch 2.9.1"
std::optional<Graph> read_first_line(std::string_view line) {
  TextScope scope;
  scope.graph.pool = std::make_shared<ExprPool>();
  LineReader words(scope, line);
  scope.graph.functional = words.accept("functional");
  words.expect("program");
  if (words.accept("of PyTorch")) scope.graph.torch_version = words.to_end();
  return words.failed() || !words.at_end() ? std::nullopt : std::optional(std::move(scope.graph));
}

}  // namespace

bool is_graph_text(std::string_view text) { return read_first_line(text.substr(0, text.find('\n'))).has_value(); }

Result<Graph> parse_graph(std::string_view text, const OperatorSchemas& schemas) {
  const std::vector<std::string_view> lines = lines_of(text);
  std::optional<Graph> first = lines.empty() ? std::nullopt : read_first_line(lines[0]);
  if (!first) return Error{ErrorCode::bad_program, "line 1, column 1: expected 'program' or 'functional program'", "", ""};
  if (lines.size() > kMaxLines) return Error{ErrorCode::bad_program, fmt::format("the text has more than {} lines", kMaxLines), "", ""};
  TextContext context{first->pool, schemas};
  TRY(Graph graph, Parser(context, first->functional, 0).run(TextLines(lines).subspan(1), 2));
  graph.torch_version = std::move(first->torch_version);
  if (const Status sound = verify(graph); !sound.ok()) return Error{ErrorCode::bad_program, sound.error().message, sound.error().where, ""};
  if (graph.outputs.empty()) return Error{ErrorCode::bad_program, "the text has no line `return`: nothing is to be computed", "", ""};
  return graph;
}

}  // namespace coil
