#include "line_diff.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace coil::tool {
namespace {

constexpr size_t kMostCells = size_t{1} << 24;  // of the table; longer changes are shown as a whole

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    out.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace

LineDiff line_diff(std::string_view before, std::string_view after) {
  const std::vector<std::string_view> a = lines_of(before), b = lines_of(after);
  size_t head = 0, tail = 0;
  while (head < a.size() && head < b.size() && a[head] == b[head]) ++head;
  while (tail + head < a.size() && tail + head < b.size() && a[a.size() - 1 - tail] == b[b.size() - 1 - tail]) ++tail;
  const size_t n = a.size() - head - tail, m = b.size() - head - tail;
  LineDiff out;
  const auto put = [&](const char* sign, std::string_view line) { out.text += std::string(sign) + std::string(line) + "\n"; };
  if ((n + 1) * (m + 1) > kMostCells) {
    for (size_t i = 0; i < n; ++i) put("- ", a[head + i]);
    for (size_t j = 0; j < m; ++j) put("+ ", b[head + j]);
    out.removed = n;
    out.added = m;
    return out;
  }
  // The longest common part of what is left, from the end.
  std::vector<uint32_t> common((n + 1) * (m + 1), 0);
  const auto at = [&](size_t i, size_t j) -> uint32_t& { return common[i * (m + 1) + j]; };
  for (size_t i = n; i-- > 0;) {
    for (size_t j = m; j-- > 0;) at(i, j) = a[head + i] == b[head + j] ? at(i + 1, j + 1) + 1 : std::max(at(i + 1, j), at(i, j + 1));
  }
  bool shown = false;  // the line before the group
  for (size_t i = 0, j = 0; i < n || j < m;) {
    if (i < n && j < m && a[head + i] == b[head + j]) {
      ++i, ++j;
      shown = false;
      continue;
    }
    if (!shown && head + i > 0) put("  ", a[head + i - 1]);
    shown = true;
    if (j >= m || (i < n && at(i + 1, j) >= at(i, j + 1))) put("- ", a[head + i++]), ++out.removed;
    else put("+ ", b[head + j++]), ++out.added;
  }
  return out;
}

}  // namespace coil::tool
