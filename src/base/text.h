// Text that comes from files, for people's eyes and for JSON.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace coil {

// The length of the UTF-8 character at `at` and its number; length 0: the bytes there are none.
struct Utf8Character {
  size_t bytes = 0;
  uint32_t code = 0;
};
Utf8Character utf8_character(std::string_view text, size_t at) noexcept;

// What may be printed on a terminal, and is UTF-8: control characters ("\x1b", "\n", those of C1), bytes that are no UTF-8 ("\xff") and characters that
// reorder or hide text ("\u202e") are written out as escapes. Lines::keep leaves line feeds and tabs.
enum class Lines : uint8_t { escape, keep };
std::string shown(std::string_view text, Lines lines = Lines::escape);

// The same into memory of the caller's, at most `room` bytes of it and no half characters or escapes; how many there are. Allocates nothing.
size_t show_into(char* out, size_t room, std::string_view text, Lines lines = Lines::escape) noexcept;

// At most so many bytes of it, without half a character at the end.
std::string_view clipped(std::string_view text, size_t bytes);

}  // namespace coil
