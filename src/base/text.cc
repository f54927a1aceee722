#include "base/text.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

namespace coil {
namespace {

// Characters without a picture that change how others are shown: directions, joins, line ends of Unicode, tags.
bool hides(uint32_t c) {
  constexpr std::pair<uint32_t, uint32_t> kRanges[] = {{0x80, 0x9f},     {0xad, 0xad},     {0x61c, 0x61c},   {0x180e, 0x180e}, {0x200b, 0x200f},
                                                       {0x2028, 0x202e}, {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
  return std::any_of(std::begin(kRanges), std::end(kRanges), [&](const auto& range) { return c >= range.first && c <= range.second; });
}

bool is_plain(char c) { return c >= 0x20 && c < 0x7f; }

// "\\n", "\\x1b", "\\u202e"; at most 10 characters.
size_t escape_of(char* out, uint32_t c, bool is_byte) noexcept {
  const char* name = c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : nullptr;
  const char* format = is_byte || c < 0x80 ? "\\x%02x" : c <= 0xffff ? "\\u%04x" : "\\U%08x";
  return static_cast<size_t>(name ? std::snprintf(out, 16, "%s", name) : std::snprintf(out, 16, format, c));
}

// How the character at `at` is shown, and how many bytes of the text it is.
struct Piece {
  char text[16];
  size_t size, bytes;
};
Piece piece_at(std::string_view text, size_t at) noexcept {
  Piece p;
  const Utf8Character c = utf8_character(text, at);
  p.bytes = std::max<size_t>(c.bytes, 1);
  if (c.bytes == 0 || c.code < 0x80 || hides(c.code)) {
    p.size = escape_of(p.text, c.bytes ? c.code : static_cast<unsigned char>(text[at]), c.bytes == 0);
  } else {
    p.size = c.bytes;
    std::memcpy(p.text, text.data() + at, c.bytes);
  }
  return p;
}

bool passes(char c, Lines lines) { return is_plain(c) || (lines == Lines::keep && (c == '\n' || c == '\t')); }

}  // namespace

Utf8Character utf8_character(std::string_view text, size_t at) noexcept {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  const uint32_t first = byte(at);
  if (first < 0x80) return {1, first};
  const size_t bytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (first < 0xc2 || first > 0xf4 || at + bytes > text.size()) return {};
  uint32_t code = first & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(at + i) & 0x3f);
  }
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < kLeast[bytes] || surrogate || code > 0x10ffff ? Utf8Character{} : Utf8Character{bytes, code};
}

std::string shown(std::string_view text, Lines lines) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (passes(text[at], lines)) {
      out += text[at++];
      continue;
    }
    const Piece p = piece_at(text, at);
    out.append(p.text, p.size);
    at += p.bytes;
  }
  return out;
}

size_t show_into(char* out, size_t room, std::string_view text, Lines lines) noexcept {
  size_t size = 0;
  for (size_t at = 0; at < text.size();) {
    if (passes(text[at], lines)) {
      if (size == room) return size;
      out[size++] = text[at++];
      continue;
    }
    const Piece p = piece_at(text, at);
    if (p.size > room - size) return size;
    std::memcpy(out + size, p.text, p.size);
    size += p.size;
    at += p.bytes;
  }
  return size;
}

std::string_view clipped(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  // A character that was UTF-8 before the cut and is none after it goes as a whole.
  for (size_t back = 1; back <= std::min<size_t>(bytes, 3); ++back) {
    const size_t at = bytes - back;
    if ((static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) continue;
    return text.substr(0, at + utf8_character(text, at).bytes > bytes ? at : bytes);
  }
  return text.substr(0, bytes);
}

}  // namespace coil
