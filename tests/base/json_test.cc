// Reading JSON: exact integers, errors with paths, limits.
#include "base/json_read.h"

#include <gtest/gtest.h>

#include <cmath>

namespace coil {
namespace {

JsonDoc parsed(std::string_view text) {
  Result<JsonDoc> doc = JsonDoc::parse(text, "t.json");
  CHECK(doc.ok(), doc.ok() ? "" : doc.error().message);
  return std::move(doc).value();
}

ErrorCode parse_error(std::string_view text) {
  const auto doc = JsonDoc::parse(text, "t.json");
  return doc.ok() ? ErrorCode{} : doc.error().code;
}

TEST(Json, Values) {
  const JsonDoc doc = parsed(R"({"i": -9223372036854775808, "m": 9223372036854775807, "u": 18446744073709551615, "d": 1.5, "b": true,
    "s": "a\u00e9\n", "n": null, "a": [1, "x", {}], "inf": ["Infinity", "-Infinity", "NaN"]})");
  const JsonValue root = doc.root();
  EXPECT_EQ(root.get_int("i").value(), INT64_MIN);
  EXPECT_EQ(root.get_int("m").value(), INT64_MAX);
  EXPECT_FALSE(root.get_int("u").ok());
  EXPECT_FALSE(root.get_int("d").ok());
  EXPECT_EQ(root.get("d").value().as_double().value(), 1.5);
  EXPECT_EQ(root.get("i").value().as_double().value(), -0x1p63);
  EXPECT_TRUE(root.get("b").value().as_bool().value());
  EXPECT_EQ(root.get_string("s").value(), "a\xc3\xa9\n");
  EXPECT_TRUE(root.get("n").value().is_null());
  EXPECT_FALSE(root.find("n").has_value());
  EXPECT_FALSE(root.find("missing").has_value());
  EXPECT_TRUE(root.find("b").has_value());
  const JsonArray inf = root.get_array("inf").value();
  EXPECT_TRUE(std::isinf(inf[0].as_double().value()));
  EXPECT_LT(inf[1].as_double().value(), 0);
  EXPECT_TRUE(std::isnan(inf[2].as_double().value()));
}

TEST(Json, Iteration) {
  const JsonDoc doc = parsed(R"({"b": 1, "a": [2, 3, 4]})");
  std::string keys;
  for (const auto& [key, value] : doc.root().as_object().value()) keys += key;
  EXPECT_EQ(keys, "ba");  // the order of the text
  int64_t sum = 0;
  for (const JsonValue value : doc.root().get_array("a").value()) sum += value.as_int().value();
  EXPECT_EQ(sum, 9);
  EXPECT_THROW((void)doc.root().get_array("a").value().at(3), InternalError);
}

TEST(Json, Unions) {
  const JsonDoc doc = parsed(R"([{"as_int": 3}, {}, {"a": 1, "b": 2}, 7])");
  const JsonArray array = doc.root().as_array().value();
  EXPECT_EQ(array[0].as_union().value().first, "as_int");
  EXPECT_EQ(array[0].as_union().value().second.as_int().value(), 3);
  for (size_t i : {1, 2, 3}) EXPECT_EQ(array[i].as_union().error().code, ErrorCode::bad_json);
}

TEST(Json, ErrorsHavePaths) {
  const JsonDoc doc = parsed(R"({"graph": {"nodes": [{"target": "a"}, {"target": 7}]}})");
  const JsonArray nodes = doc.root().get("graph").value().get_array("nodes").value();
  EXPECT_EQ(nodes[1].get_string("target").error().message, "t.json: graph.nodes[1].target: expected a string, found a number");
  EXPECT_EQ(nodes[0].get("name").error().message, "t.json: graph.nodes[0]: lacks the field 'name'");
  EXPECT_EQ(doc.root().get("x").error().message, "t.json: lacks the field 'x'");
  EXPECT_EQ(nodes[0].path(), "graph.nodes[0]");
  EXPECT_FALSE(nodes[0].get("target").value().get("x").ok());
}

TEST(Json, ValuesOutliveAMoveOfTheDocument) {
  JsonDoc doc = parsed(R"({"a": [1]})");
  const JsonValue root = doc.root();
  const JsonDoc moved = std::move(doc);
  EXPECT_EQ(root.get_array("a").value().size(), 1u);
  EXPECT_EQ(root.get("b").error().message, "t.json: lacks the field 'b'");
}

TEST(Json, Malformed) {
  for (const char* text : {"",    " ",   "{",     "[1,]",   "{\"a\" 1}",   "nul",       "[1] x",     "\"\\x\"", "[01]",        "\"\xff\"", "{\"a\":1,}",
                           "'a'", "nan", "[Inf]", "[-NaN]", "[+Infinity]", "[Infinit]", "[-Inf, 1]", "[NaNN]",  "\"\\ud800\"", "[1e999]"}) {
    EXPECT_EQ(parse_error(text), ErrorCode::bad_json) << text;
  }
  EXPECT_EQ(JsonDoc::parse("{\n  \"a\": nope}", "t.json").error().message.substr(0, 11), "t.json:2:9:");
}

// Python's json module writes them so, and with it PyTorch 2.5 and 2.6.
TEST(Json, NumbersThatAreNotFinite) {
  const JsonDoc doc = parsed(R"([NaN, Infinity, -Infinity, {"as_float": -Infinity},NaN])");
  const JsonArray array = doc.root().as_array().value();
  for (size_t i : {0, 4}) EXPECT_TRUE(std::isnan(array[i].as_double().value()));
  EXPECT_EQ(array[1].as_double().value(), INFINITY);
  EXPECT_EQ(array[2].as_double().value(), -INFINITY);
  EXPECT_EQ(array[3].as_union().value().second.as_double().value(), -INFINITY);
  for (size_t i : {0, 1, 2}) EXPECT_TRUE(array[i].is_number() && !array[i].is_int() && !array[i].as_int().ok());
}

TEST(Json, NumbersAreExact) {
  const auto number = [](const std::string& text) { return parsed("[" + text + "]").root().as_array().value()[0].as_double().value(); };
  for (const char* zero : {"0", "0.0", "0e-30", "0e-112", "0e-300", "0.000e-60", "0e300", "1e-400", "0.01e-400", "1e-99999999999", "2e-324"})
    EXPECT_EQ(number(zero), 0.0) << zero;
  EXPECT_TRUE(std::signbit(number("-0e-30")) && std::signbit(number("-1e-400")));
  EXPECT_EQ(number("4.9e-324"), 4.9e-324);
  EXPECT_EQ(number("0.1"), 0.1);
  EXPECT_EQ(number("9007199254740993.0"), 9007199254740992.0);
  EXPECT_EQ(number("123456789012345678901234567890"), 123456789012345678901234567890.0);
  EXPECT_EQ(number("1.7976931348623157e308"), 1.7976931348623157e308);
  EXPECT_EQ(number("-1.5E+3"), -1500.0);
  EXPECT_EQ(parsed("[-9223372036854775808]").root().as_array().value()[0].as_int().value(), INT64_MIN);
  EXPECT_EQ(parsed("[-0]").root().as_array().value()[0].as_int().value(), 0);
  EXPECT_FALSE(parsed("[9223372036854775808]").root().as_array().value()[0].is_int());
  const std::string large = "1" + std::string(305, '0');
  EXPECT_EQ(parse_error("[" + large + "0000]"), ErrorCode::bad_json);
  EXPECT_EQ(parse_error("[9e308]"), ErrorCode::bad_json);
  EXPECT_EQ(number(large + "e-305"), 1.0);
}

TEST(Json, Limits) {
  EXPECT_EQ(parse_error(std::string(512, '[') + std::string(512, ']')), ErrorCode{});
  EXPECT_EQ(parse_error(std::string(513, '[') + std::string(513, ']')), ErrorCode::archive_limit);
  EXPECT_EQ(parse_error(std::string(10'000'000, '[')), ErrorCode::archive_limit);
  EXPECT_EQ(parse_error("[\"" + std::string(1000, '[') + "\"]"), ErrorCode{});      // brackets within a string
  EXPECT_EQ(parse_error("[\"\\\"" + std::string(1000, '[') + "\"]"), ErrorCode{});  // after an escaped quote
  EXPECT_EQ(JsonDoc::parse("[1, 2]", "t", {.max_bytes = 3}).error().code, ErrorCode::archive_limit);
}

TEST(Json, NullBytes) {
  const std::string text("{\"a\\u0000b\": \"c\\u0000d\"}");
  const JsonDoc doc = parsed(text);
  EXPECT_EQ(doc.root().get_string(std::string_view("a\0b", 3)).value().size(), 3u);
}

}  // namespace
}  // namespace coil
