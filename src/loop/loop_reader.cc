#include "loop/loop_reader.h"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "expr/name_text.h"

namespace coil {
namespace {

constexpr size_t kMaxConditions = 10000;  // parts of one condition
constexpr int kMaxDepth = 50;             // of conditions in parentheses

}  // namespace

LoopReader::LoopReader(const LoopProgram& program, const BuffersByName& buffers, std::string_view line)
    : program_(program), buffers_(buffers), line_(line), rest_(line) {
  names_.buffer = [this](std::string_view name) -> std::optional<std::pair<BufferId, DType>> {
    const auto found = buffers_.find(name);
    if (found == buffers_.end()) return std::nullopt;
    return std::pair(found->second, program_.buffer(found->second).dtype);
  };
}

void LoopReader::fail(std::string why) {
  if (problem_) return;
  problem_ = Error{ErrorCode::bad_program, fmt::format("column {}: {}", line_.size() - rest_.size() + 1, why), std::string(line_.substr(0, 200)), ""};
  rest_ = {};
}

void LoopReader::skip_space() {
  while (!rest_.empty() && rest_[0] == ' ') rest_.remove_prefix(1);
}

bool LoopReader::next(std::string_view token) {
  skip_space();
  if (failed() || !rest_.starts_with(token)) return false;
  return token.size() == 1 || !in_name(token.back()) || rest_.size() == token.size() || !in_name(rest_[token.size()]);
}

bool LoopReader::accept(std::string_view token) {
  if (!next(token)) return false;
  rest_.remove_prefix(token.size());
  return true;
}

void LoopReader::expect(std::string_view token) {
  if (!accept(token)) fail(fmt::format("expected '{}'", token));
}

bool LoopReader::at_end() {
  skip_space();
  return rest_.empty();
}

std::string LoopReader::name() {
  skip_space();
  size_t at = 0;
  std::optional<std::string> found = read_name(rest_, at);
  if (!found) fail("expected a name");
  rest_.remove_prefix(failed() ? 0 : at);
  return std::move(found).value_or("");
}

std::string LoopReader::quoted() {
  skip_space();
  size_t at = 0;
  std::optional<std::string> found = read_quoted_name(rest_, at);
  if (!found) fail("expected text in quotes");
  rest_.remove_prefix(failed() ? 0 : at);
  return std::move(found).value_or("");
}

std::string LoopReader::rest() {
  skip_space();
  if (rest_.starts_with('"')) return quoted();
  return std::string(std::exchange(rest_, {}));
}

bool LoopReader::integer_next(int64_t* value) {
  skip_space();
  const auto [end, wrong] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), *value);
  if (failed() || wrong != std::errc()) return false;
  rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
  return true;
}

int64_t LoopReader::integer() {
  int64_t value = 0;
  if (!integer_next(&value)) fail("expected a whole number");
  return value;
}

double LoopReader::real() {
  skip_space();
  double value = 0;
  const auto [end, wrong] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
  if (failed() || wrong != std::errc()) fail("expected a number");
  else rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
  return value;
}

DType LoopReader::dtype() {
  const std::string word = name();
  const std::optional<DType> found = dtype_from_name(word);
  if (!found || *found == DType::index) fail(fmt::format("'{}' is no type of elements", word));
  return found.value_or(DType::f32);
}

Expr LoopReader::parsed(Comparisons comparisons) {
  if (failed()) return {};
  Result<Expr> found = parse_first_expr(*program_.pool, rest_, names_, comparisons);
  if (found.ok()) return found.value();
  fail(found.error().message);
  return {};
}

Expr LoopReader::expr() { return parsed(Comparisons::read); }

Expr LoopReader::index() {
  const Expr e = parsed(Comparisons::leave);
  if (e && e->dtype != DType::index) fail("expected a size or a coordinate");
  return failed() ? Expr() : e;
}

std::vector<Expr> LoopReader::list() {
  std::vector<Expr> all;
  expect("[");
  if (accept("]")) return all;
  do all.push_back(index());
  while (accept(","));
  expect("]");
  return all;
}

void LoopReader::variables() {
  expect("[");
  const size_t end = rest_.find(']');
  if (end == std::string_view::npos) fail("expected ']'");
  else rest_.remove_prefix(end + 1);
}

int LoopReader::variable() {
  int64_t number = 0;
  skip_space();
  if (!rest_.starts_with('i')) fail("expected a variable");
  if (failed()) return 0;
  rest_.remove_prefix(1);
  if (!integer_next(&number) || number < 0 || number > 1000) fail("expected a variable's number");
  return failed() ? 0 : static_cast<int>(number);
}

BufferId LoopReader::buffer() {
  if (accept("-")) return {};
  const std::string word = name();
  const auto found = buffers_.find(word);
  if (!failed() && found == buffers_.end()) fail(fmt::format("there is no buffer '{}' before this line", word));
  return failed() ? BufferId() : found->second;
}

Operand LoopReader::operand() {
  const BufferId id = buffer();
  return {id, list()};
}

Condition LoopReader::comparison() {
  if (accept("true")) return Condition::constant(true);
  if (accept("false")) return Condition::constant(false);
  // "(a or b) and c", but "(a + b)*2 < c" too.
  if (const std::string_view before = rest_; depth_ < kMaxDepth && accept("(")) {
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

Condition LoopReader::condition() {
  Condition first = comparison();
  const char* word = accept("and") ? "and" : accept("or") ? "or" : nullptr;
  if (!word) return first;
  std::vector<Condition> parts = {std::move(first)};
  do parts.push_back(comparison());
  while (parts.size() < kMaxConditions && accept(word));
  return {word[0] == 'a' ? Condition::Kind::all : Condition::Kind::any, {}, {}, std::move(parts)};
}

}  // namespace coil
