// The whole way of a hostile file: archive, JSON, program, passes, text. Input: an archive; or a pickle (first byte 0x80),
// which goes into a file as torch.save writes it; or up to three JSON entries with a line "----" between them, which go into an
// archive with plausible weights.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/zip_writer.h"
#include "frontend/program_reader.h"
#include "frontend/tensor_pickle.h"
#include "passes/pipeline.h"

namespace {

using namespace coil;

void check(bool ok) {
  if (!ok) std::abort();
}

std::vector<uint8_t> make_archive(std::string_view text) {
  constexpr std::string_view kEntries[] = {"m/models/model.json", "m/data/weights/model_weights_config.json", "m/data/constants/model_constants_config.json"};
  static const std::string kWeight(2048, '\x01');
  ZipWriter zip = ZipWriter::in_memory();
  for (std::string_view entry : kEntries) {
    constexpr std::string_view kSeparator = "\n----\n";
    size_t end = text.find(kSeparator);
    check(zip.add(entry, text.substr(0, end)).ok());
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + kSeparator.size());
  }
  for (int i = 0; i < 12; ++i) check(zip.add("m/data/weights/weight_" + std::to_string(i), kWeight).ok());
  for (int i = 0; i < 2; ++i) check(zip.add("m/data/constants/tensor_" + std::to_string(i), kWeight).ok());
  return zip.finish_in_memory();
}

void read_pickle(std::string_view code) {
  static const std::string kStorage(256, '\x01');
  ZipWriter zip = ZipWriter::in_memory();
  check(zip.add("archive/data.pkl", code).ok());
  for (int i = 0; i < 11; ++i) check(zip.add("archive/data/" + std::to_string(i), kStorage).ok());
  auto bytes = std::make_shared<std::vector<uint8_t>>(zip.finish_in_memory());
  (void)read_tensor_pickle({bytes, *bytes}, "input").ok();
}

// Every byte that the graph says it has can be read.
void touch(const Graph& graph) {
  unsigned sum = 0;
  for (const GraphInput& in : graph.inputs) {
    for (uint8_t b : in.data.bytes) sum += b;
  }
  volatile unsigned sink = sum;
  (void)sink;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0 && data[0] == 0x80) {
    read_pickle({reinterpret_cast<const char*>(data), size});
    return 0;
  }
  std::vector<uint8_t> archive;
  bool is_zip = size >= 2 && data[0] == 'P' && data[1] == 'K';
  if (!is_zip) archive = make_archive({reinterpret_cast<const char*>(data), size});
  std::span<const uint8_t> bytes = is_zip ? std::span(data, size) : std::span<const uint8_t>(archive);
  ReadOptions options;
  options.check_weights = is_zip;
  Result<ZipReader> zip = ZipReader::from_bytes(bytes, "input");
  if (!zip.ok()) return 0;
  Result<Graph> graph = read_program(zip.value(), options);
  if (!graph.ok()) {
    check(!graph.error().message.empty());
    return 0;
  }
  touch(graph.value());
  (void)to_string(graph.value());
  Result<Graph> simple = run_passes(std::move(graph).value());
  if (simple.ok()) (void)to_string(simple.value());
  return 0;
}
