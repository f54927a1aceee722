#include "frontend/srepr_tree.h"

#include <fmt/format.h>

#include <cctype>
#include <initializer_list>
#include <optional>
#include <utility>

namespace coil {
namespace {

// Files are hostile: these bound the work that one expression may cause. Real sizes have a few dozen nodes.
constexpr int kMaxTreeDepth = 100;
constexpr int kMaxNodes = 2000;

// What both parsers share: a place in the text, and whether the text is beyond the bounds.
class TreeParser {
 public:
  explicit TreeParser(std::string_view text) : text_(text) {}
  bool exceeded() const { return exceeded_; }

 protected:
  // The tree, if it is all of the text.
  std::optional<SympyTree> whole(std::optional<SympyTree> tree) {
    skip_spaces();
    return tree && at_ == text_.size() ? std::move(tree) : std::nullopt;
  }
  std::nullopt_t too_long() {
    exceeded_ = true;
    return std::nullopt;
  }
  void skip_spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  std::string_view text_;
  size_t at_ = 0;
  int nodes_ = 0;
  bool exceeded_ = false;
};

class SreprParser : public TreeParser {
 public:
  using TreeParser::TreeParser;
  std::optional<SympyTree> run() { return whole(parse(0)); }

 private:
  bool eat(char c) {
    skip_spaces();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::string_view word() {
    skip_spaces();
    size_t start = at_;
    auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; };
    if (at_ < text_.size() && text_[at_] == '-') ++at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    return text_.substr(start, at_ - start);
  }
  std::optional<std::string_view> quoted() {
    skip_spaces();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return std::nullopt;
    char quote = text_[at_++];
    size_t end = text_.find(quote, at_);
    if (end == std::string_view::npos) return std::nullopt;
    std::string_view inside = text_.substr(at_, end - at_);
    at_ = end + 1;
    return inside;
  }

  std::optional<SympyTree> parse(int depth) {
    if (depth > kMaxTreeDepth || ++nodes_ > kMaxNodes) return too_long();
    SympyTree tree;
    tree.head = word();
    if (tree.head.empty()) return std::nullopt;
    if (!eat('(')) {
      tree.text = tree.head;
      return tree;
    }
    if (eat(')')) return tree;
    do {
      if (auto s = quoted()) {
        tree.text = *s;
        continue;
      }
      size_t start = at_;
      std::string_view name = word();
      if (eat('=')) {  // positive=True, precision=53: assumptions, which the ranges say better
        if (name.empty() || word().empty()) return std::nullopt;
        continue;
      }
      at_ = start;
      std::optional<SympyTree> arg = parse(depth + 1);
      if (!arg) return std::nullopt;
      tree.args.push_back(std::move(*arg));
    } while (eat(','));
    if (!eat(')')) return std::nullopt;
    return tree;
  }
};

// What str() makes of an expression: Python's operators with Python's precedence, functions by their names.
class StrParser : public TreeParser {
 public:
  using TreeParser::TreeParser;
  std::optional<SympyTree> run() { return whole(either(0)); }

 private:
  using Maybe = std::optional<SympyTree>;

  bool eat(std::string_view op) {
    skip_spaces();
    if (!text_.substr(at_).starts_with(op)) return false;
    // "*" is no part of "**", "/" none of "//", "<" none of "<=".
    const char next = at_ + op.size() < text_.size() ? text_[at_ + op.size()] : 0;
    if (op.size() == 1 && ((op == "*" && next == '*') || (op == "/" && next == '/') || ((op == "<" || op == ">") && next == '='))) return false;
    at_ += op.size();
    return true;
  }
  static SympyTree node(std::string_view head, SympyTree a, SympyTree b) {
    SympyTree tree{head, {}, {}};
    tree.args.push_back(std::move(a));
    tree.args.push_back(std::move(b));
    return tree;
  }
  static SympyTree integer(std::string_view digits) { return {"Integer", {}, {SympyTree{digits, digits, {}}}}; }
  static SympyTree minus(SympyTree a) { return node("Mul", integer("-1"), std::move(a)); }

  // A level of operators that associate to the left.
  template <class Next>
  Maybe left(int depth, Next next, std::initializer_list<std::pair<std::string_view, std::string_view>> operators) {
    Maybe tree = next(depth);
    int nested = depth;
    for (bool more = tree.has_value(); more;) {
      more = false;
      for (const auto& [op, head] : operators) {
        if (!eat(op)) continue;
        Maybe right = next(depth);
        if (!right) return std::nullopt;
        if (++nodes_ > kMaxNodes) return too_long();
        if (op == "-") right = minus(std::move(*right));
        // A long sum is one node, not a deep tree.
        if (tree->head == head && (head == "Add" || head == "Mul" || head == "And" || head == "Or")) {
          tree->args.push_back(std::move(*right));
        } else {
          if (++nested > kMaxTreeDepth) return too_long();
          tree = node(head, std::move(*tree), std::move(*right));
        }
        more = true;
        break;
      }
    }
    return tree;
  }

