// Replies of a server that says anything: what is announced is refused before it is read.
#include "cache/redis_reply.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace coil::cache {
namespace {

class Text : public ByteSource {
 public:
  Text(std::string_view text, size_t piece) : left_(text), piece_(piece) {}
  Result<size_t> receive(std::span<uint8_t> into) override {
    const size_t n = std::min({left_.size(), into.size(), piece_});
    if (n == 0) return Error{ErrorCode::file_unreadable, "the end", "", ""};
    std::copy_n(left_.begin(), n, into.begin());
    left_.remove_prefix(n);
    return n;
  }

 private:
  std::string_view left_;
  const size_t piece_;
};

Result<Reply> read(std::string_view text, size_t piece = 1 << 20) {
  Text source(text, piece);
  return ReplyReader(source).read({100, 10});
}

TEST(RedisReply, Kinds) {
  for (const size_t piece : {size_t{1}, size_t{3}, size_t{1} << 20}) {
    EXPECT_EQ(read("+OK\r\n", piece).value().text(), "OK");
    EXPECT_EQ(read("-WRONGPASS no\r\n", piece).value().kind, Reply::Kind::error);
    EXPECT_EQ(read(":12\r\n", piece).value().text(), "12");
    EXPECT_EQ(read("$-1\r\n", piece).value().kind, Reply::Kind::nil);
    EXPECT_EQ(read("$4\r\na\r\nb\r\n", piece).value().text(), "a\r\nb");
    const Reply list = read("*2\r\n$1\r\n0\r\n*2\r\n$1\r\na\r\n$0\r\n\r\n", piece).value();
    ASSERT_EQ(list.items.size(), 2u);
    ASSERT_EQ(list.items[1].items.size(), 2u);
    EXPECT_EQ(list.items[1].items[0].text(), "a");
  }
}

TEST(RedisReply, WhatIsRefused) {
  for (const std::string& bad :
       {std::string(""), std::string("$"), std::string("$101\r\n"), std::string("$536870912\r\n"), std::string("$9223372036854775807\r\n"),
        std::string("$-2\r\n"), std::string("$x\r\n"), std::string("$3\r\nabcd\r\n"), std::string("*11\r\n"), std::string("*1000000000\r\n"),
        std::string("?1\r\n"), std::string("*2\r\n$60\r\n") + std::string(60, 'x') + "\r\n$60\r\n" + std::string(60, 'x') + "\r\n",  // together too many
        std::string("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n"), "+" + std::string(5000, 'x') + "\r\n"}) {
    EXPECT_EQ(read(bad).error().code, ErrorCode::file_unreadable) << bad.substr(0, 40);
  }
}

TEST(RedisReply, Commands) {
  const std::vector<uint8_t> bytes = redis_command({bytes_of("SET"), bytes_of("a b"), bytes_of("\r\n")});
  EXPECT_EQ(std::string(bytes.begin(), bytes.end()), "*3\r\n$3\r\nSET\r\n$3\r\na b\r\n$2\r\n\r\n\r\n");
}

}  // namespace
}  // namespace coil::cache
