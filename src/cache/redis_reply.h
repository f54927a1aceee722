// Redis' protocol (RESP 2) as far as a cache needs it: commands out, replies in. A reply says its size before it comes, and is refused there when it is
// more than was asked for. (hiredis, which Debian has in version 0.14, reads whatever is announced, and has neither TLS nor a bound of time.)
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cache/connection.h"

namespace coil::cache {

struct Reply {
  enum class Kind { nil, status, error, number, bytes, list };
  Kind kind = Kind::nil;
  std::vector<uint8_t> bytes;  // of bytes, status and error
  std::vector<Reply> items;
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }
};

struct ReplyLimits {
  uint64_t bytes = 0;  // of all its parts
  size_t items = 0;
};

class ReplyReader {
 public:
  explicit ReplyReader(ByteSource& source) : source_(source) {}
  // file_unreadable: the source ends, the reply is none of Redis', or it breaks a limit.
  Result<Reply> read(ReplyLimits limits);

 private:
  Result<Reply> read(ReplyLimits& limits, int depth);
  Result<std::string_view> line();
  Status take(std::span<uint8_t> into);
  Result<uint8_t> next();

  ByteSource& source_;
  std::vector<uint8_t> buffer_ = std::vector<uint8_t>(1 << 16);
  size_t at_ = 0, end_ = 0;
  std::string line_;
};

std::vector<uint8_t> redis_command(std::initializer_list<std::span<const uint8_t>> parts);
inline std::span<const uint8_t> bytes_of(std::string_view text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }

}  // namespace coil::cache
