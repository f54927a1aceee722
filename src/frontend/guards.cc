#include "frontend/guards.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <unordered_map>

#include "frontend/input_paths.h"

namespace coil {
namespace {

constexpr size_t kMaxText = 4000;
constexpr int kMaxGuardDepth = 60;
constexpr size_t kMaxGuards = 10000;  // real programs have some dozens

// The sizes of the inputs, by the paths that guards have for them, "d\nx" for L['d']['x'].
class InputSizes {
 public:
  explicit InputSizes(const Graph& graph) : graph_(graph) {
    const std::vector<std::string> paths = input_paths(graph.in_spec, graph.forward_arg_names);
    for (const GraphInput& in : graph.inputs) {
      if (in.kind != GraphInput::Kind::user && in.kind != GraphInput::Kind::user_symint) continue;
      by_name_.try_emplace(lowered(in.name, false), &in);
      // Strict exports of modules that wrap another's forward: L['flat_args'][1] is the second of all flattened inputs.
      if (in.position >= 0) by_path_.try_emplace(fmt::format("flat_args{}{}", kPathStep, in.position), &in);
      const auto place = static_cast<size_t>(in.position);
      if (in.position >= 0 && place < paths.size() && !paths[place].empty()) by_path_.try_emplace(paths[place], &in);
    }
  }

  std::optional<Expr> size_of(std::string_view path, std::optional<int> dimension) const {
    const GraphInput* input = input_at(path);
    if (!input) return std::nullopt;
    const ValueInfo& info = graph_.value(input->value);
    if (!info.is_tensor()) {
      const Expr* e = std::get_if<Expr>(&info.type);
      return e && !dimension ? std::optional<Expr>(*e) : std::nullopt;
    }
    const std::vector<Expr>& sizes = info.tensor().sizes;
    if (!dimension || *dimension < 0 || static_cast<size_t>(*dimension) >= sizes.size()) return std::nullopt;
    return sizes[static_cast<size_t>(*dimension)];
  }

 private:
  const GraphInput* input_at(std::string_view path) const {
    if (const auto found = by_path_.find(std::string(path)); found != by_path_.end()) return found->second;
    if (const auto found = by_name_.find(lowered(path, true)); found != by_name_.end()) return found->second;
    // What **kwargs takes is called by its own keys: L['kwargs']['x'] is x, where no argument has the name kwargs.
    const size_t step = path.find(kPathStep);
    if (step == path.npos || std::ranges::count(graph_.forward_arg_names, path.substr(0, step)) != 0) return nullptr;
    const std::string rest(path.substr(step + 1));
    if (const auto found = by_path_.find(rest); found != by_path_.end()) return found->second;
    const auto found = by_name_.find(lowered(rest, true));
    return found == by_name_.end() ? nullptr : found->second;
  }

  // Flattened inputs are named after their place, in small letters: L['ys'][0] is ys_0.
  static std::string lowered(std::string_view name, bool path) {
    std::string out;
    for (const char c : name) {
      const auto u = static_cast<unsigned char>(c);
      out += path && !std::isalnum(u) ? '_' : static_cast<char>(std::tolower(u));
    }
    return out;
  }

  const Graph& graph_;
  std::unordered_map<std::string, const GraphInput*> by_name_;  // the first of a name
  std::unordered_map<std::string, const GraphInput*> by_path_;
};

// Python text -> srepr text, which the reader of sizes understands. Sizes of inputs become symbols "g0", "g1", ...
class Translator {
 public:
  Translator(const InputSizes& inputs, std::string_view text) : inputs_(inputs), text_(text) {}

  std::optional<std::string> run() {
    std::optional<std::string> out = disjunction();
    skip();
    return out && at_ == text_.size() ? out : std::nullopt;
  }
  const std::vector<Expr>& sizes() const { return sizes_; }
  bool is_too_deep() const { return too_deep_; }

 private:
  using Text = std::optional<std::string>;

