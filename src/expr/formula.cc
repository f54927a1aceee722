#include "expr/formula.h"

#include <charconv>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace coil {
namespace {

constexpr int kMaxFormulaDepth = 100;

bool is_word_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class FormulaParser {
 public:
  FormulaParser(ExprPool& pool, std::string_view text, const FormulaNames& names) : pool_(pool), text_(text), names_(names) {}

  Result<Expr> run() {
    TRY(Expr e, sum());
    skip_space();
    if (at_ != text_.size()) return error(fmt::format("'{}' is not expected there", text_.substr(at_, 12)));
    return e;
  }

 private:
  Error error(const std::string& problem) const {
    return {
        ErrorCode::user_kernel, fmt::format("the formula '{}': {}", text_, problem), "",
        "whole numbers, + - * // % ( ), cdiv(a, b), min(a, b), max(a, b), constants of the configuration, integer arguments, x.size(0), x.numel(), x.dim()"};
  }

  void skip_space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool accept(std::string_view symbol) {
    skip_space();
    if (!text_.substr(at_).starts_with(symbol)) return false;
    at_ += symbol.size();
    return true;
  }
  std::string_view take_word() {
    skip_space();
    const size_t start = at_;
    if (at_ < text_.size() && is_word_start(text_[at_])) {
      while (at_ < text_.size() && (is_word_start(text_[at_]) || is_digit(text_[at_]))) ++at_;
    }
    return text_.substr(start, at_ - start);
  }

  Result<Expr> sum() {
    if (++depth_ > kMaxFormulaDepth) return error("it is nested too deep");
    TRY(Expr e, product_of());
    while (true) {
      if (accept("+")) {
        TRY(const Expr b, product_of());
        e = e + b;
      } else if (accept("-")) {
        TRY(const Expr b, product_of());
        e = e - b;
      } else {
        break;
      }
    }
    --depth_;
    return e;
  }

  Expr divisor(Expr e) { return index_max(e, pool_.index(1)); }

  Result<Expr> product_of() {
    TRY(Expr e, factor());
    while (true) {
      if (accept("//")) {
        TRY(const Expr b, factor());
        e = floor_div(e, divisor(b));
      } else if (accept("%")) {
        TRY(const Expr b, factor());
        e = floor_mod(e, divisor(b));
      } else if (accept("*")) {
        TRY(const Expr b, factor());
        e = e * b;
      } else if (accept("/")) {
        return error("'/' would be a fraction; write // or cdiv");
      } else {
        return e;
      }
    }
  }

  Result<Expr> factor() {
    if (++depth_ > kMaxFormulaDepth) return error("it is nested too deep");
    TRY(const Expr e, plain_factor());
    --depth_;
    return e;
  }

  Result<Expr> plain_factor() {
    if (accept("-")) {
      TRY(const Expr e, factor());
      return pool_.index(0) - e;
    }
    if (accept("(")) {
      TRY(const Expr e, sum());
      if (!accept(")")) return error("a ')' is missing");
      return e;
    }
    skip_space();
    if (at_ < text_.size() && is_digit(text_[at_])) return number();
    const std::string_view word = take_word();
    if (word.empty()) return error(at_ == text_.size() ? "it ends too early" : fmt::format("'{}' is not expected there", text_.substr(at_, 12)));
    if (accept("(")) return call(word);
    if (accept(".")) return member(word);
    const auto it = names_.numbers.find(word);
    if (it != names_.numbers.end()) return it->second;
    return error(
        fmt::format("'{}' is {}", word, names_.tensors.contains(word) ? "a tensor: write its .size(0) or .numel()" : "no constant and no integer argument"));
  }

  Result<Expr> number() {
    int64_t value = 0;
    const auto [end, problem] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (problem != std::errc() || value > (int64_t{1} << 48)) return error("a number is too large");
    at_ = static_cast<size_t>(end - text_.data());
    return pool_.index(value);
  }

  Result<Expr> call(std::string_view function) {
    TRY(const Expr a, sum());
    if (!accept(",")) return error(fmt::format("{} takes two numbers", function));
    TRY(const Expr b, sum());
    if (!accept(")")) return error("a ')' is missing");
    if (function == "cdiv") return ceil_div(a, divisor(b));
    if (function == "min") return index_min(a, b);
    if (function == "max") return index_max(a, b);
    return error(fmt::format("there is no function '{}'", function));
  }

  Result<Expr> member(std::string_view tensor) {
    const auto it = names_.tensors.find(tensor);
    if (it == names_.tensors.end()) return error(fmt::format("there is no tensor '{}'", tensor));
    const std::vector<Expr>& sizes = it->second;
    const std::string_view what = take_word();
    if (!accept("(")) return error(fmt::format("'{}.{}' is not known", tensor, what));
    if (what == "numel" || what == "dim") {
      if (!accept(")")) return error("a ')' is missing");
      return what == "dim" ? pool_.index(static_cast<int64_t>(sizes.size())) : product(pool_, sizes);
    }
    if (what != "size") return error(fmt::format("'{}.{}' is not known", tensor, what));
    TRY(const Expr position, sum());
    if (!accept(")")) return error("a ')' is missing");
    if (!position->is_constant()) return error("a dimension is a plain number");
    const auto rank = static_cast<int64_t>(sizes.size());
    const int64_t d = position->as_int() < 0 ? position->as_int() + rank : position->as_int();
    if (names_.any_dimension) return pool_.index(1);
    if (d < 0 || d >= rank) return error(fmt::format("'{}' has {} dimensions", tensor, rank));
    return sizes[static_cast<size_t>(d)];
  }

  ExprPool& pool_;
  std::string_view text_;
  const FormulaNames& names_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

Result<Expr> parse_formula(ExprPool& pool, std::string_view text, const FormulaNames& names) { return FormulaParser(pool, text, names).run(); }

}  // namespace coil
