// The text of a graph: what is read is a verified program, whose text is read as the same again, and which passes take or refuse.
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "expr/text_reader.h"
#include "frontend/graph_text.h"
#include "passes/pipeline.h"

namespace {

using namespace coil;

// What is drawn for large weights takes longer than an input may, and shows nothing that small ones do not.
bool has_large_weights(std::string_view text) {
  for (std::string_view line : lines_of(text)) {
    double product = 1;
    for (size_t at = line.find("input "); at < line.size(); ++at) {
      if (line[at] < '0' || line[at] > '9') continue;
      double number = 0;
      const auto [end, wrong] = std::from_chars(line.data() + at, line.data() + line.size(), number);
      product *= wrong == std::errc() ? std::max(number, 1.0) : 1e7;
      at = static_cast<size_t>(end - line.data()) - 1;
    }
    if (!(product < 1e7)) return true;
  }
  return false;
}

void fail(const std::string& now, const std::string& before) {
  std::fprintf(stderr, "%s\n---- was:\n%s\n", now.c_str(), before.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (size > 1 << 16 || has_large_weights(input)) return 0;
  auto graph = read_graph_text(input);
  if (!graph.ok()) {
    if (graph.error().message.empty() || graph.error().code == ErrorCode::internal) std::abort();
    return 0;
  }
  const std::string text = to_string(graph.value());
  const auto again = read_graph_text(text);
  if (!again.ok()) fail(again.error().to_string(), text);
  if (const std::string other = to_string(again.value()); other != text) fail(other, text);
  const auto simple = run_passes(std::move(graph).value());
  if (!simple.ok()) return 0;
  const std::string last = to_string(simple.value());
  const auto read = read_graph_text(last);
  if (!read.ok()) fail(read.error().to_string(), last);
  if (const std::string other = to_string(read.value()); other != last) fail(other, last);
  return 0;
}
