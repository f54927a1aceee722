// JSON as a value: manifests, reports and records that coil writes, and documents that it reads whole and changes. Members keep their order.
// What others wrote is read with json_read.h where an error has to say which value is wrong.
//
// The text is nlohmann's work, in json.cc alone: parsing its header and compiling its templates took each group of files 4 to 10 seconds.
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace coil {

class JsonItem;

class Json {
 public:
  using Member = std::pair<std::string, Json>;
  using Elements = std::vector<Json>;
  using Members = std::vector<Member>;

  // A value of another kind than the caller asks for, a member or an element that is not there, or text that is no JSON.
  class Exception : public std::exception {
   public:
    explicit Exception(std::string text) : text_(std::move(text)) {}
    const char* what() const noexcept override { return text_.c_str(); }

   private:
    std::string text_;
  };

  Json() noexcept;
  Json(std::nullptr_t) noexcept : Json() {}
  template <std::integral T>
  Json(T v) : Json() {
    if constexpr (std::same_as<T, bool>) set_boolean(v);
    else if constexpr (std::is_signed_v<T>) set_integer(v);
    else set_unsigned(v);
  }
  Json(double v);
  Json(const char* text);
  Json(std::string_view text);
  Json(std::string text);
  Json(Elements elements);
  template <class T>
  Json(const std::vector<T>& elements) : Json(array()) {
    for (const T& e : elements) push_back(Json(e));
  }
  template <class T>
  Json(const std::map<std::string, T>& members) : Json(object()) {
    for (const auto& [name, value] : members) (*this)[name] = Json(value);
  }
  // An object where each element is a pair whose first is text, as {{"name", "x"}, {"size", 3}} is; an array otherwise.
  Json(std::initializer_list<JsonItem> items);
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();

  static Json array();
  static Json array(std::initializer_list<JsonItem> elements);
  static Json object();

  // Nothing, or an Exception, where the text is no JSON, or nested deeper than anything that coil writes.
  static std::optional<Json> try_parse(std::string_view text);
  static Json parse(std::string_view text);
  // On one line, or indented by `indent` spaces. What is no UTF-8 is replaced; with `ascii`, so is what is no ASCII, by escapes.
  std::string dump(int indent = -1, bool ascii = false) const;

  bool is_null() const { return value_.index() == 0; }
  bool is_boolean() const { return value_.index() == 1; }
  bool is_number_integer() const { return value_.index() == 2 || value_.index() == 3; }
  bool is_number() const { return is_number_integer() || value_.index() == 4; }
  bool is_string() const { return value_.index() == 5; }
  bool is_array() const { return value_.index() == 6; }
  bool is_object() const { return value_.index() == 7; }
  bool is_structured() const { return is_array() || is_object(); }

  // The value; an Exception where it is of another kind. Numbers are converted to one another.
  bool as_boolean() const;
  int64_t as_integer() const;
  uint64_t as_unsigned() const;
  double as_double() const;
  const std::string& as_string() const;
  template <class T>
  T get() const {
    T out;
    read(&out);
    return out;
  }
  // A member, or `otherwise` where there is none.
  template <class T>
  T value(std::string_view key, T otherwise) const {
    const Json* found = member(key);
    return found ? found->get<T>() : std::move(otherwise);
  }
  std::string value(std::string_view key, const char* otherwise) const;

  size_t size() const;  // of an array or object; 0 of null, 1 of other values
  bool empty() const { return size() == 0; }

  // Objects. [] adds what is missing, and makes an object of null; at() does not.
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const Json* find(std::string_view key) const;  // null also where this is no object
  Json* find(std::string_view key);
  Json& operator[](std::string_view key);
  const Json& operator[](std::string_view key) const { return at(key); }
  Json& at(std::string_view key);
  const Json& at(std::string_view key) const;
  void erase(std::string_view key);
  void update(const Json& members);  // adds or replaces
  std::span<Member> items();         // none of null; an Exception where this is another value
  std::span<const Member> items() const;

  // Arrays. Others have no elements to go through.
  Json& operator[](size_t i) { return at(i); }
  const Json& operator[](size_t i) const { return at(i); }
  Json& at(size_t i);
  const Json& at(size_t i) const;
  Json& push_back(Json element);  // makes an array of null
  Json& back();
  Elements& elements();
  Json* begin();
  Json* end();
  const Json* begin() const;
  const Json* end() const;

  friend bool operator==(const Json& a, const Json& b);

 private:
  friend class JsonItem;
  void set_boolean(bool v);
  void set_integer(int64_t v);
  void set_unsigned(uint64_t v);
  const Json* member(std::string_view key) const;  // as find; an Exception where this is no object

  void read(Json* out) const { *out = *this; }
  void read(bool* out) const { *out = as_boolean(); }
  void read(double* out) const { *out = as_double(); }
  void read(std::string* out) const { *out = as_string(); }
  template <std::integral T>
  void read(T* out) const {
    if constexpr (std::is_signed_v<T>) *out = static_cast<T>(as_integer());
    else *out = static_cast<T>(as_unsigned());
  }
  template <class T>
  void read(std::vector<T>* out) const {
    if (!is_array()) wrong_kind("array");
    for (const Json& e : *this) out->push_back(e.get<T>());
  }
  [[noreturn]] void wrong_kind(const char* expected) const;

  std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, std::unique_ptr<Elements>, std::unique_ptr<Members>> value_;
};

// An element of a braced list. It hands its value on, which the elements of an initializer_list of Json could not.
class JsonItem {
 public:
  template <class T>
    requires(std::constructible_from<Json, T> && !std::same_as<std::remove_cvref_t<T>, JsonItem>)
  JsonItem(T&& value) : value_(std::forward<T>(value)) {}
  JsonItem(std::initializer_list<JsonItem> items) : value_(items) {}

 private:
  friend class Json;
  mutable Json value_;
};

}  // namespace coil
