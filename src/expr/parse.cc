// A recursive-descent parser for expressions; the grammar is print.cc's output.
#include "expr/parse.h"

#include "expr/infix.h"
#include "expr/name_text.h"
#include "expr/sum.h"

#include <charconv>
#include <limits>
#include <map>

namespace coil {
namespace {

constexpr int kMaxParseDepth = 200;  // nested parentheses and calls

bool is_decimal(char c) { return c >= '0' && c <= '9'; }

// "i12" with prefix 'i' is 12.
std::optional<int32_t> numbered(std::string_view word, char prefix) {
  int32_t number = 0;
  if (word.size() < 2 || word[0] != prefix) return std::nullopt;
  const auto [end, error] = std::from_chars(word.data() + 1, word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size() || number < 0) return std::nullopt;
  return number;
}

class Parser {
 public:
  Parser(ExprPool& pool, std::string_view text, const ParseNames& names) : pool_(pool), text_(text), names_(names) {}

  Result<Expr> run() {
    TRY(Expr result, first(Comparisons::read));
    if (at_ != text_.size()) return error("unexpected text");
    return result;
  }

  Result<Expr> first(Comparisons comparisons) {
    while (true) {
      skip_space();
      const size_t start = at_;
      const std::string_view word = take_word();
      skip_space();
      // `v0 = ...;`, but not `v0 == ...`, nor a size that an equals sign follows
      if (!numbered(word, 'v') || !peek("=") || peek("==")) {
        at_ = start;
        break;
      }
      ++at_;
      TRY(Expr value, comparison());
      if (!accept(";")) return error("expected ';'");
      bound_[std::string(word)] = value;
    }
    TRY(Expr result, comparisons == Comparisons::read ? comparison() : sum());
    skip_space();
    return result;
  }

  std::string_view rest() const { return text_.substr(at_); }

 private:
  Error error(std::string_view what) const {
    return {ErrorCode::bad_program, "expression, column " + std::to_string(at_ + 1) + ": " + std::string(what), std::string(text_.substr(0, 200)), ""};
  }

  void skip_space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool peek(std::string_view token) const { return text_.substr(at_).starts_with(token); }
  bool accept(std::string_view token) {
    skip_space();
    if (!peek(token)) return false;
    at_ += token.size();
    return true;
  }
  std::string_view take_word() {
    const size_t start = at_;
    if (at_ < text_.size() && begins_name(text_[at_])) {
      while (at_ < text_.size() && in_name(text_[at_])) ++at_;
    }
    return text_.substr(start, at_ - start);
  }

  Result<Expr> apply(ScalarOp op, std::vector<Expr> args) {
    if (std::string_view why = operand_error(op, args); !why.empty()) return error(why);
    const bool divides = op == ScalarOp::floor_div || op == ScalarOp::remainder;
    if (divides && args[1]->dtype == DType::index && args[1]->is_constant() && args[1]->bits <= 0) {
      return error("division by a number that is not positive");
    }
    return pool_.op(op, std::move(args));
  }

  Result<Expr> binary(Expr left, std::string_view symbol, Result<Expr> right) {
    TRY(Expr r, std::move(right));
    return apply(*op_of_infix(symbol), {left, r});
  }

  Result<Expr> comparison() {
    if (++depth_ > kMaxParseDepth) return error("nested too deeply");
    TRY(Expr left, sum());
    for (std::string_view symbol : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (!accept(symbol)) continue;
      TRY(left, binary(left, symbol, sum()));
      break;
    }
    --depth_;
    return left;
  }

  // Index expressions have a normal form, so that their terms are added when all are known; other sums are those that are written.
  Result<Expr> sum() {
    TRY(Expr left, product());
    std::vector<Expr> terms;
    while (true) {
      skip_space();
      const char sign = peek("+") ? '+' : peek("-") ? '-' : 0;
      if (!sign) return total(left, std::move(terms));
      ++at_;
      TRY(const Expr right, product());
      if (left->dtype == DType::index && right->dtype == DType::index) {
        terms.push_back(sign == '+' ? right : right * -1);
      } else {
        left = total(left, std::move(terms));
        terms.clear();
        TRY(left, binary(left, sign == '+' ? "+" : "-", right));
      }
    }
  }

  Expr total(Expr first, std::vector<Expr> others) {
    if (others.empty()) return first;
    others.push_back(first);
    return coil::sum(pool_, std::move(others));
  }

  Result<Expr> product() {
    TRY(Expr left, unary());
    while (true) {
      std::string_view found;
      for (std::string_view symbol : {"*", "//", "/", "%"}) {
        if (accept(symbol)) {
          found = symbol;
          break;
        }
      }
      if (found.empty()) return left;
      TRY(left, binary(left, found, unary()));
    }
  }

  Result<Expr> unary() {
    skip_space();
    if (!accept("-")) return primary();
    if (at_ < text_.size() && (is_decimal(text_[at_]) || peek("inf"))) return number(true);
    if (++depth_ > kMaxParseDepth) return error("nested too deeply");
    TRY(Expr operand, unary());
    --depth_;
    return apply(ScalarOp::neg, {operand});
  }

