// Archives of several exported programs, and what is cut out of them. Input: an archive; or entries as text, each a line "==== NAME" and its content, which
// go into an archive of their own, so that a mutation does not fail at a checksum.
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/zip_writer.h"
#include "frontend/program_document.h"
#include "frontend/program_names.h"
#include "frontend/program_reader.h"
#include "passes/pipeline.h"

namespace {

using namespace coil;

void check(bool ok) {
  if (!ok) std::abort();
}

std::vector<uint8_t> make_archive(std::string_view text) {
  constexpr std::string_view kMark = "==== ";
  static const std::string kWeight(2048, '\x01');
  ZipWriter zip = ZipWriter::in_memory();
  std::set<std::string> names;
  while (text.starts_with(kMark)) {
    const size_t line = std::min(text.find('\n'), text.size()), next = std::min(text.find("\n==== ", line), text.size());
    const std::string name(text.substr(kMark.size(), line - kMark.size()));
    const std::string_view content = line < next ? text.substr(line + 1, next - line - 1) : std::string_view();
    if (name.empty() || name.front() == '/' || name.size() > 1000 || !names.insert(name).second ||
        !zip.add(name, content == "weight" ? std::string_view(kWeight) : content).ok())
      break;
    text = next < text.size() ? text.substr(next + 1) : std::string_view();
  }
  return zip.finish_in_memory();
}

void cut(const ProgramDocument& document) {
  for (const std::string& value : document.values()) {
    (void)document.operands(value);
    (void)document.constant_sizes_of(value);
    check(document.has(value));
  }
  const std::vector<std::string> outputs = document.outputs(), values = document.values();
  if (values.empty()) return;
  (void)document.cut(outputs, {}).ok();
  const Result<ProgramDocument> part = document.cut({values.back()}, {values.front()});
  if (part.ok()) (void)part.value().resized({{4, 3}, {16, 2}}).weight_bytes();
}

void read(const ZipReader& zip, const std::string& program) {
  ReadOptions options;
  options.model_name = program;
  const Result<Graph> graph = read_program(zip, options);
  if (!graph.ok()) return check(!graph.error().message.empty());
  (void)to_string(graph.value());
  const Result<ProgramDocument> document = ProgramDocument::open(zip, graph.value(), program);
  if (document.ok()) cut(document.value());
  (void)run_passes(graph.value()).ok();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const bool is_zip = size >= 2 && data[0] == 'P' && data[1] == 'K';
  std::vector<uint8_t> archive;
  if (!is_zip) archive = make_archive({reinterpret_cast<const char*>(data), size});
  const std::span<const uint8_t> bytes = is_zip ? std::span(data, size) : std::span<const uint8_t>(archive);
  const Result<ZipReader> zip = ZipReader::from_bytes(bytes, "input");
  if (!zip.ok()) return 0;
  read(zip.value(), "");
  size_t most = 4;
  for (const std::string& program : programs_in(zip.value())) {
    if (most-- == 0) break;
    read(zip.value(), program);
  }
  return 0;
}
