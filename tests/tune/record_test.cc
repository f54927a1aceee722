#include "tune/record.h"

#include <gtest/gtest.h>

namespace coil::tune {
namespace {

Record example() {
  Record r;
  r.hardware = {"Some CPU", "v4", 2};
  r.seconds = 1.5;
  r.runs = 321;
  Entry e;
  e.problem = "gemm [1, batch, 8, 16]";
  e.kernel = "linear";
  e.kernels = 3;
  e.key = "batch";
  e.rows = {{12, {{"threads", 1}}, "one thread"}, {INT64_MAX, {}, "own rule"}};
  e.measured = {{{{"batch", 4}},
                 4,
                 {{"own rule", 10, 9, 11, 12, ""}, {"one thread", 5, 4.5, 6, 12, ""}, {"blocks", 0, 0, 0, 0, "wrong result"}},
                 "one thread",
                 "faster by 50.0 %"}};
  r.entries.push_back(e);
  r.whole = {{{{"batch", 4}}, 20, 15, true}};
  return r;
}

TEST(RecordTest, ReadsWhatItWrites) {
  const Record r = example();
  const auto read = parse_record(record_text(r), "r.json");
  ASSERT_TRUE(read.ok()) << read.error().to_string();
  EXPECT_EQ(record_text(read.value()), record_text(r));
  EXPECT_EQ(read.value().entries[0].rows, r.entries[0].rows);
  EXPECT_TRUE(read.value().hardware == r.hardware);
}

TEST(RecordTest, BadRecordsAreNamed) {
  const std::string good = record_text(example());
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{}"), std::string("{\"coil_tuning\": 7}"), std::string("{\"coil_tuning\": 1}"),
        good.substr(0, good.size() / 2), std::string("{\"coil_tuning\":1,\"hardware\":{\"cpu\":3,\"isa\":\"v4\",\"threads\":2},\"problems\":[]}")}) {
    const auto read = parse_record(text, "r.json");
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().code, ErrorCode::tuning_record);
    EXPECT_TRUE(read.error().message.starts_with("this is no tuning record of coil: r.json:")) << read.error().to_string();
  }
  const auto message = [](const std::string& text) { return parse_record(text, "r.json").error().message; };
  EXPECT_NE(message("{\n \"coil_tuning\": 1,\n \"hard").find("r.json:3:7: a string has no closing quote: the text ends"), std::string::npos)
      << message("{\n \"coil_tuning\": 1,\n \"hard");
  EXPECT_NE(message("{\"coil_tuning\": 7}").find("r.json: coil_tuning: its format is 7, this version of coil reads 1"), std::string::npos);
  std::string other = good;
  other.replace(other.find("\"up_to\": "), 9, "\"up_to\": \"x\", \"x\": ");
  EXPECT_NE(message(other).find("problems[0].rows[0].up_to: expected an integer, found a string"), std::string::npos) << message(other);
}

TEST(RecordTest, RowsMustRise) {
  Record r = example();
  r.entries[0].rows[1].up_to = 12;
  EXPECT_FALSE(parse_record(record_text(r), "r").ok());
  r.entries[0].rows[1].up_to = 40;  // no last one
  EXPECT_FALSE(parse_record(record_text(r), "r").ok());
  r.entries[0].rows.clear();
  EXPECT_FALSE(parse_record(record_text(r), "r").ok());
}

TEST(RecordTest, MergesWhatIsNew) {
  Record a = example(), b = example();
  b.entries[0].rows = {{INT64_MAX, {}, "own rule"}};
  Entry other = b.entries[0];
  other.problem = "another";
  b.entries.push_back(other);
  ASSERT_TRUE(merge(a, b).ok());
  ASSERT_EQ(a.entries.size(), 2u);
  EXPECT_EQ(a.entries[0].rows.size(), 2u) << "the newer choice stays";
  EXPECT_EQ(a.find("another"), &a.entries[1]);
  EXPECT_EQ(a.find("nothing"), nullptr);
}

TEST(RecordTest, OfAnotherMachineDoesNotMerge) {
  Record a = example(), b = example();
  b.hardware.units = 8;
  const Status merged = merge(a, b);
  ASSERT_FALSE(merged.ok());
  EXPECT_NE(merged.error().message.find("8 threads"), std::string::npos);
}

TEST(RecordTest, TablesShowEveryCandidate) {
  const std::string text = record_tables(example());
  EXPECT_NE(text.find("AUTOTUNE gemm [1, batch, 8, 16] at batch=4"), std::string::npos) << text;
  EXPECT_NE(text.find("one thread  <- chosen"), std::string::npos) << text;
  EXPECT_NE(text.find("wrong result"), std::string::npos);
  EXPECT_NE(text.find("20.0 us untuned, 15.0 us tuned"), std::string::npos);
}

}  // namespace
}  // namespace coil::tune
