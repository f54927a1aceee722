// See size_formula.h.
#include "base/size_formula.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

namespace coil {
namespace {

constexpr int kMostDepth = 200;  // of parentheses: texts come from files

// By recursive descent: sums of products of primaries. `failed_` stays once it is set, and the numbers mean nothing from then on.
class Evaluator {
 public:
  Evaluator(std::string_view text, std::span<const std::string> names, std::span<const int64_t> values) : rest_(text), names_(names), values_(values) {}

  // Parts that are used several times come first: "v0 = ...; v1 = ...; result".
  std::optional<double> run() {
    double result = 0;
    for (size_t semicolon; !failed_ && (semicolon = rest_.find(';')) != std::string_view::npos;) {
      const std::string_view after = rest_.substr(semicolon + 1), part = rest_.substr(0, semicolon);
      const size_t equals = part.find(" = ");
      if (equals == std::string_view::npos) return std::nullopt;
      std::string_view name = part.substr(0, equals);
      while (name.starts_with(' ')) name.remove_prefix(1);
      rest_ = part.substr(equals + 3);
      const double value = sum();
      if (failed_ || !at_end()) return std::nullopt;
      parts_[std::string(name)] = value;
      rest_ = after;
    }
    result = sum();
    return failed_ || !at_end() || !std::isfinite(result) ? std::nullopt : std::optional(result);
  }

 private:
  void skip() {
    while (rest_.starts_with(' ')) rest_.remove_prefix(1);
  }
  bool at_end() {
    skip();
    return rest_.empty();
  }
  bool take(std::string_view token) {
    skip();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  double fail() {
    failed_ = true;
    return 0;
  }

  double sum() {
    double value = product();
    while (!failed_) {
      if (take("+")) {
        value += product();
      } else if (take("-")) {
        value -= product();
      } else {
        break;
      }
    }
    return value;
  }

  double product() {
    double value = primary();
    while (!failed_) {
      if (take("//")) {
        value = std::floor(value / primary());
      } else if (take("*")) {
        value *= primary();
      } else if (take("%")) {
        const double by = primary();
        value -= std::floor(value / by) * by;
      } else {
        break;
      }
    }
    return value;
  }

  double primary() {
    if (++depth_ > kMostDepth) return fail();
    const double value = primary_here();
    --depth_;
    return value;
  }

  double primary_here() {
    skip();
    if (take("-")) return -primary();
    if (take("(")) {
      const double value = sum();
      return take(")") ? value : fail();
    }
    for (const bool least : {true, false}) {
      if (!take(least ? "min(" : "max(")) continue;
      double value = sum();
      while (!failed_ && take(",")) {
        const double other = sum();
        value = least ? std::min(value, other) : std::max(value, other);
      }
      return take(")") ? value : fail();
    }
    if (!rest_.empty() && rest_[0] >= '0' && rest_[0] <= '9') return number();
    return name();
  }

  double number() {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) return fail();
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return static_cast<double>(value);
  }

  // The longest name that stands here: a user's word may begin with another.
  double name() {
    std::optional<double> value;
    size_t length = 0;
    const auto consider = [&](std::string_view known, double number) {
      if (known.size() > length && rest_.starts_with(known)) length = known.size(), value = number;
    };
    for (size_t i = 0; i < std::min(names_.size(), values_.size()); ++i) consider(names_[i], static_cast<double>(values_[i]));
    for (const auto& [part, number] : parts_) consider(part, number);
    rest_.remove_prefix(length);
    return value ? *value : fail();
  }

  std::string_view rest_;
  std::span<const std::string> names_;
  std::span<const int64_t> values_;
  std::map<std::string, double> parts_;
  bool failed_ = false;
  int depth_ = 0;
};

}  // namespace

std::optional<double> evaluate_formula(std::string_view text, std::span<const std::string> names, std::span<const int64_t> values) {
  return Evaluator(text, names, values).run();
}

}  // namespace coil
