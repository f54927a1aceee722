#include "frontend/symbols.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <limits>

#include "base/text.h"
#include "frontend/dim_names.h"

namespace coil {
namespace {

// No tensor has a dimension this large; below it products of sizes are checked, above it they could overflow.
constexpr int64_t kMaxSize = int64_t{1} << 48;
// Of an integer that is no size. Sizes that are computed from it are checked in the call.
constexpr int64_t kLeastInteger = -(int64_t{1} << 62);

constexpr size_t kMaxSymbols = 10000;  // of a program: each is an argument of every check, and real programs have some dozens

bool is_unbacked_float(std::string_view name) { return name.starts_with("zuf") || name.starts_with("zf"); }

// A number that the program reads from data.
bool is_unbacked(std::string_view name) { return name.size() > 1 && name[0] == 'u' && std::isdigit(static_cast<unsigned char>(name[1])); }

}  // namespace

Status SymbolTable::read_ranges(JsonValue constraints) {
  TRY(auto object, constraints.as_object());
  for (auto [name, range] : object) {
    Range r;
    const bool unbacked = is_unbacked(name) || is_unbacked_float(name);
    if (unbacked) r.min = -kMaxSize, r.max = kMaxSize;
    // Floats and infinities bound nothing that we compute with.
    if (auto min = range.find("min_val"); min && min->is_int()) r.min = min->as_int().value();
    if (auto max = range.find("max_val"); max && max->is_int()) r.max = max->as_int().value();
    if (unbacked) r.min = std::clamp(*r.min, -kMaxSize, kMaxSize), r.max = std::clamp(r.max, -kMaxSize, kMaxSize);
    if (r.max > kMaxSize) r.max = INT64_MAX;
    if (!unbacked && r.min && *r.min > r.max)
      return Error{ErrorCode::bad_program, fmt::format("the range of dimension {} is empty: {} to {}", name, *r.min, r.max), {}, {}};
    ranges_[name] = r;
  }
  return ok_status();
}

std::optional<SymbolId> SymbolTable::known(std::string_view name) const {
  const auto it = known_.find(name);
  return it == known_.end() ? std::nullopt : std::optional<SymbolId>(it->second);
}

Error SymbolTable::unknown_number(std::string_view name) const {
  const auto it = unbacked_.find(name);
  return Error{ErrorCode::unsupported_feature,
               fmt::format("a size or number depends on the values of a tensor ('{}'{})", name, it == unbacked_.end() ? "" : ", read at " + it->second),
               {},
               "compute it outside of the model and pass it as an input"};
}

void SymbolTable::note_integer(JsonValue v) {
  if (const std::string_view name = symbol_name(v); !name.empty()) integers_.emplace(name);
}

void SymbolTable::note_size(JsonValue v) {
  if (const std::string_view name = symbol_name(v); !name.empty()) sizes_.emplace(name);
}

Result<Expr> SymbolTable::symbol(std::string_view name) {
  if (is_unbacked_float(name)) return unknown_number(name);
  if (const auto it = known_.find(name); it != known_.end()) return pool_->symbol(it->second);
  if (pool_->num_symbols() >= kMaxSymbols)
    return Error{ErrorCode::bad_program,
                 fmt::format("the program has more than {} dynamic dimensions", kMaxSymbols),
                 {},
                 "give dimensions that are equal one torch.export.Dim"};
  if (!is_dimension_name(name))  // it stands in formulas, and coil has symbols of its own
    return Error{ErrorCode::bad_program, fmt::format("'{}' cannot name a dynamic dimension", clipped(name, 100)), {}, {}};
  Symbol s;
  s.name = s.label = std::string(name);
  s.from_data = is_unbacked(name);
  const bool is_integer = !s.from_data && integers_.contains(name) && !sizes_.contains(name);
  if (s.from_data) s.min = -kMaxSize, s.max = kMaxSize;
  if (auto it = ranges_.find(name); it != ranges_.end()) {
    const int64_t least = is_integer ? kLeastInteger : s.from_data ? -kMaxSize : 0;
    s.min = std::max(it->second.min.value_or(least), least);
    s.max = it->second.max;
  }
  if (!s.from_data && !is_integer && (s.min > kMaxSize || s.max < 0))
    return Error{ErrorCode::bad_program, fmt::format("the range of dimension {} holds no size", name), {}, {}};
  if (s.min > s.max) return Error{ErrorCode::bad_program, fmt::format("the range of {} holds no number", name), {}, {}};
  const SymbolId id = pool_->add_symbol(std::move(s));
  known_.emplace(name, id);
  return pool_->symbol(id);
}

SreprContext SymbolTable::context() {
  return {*pool_, [this](std::string_view name) { return symbol(name); }, &budget_};
}

Result<Expr> SymbolTable::sym_int(JsonValue v) {
  TRY(JsonUnion u, as_union(v));
  if (u.key == "as_int") {
    TRY(int64_t i, u.value.as_int());
    return pool_->index(i);
  }
  if (u.key != "as_expr") return v.error("expected as_int or as_expr");
  TRY(std::string_view text, u.value.get_string("expr_str"));
  if (auto it = parsed_.find(text); it != parsed_.end()) return it->second;
  TRY(Expr e, parse_srepr(context(), text));
  parsed_[text] = e;
  return e;
}

Result<Condition> SymbolTable::sym_bool(JsonValue v) {
  TRY(JsonUnion u, as_union(v));
  if (u.key == "as_bool") {
    TRY(bool b, u.value.as_bool());
    return Condition::constant(b);
  }
  if (u.key != "as_expr") return v.error("expected as_bool or as_expr");
  TRY(std::string_view text, u.value.get_string("expr_str"));
  return parse_condition_srepr(context(), text);
}

Result<double> SymbolTable::sym_float(JsonValue v) {
  TRY(JsonUnion u, as_union(v));
  if (u.key == "as_float") return u.value.as_double();
  if (u.key != "as_expr") return v.error("expected as_float or as_expr");
  TRY(std::string_view text, u.value.get_string("expr_str"));
  if (text == "oo" || text == "Infinity()") return std::numeric_limits<double>::infinity();
  if (text == "-oo" || text == "NegativeInfinity()") return -std::numeric_limits<double>::infinity();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  constexpr std::string_view kFloat = "Float('";
  if (text.starts_with(kFloat)) return std::strtod(std::string(text.substr(kFloat.size())).c_str(), nullptr);
  TRY(Expr e, parse_srepr(context(), text));
  if (e->is_constant()) return static_cast<double>(e->as_int());
  return Error{ErrorCode::unsupported_feature, fmt::format("a float depends on a dynamic size, which is not supported: {}", text.substr(0, 400)), {}, {}};
}

std::string_view SymbolTable::symbol_name(JsonValue v) {
  auto expr = v.find("as_expr");
  if (!expr) return {};
  std::string_view text = text_or_empty(*expr, "expr_str");
  constexpr std::string_view kSymbol = "Symbol('";
  const auto in_a_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  if (!text.empty() && std::islower(static_cast<unsigned char>(text[0])) && std::all_of(text.begin(), text.end(), in_a_word)) return text;  // of str()
  if (!text.starts_with(kSymbol)) return {};
  text.remove_prefix(kSymbol.size());
  const size_t end = text.find('\'');
  return text.find("Symbol(", end) == text.npos ? text.substr(0, end) : std::string_view();
}

void SymbolTable::note_unbacked(JsonValue v, std::string_view where) {
  const std::string_view name = symbol_name(v);
  if (!name.empty() && !where.empty()) unbacked_.emplace(std::string(name), std::string(where));
}

}  // namespace coil