  std::nullopt_t too_deep() {
    too_deep_ = true;
    return std::nullopt;
  }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool eat(std::string_view token) {
    skip();
    if (!text_.substr(at_).starts_with(token)) return false;
    const bool word = std::isalpha(static_cast<unsigned char>(token[0])) != 0;
    const size_t end = at_ + token.size();
    if (word && end < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[end])) || text_[end] == '_')) return false;
    at_ = end;
    return true;
  }
  std::string_view word() {
    skip();
    const size_t start = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_')) ++at_;
    return text_.substr(start, at_ - start);
  }

  static std::string call(std::string_view head, const std::string& a, const std::string& b) { return fmt::format("{}({}, {})", head, a, b); }
  static std::string minus(const std::string& a) { return "Mul(Integer(-1), " + a + ")"; }

  Text disjunction() {
    if (++depth_ > kMaxGuardDepth) return too_deep();
    Text a = conjunction();
    while (a && eat("or")) {
      const Text b = conjunction();
      a = b ? Text(call("Or", *a, *b)) : std::nullopt;
    }
    --depth_;
    return a;
  }
  Text conjunction() {
    Text a = negation();
    while (a && eat("and")) {
      const Text b = negation();
      a = b ? Text(call("And", *a, *b)) : std::nullopt;
    }
    return a;
  }
  Text negation() {
    if (++depth_ > kMaxGuardDepth) return too_deep();
    Text a;
    if (eat("not")) {
      a = negation();
      if (a) a = "Not(" + *a + ")";
    } else {
      a = comparison();
    }
    --depth_;
    return a;
  }
  // a < b <= c: every neighbouring pair.
  Text comparison() {
    static constexpr std::pair<std::string_view, std::string_view> kSigns[] = {{"<=", "LessThan"},   {">=", "GreaterThan"},   {"==", "Equality"},
                                                                               {"!=", "Unequality"}, {"<", "StrictLessThan"}, {">", "StrictGreaterThan"}};
    Text left = sum(), whole;
    for (;;) {
      std::string_view head;
      for (const auto& [sign, name] : kSigns) {
        if (head.empty() && eat(sign)) head = name;
      }
      if (!left || head.empty()) return !left ? left : whole ? whole : left;
      const Text right = sum();
      if (!right) return std::nullopt;
      const std::string pair = call(head, *left, *right);
      whole = whole ? call("And", *whole, pair) : pair;
      left = right;
    }
  }
  Text sum() {
    Text a = term();
    while (a) {
      const bool plus = eat("+");
      if (!plus && !eat("-")) break;
      const Text b = term();
      a = b ? Text(call("Add", *a, plus ? *b : minus(*b))) : std::nullopt;
    }
    return a;
  }
  Text term() {
    Text a = factor();
    while (a) {
      const char* head = eat("//") ? "FloorDiv" : eat("%") ? "PythonMod" : nullptr;
      if (!head) {
        skip();
        const bool product = at_ < text_.size() && text_[at_] == '*' && !text_.substr(at_).starts_with("**");
        if (!product || !eat("*")) break;
        head = "Mul";
      }
      const Text b = factor();
      a = b ? Text(call(head, *a, *b)) : std::nullopt;
    }
    return a;
  }
  Text factor() {
    if (++depth_ > kMaxGuardDepth) return too_deep();
    Text a;
    if (eat("-")) {
      a = factor();
      if (a) a = minus(*a);
    } else {
      a = primary();
      if (a && eat("**")) {
        const Text b = factor();
        a = b ? Text(call("Pow", *a, *b)) : std::nullopt;
      }
    }
    --depth_;
    return a;
  }
  Text primary() {
    if (eat("(")) {
      Text inner = disjunction();
      return inner && eat(")") ? inner : std::nullopt;
    }
    const std::string_view name = word();
    if (name.empty()) return std::nullopt;
    if (std::isdigit(static_cast<unsigned char>(name[0]))) {
      const bool decimal = at_ < text_.size() && text_[at_] == '.';
      const bool integral = name.find_first_not_of("0123456789") == std::string_view::npos;
      return integral && !decimal ? Text(fmt::format("Integer({})", name)) : std::nullopt;
    }
    if (name == "True" || name == "False") return name == "True" ? "true" : "false";
    if (name == "L") return input();
    if (name == "torch") {  // torch.sym_min(a, b)
      const std::string_view member = eat(".") ? word() : std::string_view();
      if (member != "sym_min" && member != "sym_max") return std::nullopt;
      return eat("(") ? function(member.substr(4)) : std::nullopt;
    }
    return eat("(") ? function(name) : std::nullopt;
  }
  Text function(std::string_view name) {
    const std::string head = name == "max" ? "Max" : name == "min" ? "Min" : std::string(name);
    std::string out = head + "(";
    for (bool first = true;; first = false) {
      const Text arg = disjunction();
      if (!arg) return std::nullopt;
      out += (first ? "" : ", ") + *arg;
      if (eat(")")) return out + ")";
      if (!eat(",")) return std::nullopt;
    }
  }

  // ['ys'][0], then .size()[1] or nothing (an integer input)
  Text input() {
    std::string name;
    while (eat("[")) {
      skip();
      std::string_view key;
      if (at_ < text_.size() && (text_[at_] == '\'' || text_[at_] == '"')) {
        const size_t end = text_.find(text_[at_], at_ + 1);
        if (end == std::string_view::npos) return std::nullopt;
        key = text_.substr(at_ + 1, end - at_ - 1);
        at_ = end + 1;
      } else {
        key = word();
      }
      if (!eat("]")) return std::nullopt;
      if (!name.empty()) name += kPathStep;
      name += key;
    }
    std::optional<int> dimension;
    if (eat(".")) {
      if (word() != "size" || !eat("(") || !eat(")") || !eat("[")) return std::nullopt;
      const std::string_view digits = word();
      int d = -1;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), d);
      if (error != std::errc() || end != digits.data() + digits.size() || !eat("]")) return std::nullopt;
      dimension = d;
    }
    const std::optional<Expr> e = inputs_.size_of(name, dimension);
    if (!e) return std::nullopt;
    sizes_.push_back(*e);
    return fmt::format("Symbol('g{}')", sizes_.size() - 1);
  }

  const InputSizes& inputs_;
  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
  bool too_deep_ = false;
  std::vector<Expr> sizes_;
};

