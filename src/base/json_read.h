// Reads JSON from anyone: bounded depth and size, exact 64-bit integers, accessors that return errors with the path of the value
// at fault ("models/model.json: graph.nodes[3].target: expected a string, found a number"). Writing: json.h.
//
// The parser is RapidJSON, not the design's simdjson: Debian has no static libsimdjson, and it must not show up in ldd.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace coil {

class JsonDoc;
struct JsonState;  // the parsed document; does not move when its JsonDoc does
class JsonArray;
class JsonObject;

enum class JsonKind { null, boolean, number, string, array, object };

// A value of a document: two pointers, valid while the document lives (moved or not). Copy freely.
class JsonValue {
 public:
  JsonKind kind() const;
  bool is_null() const { return kind() == JsonKind::null; }
  bool is_bool() const { return kind() == JsonKind::boolean; }
  bool is_string() const { return kind() == JsonKind::string; }
  bool is_array() const { return kind() == JsonKind::array; }
  bool is_object() const { return kind() == JsonKind::object; }
  bool is_number() const { return kind() == JsonKind::number; }
  bool is_int() const;  // a number without fraction or exponent that fits int64

  Result<bool> as_bool() const;
  Result<int64_t> as_int() const;    // exact; a number with a fraction or out of range is an error
  Result<double> as_double() const;  // numbers, and the strings "Infinity", "-Infinity", "NaN" as PyTorch writes them
  Result<std::string_view> as_string() const;

  Result<JsonArray> as_array() const;
  Result<JsonObject> as_object() const;

  // Members of an object. get: bad_json when this is no object or lacks the key. find: nothing also when the value is null.
  Result<JsonValue> get(std::string_view key) const;
  std::optional<JsonValue> find(std::string_view key) const;
  Result<int64_t> get_int(std::string_view key) const;
  Result<std::string_view> get_string(std::string_view key) const;
  Result<JsonArray> get_array(std::string_view key) const;
  Result<JsonObject> get_object(std::string_view key) const;

  // The only member of an object with one member: PyTorch's unions, {"as_int": 3}.
  Result<std::pair<std::string_view, JsonValue>> as_union() const;

  // "graph.nodes[3].target", found by searching the document: for messages.
  std::string path() const;
  // A bad_json error at this value.
  Error error(std::string_view message) const;

 private:
  friend class JsonDoc;
  friend class JsonArray;
  friend class JsonObject;
  JsonValue(const JsonState* state, const void* value) : state_(state), value_(value) {}
  Error expected(std::string_view what) const;
  const JsonState* state_;
  const void* value_;
};

// Elements in order.
class JsonArray {
 public:
  class Iterator {
   public:
    JsonValue operator*() const { return array_->at(index_); }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return index_ == other.index_; }

   private:
    friend class JsonArray;
    Iterator(const JsonArray* array, size_t index) : array_(array), index_(index) {}
    const JsonArray* array_;
    size_t index_;
  };
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  JsonValue at(size_t i) const;  // i < size() (CHECK)
  JsonValue operator[](size_t i) const { return at(i); }
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size_}; }

 private:
  friend class JsonValue;
  JsonArray(JsonValue value, size_t size) : value_(value), size_(size) {}
  JsonValue value_;
  size_t size_;
};

// Members in the order of the text: for (auto [key, value] : object).
class JsonObject {
 public:
  class Iterator {
   public:
    std::pair<std::string_view, JsonValue> operator*() const { return object_->at(index_); }
    Iterator& operator++() {
      ++index_;
      return *this;
    }
    bool operator==(const Iterator& other) const { return index_ == other.index_; }

   private:
    friend class JsonObject;
    Iterator(const JsonObject* object, size_t index) : object_(object), index_(index) {}
    const JsonObject* object_;
    size_t index_;
  };
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::pair<std::string_view, JsonValue> at(size_t i) const;  // i < size() (CHECK)
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size_}; }

 private:
  friend class JsonValue;
  JsonObject(JsonValue value, size_t size) : value_(value), size_(size) {}
  JsonValue value_;
  size_t size_;
};

struct JsonLimits {
  size_t max_depth = 512;
  size_t max_bytes = size_t{1} << 30;
};

// A parsed document. Movable; values point into it.
class JsonDoc {
 public:
  // `source` names the text in messages ("models/model.json"). Errors: bad_json (with line and column), archive_limit.
  static Result<JsonDoc> parse(std::string_view text, std::string source, const JsonLimits& limits = {});
  JsonDoc(JsonDoc&&) noexcept;
  JsonDoc& operator=(JsonDoc&&) noexcept;
  ~JsonDoc();

  JsonValue root() const;
  const std::string& source() const;

 private:
  explicit JsonDoc(std::unique_ptr<JsonState> state);
  std::unique_ptr<JsonState> state_;
};

}  // namespace coil