  Maybe either(int depth) {
    return left(depth, [this](int d) { return both(d); }, {{"|", "Or"}});
  }
  Maybe both(int depth) {
    return left(depth, [this](int d) { return comparison(d); }, {{"&", "And"}});
  }
  Maybe comparison(int depth) {
    return left(depth, [this](int d) { return sum(d); },
                {{"<=", "LessThan"}, {">=", "GreaterThan"}, {"==", "Equality"}, {"!=", "Unequality"}, {"<", "StrictLessThan"}, {">", "StrictGreaterThan"}});
  }
  Maybe sum(int depth) {
    return left(depth, [this](int d) { return product(d); }, {{"+", "Add"}, {"-", "Add"}});
  }
  Maybe product(int depth) {
    return left(depth, [this](int d) { return sign(d); }, {{"//", "FloorDiv"}, {"*", "Mul"}, {"/", "IntTrueDiv"}, {"%", "PythonMod"}});
  }
  Maybe sign(int depth) {
    if (depth > kMaxTreeDepth || ++nodes_ > kMaxNodes) return too_long();
    if (eat("~")) {
      Maybe inner = sign(depth + 1);
      return inner ? Maybe(SympyTree{"Not", {}, {std::move(*inner)}}) : std::nullopt;
    }
    if (eat("-")) {
      Maybe inner = sign(depth + 1);
      return inner ? Maybe(minus(std::move(*inner))) : std::nullopt;
    }
    Maybe base = atom(depth + 1);
    if (!base || !eat("**")) return base;
    Maybe exponent = sign(depth + 1);
    return exponent ? Maybe(node("Pow", std::move(*base), std::move(*exponent))) : std::nullopt;
  }
  Maybe atom(int depth) {
    if (eat("(")) {
      Maybe inner = either(depth + 1);
      return inner && eat(")") ? std::move(inner) : std::nullopt;
    }
    const std::string_view word = this->word();
    if (word.empty()) return std::nullopt;
    if (std::isdigit(static_cast<unsigned char>(word[0]))) return word.find('.') == word.npos ? integer(word) : SympyTree{"Float", word, {}};
    if (!eat("("))
      return word == "True" || word == "true"     ? SympyTree{"true", "true", {}}
             : word == "False" || word == "false" ? SympyTree{"false", "false", {}}
                                                  : SympyTree{"Symbol", word, {}};
    SympyTree call{name_of(word), {}, {}};
    do {
      Maybe arg = either(depth + 1);
      if (!arg) return std::nullopt;
      call.args.push_back(std::move(*arg));
    } while (eat(","));
    return eat(")") ? Maybe(std::move(call)) : std::nullopt;
  }
  std::string_view word() {
    skip_spaces();
    const size_t start = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_' || text_[at_] == '.')) ++at_;
    return text_.substr(start, at_ - start);
  }
  static std::string_view name_of(std::string_view function) {
    static constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"Eq", "Equality"}, {"Ne", "Unequality"},        {"Lt", "StrictLessThan"},
                                                                               {"Le", "LessThan"}, {"Gt", "StrictGreaterThan"}, {"Ge", "GreaterThan"}};
    for (const auto& [text, name] : kNames) {
      if (text == function) return name;
    }
    return function;
  }
};

bool is_srepr(std::string_view text) {
  for (const char* head : {"Symbol('", "Integer(", "Rational(", "Float('"}) {
    if (text.find(head) != text.npos) return true;
  }
  return text == "true" || text == "false";
}

}  // namespace

Result<SympyTree> parse_sympy(std::string_view text) {
  // A hostile file may hold megabytes here; messages quote the text.
  if (text.size() > 20000) return Error{ErrorCode::bad_program, "a size expression is longer than 20000 characters", {}, {}};
  SreprParser srepr(text);
  StrParser str(text);
  const bool is_repr = is_srepr(text);
  std::optional<SympyTree> tree = is_repr ? srepr.run() : str.run();
  if (!tree && (srepr.exceeded() || str.exceeded()))
    return Error{ErrorCode::bad_program,
                 fmt::format("a size expression is nested more than {} deep or has more than {} parts, the limits of an expression: {}", kMaxTreeDepth,
                             kMaxNodes, text.substr(0, 200)),
                 {},
                 {}};
  if (!tree) return Error{ErrorCode::bad_program, fmt::format("a size expression cannot be read: {}", text.substr(0, 200)), {}, {}};
  return std::move(*tree);
}

}  // namespace coil
