#include "base/json_read.h"

#include <fmt/format.h>
#include <rapidjson/document.h>
#include <rapidjson/encodedstream.h>
#include <rapidjson/error/error.h>
#include <rapidjson/memorystream.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <new>

namespace coil {

namespace {

// Whether a number that no double holds is too small for one, not too large.
bool vanishes(std::string_view text) {
  const size_t e = std::min(text.find_first_of("eE"), text.size());
  const auto point = static_cast<int64_t>(std::min(text.find('.'), e)), first = static_cast<int64_t>(text.find_first_of("123456789"));
  std::string_view digits = text.substr(std::min(e + 1, text.size()));
  if (digits.starts_with('+')) digits.remove_prefix(1);
  int64_t exponent = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), exponent).ec == std::errc::result_out_of_range) return digits.starts_with('-');
  return (first < point ? point - first : point + 1 - first) < -std::clamp<int64_t>(exponent, -(int64_t{1} << 60), int64_t{1} << 60);
}

// RapidJSON writes to what its allocator gives without looking whether there is any: this one throws.
struct ThrowingAllocator {
  static const bool kNeedFree = true;  // RapidJSON's name
  void* Malloc(size_t bytes) { return bytes ? checked(std::malloc(bytes)) : nullptr; }
  void* Realloc(void* old, size_t, size_t bytes) {
    if (bytes) return checked(std::realloc(old, bytes));
    std::free(old);
    return nullptr;
  }
  static void Free(void* data) { std::free(data); }

 private:
  static void* checked(void* data) {
    if (!data) throw std::bad_alloc();
    return data;
  }
};
using Pool = rapidjson::MemoryPoolAllocator<ThrowingAllocator>;
using Value = rapidjson::GenericValue<rapidjson::UTF8<>, Pool>;
using PlainDocument = rapidjson::GenericDocument<rapidjson::UTF8<>, Pool, ThrowingAllocator>;

// What no JSON has and Python's json module writes all the same, PyTorch 2.5 and 2.6 so into their programs.
std::optional<double> not_finite(std::string_view text) {
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

// A document that reads its numbers by from_chars: RapidJSON's exact way makes something else than zero of "0e-30".
class Document : public PlainDocument {
 public:
  bool RawNumber(const char* digits, rapidjson::SizeType size, bool) {
    const std::string_view text(digits, size);
    if (text.find_first_of(".eE") == std::string_view::npos) {
      if (int64_t v = 0; whole(text, v)) return Int64(v);
      if (uint64_t v = 0; whole(text, v)) return Uint64(v);
    }
    if (const auto number = not_finite(text)) return Double(*number);
    if (text.ends_with('N') || text.ends_with('f')) return false;  // "-NaN", "Inf": RapidJSON's own
    double v = 0;
    const auto problem = std::from_chars(text.data(), text.data() + text.size(), v).ec;
    if (problem == std::errc::result_out_of_range && vanishes(text)) return Double(text.starts_with('-') ? -0.0 : 0.0);
    return problem == std::errc() && Double(v);
  }

  void read(std::string_view text) {
    constexpr unsigned kFlags =
        rapidjson::kParseIterativeFlag | rapidjson::kParseNumbersAsStringsFlag | rapidjson::kParseValidateEncodingFlag | rapidjson::kParseNanAndInfFlag;
    rapidjson::GenericReader<rapidjson::UTF8<>, rapidjson::UTF8<>, ThrowingAllocator> reader;
    rapidjson::MemoryStream bytes(text.data(), text.size());
    rapidjson::EncodedInputStream<rapidjson::UTF8<>, rapidjson::MemoryStream> stream(bytes);
    const auto parse = [&](PlainDocument&) {
      result = reader.Parse<kFlags>(stream, *this);
      return !result.IsError();
    };
    Populate(parse);
  }

  rapidjson::ParseResult result;

 private:
  template <class T>
  static bool whole(std::string_view text, T& v) {
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), v);
    return problem == std::errc() && end == text.data() + text.size();
  }
};

}  // namespace

struct JsonState {
  Document document;
  std::string source;
};

