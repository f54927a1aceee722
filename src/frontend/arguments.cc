#include "frontend/arguments.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace coil {
namespace {

Error bad(std::string message) { return Error{ErrorCode::bad_program, std::move(message), {}, {}}; }
Error unsupported(std::string message) { return Error{ErrorCode::unsupported_feature, std::move(message), {}, {}}; }

Result<std::string_view> name_field(Json json) { return json.get_string("name"); }

// Applies `read` to each element of a list; the results' type is the vector's.
template <class T, class F>
Result<Argument> read_list(Json json, F&& read) {
  TRY(auto array, json.as_array());
  std::vector<T> list;
  list.reserve(array.size());
  for (Json item : array) {
    TRY(T v, read(item));
    list.push_back(v);
  }
  return Argument(std::move(list));
}

// {"as_name": n} or a literal under `literal`.
Result<Expr> read_sym_int(ArgumentSource& source, Json json) {
  TRY(JsonUnion u, as_union(json));
  if (u.key == "as_int") {
    TRY(int64_t i, u.value.as_int());
    return source.pool().index(i);
  }
  TRY(std::string_view name, u.value.as_string());
  return source.sym_int(name);
}

Result<double> read_sym_float(ArgumentSource& source, Json json) {
  TRY(JsonUnion u, as_union(json));
  if (u.key == "as_float") return u.value.as_double();
  TRY(std::string_view name, u.value.as_string());
  return source.sym_float(name);
}

Result<bool> read_sym_bool(ArgumentSource& source, Json json) {
  TRY(JsonUnion u, as_union(json));
  if (u.key == "as_bool") return u.value.as_bool();
  TRY(std::string_view name, u.value.as_string());
  TRY(Condition condition, source.sym_bool(name));
  const Truth known = truth(condition);
  if (known == Truth::depends)
    return unsupported(fmt::format("the condition '{}' ({}) depends on a dynamic size, which is not supported", name,
                                   to_string(condition)));
  return known == Truth::yes;
}

// One symbolic number: the tensor that holds it, if the program reads it from data, or what `read` makes of it.
template <class F>
Result<Argument> read_symbolic(ArgumentSource& source, Json json, F&& read) {
  if (auto name = json.find("as_name")) {
    TRY(std::string_view text, name->as_string());
    if (const ValueId v = source.data_number(text); v.valid()) return Argument(v);
  }
  auto known = read(source, json);
  if (!known.ok()) return std::move(known).error();
  return Argument(std::move(known).value());
}

Result<ValueId> read_optional_tensor(ArgumentSource& source, Json json) {
  TRY(JsonUnion u, as_union(json));
  if (u.key == "as_none") return ValueId();
  if (u.key != "as_tensor") return u.value.error("expected as_none or as_tensor");
  TRY(std::string_view name, name_field(u.value));
  return source.value(name);
}

Result<MemoryFormat> read_memory_format(int64_t number) {
  if (number < 1 || number > 4) return bad(fmt::format("memory format {} is unknown", number));
  return static_cast<MemoryFormat>(number - 1);
}

using Reader = Result<Argument> (*)(ArgumentSource&, Json);

template <class T>
Result<Argument> wrap(Result<T> r) {
  if (!r.ok()) return std::move(r).error();
  return Argument(std::move(r).value());
}

struct Row {
  std::string_view key;
  Reader read;  // null: no lowering understands it
};

// The list readers of literals and of symbolic values are the same: {"as_int": 3} or a bare 3.
constexpr Row kRows[] = {
    {"as_none", [](ArgumentSource&, Json) { return Result<Argument>(NoneArg{}); }},
    {"as_tensor",
     [](ArgumentSource& s, Json j) -> Result<Argument> {
       TRY(std::string_view name, name_field(j));
       return wrap(s.value(name));
     }},
    {"as_int",
     [](ArgumentSource& s, Json j) -> Result<Argument> {
       TRY(int64_t i, j.as_int());
       return Argument(s.pool().index(i));
     }},
    {"as_ints",
     [](ArgumentSource& s, Json j) {
       return read_list<Expr>(j, [&](Json item) -> Result<Expr> {
         TRY(int64_t i, item.as_int());
         return s.pool().index(i);
       });
     }},
    {"as_sym_int", [](ArgumentSource& s, Json j) { return read_symbolic(s, j, read_sym_int); }},
    {"as_sym_ints",
     [](ArgumentSource& s, Json j) { return read_list<Expr>(j, [&](Json item) { return read_sym_int(s, item); }); }},
    {"as_float", [](ArgumentSource&, Json j) { return wrap(j.as_double()); }},
    {"as_floats", [](ArgumentSource&, Json j) { return read_list<double>(j, [&](Json item) { return item.as_double(); }); }},
    {"as_bool", [](ArgumentSource&, Json j) { return wrap(j.as_bool()); }},
    {"as_bools", [](ArgumentSource&, Json j) { return read_list<bool>(j, [&](Json item) { return item.as_bool(); }); }},
    {"as_tensors",
     [](ArgumentSource& s, Json j) {
       return read_list<ValueId>(j, [&](Json item) -> Result<ValueId> {
         TRY(std::string_view name, name_field(item));
         return s.value(name);
       });
     }},
    {"as_optional_tensor",
     [](ArgumentSource& s, Json j) -> Result<Argument> {
       TRY(ValueId v, read_optional_tensor(s, j));
       return v.valid() ? Argument(v) : Argument(NoneArg{});
     }},
    {"as_optional_tensors",
     [](ArgumentSource& s, Json j) { return read_list<ValueId>(j, [&](Json item) { return read_optional_tensor(s, item); }); }},
    {"as_string",
     [](ArgumentSource&, Json j) -> Result<Argument> {
       TRY(std::string_view text, j.as_string());
       return Argument(std::string(text));
     }},
    {"as_operator",
     [](ArgumentSource&, Json j) -> Result<Argument> {
       TRY(std::string_view text, j.as_string());
       return Argument(std::string(text));
     }},
    {"as_scalar_type",
     [](ArgumentSource&, Json j) -> Result<Argument> {
       TRY(int64_t number, j.as_int());
       return wrap(read_dtype(number));
     }},
    {"as_memory_format",
     [](ArgumentSource&, Json j) -> Result<Argument> {
       TRY(int64_t number, j.as_int());
       return wrap(read_memory_format(number));
     }},
    {"as_layout",
     [](ArgumentSource&, Json j) -> Result<Argument> {
       TRY(int64_t number, j.as_int());
       if (number < 0 || number > 100) return bad(fmt::format("layout {} is unknown", number));
       return Argument(LayoutArg{static_cast<int>(number)});
     }},
    {"as_device", [](ArgumentSource&, Json j) { return wrap(read_device(j)); }},
    {"as_complex",
     [](ArgumentSource&, Json j) -> Result<Argument> {
       TRY(Json real_json, j.get("real"));
       TRY(Json imag_json, j.get("imag"));
       TRY(double real, real_json.as_double());
       TRY(double imag, imag_json.as_double());
       return Argument(std::complex<double>(real, imag));
     }},
    {"as_graph",
     [](ArgumentSource& s, Json j) -> Result<Argument> {
       TRY(Json graph, j.get("graph"));
       return wrap(s.subgraph(graph));
     }},
    {"as_sym_float", [](ArgumentSource& s, Json j) { return read_symbolic(s, j, read_sym_float); }},
    {"as_sym_floats",
     [](ArgumentSource& s, Json j) { return read_list<double>(j, [&](Json item) { return read_sym_float(s, item); }); }},
    {"as_sym_bool", [](ArgumentSource& s, Json j) { return read_symbolic(s, j, read_sym_bool); }},
    {"as_sym_bools",
     [](ArgumentSource& s, Json j) { return read_list<bool>(j, [&](Json item) { return read_sym_bool(s, item); }); }},
    {"as_strings", nullptr},
    {"as_nested_tensors", nullptr},
    {"as_int_lists", nullptr},
    {"as_float_lists", nullptr},
    {"as_string_to_argument", nullptr},
};

// --- schema types

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
    default:
      return a;
  }
  (void)pool;
  return bad(fmt::format("argument '{}' is {} instead of a list", schema.name, kind_name(a)));
}

