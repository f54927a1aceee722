#include "frontend/arguments.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "frontend/errors.h"

namespace coil {
namespace {

Result<std::string_view> name_field(JsonValue json) { return json.get_string("name"); }

// Applies `read` to each element of a list; the results' type is the vector's.
template <class T, class F>
Result<Argument> read_list(JsonValue json, F&& read) {
  TRY(auto array, json.as_array());
  std::vector<T> list;
  list.reserve(array.size());
  for (JsonValue item : array) {
    TRY(T v, read(item));
    list.push_back(v);
  }
  return Argument(std::move(list));
}

// {"as_name": n} or a literal under `literal`.
Result<Expr> read_sym_int(ArgumentSource& source, JsonValue json) {
  TRY(JsonUnion u, as_union(json));
  if (u.key == "as_int") {
    TRY(int64_t i, u.value.as_int());
    return source.pool().index(i);
  }
  TRY(std::string_view name, u.value.as_string());
  return source.sym_int(name);
}

Result<double> read_sym_float(ArgumentSource& source, JsonValue json) {
  TRY(JsonUnion u, as_union(json));
  if (u.key == "as_float") return u.value.as_double();
  TRY(std::string_view name, u.value.as_string());
  return source.sym_float(name);
}

Result<bool> read_sym_bool(ArgumentSource& source, JsonValue json) {
  TRY(JsonUnion u, as_union(json));
  if (u.key == "as_bool") return u.value.as_bool();
  TRY(std::string_view name, u.value.as_string());
  TRY(Condition condition, source.sym_bool(name));
  const Truth known = truth(condition);
  if (known == Truth::depends)
    return unsupported(fmt::format("the condition '{}' ({}) depends on a dynamic size, which is not supported", name, to_string(condition)));
  return known == Truth::yes;
}

// One symbolic number: the tensor that holds it, if the program reads it from data, or what `read` makes of it.
template <class F>
Result<Argument> read_symbolic(ArgumentSource& source, JsonValue json, F&& read) {
  if (auto name = json.find("as_name")) {
    TRY(std::string_view text, name->as_string());
    if (const ValueId v = source.data_number(text); v.valid()) return Argument(v);
  }
  auto known = read(source, json);
  if (!known.ok()) return std::move(known).error();
  return Argument(std::move(known).value());
}

Result<ValueId> read_optional_tensor(ArgumentSource& source, JsonValue json) {
  TRY(JsonUnion u, as_union(json));
  if (u.key == "as_none") return ValueId();
  if (u.key != "as_tensor") return u.value.error("expected as_none or as_tensor");
  TRY(std::string_view name, name_field(u.value));
  return source.value(name);
}

Result<MemoryFormat> read_memory_format(int64_t number) {
  if (number < 1 || number > 4) return bad_program(fmt::format("memory format {} is unknown", number));
  return static_cast<MemoryFormat>(number - 1);
}

using Reader = Result<Argument> (*)(ArgumentSource&, JsonValue);

template <class T>
Result<Argument> wrap(Result<T> r) {
  if (!r.ok()) return std::move(r).error();
  return Argument(std::move(r).value());
}

struct ArgumentRow {
  std::string_view key;
  Reader read;  // null: no lowering understands it
};

// The list readers of literals and of symbolic values are the same: {"as_int": 3} or a bare 3.
constexpr ArgumentRow kRows[] = {
    {"as_none", [](ArgumentSource&, JsonValue) { return Result<Argument>(NoneArg{}); }},
    {"as_tensor",
     [](ArgumentSource& s, JsonValue j) -> Result<Argument> {
       TRY(std::string_view name, name_field(j));
       return wrap(s.value(name));
     }},
    {"as_int",
     [](ArgumentSource& s, JsonValue j) -> Result<Argument> {
       TRY(int64_t i, j.as_int());
       return Argument(s.pool().index(i));
     }},
    {"as_ints",
     [](ArgumentSource& s, JsonValue j) {
       return read_list<Expr>(j, [&](JsonValue item) -> Result<Expr> {
         TRY(int64_t i, item.as_int());
         return s.pool().index(i);
       });
     }},
    {"as_sym_int", [](ArgumentSource& s, JsonValue j) { return read_symbolic(s, j, read_sym_int); }},
    {"as_sym_ints", [](ArgumentSource& s, JsonValue j) { return read_list<Expr>(j, [&](JsonValue item) { return read_sym_int(s, item); }); }},
    {"as_float", [](ArgumentSource&, JsonValue j) { return wrap(j.as_double()); }},
    {"as_floats", [](ArgumentSource&, JsonValue j) { return read_list<double>(j, [&](JsonValue item) { return item.as_double(); }); }},
    {"as_bool", [](ArgumentSource&, JsonValue j) { return wrap(j.as_bool()); }},
    {"as_bools", [](ArgumentSource&, JsonValue j) { return read_list<bool>(j, [&](JsonValue item) { return item.as_bool(); }); }},
    {"as_tensors",
     [](ArgumentSource& s, JsonValue j) {
       return read_list<ValueId>(j, [&](JsonValue item) -> Result<ValueId> {
         TRY(std::string_view name, name_field(item));
         return s.value(name);
       });
     }},
    {"as_optional_tensor",
     [](ArgumentSource& s, JsonValue j) -> Result<Argument> {
       TRY(ValueId v, read_optional_tensor(s, j));
       return v.valid() ? Argument(v) : Argument(NoneArg{});
     }},
    {"as_optional_tensors",
     [](ArgumentSource& s, JsonValue j) { return read_list<ValueId>(j, [&](JsonValue item) { return read_optional_tensor(s, item); }); }},
    {"as_string",
     [](ArgumentSource&, JsonValue j) -> Result<Argument> {
       TRY(std::string_view text, j.as_string());
       return Argument(std::string(text));
     }},
    {"as_operator",
     [](ArgumentSource&, JsonValue j) -> Result<Argument> {
       TRY(std::string_view text, j.as_string());
       return Argument(std::string(text));
     }},
    {"as_scalar_type",
     [](ArgumentSource&, JsonValue j) -> Result<Argument> {
       TRY(int64_t number, j.as_int());
       return wrap(read_dtype(number));
     }},
    {"as_memory_format",
     [](ArgumentSource&, JsonValue j) -> Result<Argument> {
       TRY(int64_t number, j.as_int());
       return wrap(read_memory_format(number));
     }},
    {"as_layout",
     [](ArgumentSource&, JsonValue j) -> Result<Argument> {
       TRY(int64_t number, j.as_int());
       if (number < 0 || number > 100) return bad_program(fmt::format("layout {} is unknown", number));
       return Argument(LayoutArg{static_cast<int>(number)});
     }},
    {"as_device", [](ArgumentSource&, JsonValue j) { return wrap(read_device(j)); }},
    {"as_complex",
     [](ArgumentSource&, JsonValue j) -> Result<Argument> {
       TRY(JsonValue real_json, j.get("real"));
       TRY(JsonValue imag_json, j.get("imag"));
       TRY(double real, real_json.as_double());
       TRY(double imag, imag_json.as_double());
       return Argument(std::complex<double>(real, imag));
     }},
    {"as_graph",
     [](ArgumentSource& s, JsonValue j) -> Result<Argument> {
       TRY(JsonValue graph, j.get("graph"));
       return wrap(s.subgraph(graph));
     }},
    {"as_sym_float", [](ArgumentSource& s, JsonValue j) { return read_symbolic(s, j, read_sym_float); }},
    {"as_sym_floats", [](ArgumentSource& s, JsonValue j) { return read_list<double>(j, [&](JsonValue item) { return read_sym_float(s, item); }); }},
    {"as_sym_bool", [](ArgumentSource& s, JsonValue j) { return read_symbolic(s, j, read_sym_bool); }},
    {"as_sym_bools", [](ArgumentSource& s, JsonValue j) { return read_list<bool>(j, [&](JsonValue item) { return read_sym_bool(s, item); }); }},
    {"as_strings", nullptr},
    {"as_nested_tensors", nullptr},
    {"as_int_lists", nullptr},
    {"as_float_lists", nullptr},
    {"as_string_to_argument", nullptr},
};

}  // namespace

Result<Argument> read_argument(ArgumentSource& source, JsonValue json) {
  TRY(JsonUnion u, as_union(json));
  for (const ArgumentRow& row : kRows) {
    if (row.key == u.key) return row.read ? row.read(source, u.value) : Argument(OpaqueArg{std::string(u.key)});
  }
  if (u.key == "as_custom_obj") return unsupported("the program passes a custom (torchbind) object, which is not supported");
  return unsupported(fmt::format("argument kind '{}' is not known", u.key.substr(0, 64)));
}

Result<DType> read_dtype(int64_t export_number) {
  std::optional<DType> d = export_number >= 0 && export_number < 1000 ? dtype_from_export_number(static_cast<int>(export_number)) : std::nullopt;
  if (d) return *d;
  struct Name {
    int number;
    std::string_view name;
  };
  static constexpr Name kNames[] = {{9, "complex32"}, {28, "uint16"}, {34, "uint32"}, {35, "uint64"}};
  for (const Name& n : kNames) {
    if (n.number == export_number) return Error{ErrorCode::unsupported_dtype, fmt::format("dtype {} is not supported", n.name), {}, {}};
  }
  return Error{ErrorCode::unsupported_dtype, fmt::format("dtype number {} is not known", export_number), {}, {}};
}

Result<DeviceArg> read_device(JsonValue json) {
  TRY(std::string_view type, json.get_string("type"));
  DeviceArg d;
  d.type = type == "cpu" ? DeviceType::cpu : type == "cuda" ? DeviceType::cuda : DeviceType::other;
  if (auto index = json.find("index")) {
    TRY(int64_t i, index->as_int());
    if (i < -1 || i > 1000) return bad_program("a device index is out of range");
    d.index = static_cast<int>(i);
  }
  return d;
}

}  // namespace coil
