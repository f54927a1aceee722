// Lookup in, and parsing of, the schema table.
#include "frontend/schema.h"

#include <algorithm>
#include <charconv>
#include <iterator>

namespace coil {
namespace {

// Not string_views: thousands of constant lengths are more than clang evaluates.
constexpr const char* kSchemas[] = {
#include "frontend/aten_schemas.inc"
};

std::string_view name_of(std::string_view line) { return line.substr(0, line.find('(')); }

std::string_view trim(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

// Splits at commas that are in no bracket and no string.
std::vector<std::string_view> split_arguments(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  bool quoted = false;
  size_t start = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '(' || c == '[')) {
      ++depth;
    } else if (!quoted && (c == ')' || c == ']')) {
      --depth;
    } else if (!quoted && depth == 0 && c == ',') {
      parts.push_back(trim(text.substr(start, i - start)));
      start = i + 1;
    }
  }
  if (std::string_view last = trim(text.substr(std::min(start, text.size()))); !last.empty()) parts.push_back(last);
  return parts;
}

// The index of the parenthesis that closes the one at `open`; npos: none.
size_t closing(std::string_view text, size_t open) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = open; i < text.size(); ++i) {
    char c = text[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && c == '(') {
      ++depth;
    } else if (!quoted && c == ')' && --depth == 0) {
      return i;
    }
  }
  return std::string_view::npos;
}

SchemaType base_type(std::string_view word) {
  struct Row {
    std::string_view word;
    SchemaType type;
  };
  static constexpr Row kRows[] = {
      {"Tensor", SchemaType::tensor},       {"int", SchemaType::integer},
      {"SymInt", SchemaType::integer},      {"Scalar", SchemaType::scalar},
      {"float", SchemaType::floating},      {"bool", SchemaType::boolean},
      {"SymBool", SchemaType::boolean},     {"str", SchemaType::string},
      {"ScalarType", SchemaType::dtype},    {"MemoryFormat", SchemaType::memory_format},
      {"Layout", SchemaType::layout},       {"Device", SchemaType::device},
      {"Generator", SchemaType::generator},
  };
  for (const Row& r : kRows) {
    if (r.word == word) return r.type;
  }
  return SchemaType::other;
}

// "Tensor(a!)[]?", "int[2]", "Tensor?[]", "SymInt[1]?"
void parse_type(std::string_view text, SchemaArg& arg) {
  size_t end = 0;
  while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) || text[end] == '_')) ++end;
  arg.type = base_type(text.substr(0, end));
  for (size_t i = end; i < text.size(); ++i) {
    if (text[i] == '(') {
      size_t close = closing(text, i);
      if (close == std::string_view::npos) return;
      arg.written = arg.written || text.substr(i, close - i).find('!') != std::string_view::npos;
      i = close;
    } else if (text[i] == '[') {
      if (arg.list) arg.type = SchemaType::other;  // a list of lists
      arg.list = true;
      arg.optional = false;  // what came before was the element's
      size_t close = std::min(text.find(']', i), text.size());
      std::from_chars(text.data() + i + 1, text.data() + close, arg.list_size);
      i = close;
    } else if (text[i] == '?') {
      arg.optional = true;
    }
  }
}

SchemaArg parse_argument(std::string_view text) {
  SchemaArg arg;
  // The type ends at the first space outside of parentheses: "Tensor(a -> *) self".
  size_t space = 0;
  for (int depth = 0; space < text.size() && (text[space] != ' ' || depth > 0); ++space) {
    depth += text[space] == '(' ? 1 : text[space] == ')' ? -1 : 0;
  }
  parse_type(text.substr(0, space), arg);
  std::string_view rest = trim(text.substr(std::min(space, text.size())));
  size_t equals = rest.find('=');
  arg.name = rest.substr(0, equals);
  if (equals != std::string_view::npos) arg.default_text = rest.substr(equals + 1);
  return arg;
}

}  // namespace

std::optional<Schema> parse_schema(std::string_view line) {
  Schema schema;
  schema.name = name_of(line);
  size_t open = schema.name.size();
  size_t close = open < line.size() ? closing(line, open) : std::string_view::npos;
  if (close == std::string_view::npos) return std::nullopt;
  bool keyword_only = false;
  for (std::string_view part : split_arguments(line.substr(open + 1, close - open - 1))) {
    if (part == "*") {
      keyword_only = true;
      continue;
    }
    schema.args.push_back(parse_argument(part));
    schema.args.back().keyword_only = keyword_only;
  }
  size_t arrow = line.find("->", close);
  if (arrow == std::string_view::npos) return std::nullopt;
  std::string_view returns = trim(line.substr(arrow + 2));
  if (returns.starts_with('(')) {
    size_t end = closing(returns, 0);
    if (end == std::string_view::npos) return std::nullopt;
    returns = returns.substr(1, end - 1);
  }
  for (std::string_view part : split_arguments(returns)) schema.returns.push_back(parse_argument(part));
  return schema;
}

std::optional<Schema> find_schema(std::string_view target) {
  auto it = std::lower_bound(std::begin(kSchemas), std::end(kSchemas), target, [](const char* line, std::string_view name) { return name_of(line) < name; });
  if (it == std::end(kSchemas) || name_of(*it) != target) return std::nullopt;
  return parse_schema(*it);
}

}  // namespace coil
