#include "expr/text_reader.h"

#include <algorithm>
#include <charconv>
#include <iterator>

#include <fmt/format.h>

#include "expr/bad_index.h"
#include "expr/name_text.h"

namespace coil {
namespace {

constexpr size_t kMaxConditions = 10000;  // parts of one condition
constexpr int kMaxTextDepth = 50;         // of conditions in parentheses

// Words that expressions read as something else than names.
constexpr std::string_view kWords[] = {"true", "false", "inf", "nan", "load"};

}  // namespace

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

bool reads_otherwise(std::string_view label) {
  const bool numbered = label.size() > 1 && label.find_first_not_of("0123456789", 1) == std::string_view::npos;
  return !is_plain_name(label) || (numbered && (label[0] == 'i' || label[0] == 't' || label[0] == 'v')) ||
         std::find(std::begin(kWords), std::end(kWords), label) != std::end(kWords);
}

TextReader::TextReader(ExprPool& pool, std::string_view line, ParseNames names) : pool_(pool), line_(line), rest_(line), names_(std::move(names)) {}

ParseNames TextReader::nothing_to_load() {
  return {[](std::string_view) { return std::nullopt; }, [](TempId) { return std::nullopt; }};
}

void TextReader::fail(std::string why) {
  if (problem_) return;
  problem_ = Error{ErrorCode::bad_program, fmt::format("column {}: {}", line_.size() - rest_.size() + 1, why), std::string(line_.substr(0, 200)), ""};
  rest_ = {};
}

Error TextReader::problem_in(size_t line) const {
  Error error = problem();
  error.message = fmt::format("line {}, {}", line, error.message);
  return error;
}

void TextReader::skip_space() {
  while (!rest_.empty() && rest_[0] == ' ') rest_.remove_prefix(1);
}

bool TextReader::next(std::string_view token) {
  skip_space();
  if (failed() || !rest_.starts_with(token)) return false;
  return token.size() == 1 || !in_name(token.back()) || rest_.size() == token.size() || !in_name(rest_[token.size()]);
}

bool TextReader::accept(std::string_view token) {
  if (!next(token)) return false;
  rest_.remove_prefix(token.size());
  return true;
}

void TextReader::expect(std::string_view token) {
  if (!accept(token)) fail(fmt::format("expected '{}'", token));
}

bool TextReader::at_end() {
  skip_space();
  return rest_.empty();
}

std::string TextReader::name() {
  skip_space();
  size_t at = 0;
  std::optional<std::string> found = read_name(rest_, at);
  if (!found) fail("expected a name");
  rest_.remove_prefix(failed() ? 0 : at);
  return std::move(found).value_or("");
}

std::string TextReader::quoted() {
  skip_space();
  size_t at = 0;
  std::optional<std::string> found = read_quoted_name(rest_, at);
  if (!found) fail("expected text in quotes");
  rest_.remove_prefix(failed() ? 0 : at);
  return std::move(found).value_or("");
}

bool TextReader::integer_next(int64_t* value) {
  skip_space();
  const auto [end, wrong] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), *value);
  if (failed() || wrong != std::errc()) return false;
  rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
  return true;
}

int64_t TextReader::integer() {
  int64_t value = 0;
  if (!integer_next(&value)) fail("expected a whole number");
  return value;
}

double TextReader::real() {
  skip_space();
  double value = 0;
  const auto [end, wrong] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
  if (failed() || wrong != std::errc()) fail("expected a number");
  else rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
  return value;
}

DType TextReader::dtype() {
  const std::string word = name();
  const std::optional<DType> found = dtype_from_name(word);
  if (!found || *found == DType::index) fail(fmt::format("'{}' is no type of elements", word));
  return found.value_or(DType::f32);
}

// A file's numbers may leave int64 together.
Expr TextReader::parsed(Comparisons comparisons) {
  if (failed()) return {};
  try {
    Result<Expr> found = parse_first_expr(pool_, rest_, names_, comparisons);
    if (found.ok()) return found.value();
    fail(found.error().message);
  } catch (const BadIndex& error) {
    fail(error.problem());
  }
  return {};
}

Expr TextReader::expr() { return parsed(Comparisons::read); }

Expr TextReader::index() {
  const Expr e = parsed(Comparisons::leave);
  if (e && e->dtype != DType::index) fail("expected a size or a coordinate");
  return failed() ? Expr() : e;
}

std::vector<Expr> TextReader::list() {
  std::vector<Expr> all;
  expect("[");
  if (accept("]")) return all;
  do all.push_back(index());
  while (accept(","));
  expect("]");
  return all;
}

SymbolId TextReader::symbol() {
  const std::string word = name();
  for (size_t i = 0; i < pool_.num_symbols(); ++i) {
    if (pool_.symbol_info(SymbolId(i)).label == word) return SymbolId(i);
  }
  if (const auto found = pool_.find_symbol(word)) return *found;
  fail(fmt::format("there is no size '{}'", word));
  return {};
}

Condition TextReader::comparison() {
  if (accept("true")) return Condition::constant(true);
  if (accept("false")) return Condition::constant(false);
  // "(a or b) and c", but "(a + b)*2 < c" too.
  if (const std::string_view before = rest_; depth_ < kMaxTextDepth && accept("(")) {
    ++depth_;
    Condition inside = condition();
    --depth_;
    if (accept(")")) return inside;
    problem_.reset();
    rest_ = before;
  }
  const Expr a = index();
  for (const auto& [sign, kind] : {std::pair("<=", Condition::Kind::less_equal), std::pair("<", Condition::Kind::less), std::pair("==", Condition::Kind::equal),
                                   std::pair("!=", Condition::Kind::not_equal)}) {
    if (accept(sign)) return Condition::compare(kind, a, index());
  }
  fail("expected a comparison");
  return Condition::constant(true);
}

Condition TextReader::condition() {
  Condition first = comparison();
  const char* word = accept("and") ? "and" : accept("or") ? "or" : nullptr;
  if (!word) return first;
  std::vector<Condition> parts = {std::move(first)};
  do parts.push_back(comparison());
  while (parts.size() < kMaxConditions && accept(word));
  return {word[0] == 'a' ? Condition::Kind::all : Condition::Kind::any, {}, {}, std::move(parts)};
}

}  // namespace coil
