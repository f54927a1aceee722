// JSON as a value: the same text as nlohmann's for what it is made of, the same values after reading, errors instead of undefined behaviour.
#include "base/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

namespace coil {
namespace {

// The same document made of both, from the same random numbers.
class Pair {
 public:
  explicit Pair(unsigned seed) : random_(seed) {}

  void make(int depth, Json* ours, nlohmann::ordered_json* theirs) {
    switch (random_() % (depth > 0 ? 9 : 7)) {
      case 0: return set(nullptr, ours, theirs);
      case 1: return set(random_() % 2 == 0, ours, theirs);
      case 2: return set(static_cast<int64_t>(random_()) - (int64_t{1} << 31), ours, theirs);
      case 3: return set(UINT64_MAX - random_() % 3, ours, theirs);
      case 4: return set(std::ldexp(static_cast<double>(random_()) - 2e9, static_cast<int>(random_() % 200) - 100), ours, theirs);
      case 5: return set(std::vector<double>{0.0, -0.0, 1.0, HUGE_VAL, std::nan("")}[random_() % 5], ours, theirs);
      case 6: return set(text(), ours, theirs);
      case 7:
        *ours = Json::array(), *theirs = nlohmann::ordered_json::array();
        for (unsigned n = random_() % 4; n > 0; --n) {
          theirs->push_back(nullptr);
          make(depth - 1, &ours->push_back(Json()), &theirs->back());
        }
        return;
      default:
        *ours = Json::object(), *theirs = nlohmann::ordered_json::object();
        for (unsigned n = random_() % 4; n > 0; --n) {
          const std::string name = text();
          make(depth - 1, &(*ours)[name], &(*theirs)[name]);
        }
    }
  }

 private:
  template <class T>
  void set(T value, Json* ours, nlohmann::ordered_json* theirs) {
    *ours = value, *theirs = value;
  }
  std::string text() {
    static const std::string kParts[] = {"a", "\"", "\\", "\n", "\x01", "\x7f", "\xc3\xa9", "\xf0\x9f\x98\x80", "\xff", "\xc3", "/", std::string(1, '\0')};
    std::string out;
    for (unsigned n = random_() % 4; n > 0; --n) out += kParts[random_() % std::size(kParts)];
    return out;
  }
  std::mt19937 random_;
};

TEST(JsonValues, TextIsThatOfTheLibrary) {
  for (unsigned seed = 0; seed < 3000; ++seed) {
    Json ours;
    nlohmann::ordered_json theirs;
    Pair(seed).make(4, &ours, &theirs);
    for (const int indent : {-1, 0, 1, 2}) {
      for (const bool ascii : {false, true}) {
        const std::string text = theirs.dump(indent, ' ', ascii, nlohmann::ordered_json::error_handler_t::replace);
        ASSERT_EQ(ours.dump(indent, ascii), text) << seed;
        const Json back = Json::parse(text);
        ASSERT_EQ(back.dump(indent, ascii), text) << seed;
        ASSERT_TRUE(back == Json(back)) << seed;
      }
    }
  }
}

TEST(JsonValues, Lists) {
  const std::map<std::string, int> sizes = {{"batch", 8}};
  Json a = {{"name", "x"},    {"pairs", {{"a", 1}, {"b", 2.0}}},        {"list", {"a", 1}}, {"none", Json::array()},
            {"sizes", sizes}, {"flags", std::vector<bool>{true, false}}};
  EXPECT_EQ(a.dump(), R"({"name":"x","pairs":{"a":1,"b":2.0},"list":["a",1],"none":[],"sizes":{"batch":8},"flags":[true,false]})");
  EXPECT_EQ(Json::array({Json::array({"a", 1})}).dump(), R"([["a",1]])");
  EXPECT_EQ(Json::array({{{"a", 1}}}).dump(), R"([{"a":1}])");
  a["name"] = a["pairs"]["b"];
  a["pairs"] = a["list"];  // a part of what it replaces
  a = a["pairs"];
  EXPECT_EQ(a.dump(), R"(["a",1])");
  a = std::move(a[0]);
  EXPECT_EQ(a, "a");
}

TEST(JsonValues, Members) {
  Json a = {{"b", 1}, {"a", 2}};
  a.update({{"a", 3}, {"c", nullptr}});
  a.erase("b");
  EXPECT_EQ(a.dump(), R"({"a":3,"c":null})");
  EXPECT_EQ(a.value("a", 0), 3);
  EXPECT_EQ(a.value("z", 2.5), 2.5);
  EXPECT_EQ(a.value("z", "none"), "none");
  EXPECT_TRUE(a.contains("c") && !a.contains("b"));
  EXPECT_EQ(Json::parse(R"({"a": 1, "a": 2})").dump(), R"({"a":2})");  // the later one
  std::string names;
  for (const auto& [name, value] : a.items()) names += name;
  EXPECT_EQ(names, "ac");
}

TEST(JsonValues, Numbers) {
  EXPECT_EQ(Json(1), Json(1.0));
  EXPECT_EQ(Json(1u), Json(1));
  EXPECT_FALSE(Json(-1) == Json(UINT64_MAX));
  EXPECT_FALSE(Json(1) == Json(true));
  EXPECT_EQ(Json(1e300).get<int64_t>(), INT64_MAX);
  EXPECT_EQ(Json(-1e300).get<int64_t>(), INT64_MIN);
  EXPECT_EQ(Json(std::nan("")).get<int64_t>(), 0);
  EXPECT_EQ(Json(-1.0).get<uint64_t>(), 0u);
  EXPECT_EQ(Json(UINT64_MAX).get<uint64_t>(), UINT64_MAX);
}

TEST(JsonValues, WhatIsNotThereIsAnException) {
  const Json a = {{"list", {1, 2}}, {"text", "x"}};
  EXPECT_THROW(a.at("missing"), Json::Exception);
  EXPECT_THROW(a["missing"], Json::Exception);
  EXPECT_THROW(a["list"].at(2), Json::Exception);
  EXPECT_THROW(a["text"].get<int>(), Json::Exception);
  EXPECT_THROW(a["text"].value("a", 0), Json::Exception);
  EXPECT_THROW(a["list"].value("a", 0), Json::Exception);
  EXPECT_THROW(a["list"].get<std::string>(), Json::Exception);
  EXPECT_THROW(a["list"].get<std::vector<std::string>>(), Json::Exception);
  EXPECT_THROW(a["text"].get<bool>(), Json::Exception);
  EXPECT_THROW(Json().at("a"), Json::Exception);
  Json text = "x";
  EXPECT_THROW(text["a"], Json::Exception);
  EXPECT_THROW(text.push_back(1), Json::Exception);
  EXPECT_EQ(a["text"].begin(), a["text"].end());
  EXPECT_THROW(a["list"].items(), Json::Exception);
  EXPECT_TRUE(Json().items().empty());
  EXPECT_FALSE(a["list"].contains("a"));
}

TEST(JsonValues, TextThatIsNone) {
  for (const char* text : {"", "{", "[1,]", "{\"a\"}", "nul", "1 2", "\"\xff\"", "[1e999]", "'a'"}) {
    EXPECT_FALSE(Json::try_parse(text)) << text;
    EXPECT_THROW(Json::parse(text), Json::Exception) << text;
  }
  EXPECT_TRUE(Json::try_parse(std::string(1000, '[') + std::string(1000, ']')));
  EXPECT_FALSE(Json::try_parse(std::string(1001, '[') + std::string(1001, ']')));
  EXPECT_FALSE(Json::try_parse(std::string(5'000'000, '[')));
}

}  // namespace
}  // namespace coil