namespace {

const Value& as_value(const void* p) { return *static_cast<const Value*>(p); }

std::string_view text_of(const Value& v) { return {v.GetString(), v.GetStringLength()}; }

const char* kind_name(JsonKind kind) {
  constexpr const char* kNames[] = {"null", "a boolean", "a number", "a string", "an array", "an object"};
  return kNames[static_cast<int>(kind)];
}

const char* parse_problem(rapidjson::ParseErrorCode code) {
  switch (code) {
    case rapidjson::kParseErrorDocumentEmpty: return "there is nothing in it";
    case rapidjson::kParseErrorDocumentRootNotSingular: return "something follows the end of the value";
    case rapidjson::kParseErrorValueInvalid: return "here should be a value";
    case rapidjson::kParseErrorObjectMissName: return "here should be a member's name in quotes";
    case rapidjson::kParseErrorObjectMissColon: return "a colon is missing";
    case rapidjson::kParseErrorObjectMissCommaOrCurlyBracket: return "a comma or } is missing";
    case rapidjson::kParseErrorArrayMissCommaOrSquareBracket: return "a comma or ] is missing";
    case rapidjson::kParseErrorStringUnicodeEscapeInvalidHex: return "\\u needs four hexadecimal digits";
    case rapidjson::kParseErrorStringUnicodeSurrogateInvalid: return "half of a surrogate pair is missing";
    case rapidjson::kParseErrorStringEscapeInvalid: return "an escape that strings do not have";
    case rapidjson::kParseErrorStringMissQuotationMark: return "a string has no closing quote";
    case rapidjson::kParseErrorStringInvalidEncoding: return "a string is not UTF-8";
    case rapidjson::kParseErrorTermination:  // by Document::RawNumber
    case rapidjson::kParseErrorNumberTooBig: return "no number that 64 bits hold";
    case rapidjson::kParseErrorNumberMissFraction: return "digits are missing behind a decimal point";
    case rapidjson::kParseErrorNumberMissExponent: return "digits of an exponent are missing";
    default: return "this is no JSON";
  }
}

// Nesting is bounded before parsing, so that no later walk over the document can be made to recurse deeply.
size_t nesting(std::string_view text, size_t limit) {
  size_t depth = 0, deepest = 0;
  for (size_t i = 0; i < text.size() && deepest <= limit; ++i) {
    const char c = text[i];
    if (c == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) i += text[i] == '\\';
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

// Depth-first search for `wanted`; prepends the way to it. Depth is bounded by JsonLimits.
bool find_path(const Value& value, const void* wanted, std::string& path) {
  if (&value == wanted) return true;
  if (value.IsObject()) {
    for (const auto& member : value.GetObject()) {
      if (!find_path(member.value, wanted, path)) continue;
      const bool dot = !path.empty() && path.front() != '[';
      path = std::string(text_of(member.name)) + (dot ? "." : "") + path;
      return true;
    }
  } else if (value.IsArray()) {
    for (rapidjson::SizeType i = 0; i < value.Size(); ++i) {
      if (!find_path(value[i], wanted, path)) continue;
      const bool dot = !path.empty() && path.front() != '[';
      path = fmt::format("[{}]{}{}", i, dot ? "." : "", path);
      return true;
    }
  }
  return false;
}

}  // namespace

JsonKind JsonValue::kind() const {
  switch (as_value(value_).GetType()) {
    case rapidjson::kNullType: return JsonKind::null;
    case rapidjson::kFalseType:
    case rapidjson::kTrueType: return JsonKind::boolean;
    case rapidjson::kNumberType: return JsonKind::number;
    case rapidjson::kStringType: return JsonKind::string;
    case rapidjson::kArrayType: return JsonKind::array;
    case rapidjson::kObjectType: return JsonKind::object;
  }
  return JsonKind::null;
}

bool JsonValue::is_int() const { return as_value(value_).IsInt64(); }

std::string JsonValue::path() const {
  std::string path;
  find_path(state_->document, value_, path);
  return path;
}

Error JsonValue::error(std::string_view message) const {
  const std::string at = path();
  return {ErrorCode::bad_json, fmt::format("{}: {}{}{}", state_->source, at, at.empty() ? "" : ": ", message), "", ""};
}

Error JsonValue::expected(std::string_view what) const { return error(fmt::format("expected {}, found {}", what, kind_name(kind()))); }

Result<bool> JsonValue::as_bool() const {
  if (!is_bool()) return expected("a boolean");
  return as_value(value_).GetBool();
}

Result<int64_t> JsonValue::as_int() const {
  if (!is_number()) return expected("an integer");
  if (!is_int()) return error("expected an integer of 64 bits, found another number");
  return as_value(value_).GetInt64();
}

Result<double> JsonValue::as_double() const {
  const Value& value = as_value(value_);
  if (value.IsNumber()) return value.GetDouble();
  if (value.IsString()) {
    if (const auto number = not_finite(text_of(value))) return *number;
  }
  return expected("a number");
}

Result<std::string_view> JsonValue::as_string() const {
  if (!is_string()) return expected("a string");
  return text_of(as_value(value_));
}

Result<JsonArray> JsonValue::as_array() const {
  if (!is_array()) return expected("an array");
  return JsonArray(*this, as_value(value_).Size());
}

Result<JsonObject> JsonValue::as_object() const {
  if (!is_object()) return expected("an object");
  return JsonObject(*this, as_value(value_).MemberCount());
}

Result<JsonValue> JsonValue::get(std::string_view key) const {
  if (!is_object()) return expected("an object");
  const Value name(rapidjson::StringRef(key.data(), key.size()));
  const auto it = as_value(value_).FindMember(name);
  if (it == as_value(value_).MemberEnd()) return error(fmt::format("lacks the field '{}'", key));
  return JsonValue(state_, &it->value);
}

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
  if (!is_object()) return std::nullopt;
  const Value name(rapidjson::StringRef(key.data(), key.size()));
  const auto it = as_value(value_).FindMember(name);
  if (it == as_value(value_).MemberEnd() || it->value.IsNull()) return std::nullopt;
  return JsonValue(state_, &it->value);
}

Result<int64_t> JsonValue::get_int(std::string_view key) const {
  TRY(const JsonValue value, get(key));
  return value.as_int();
}
Result<std::string_view> JsonValue::get_string(std::string_view key) const {
  TRY(const JsonValue value, get(key));
  return value.as_string();
}
Result<JsonArray> JsonValue::get_array(std::string_view key) const {
  TRY(const JsonValue value, get(key));
  return value.as_array();
}
Result<JsonObject> JsonValue::get_object(std::string_view key) const {
  TRY(const JsonValue value, get(key));
  return value.as_object();
}

Result<std::pair<std::string_view, JsonValue>> JsonValue::as_union() const {
  TRY(const JsonObject object, as_object());
  if (object.size() != 1) return error(fmt::format("expected an object with one member, found {}", object.size()));
  return object.at(0);
}

JsonValue JsonArray::at(size_t i) const {
  CHECK(i < size_, "index of a JSON array");
  return JsonValue(value_.state_, &as_value(value_.value_)[static_cast<rapidjson::SizeType>(i)]);
}

std::pair<std::string_view, JsonValue> JsonObject::at(size_t i) const {
  CHECK(i < size_, "index of a JSON object");
  const auto& member = *(as_value(value_.value_).MemberBegin() + static_cast<ptrdiff_t>(i));
  return {text_of(member.name), JsonValue(value_.state_, &member.value)};
}

Result<JsonDoc> JsonDoc::parse(std::string_view text, std::string source, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return Error{ErrorCode::archive_limit, fmt::format("{}: {} bytes of JSON, the limit is {}", source, text.size(), limits.max_bytes), "", ""};
  }
  if (nesting(text, limits.max_depth) > limits.max_depth) {
    return Error{ErrorCode::archive_limit, fmt::format("{}: JSON nested deeper than {} levels", source, limits.max_depth), "", ""};
  }
  auto state = std::make_unique<JsonState>();
  state->source = std::move(source);
  state->document.read(text);
  if (const rapidjson::ParseResult& read = state->document.result; read.IsError()) {
    const size_t at = std::min(read.Offset(), text.size());
    const auto line = std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n') + 1;
    const size_t newline = text.substr(0, at).rfind('\n');
    const auto column = at - (newline == std::string_view::npos ? 0 : newline + 1) + 1;
    const bool ends = !text.empty() && text.find_first_not_of(" \t\r\n", at) == std::string_view::npos;
    return Error{ErrorCode::bad_json, fmt::format("{}:{}:{}: {}{}", state->source, line, column, parse_problem(read.Code()), ends ? ": the text ends" : ""), "",
                 ""};
  }
  return JsonDoc(std::move(state));
}

JsonDoc::JsonDoc(std::unique_ptr<JsonState> state) : state_(std::move(state)) {}
JsonDoc::JsonDoc(JsonDoc&&) noexcept = default;
JsonDoc& JsonDoc::operator=(JsonDoc&&) noexcept = default;
JsonDoc::~JsonDoc() = default;
JsonValue JsonDoc::root() const { return JsonValue(state_.get(), &state_->document); }
const std::string& JsonDoc::source() const { return state_->source; }

}  // namespace coil
