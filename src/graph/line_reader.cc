#include "graph/line_reader.h"

#include <charconv>

#include <fmt/format.h>

#include "graph/graph_words.h"

namespace coil {
namespace {

constexpr int64_t kMaxElements = int64_t{1} << 48;  // of a tensor: products of larger sizes could overflow
constexpr size_t kMaxRank = 64;

}  // namespace

LineReader::LineReader(const TextScope& scope, std::string_view line) : TextReader(*scope.graph.pool, line), scope_(scope) {}

bool LineReader::at_end() {
  skip_space();
  return rest().empty() || rest()[0] == '#';
}

std::string LineReader::comment() {
  if (failed() || !at_end() || rest().empty()) return {};
  std::string text(rest().substr(1));
  go_to({});
  return text;
}

std::string LineReader::new_name() {
  expect("%");
  return name();
}

ValueId LineReader::value() {
  expect("%");
  const std::string word = name();
  const auto found = scope_.values.find(word);
  if (!failed() && found == scope_.values.end()) fail(fmt::format("there is no value '%{}' before this line", word));
  return failed() ? ValueId() : found->second;
}

Expr LineReader::size() {
  const bool named = accept("size(");
  const Expr e = index();
  if (named) expect(")");
  if (!e || failed()) return {};
  const auto is_other = [](Expr part) { return part->dtype != DType::index || part->kind == ExprKind::var; };
  if (any_of(e, is_other)) fail("expected an expression of sizes");
  return failed() ? Expr() : e;
}

std::vector<Expr> LineReader::sizes() {
  std::vector<Expr> all;
  expect("[");
  if (accept("]")) return all;
  do all.push_back(size());
  while (!failed() && accept(","));
  expect("]");
  return all;
}

TensorType LineReader::tensor_type() {
  TensorType type;
  type.dtype = dtype();
  type.sizes = sizes();
  const bool strided = accept("strides");
  if (strided) type.strides = sizes();
  if (accept("on")) {
    const std::string word = name();
    const auto* found = std::find(kDeviceWords.begin(), kDeviceWords.end(), word);
    if (found == kDeviceWords.end()) fail(fmt::format("'{}' is no device", word));
    else type.device = static_cast<DeviceType>(found - kDeviceWords.begin());
  }
  if (failed()) return {};
  int64_t elements = 1;
  for (const std::vector<Expr>* list : {&type.sizes, &type.strides}) {
    for (Expr e : *list) {
      if (!e->is_constant()) continue;
      const int64_t n = e->as_int();
      if (n < 0 || n > kMaxElements) fail(fmt::format("a size or stride of {}", n));
      else if (list == &type.sizes && (__builtin_mul_overflow(elements, std::max<int64_t>(n, 1), &elements) || elements > kMaxElements))
        fail("the tensor is larger than any memory");
      if (failed()) return {};
    }
  }
  if (type.sizes.size() > kMaxRank || (strided && type.strides.size() != type.sizes.size()))
    fail(fmt::format("{} sizes and {} strides", type.sizes.size(), type.strides.size()));
  if (!failed() && !strided) type.strides = contiguous_strides(*scope_.graph.pool, type.sizes);
  return type;
}

ValueType LineReader::type() {
  if (accept("None")) return std::monostate();
  skip_space();
  const std::string_view word = first_word(rest());
  const bool is_tensor = dtype_from_name(word).has_value() && rest().substr(word.size()).starts_with('[');
  if (is_tensor) return tensor_type();
  return size();
}

// A number that is no part of an expression. whole: it may be the beginning of one.
bool LineReader::number_next(double* number, bool* whole) {
  skip_space();
  const std::string_view text = rest(), word = first_word(text.starts_with('-') ? text.substr(1) : text);
  if (failed() || (!word.empty() && word != "inf" && word != "nan")) return false;
  int64_t integer = 0;
  const char* end = text.data() + text.size();
  const auto [real_end, wrong] = std::from_chars(text.data(), end, *number);
  if (real_end == text.data()) return false;
  if (wrong != std::errc()) fail("expected a number that a double has room for");
  *whole = std::from_chars(text.data(), end, integer).ptr == real_end;
  return !failed();
}

bool LineReader::truth() {
  const bool yes = accept("True");
  if (!yes) expect("False");
  return yes;
}

std::vector<ValueId> LineReader::values() {
  std::vector<ValueId> all;
  do all.push_back(accept("None") ? ValueId() : value());
  while (!failed() && accept(","));
  return all;
}

// Behind "[".
Argument LineReader::list_argument() {
  if (accept("]")) return std::vector<Expr>();
  double number = 0;
  bool whole = false;
  Argument made;
  if (next("%") || next("None")) {
    made = values();
  } else if (next("True") || next("False")) {
    std::vector<bool> all;
    do all.push_back(truth());
    while (!failed() && accept(","));
    made = std::move(all);
  } else if (number_next(&number, &whole) && !whole) {
    std::vector<double> all;
    do all.push_back(real());
    while (!failed() && accept(","));
    made = std::move(all);
  } else {
    std::vector<Expr> all;
    do all.push_back(size());
    while (!failed() && accept(","));
    made = std::move(all);
  }
  expect("]");
  return made;
}

// word: is_argument_word, and read already, unless it begins a size or a number.
Argument LineReader::word_argument(std::string_view word) {
  const auto empty = [&](Argument none) {
    expect("[");
    expect("]");
    return none;
  };
  if (word == "None") return NoneArg();
  if (word == "True" || word == "False") return word == "True";
  if (word == "tensors") return empty(std::vector<ValueId>());
  if (word == "floats") return empty(std::vector<double>());
  if (word == "bools") return empty(std::vector<bool>());
  if (word == "strided") return LayoutArg();
  if (const auto* f = std::find(kFormatWords.begin(), kFormatWords.end(), word); f != kFormatWords.end())
    return static_cast<MemoryFormat>(f - kFormatWords.begin());
  if (const auto* d = std::find(kDeviceWords.begin(), kDeviceWords.end(), word); d != kDeviceWords.end()) {
    DeviceArg device{static_cast<DeviceType>(d - kDeviceWords.begin()), -1};
    const int64_t number = accept(":") ? integer() : -1;
    if (number < -1 || number > 1000) fail("a device's number is at most 1000");
    else device.index = static_cast<int>(number);
    return device;
  }
  if (is_subgraph_word(word)) {
    size_t number = 0;
    std::from_chars(word.data() + 5, word.data() + word.size(), number);
    if (word == fmt::format("graph{}", number) && number < scope_.subgraphs.size()) return scope_.subgraphs[number];
    fail(fmt::format("there is no '{}:' below", word));
    return NoneArg();
  }
  if (const auto found = dtype_from_name(word); found && *found != DType::index) return *found;
  Argument made;
  expect("(");
  if (word == "complex") {
    const double real_part = real();
    expect(",");
    made = std::complex<double>(real_part, real());
  } else if (word == "layout") {
    const int64_t number = integer();
    if (number < 0 || number > 100) fail("there is no such layout");
    made = LayoutArg{static_cast<int>(number)};
  } else {
    made = OpaqueArg{quoted()};
  }
  expect(")");
  return made;
}

Argument LineReader::argument() {
  double number = 0;
  bool whole = false;
  if (next("%")) return value();
  if (next("\"")) return quoted();
  if (accept("[")) return list_argument();
  if (number_next(&number, &whole) && !whole) return real();
  skip_space();
  const std::string_view word = first_word(rest());
  if (failed() || !is_argument_word(word) || word == "size") return size();
  go_to(rest().substr(word.size()));
  return word_argument(word);
}

std::string LineReader::argument_name() {
  skip_space();
  size_t at = 0;
  const std::string_view text = rest();
  std::optional<std::string> found = read_name(text, at);
  if (failed() || !found || !text.substr(at).starts_with('=') || text.substr(at).starts_with("==")) return {};
  go_to(text.substr(at + 1));
  return *std::move(found);
}

std::variant<std::monostate, int64_t, double, bool, std::string> LineReader::constant() {
  double number = 0;
  bool whole = false;
  if (accept("None")) return std::monostate();
  if (next("True") || next("False")) return truth();
  if (next("\"")) return quoted();
  if (!number_next(&number, &whole)) fail("expected a value: None, True, False, a number, text in quotes");
  if (whole) return integer();
  return real();
}

std::string LineReader::to_end() {
  if (next("\"")) return quoted();
  skip_space();
  std::string text(rest());
  go_to({});
  return text;
}

}  // namespace coil
