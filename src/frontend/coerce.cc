// Arguments as an operator's schema types them, and its defaults (arguments.h).
#include <fmt/format.h>

#include <charconv>

#include "frontend/arguments.h"
#include "frontend/errors.h"

namespace coil {
namespace {

std::string_view kind_name(const Argument& a) {
  static constexpr std::string_view kNames[] = {"None",
                                                "a tensor",
                                                "a list of tensors",
                                                "an integer",
                                                "a list of integers",
                                                "a float",
                                                "a list of floats",
                                                "a bool",
                                                "a list of bools",
                                                "a string",
                                                "a dtype",
                                                "a memory format",
                                                "a device",
                                                "a layout",
                                                "a complex number",
                                                "a graph",
                                                "something else"};
  return kNames[a.index()];
}

Result<Argument> coerce_list(ExprPool& pool, Argument a, const SchemaArg& schema) {
  auto* ints = std::get_if<std::vector<Expr>>(&a);
  auto* values = std::get_if<std::vector<ValueId>>(&a);
  bool empty = (values && values->empty()) || (ints && ints->empty());
  size_t repeat = static_cast<size_t>(std::max(1, schema.list_size));
  switch (schema.type) {
    case SchemaType::integer:
      if (empty) return Argument(std::vector<Expr>{});
      if (ints) return a;
      if (auto* e = std::get_if<Expr>(&a)) return Argument(std::vector<Expr>(repeat, *e));
      break;
    case SchemaType::floating:
      if (empty) return Argument(std::vector<double>{});
      if (std::holds_alternative<std::vector<double>>(a)) return a;
      if (auto* d = std::get_if<double>(&a)) return Argument(std::vector<double>(repeat, *d));
      if (ints) {
        std::vector<double> list;
        for (Expr e : *ints) {
          if (!e->is_constant()) return unsupported("a list of floats holds a dynamic size");
          list.push_back(static_cast<double>(e->as_int()));
        }
        return Argument(std::move(list));
      }
      break;
    case SchemaType::boolean:
      if (empty) return Argument(std::vector<bool>{});
      if (std::holds_alternative<std::vector<bool>>(a)) return a;
      if (auto* b = std::get_if<bool>(&a)) return Argument(std::vector<bool>(repeat, *b));
      break;
    case SchemaType::tensor:
      if (empty) return Argument(std::vector<ValueId>{});
      if (values) return a;
      break;
    default: return a;
  }
  (void)pool;
  return bad_program(fmt::format("argument '{}' is {} instead of a list", schema.name, kind_name(a)));
}

Result<Argument> coerce_single(ExprPool& pool, Argument a, const SchemaArg& schema) {
  auto* e = std::get_if<Expr>(&a);
  bool is_number = e || std::holds_alternative<double>(a) || std::holds_alternative<bool>(a) || std::holds_alternative<std::complex<double>>(a);
  bool fits = true;
  switch (schema.type) {
    case SchemaType::tensor: fits = is_number || std::holds_alternative<ValueId>(a); break;
    case SchemaType::scalar: fits = is_number || std::holds_alternative<ValueId>(a); break;
    case SchemaType::integer:
      if (auto* b = std::get_if<bool>(&a)) return Argument(pool.index(*b ? 1 : 0));
      fits = e != nullptr;
      break;
    case SchemaType::floating:
      if (e && (*e)->is_constant()) return Argument(static_cast<double>((*e)->as_int()));
      if (auto* b = std::get_if<bool>(&a)) return Argument(*b ? 1.0 : 0.0);
      fits = e || std::holds_alternative<double>(a);
      break;
    case SchemaType::boolean:
      if (e && (*e)->is_constant()) return Argument((*e)->as_int() != 0);
      fits = std::holds_alternative<bool>(a);
      break;
    case SchemaType::string: fits = std::holds_alternative<std::string>(a); break;
    case SchemaType::dtype: fits = std::holds_alternative<DType>(a); break;
    case SchemaType::memory_format: fits = std::holds_alternative<MemoryFormat>(a); break;
    case SchemaType::layout: fits = std::holds_alternative<LayoutArg>(a); break;
    case SchemaType::device: fits = std::holds_alternative<DeviceArg>(a); break;
    case SchemaType::generator:
    case SchemaType::other: break;
  }
  if (!fits) return bad_program(fmt::format("argument '{}' is {}, which the operator does not take", schema.name, kind_name(a)));
  return a;
}

// --- defaults

std::optional<double> parse_number(std::string_view text) {
  double v = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return v;
}

std::string unquote(std::string_view text) {
  std::string out;
  for (size_t i = 1; i + 1 < text.size(); ++i) {
    if (text[i] == '\\' && i + 2 < text.size()) ++i;
    out += text[i];
  }
  return out;
}

Result<Argument> default_literal(ExprPool& pool, std::string_view text, const SchemaArg& schema) {
  if (text == "None") return Argument(NoneArg{});
  if (text == "True" || text == "False") return Argument(text == "True");
  if (text.starts_with('"')) return Argument(unquote(text));
  std::optional<double> number = parse_number(text);
  if (!number) return bad_program(fmt::format("the default of '{}' cannot be read: {}", schema.name, text));
  bool integral = text.find_first_of(".en") == std::string_view::npos;
  // Enumerations print as the numbers of C++: c10::ScalarType and c10::MemoryFormat.
  if (schema.type == SchemaType::dtype) {
    for (int i = 0; i <= static_cast<int>(DType::c128); ++i) {
      if (info(static_cast<DType>(i)).shim_number == static_cast<int>(*number)) return Argument(static_cast<DType>(i));
    }
    return Error{ErrorCode::unsupported_dtype, fmt::format("the default dtype of '{}' is not supported", schema.name), {}, {}};
  }
  if (schema.type == SchemaType::memory_format) {
    static constexpr MemoryFormat kFormats[] = {MemoryFormat::contiguous, MemoryFormat::preserve, MemoryFormat::channels_last, MemoryFormat::channels_last_3d};
    if (*number < 0 || *number > 3) return bad_program("unknown memory format");
    return Argument(kFormats[static_cast<int>(*number)]);
  }
  if (integral) return Argument(pool.index(static_cast<int64_t>(*number)));
  return Argument(*number);
}

}  // namespace

Result<Argument> coerce(ExprPool& pool, Argument argument, const SchemaArg& schema) {
  if (std::holds_alternative<NoneArg>(argument)) {
    if (schema.optional || schema.type == SchemaType::other || schema.type == SchemaType::generator) return argument;
    return bad_program(fmt::format("argument '{}' is None", schema.name));
  }
  return schema.list ? coerce_list(pool, std::move(argument), schema) : coerce_single(pool, std::move(argument), schema);
}

Result<Argument> default_argument(ExprPool& pool, const SchemaArg& schema) {
  if (!schema.default_text) return bad_program(fmt::format("argument '{}' is missing", schema.name));
  std::string_view text = *schema.default_text;
  if (!text.starts_with('[')) {
    TRY(Argument a, default_literal(pool, text, schema));
    return coerce(pool, std::move(a), schema);
  }
  std::vector<Expr> list;
  text = text.substr(1, text.size() - 2);
  while (!text.empty()) {
    size_t comma = text.find(',');
    std::optional<double> v = parse_number(text.substr(0, comma));
    if (!v) return bad_program(fmt::format("the default of '{}' cannot be read", schema.name));
    list.push_back(pool.index(static_cast<int64_t>(*v)));
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    while (text.starts_with(' ')) text.remove_prefix(1);
  }
  return coerce(pool, Argument(std::move(list)), schema);
}

}  // namespace coil
