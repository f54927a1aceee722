#include "terminal.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/env.h"
#include "base/text.h"

namespace coil::tool {
namespace {

// Columns that a text takes: escape codes take none, a UTF-8 sequence takes one.
size_t width_of(std::string_view text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033') {
      while (i < text.size() && text[i] != 'm') ++i;
    } else if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) {
      ++width;
    }
  }
  return width;
}

constexpr const char* kStyles[] = {"\033[0m", "\033[1m", "\033[2m", "\033[31m", "\033[32m"};

// Text as it may go to a terminal: only the codes that a Style writes are left of what controls it.
std::string for_terminal(std::string_view text, Lines lines) {
  std::string out;
  const bool styled = Style().on() || Style(2).on();
  while (!text.empty()) {
    const size_t escape = styled ? text.find('\033') : text.npos;
    out += shown(text.substr(0, escape), lines);
    if (escape == text.npos) break;
    text.remove_prefix(escape);
    const auto code = std::find_if(std::begin(kStyles), std::end(kStyles), [&](const char* s) { return text.starts_with(s); });
    const size_t bytes = code == std::end(kStyles) ? 1 : std::string_view(*code).size();
    out += bytes == 1 ? shown(text.substr(0, 1)) : std::string(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return out;
}

}  // namespace

Style::Style(int fd) {
  const std::string mode = env("COIL_COLOR").value_or("auto");
  on_ = mode == "always" || (mode != "never" && ::isatty(fd));
}

std::string Style::wrap(const char* code, std::string_view text) const { return on_ ? fmt::format("\033[{}m{}\033[0m", code, shown(text)) : shown(text); }

void Table::add(std::vector<std::string> row) {
  for (std::string& cell : row) cell = for_terminal(cell, Lines::escape);
  rows_.push_back(std::move(row));
}

std::string Table::text() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], width_of(row[c]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line(static_cast<size_t>(indent_), ' ');
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string space(widths[c] - width_of(row[c]), ' ');
      const bool right = std::find(right_.begin(), right_.end(), c) != right_.end();
      line += right ? space + row[c] : row[c] + space;
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string bytes_text(uint64_t bytes) {
  if (bytes < 1000) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* next : {"KB", "MB", "GB", "TB"}) {
    if (value < 999.95) break;
    value /= 1000;
    unit = next;
  }
  return fmt::format("{:.1f} {}", value, unit);
}

std::string seconds_text(double seconds) {
  if (seconds > 0 && seconds < 1e-7) return fmt::format("{:.3g} ns", seconds * 1e9);  // in microseconds it would read 0.00
  if (seconds < 1e-4) return fmt::format("{:.2f} us", seconds * 1e6);
  if (seconds < 1e-3) return fmt::format("{:.1f} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.2f} s", seconds);
}

std::string rows_text(int64_t from, int64_t to) { return from == to ? fmt::format("{}", from) : fmt::format("{}-{}", from, to); }

std::string choices_text(std::string_view by, const std::vector<std::pair<int64_t, std::string>>& rows) {
  std::string text;
  int64_t from = 1;
  for (const auto& [up_to, run] : rows) {
    const bool last = up_to == INT64_MAX;
    const std::string range = last ? (from > 1 ? fmt::format("{}-: ", from) : "") : rows_text(from, up_to) + ": ";
    text += (text.empty() ? (range.empty() ? "" : std::string(by) + " ") : ", ") + range + run;
    if (!last) from = up_to + 1;
  }
  return text;
}

std::string count_text(size_t n, std::string_view noun) { return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s"); }

void put(std::string_view text) {
  const std::string safe = for_terminal(text, Lines::keep);
  std::fwrite(safe.data(), 1, safe.size(), stdout);
}

void note(std::string_view text) {
  const std::string line = fmt::format("note: {}\n", shown(text));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace coil::tool