Result<Argument> coerce_single(ExprPool& pool, Argument a, const SchemaArg& schema) {
  auto* e = std::get_if<Expr>(&a);
  bool is_number = e || std::holds_alternative<double>(a) || std::holds_alternative<bool>(a) ||
                   std::holds_alternative<std::complex<double>>(a);
  bool fits = true;
  switch (schema.type) {
    case SchemaType::tensor:
      fits = is_number || std::holds_alternative<ValueId>(a);
      break;
    case SchemaType::scalar:
      fits = is_number || std::holds_alternative<ValueId>(a);
      break;
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
    case SchemaType::string:
      fits = std::holds_alternative<std::string>(a);
      break;
    case SchemaType::dtype:
      fits = std::holds_alternative<DType>(a);
      break;
    case SchemaType::memory_format:
      fits = std::holds_alternative<MemoryFormat>(a);
      break;
    case SchemaType::layout:
      fits = std::holds_alternative<LayoutArg>(a);
      break;
    case SchemaType::device:
      fits = std::holds_alternative<DeviceArg>(a);
      break;
    case SchemaType::generator:
    case SchemaType::other:
      break;
  }
  if (!fits) return bad(fmt::format("argument '{}' is {}, which the operator does not take", schema.name, kind_name(a)));
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
  if (!number) return bad(fmt::format("the default of '{}' cannot be read: {}", schema.name, text));
  bool integral = text.find_first_of(".en") == std::string_view::npos;
  // Enumerations print as the numbers of C++: c10::ScalarType and c10::MemoryFormat.
  if (schema.type == SchemaType::dtype) {
    for (int i = 0; i <= static_cast<int>(DType::c128); ++i) {
      if (info(static_cast<DType>(i)).shim_number == static_cast<int>(*number)) return Argument(static_cast<DType>(i));
    }
    return Error{ErrorCode::unsupported_dtype, fmt::format("the default dtype of '{}' is not supported", schema.name), {}, {}};
  }
  if (schema.type == SchemaType::memory_format) {
    static constexpr MemoryFormat kFormats[] = {MemoryFormat::contiguous, MemoryFormat::preserve, MemoryFormat::channels_last,
                                                MemoryFormat::channels_last_3d};
    if (*number < 0 || *number > 3) return bad("unknown memory format");
    return Argument(kFormats[static_cast<int>(*number)]);
  }
  if (integral) return Argument(pool.index(static_cast<int64_t>(*number)));
  return Argument(*number);
}

}  // namespace