Error cannot_check(std::string_view text, std::string_view why = {}) {
  return Error{ErrorCode::unsupported_feature,
               fmt::format("the export assumed a condition that coil cannot check{}: {}", why, text.substr(0, 400)),
               {},
               "declare the ranges and relations of the sizes with torch.export.Dim"};
}

}  // namespace

Status read_guards(Graph& graph, JsonValue guards) {
  TRY(JsonArray list, guards.as_array());
  if (list.size() > kMaxGuards) return Error{ErrorCode::unsupported_feature, fmt::format("the program has more than {} guards", kMaxGuards), {}, {}};
  const InputSizes inputs(graph);
  for (JsonValue item : list) {
    TRY(std::string_view text, item.as_string());
    if (text.size() > kMaxText) return cannot_check(text, fmt::format(" (it is longer than {} characters)", kMaxText));
    Translator translator(inputs, text);
    const std::optional<std::string> srepr = translator.run();
    if (!srepr) return cannot_check(text, translator.is_too_deep() ? " (it is nested too deeply)" : "");
    const SreprContext context{*graph.pool, [&](std::string_view name) -> Result<Expr> {
                                 size_t i = translator.sizes().size();
                                 if (name.starts_with("g")) std::from_chars(name.data() + 1, name.data() + name.size(), i);
                                 if (i >= translator.sizes().size()) return cannot_check(text);  // a call of something named Symbol
                                 return translator.sizes()[i];
                               }};
    const Result<Condition> condition = parse_condition_srepr(context, *srepr);
    if (!condition.ok()) return cannot_check(text);
    const Truth known = truth(condition.value());
    if (known == Truth::no)
      return Error{ErrorCode::bad_program, fmt::format("the export assumed what no size in its range fulfils: {}", text.substr(0, 400)), {}, {}};
    if (known != Truth::depends) continue;
    assume_ones(*graph.pool, condition.value());
    graph.checks.push_back({condition.value(), {}, {}});
  }
  return ok_status();
}

}  // namespace coil