  Result<Expr> primary() {
    skip_space();
    if (accept("(")) {
      TRY(Expr e, comparison());
      if (!accept(")")) return error("expected ')'");
      return e;
    }
    if (at_ < text_.size() && is_decimal(text_[at_])) return number(false);
    const size_t start = at_;
    const std::string_view word = take_word();
    if (word.empty()) return error("expected an expression");
    if (word == "inf" || word == "nan") {
      at_ = start;
      return number(false);
    }
    if (accept("(")) return call(word);
    return name(word);
  }

  Result<Expr> name(std::string_view word) {
    if (word == "true" || word == "false") return pool_.boolean(word == "true");
    if (auto it = bound_.find(word); it != bound_.end()) return it->second;
    if (auto var = numbered(word, 'i')) return pool_.var(*var);
    for (size_t i = 0; i < pool_.num_symbols(); ++i) {
      if (pool_.symbol_info(SymbolId(i)).label == word) return pool_.symbol(SymbolId(i));
    }
    if (auto id = pool_.find_symbol(word)) return pool_.symbol(*id);
    if (auto temp = numbered(word, 't')) {
      const auto dtype = names_.temp ? names_.temp(TempId(*temp)) : DType::f32;
      if (dtype) return pool_.temp(TempId(*temp), *dtype);
    }
    return error("unknown name '" + std::string(word) + "'");
  }

  Result<Expr> call(std::string_view word) {
    if (word == "load") return load();
    std::vector<Expr> args;
    if (!accept(")")) {
      do {
        TRY(Expr arg, comparison());
        args.push_back(arg);
      } while (accept(","));
      if (!accept(")")) return error("expected ')'");
    }
    if (word == "checked_index") {
      const bool fits = args.size() == 2 && args[0]->dtype == DType::i64 && args[1]->dtype == DType::index;
      if (!fits) return error("checked_index takes an i64 value and an index");
      return pool_.checked_index(args[0], args[1]);
    }
    if (word.starts_with("to_")) {
      const auto to = dtype_from_name(word.substr(3));
      if (!to || *to != compute_type(*to) || args.size() != 1) return error("not a cast");
      return pool_.cast(args[0], *to);
    }
    if (word == "min" || word == "max") return apply(word == "min" ? ScalarOp::imin : ScalarOp::imax, std::move(args));
    const auto op = scalar_op_from_name(word);
    if (!op || is_index_op(*op)) return error("unknown operation '" + std::string(word) + "'");
    return apply(*op, std::move(args));
  }

  Result<Expr> load() {
    skip_space();
    const std::optional<std::string> word = read_name(text_, at_);
    if (!word) return error("expected a buffer's name");
    std::optional<std::pair<BufferId, DType>> buffer;
    if (names_.buffer) {
      buffer = names_.buffer(*word);
    } else if (auto number = numbered(*word, 'b')) {
      buffer = std::pair(BufferId(*number), DType::f32);
    }
    if (!buffer) return error("unknown buffer '" + *word + "'");
    std::vector<Expr> coordinates;
    while (accept(",")) {
      TRY(Expr c, comparison());
      if (c->dtype != DType::index) return error("a coordinate is no index");
      coordinates.push_back(c);
    }
    if (!accept(")")) return error("expected ')'");
    return pool_.load(buffer->first, buffer->second, std::move(coordinates));
  }

  // digits[.digits][e[+-]digits] | inf | nan, then [:type]
  Result<Expr> number(bool negative) {
    const size_t start = at_;
    bool floating = false;
    if (peek("inf") || peek("nan")) {
      at_ += 3;
      floating = true;
    } else {
      while (at_ < text_.size()) {
        const char c = text_[at_];
        const bool exponent_sign = (c == '+' || c == '-') && text_[at_ - 1] == 'e' && at_ > start;
        if (!is_decimal(c) && c != '.' && c != 'e' && !exponent_sign) break;
        floating |= c == '.' || c == 'e';
        ++at_;
      }
    }
    const std::string digits = (negative ? "-" : "") + std::string(text_.substr(start, at_ - start));
    DType dtype = floating ? DType::f32 : DType::index;
    if (at_ + 1 < text_.size() && text_[at_] == ':' && begins_name(text_[at_ + 1])) {
      ++at_;
      const auto named = dtype_from_name(take_word());
      if (!named || *named != compute_type(*named)) return error("unknown type");
      dtype = *named;
    }
    if (is_float(dtype)) return dtype == DType::f32 ? floating_constant<float>(digits, dtype) : floating_constant<double>(digits, dtype);
    int64_t value = 0;
    const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (failed != std::errc() || end != digits.data() + digits.size()) return error("not an integer");
    return pool_.constant_int(value, dtype);
  }

  template <class T>
  Result<Expr> floating_constant(const std::string& digits, DType dtype) {
    T value = 0;
    const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (failed != std::errc() || end != digits.data() + digits.size()) return error("not a number");
    return pool_.constant(static_cast<double>(value), dtype);
  }

  ExprPool& pool_;
  std::string_view text_;
  const ParseNames& names_;
  std::map<std::string, Expr, std::less<>> bound_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Result<Expr> parse_expr(ExprPool& pool, std::string_view text, const ParseNames& names) { return Parser(pool, text, names).run(); }

Result<Expr> parse_first_expr(ExprPool& pool, std::string_view& text, const ParseNames& names, Comparisons comparisons) {
  Parser parser(pool, text, names);
  TRY(Expr result, parser.first(comparisons));
  text = parser.rest();
  return result;
}

}  // namespace coil
