// What the commands print with: colours on a terminal, aligned tables, sizes and times for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace coil::tool {

// Escape codes, or nothing: COIL_COLOR, and whether `fd` is a terminal. What is wrapped may be of anyone's file: it is shown (base/text.h).
class Style {
 public:
  explicit Style(int fd = 1);
  std::string bold(std::string_view text) const { return wrap("1", text); }
  std::string dim(std::string_view text) const { return wrap("2", text); }
  std::string red(std::string_view text) const { return wrap("31", text); }
  std::string green(std::string_view text) const { return wrap("32", text); }
  bool on() const { return on_; }

 private:
  std::string wrap(const char* code, std::string_view text) const;
  bool on_ = false;
};

// Rows of cells, columns aligned to the left but for those named in `right`; every line begins with `indent` spaces.
class Table {
 public:
  explicit Table(int indent = 2, std::vector<size_t> right = {}) : indent_(indent), right_(std::move(right)) {}
  void add(std::vector<std::string> row);  // control characters in it are shown as escapes, but for those of a Style
  bool empty() const { return rows_.empty(); }
  std::string text() const;

 private:
  int indent_;
  std::vector<size_t> right_;
  std::vector<std::vector<std::string>> rows_;
};

std::string bytes_text(uint64_t bytes);           // "814 B", "12.3 KB", "91.0 MB" (powers of 1000)
std::string seconds_text(double seconds);         // "1.2 ns", "0.83 us", "12.3 ms", "1.24 s"
std::string rows_text(int64_t from, int64_t to);  // "2-8", "3" of one number
// "batch 1-12: winograd, 13-: default": what serves up to which number, INT64_MAX: all larger ones. Alone: "default".
std::string choices_text(std::string_view by, const std::vector<std::pair<int64_t, std::string>>& rows);
std::string count_text(size_t n, std::string_view noun);  // "1 kernel", "3 kernels"

// Standard output; the destination of everything but errors and notes. Nothing but a Style's codes and line feeds controls the terminal.
void put(std::string_view text);
// "note: ..." on stderr.
void note(std::string_view text);

}  // namespace coil::tool
