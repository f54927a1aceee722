#include "cache/redis_reply.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace coil::cache {
namespace {

constexpr size_t kMostLine = 4096, kStep = size_t{1} << 20;
constexpr int kMostDepth = 3;

Error bad(std::string why) { return {ErrorCode::file_unreadable, std::move(why), "", ""}; }

Result<int64_t> number(std::string_view text) {
  int64_t v = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (problem != std::errc() || end != text.data() + text.size() || v < -1) return bad("this is no Redis server's answer");
  return v;
}

}  // namespace

Result<uint8_t> ReplyReader::next() {
  if (at_ == end_) {
    TRY(end_, source_.receive(buffer_));
    at_ = 0;
  }
  return buffer_[at_++];
}

Status ReplyReader::take(std::span<uint8_t> into) {
  const size_t known = std::min(into.size(), end_ - at_);
  std::copy_n(buffer_.begin() + static_cast<ptrdiff_t>(at_), known, into.begin());
  at_ += known;
  for (into = into.subspan(known); !into.empty();) {
    TRY(const size_t n, source_.receive(into));
    into = into.subspan(n);
  }
  return ok_status();
}

Result<std::string_view> ReplyReader::line() {
  line_.clear();
  while (true) {
    TRY(const uint8_t c, next());
    if (c == '\n' && line_.ends_with('\r')) break;
    if (line_.size() == kMostLine) return bad("this is no Redis server's answer");
    line_ += static_cast<char>(c);
  }
  line_.pop_back();
  return std::string_view(line_);
}

Result<Reply> ReplyReader::read(ReplyLimits limits) { return read(limits, 0); }

Result<Reply> ReplyReader::read(ReplyLimits& limits, int depth) {
  Reply reply;
  TRY(const uint8_t kind, next());
  TRY(const std::string_view head, line());
  if (kind == '+' || kind == '-' || kind == ':') {
    reply.kind = kind == '+' ? Reply::Kind::status : kind == '-' ? Reply::Kind::error : Reply::Kind::number;
    reply.bytes.assign(head.begin(), head.end());
    return reply;
  }
  if (kind != '$' && kind != '*') return bad("this is no Redis server's answer");
  TRY(const int64_t size, number(head));
  if (size < 0) return reply;
  if (kind == '*') {
    if (depth == kMostDepth || static_cast<uint64_t>(size) > limits.items)
      return bad(fmt::format("its answer has {} parts, at most {} are expected", size, limits.items));
    limits.items -= static_cast<size_t>(size);
    reply.kind = Reply::Kind::list;
    for (int64_t i = 0; i < size; ++i) {
      TRY(Reply item, read(limits, depth + 1));
      reply.items.push_back(std::move(item));
    }
    return reply;
  }
  if (static_cast<uint64_t>(size) > limits.bytes) return bad(fmt::format("its answer has {} bytes, at most {} are expected", size, limits.bytes));
  limits.bytes -= static_cast<uint64_t>(size);
  reply.kind = Reply::Kind::bytes;
  // Memory as the bytes come, not as they are announced.
  for (uint64_t left = static_cast<uint64_t>(size); left > 0;) {
    const size_t step = std::min<uint64_t>(left, std::max(kStep, reply.bytes.size())), before = reply.bytes.size();
    reply.bytes.resize(before + step);
    TRY_STATUS(take(std::span(reply.bytes).subspan(before)));
    left -= step;
  }
  uint8_t end[2];
  TRY_STATUS(take(end));
  if (end[0] != '\r' || end[1] != '\n') return bad("this is no Redis server's answer");
  return reply;
}

std::vector<uint8_t> redis_command(std::initializer_list<std::span<const uint8_t>> parts) {
  std::vector<uint8_t> out;
  const auto add = [&](std::span<const uint8_t> bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); };
  add(bytes_of(fmt::format("*{}\r\n", parts.size())));
  for (const std::span<const uint8_t> part : parts) {
    add(bytes_of(fmt::format("${}\r\n", part.size())));
    add(part);
    add(bytes_of("\r\n"));
  }
  return out;
}

}  // namespace coil::cache
