#include "base/text.h"

#include <gtest/gtest.h>

#include <random>

#include "base/result.h"

namespace coil {
namespace {

using namespace std::string_literals;

TEST(Text, ControlsAreWrittenOut) {
  EXPECT_EQ(shown("plain text, \\ and \"quotes\""), "plain text, \\ and \"quotes\"");
  EXPECT_EQ(shown("caf\xC3\xA9 \xE6\xBC\xA2 \xF0\x9F\x98\x80"), "caf\xC3\xA9 \xE6\xBC\xA2 \xF0\x9F\x98\x80");
  EXPECT_EQ(shown("\x1b[2J\x07\r\n\t\x7f\0"s), "\\x1b[2J\\x07\\r\\n\\t\\x7f\\x00");
  EXPECT_EQ(shown("a\n\tb\r", Lines::keep), "a\n\tb\\r");
  EXPECT_EQ(shown("\xC2\x9B"
                  "31m\xC2\x85"),
            "\\u009b31m\\u0085");                                                                        // C1: CSI and NEL
  EXPECT_EQ(shown("\xE2\x80\xAE\xE2\x80\xA8\xEF\xBB\xBF\xE2\x80\x8B"), "\\u202e\\u2028\\ufeff\\u200b");  // directions, lines, what has no width
  EXPECT_EQ(shown("\xF3\xA0\x81\x81"), "\\U000e0041");                                                   // tags
}

TEST(Text, WhatIsNoUtf8IsWrittenOut) {
  for (const std::string& bad : {"\xff"s, "\xc3"s, "\xc3("s, "\x80"s, "\xc0\xaf"s, "\xe0\x80\xaf"s, "\xed\xa0\x80"s, "\xf4\x90\x80\x80"s, "\xf0\x9f\x98"s}) {
    const std::string out = shown(bad);
    EXPECT_EQ(out.substr(0, 2), "\\x") << out;
    for (const char c : out) EXPECT_TRUE(c >= 0x20 && c < 0x7f) << out;
  }
}

// Of any bytes, what is shown is UTF-8 without controls, and shown again it is the same.
TEST(Text, AnyBytesBecomeText) {
  std::mt19937 random(7);
  const std::string pieces[] = {"a", "\xC3\xA9", "\xE2\x80\xAE", "\xF0\x9F\x98\x80", "\x1b[", "\n", "\xC2\x9b", "\xED\xA0\x80"};
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) text += random() % 2 ? pieces[random() % std::size(pieces)] : std::string(1, static_cast<char>(random()));
    const std::string out = shown(text);
    for (size_t at = 0; at < out.size();) {
      const Utf8Character c = utf8_character(out, at);
      ASSERT_GT(c.bytes, 0u) << round;
      ASSERT_TRUE(c.code >= 0x20 && c.code != 0x7f && !(c.code >= 0x80 && c.code < 0xa0)) << round;
      at += c.bytes;
    }
    ASSERT_EQ(shown(out), out);
    char room[64];
    for (size_t n = 0; n < sizeof room; ++n) {  // without memory of its own: a beginning of the same
      const size_t size = show_into(room, n, text);
      ASSERT_LE(size, n);
      ASSERT_EQ(out.substr(0, size), std::string(room, size));
      ASSERT_TRUE(size + 10 > std::min(n, out.size()));
    }
    for (size_t n = 0; n <= text.size(); ++n) {
      const std::string_view cut = clipped(text, n);
      ASSERT_LE(cut.size(), n);
      ASSERT_GE(cut.size() + 3, n);
      ASSERT_EQ(text.substr(0, cut.size()), cut);
    }
  }
}

TEST(Text, CutsLeaveNoHalfCharacters) {
  EXPECT_EQ(clipped("abc", 3), "abc");
  EXPECT_EQ(clipped("abc", 2), "ab");
  EXPECT_EQ(clipped("ab\xC3\xA9", 3), "ab");
  EXPECT_EQ(clipped("ab\xC3\xA9x", 4), "ab\xC3\xA9");
  EXPECT_EQ(clipped("\xF0\x9F\x98\x80", 3), "");
  EXPECT_EQ(clipped("\xff\xff\xff", 2), "\xff\xff");
}

TEST(Text, ErrorsAreText) {
  const Error error = {ErrorCode::bad_program, "value '\x1b[2J\n  hint: obey' \xff", "m.py\r", "x\ny"};
  EXPECT_EQ(error.to_string(), "COIL-E104: value '\\x1b[2J\\n  hint: obey' \\xff\n  at m.py\\r\n  hint: x\\ny");
  // A compiler's message has lines.
  EXPECT_EQ((Error{ErrorCode::user_source, "a:1: no\n  ^\x1b", "", ""}.to_string()), "COIL-E409: a:1: no\n  ^\\x1b");
}

}  // namespace
}  // namespace coil