Result<Argument> read_argument(ArgumentSource& source, Json json) {
  TRY(JsonUnion u, as_union(json));
  for (const Row& row : kRows) {
    if (row.key == u.key) return row.read ? row.read(source, u.value) : Argument(OpaqueArg{std::string(u.key)});
  }
  if (u.key == "as_custom_obj") return unsupported("the program passes a custom (torchbind) object, which is not supported");
  return unsupported(fmt::format("argument kind '{}' is not known", u.key.substr(0, 64)));
}

Result<Argument> coerce(ExprPool& pool, Argument argument, const SchemaArg& schema) {
  if (std::holds_alternative<NoneArg>(argument)) {
    if (schema.optional || schema.type == SchemaType::other || schema.type == SchemaType::generator) return argument;
    return bad(fmt::format("argument '{}' is None", schema.name));
  }
  return schema.list ? coerce_list(pool, std::move(argument), schema) : coerce_single(pool, std::move(argument), schema);
}

Result<Argument> default_argument(ExprPool& pool, const SchemaArg& schema) {
  if (!schema.default_text) return bad(fmt::format("argument '{}' is missing", schema.name));
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
    if (!v) return bad(fmt::format("the default of '{}' cannot be read", schema.name));
    list.push_back(pool.index(static_cast<int64_t>(*v)));
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    while (text.starts_with(' ')) text.remove_prefix(1);
  }
  return coerce(pool, Argument(std::move(list)), schema);
}

Result<DType> read_dtype(int64_t export_number) {
  std::optional<DType> d =
      export_number >= 0 && export_number < 1000 ? dtype_from_export_number(static_cast<int>(export_number)) : std::nullopt;
  if (d) return *d;
  struct Name {
    int number;
    std::string_view name;
  };
  static constexpr Name kNames[] = {{9, "complex32"},        {28, "uint16"}, {34, "uint32"}, {35, "uint64"}};
  for (const Name& n : kNames) {
    if (n.number == export_number)
      return Error{ErrorCode::unsupported_dtype, fmt::format("dtype {} is not supported", n.name), {}, {}};
  }
  return Error{ErrorCode::unsupported_dtype, fmt::format("dtype number {} is not known", export_number), {}, {}};
}

Result<DeviceArg> read_device(Json json) {
  TRY(std::string_view type, json.get_string("type"));
  DeviceArg d;
  d.type = type == "cpu" ? DeviceType::cpu : type == "cuda" ? DeviceType::cuda : DeviceType::other;
  if (auto index = json.find("index")) {
    TRY(int64_t i, index->as_int());
    if (i < -1 || i > 1000) return bad("a device index is out of range");
    d.index = static_cast<int>(i);
  }
  return d;
}

}  // namespace coil
