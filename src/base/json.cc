#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace coil {
namespace {

// Values are copied, written and destroyed by recursion.
constexpr size_t kDeepest = 1000;

constexpr const char* kKinds[] = {"null", "boolean", "number", "number", "number", "string", "array", "object"};

// 1 == 1u == 1.0.
bool same_number(const std::variant<int64_t, uint64_t, double>& a, const std::variant<int64_t, uint64_t, double>& b) {
  return std::visit(
      [](auto x, auto y) {
        if constexpr (std::integral<decltype(x)> && std::integral<decltype(y)>) return std::cmp_equal(x, y);
        else return static_cast<double>(x) == static_cast<double>(y);
      },
      a, b);
}

// nlohmann's events, to a value.
class Builder {
 public:
  using number_integer_t = nlohmann::ordered_json::number_integer_t;
  using number_unsigned_t = nlohmann::ordered_json::number_unsigned_t;

  bool null() { return add(Json()); }
  bool boolean(bool v) { return add(Json(v)); }
  bool number_integer(int64_t v) { return add(Json(v)); }
  bool number_unsigned(uint64_t v) { return add(Json(v)); }
  bool number_float(double v, const std::string&) { return add(Json(v)); }
  bool string(std::string& v) { return add(Json(std::move(v))); }
  bool binary(nlohmann::ordered_json::binary_t&) { return false; }
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& name) {
    place_ = &(*open_.back())[name];
    return true;
  }
  template <class Failure>
  bool parse_error(size_t at, const std::string&, const Failure& failure) {
    error_ = "malformed at byte " + std::to_string(at) + ": " + failure.what();
    return false;
  }

  Json root;
  const std::string& error() const { return error_; }

 private:
  bool add(Json value) {
    put(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (open_.size() == kDeepest) {
      error_ = "nested deeper than " + std::to_string(kDeepest) + " levels";
      return false;
    }
    open_.push_back(put(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  Json* put(Json value) {
    if (open_.empty()) return &(root = std::move(value));
    if (open_.back()->is_array()) return &open_.back()->push_back(std::move(value));
    return &(*place_ = std::move(value));
  }

  std::vector<Json*> open_;  // none of them moves while it is open: an array grows only at its open element's end
  Json* place_ = nullptr;    // of the member whose name was read
  std::string error_;
};

class Writer {
 public:
  Writer(int indent, bool ascii) : indent_(indent), ascii_(ascii) {}

  void write(const Json& json, int depth) {
    if (json.is_array()) {
      list('[', ']', std::span(json.begin(), json.end()), depth, [&](const Json& e) { write(e, depth + 1); });
    } else if (json.is_object()) {
      list('{', '}', json.items(), depth, [&](const Json::Member& m) {
        leaf(m.first);
        out += indent_ < 0 ? ":" : ": ";
        write(m.second, depth + 1);
      });
    } else if (json.is_string()) {
      leaf(json.as_string());
    } else if (json.is_null()) {
      out += "null";
    } else if (json.is_boolean()) {
      out += json.as_boolean() ? "true" : "false";
    } else {
      number(json);
    }
  }

  std::string out;

 private:
  template <class T, class Each>
  void list(char open, char close, std::span<T> parts, int depth, const Each& each) {
    out += open;
    for (const T& part : parts) {
      if (&part != parts.data()) out += ',';
      line(depth + 1);
      each(part);
    }
    if (!parts.empty()) line(depth);
    out += close;
  }
  void line(int depth) {
    if (indent_ >= 0) out += '\n' + std::string(static_cast<size_t>(indent_) * static_cast<size_t>(depth), ' ');
  }
  void leaf(const nlohmann::json& value) { out += value.dump(-1, ' ', ascii_, nlohmann::json::error_handler_t::replace); }
  void number(const Json& json) {
    if (!json.is_number_integer()) leaf(json.as_double());
    else if (json == Json(json.as_integer())) leaf(json.as_integer());
    else leaf(json.as_unsigned());
  }

  int indent_;
  bool ascii_;
};

}  // namespace

Json::Json() noexcept : value_(nullptr) {}
Json::Json(double v) : value_(v) {}
Json::Json(const char* text) : value_(std::string(text)) {}
Json::Json(std::string_view text) : value_(std::string(text)) {}
Json::Json(std::string text) : value_(std::move(text)) {}
Json::Json(Elements elements) : value_(std::make_unique<Elements>(std::move(elements))) {}
Json::Json(Json&& other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
Json& Json::operator=(Json&& other) noexcept {
  auto taken = std::exchange(other.value_, nullptr);  // `other` may lie inside of what this value holds
  value_ = std::move(taken);
  return *this;
}
Json& Json::operator=(const Json& other) { return *this = Json(other); }
Json::~Json() = default;

Json::Json(const Json& other) : Json() {
  std::visit(
      [&]<class T>(const T& v) {
        if constexpr (requires { *v; }) value_ = std::make_unique<typename T::element_type>(*v);
        else value_ = v;
      },
      other.value_);
}

Json::Json(std::initializer_list<JsonItem> items) : Json() {
  const bool is_object =
      std::all_of(items.begin(), items.end(), [](const JsonItem& i) { return i.value_.is_array() && i.value_.size() == 2 && i.value_[size_t{0}].is_string(); });
  *this = is_object ? object() : array();
  for (const JsonItem& i : items) {
    if (is_object) (*this)[i.value_[size_t{0}].as_string()] = std::move(i.value_[size_t{1}]);
    else push_back(std::move(i.value_));
  }
}

Json Json::array() { return Elements(); }
Json Json::array(std::initializer_list<JsonItem> elements) {
  Json out = array();
  for (const JsonItem& e : elements) out.push_back(std::move(e.value_));
  return out;
}
Json Json::object() {
  Json out;
  out.value_ = std::make_unique<Members>();
  return out;
}

std::optional<Json> Json::try_parse(std::string_view text) {
  Builder builder;
  if (!nlohmann::ordered_json::sax_parse(text.begin(), text.end(), &builder)) return std::nullopt;
  return std::move(builder.root);
}

Json Json::parse(std::string_view text) {
  Builder builder;
  if (!nlohmann::ordered_json::sax_parse(text.begin(), text.end(), &builder)) throw Exception(builder.error());
  return std::move(builder.root);
}

std::string Json::dump(int indent, bool ascii) const {
  Writer writer(indent, ascii);
  writer.write(*this, 0);
  return std::move(writer.out);
}

void Json::wrong_kind(const char* expected) const { throw Exception(std::string("expected ") + expected + ", found " + kKinds[value_.index()]); }

bool Json::as_boolean() const {
  if (!is_boolean()) wrong_kind("boolean");
  return std::get<bool>(value_);
}
int64_t Json::as_integer() const {
  if (const auto* v = std::get_if<int64_t>(&value_)) return *v;
  if (const auto* v = std::get_if<uint64_t>(&value_)) return static_cast<int64_t>(*v);
  const double v = as_double();
  constexpr double kEnd = 0x1p63;
  return v >= -kEnd && v < kEnd ? static_cast<int64_t>(v) : v < 0 ? INT64_MIN : v > 0 ? INT64_MAX : 0;
}
uint64_t Json::as_unsigned() const {
  if (const auto* v = std::get_if<uint64_t>(&value_)) return *v;
  if (const auto* v = std::get_if<int64_t>(&value_)) return static_cast<uint64_t>(*v);
  const double v = as_double();
  return v > 0 ? v < 0x1p64 ? static_cast<uint64_t>(v) : UINT64_MAX : 0;
}
double Json::as_double() const {
  if (const auto* v = std::get_if<double>(&value_)) return *v;
  if (const auto* v = std::get_if<int64_t>(&value_)) return static_cast<double>(*v);
  if (const auto* v = std::get_if<uint64_t>(&value_)) return static_cast<double>(*v);
  wrong_kind("number");
}
const std::string& Json::as_string() const {
  if (!is_string()) wrong_kind("string");
  return std::get<std::string>(value_);
}

std::string Json::value(std::string_view key, const char* otherwise) const {
  const Json* found = member(key);
  return found ? found->as_string() : std::string(otherwise);
}

size_t Json::size() const {
  if (is_array()) return std::get<std::unique_ptr<Elements>>(value_)->size();
  return is_object() ? items().size() : is_null() ? 0 : 1;
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const Member& m : items()) {
    if (m.first == key) return &m.second;
  }
  return nullptr;
}
Json* Json::find(std::string_view key) { return const_cast<Json*>(std::as_const(*this).find(key)); }
const Json* Json::member(std::string_view key) const {
  if (!is_object()) wrong_kind("object");
  return find(key);
}

Json& Json::operator[](std::string_view key) {
  if (is_null()) *this = object();
  if (!is_object()) wrong_kind("object");
  if (Json* found = find(key)) return *found;
  return std::get<std::unique_ptr<Members>>(value_)->emplace_back(std::string(key), Json()).second;
}
const Json& Json::at(std::string_view key) const {
  if (const Json* found = member(key)) return *found;
  throw Exception("no member '" + std::string(key) + "'");
}
Json& Json::at(std::string_view key) { return const_cast<Json&>(std::as_const(*this).at(key)); }
void Json::erase(std::string_view key) {
  if (!is_object()) wrong_kind("object");
  std::erase_if(*std::get<std::unique_ptr<Members>>(value_), [&](const Member& m) { return m.first == key; });
}
void Json::update(const Json& members) {
  if (!members.is_object()) members.wrong_kind("object");
  for (const auto& [name, value] : members.items()) (*this)[name] = value;
}
std::span<Json::Member> Json::items() {
  if (is_null()) return {};
  if (!is_object()) wrong_kind("object");
  return *std::get<std::unique_ptr<Members>>(value_);
}
std::span<const Json::Member> Json::items() const { return const_cast<Json*>(this)->items(); }

const Json& Json::at(size_t i) const {
  if (!is_array()) wrong_kind("array");
  if (i >= size()) throw Exception("no element " + std::to_string(i) + " of " + std::to_string(size()));
  return begin()[i];
}
Json& Json::at(size_t i) { return const_cast<Json&>(std::as_const(*this).at(i)); }
Json& Json::push_back(Json element) {
  if (is_null()) *this = array();
  return elements().emplace_back(std::move(element));
}
Json& Json::back() { return at(size() - 1); }
Json::Elements& Json::elements() {
  if (!is_array()) wrong_kind("array");
  return *std::get<std::unique_ptr<Elements>>(value_);
}
Json* Json::begin() { return is_array() ? elements().data() : nullptr; }
Json* Json::end() { return is_array() ? elements().data() + elements().size() : nullptr; }
const Json* Json::begin() const { return const_cast<Json*>(this)->begin(); }
const Json* Json::end() const { return const_cast<Json*>(this)->end(); }

void Json::set_boolean(bool v) { value_ = v; }
void Json::set_integer(int64_t v) { value_ = v; }
void Json::set_unsigned(uint64_t v) { value_ = v; }

bool operator==(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) {
    const auto number = [](const Json& v) -> std::variant<int64_t, uint64_t, double> {
      if (const auto* i = std::get_if<int64_t>(&v.value_)) return *i;
      if (const auto* u = std::get_if<uint64_t>(&v.value_)) return *u;
      return v.as_double();
    };
    return same_number(number(a), number(b));
  }
  if (a.value_.index() != b.value_.index()) return false;
  if (a.is_array()) return std::ranges::equal(std::span(a.begin(), a.end()), std::span(b.begin(), b.end()));
  if (a.is_object()) return std::ranges::equal(a.items(), b.items());
  return a.value_ == b.value_;
}

}  // namespace coil
