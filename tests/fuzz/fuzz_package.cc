// A package from anywhere: what the runtime reads before it loads code, and what `coil inspect` prints. Input: an archive; or a manifest with
// what it says of kernels, which goes into an archive of its own, so that a mutation does not fail at a checksum.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/zip_writer.h"
#include "runtime/package.h"
#include "tools/coil/inspect.h"

namespace {

using namespace coil;

void check(bool ok) {
  if (!ok) std::abort();
}

std::vector<uint8_t> make_archive(std::string_view manifest) {
  static const std::string kCode(128, '\x01');
  ZipWriter zip = ZipWriter::in_memory();
  check(zip.add("m/data/aotinductor/model/m.wrapper.so", kCode).ok());
  check(zip.add("m/data/aotinductor/model/m.wrapper.constants", kCode).ok());
  for (const char* name : {"manifest", "kernels"}) check(zip.add("m/data/coil/" + std::string(name) + ".json", manifest).ok());
  check(zip.add("m/data/coil/src/kernels_0.cc", "void kernel() {}\n").ok());
  return zip.finish_in_memory();
}

// Every byte that a part says it has can be read.
void touch(std::span<const uint8_t> bytes) {
  unsigned sum = 0;
  for (const uint8_t b : bytes) sum += b;
  volatile unsigned sink = sum;
  (void)sink;
}

void load(std::span<const uint8_t> bytes) {
  const Result<runtime::Package> package = runtime::read_package(bytes);
  if (!package.ok()) {
    check(!package.error().message.empty());
    return;
  }
  for (const runtime::Target& target : package.value().manifest.targets) {
    const Result<runtime::PackagePart> part = package.value().part(target);
    if (!part.ok()) continue;
    touch(part.value().code);
    touch(part.value().constants);
  }
}

void inspect(std::span<const uint8_t> bytes, const tool::InspectArguments& arguments) {
  const Result<ZipReader> zip = ZipReader::from_bytes(bytes, "input");
  if (!zip.ok()) return;
  try {
    (void)tool::inspect_package(zip.value(), arguments).ok();
  } catch (const Json::Exception&) {  // cmd_inspect.cc makes an error of it
  }
}

}  // namespace

// Nobody reads what `coil inspect` prints here.
extern "C" void prepare_fuzz_target() { check(std::freopen("/dev/null", "w", stdout) != nullptr); }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const bool is_zip = size >= 2 && data[0] == 'P' && data[1] == 'K';
  std::vector<uint8_t> archive;
  if (!is_zip) archive = make_archive({reinterpret_cast<const char*>(data), size});
  const std::span<const uint8_t> bytes = is_zip ? std::span(data, size) : std::span<const uint8_t>(archive);
  load(bytes);
  tool::InspectArguments all;
  all.kernels = all.memory = all.fusion = all.entries = all.all_sources = true;
  inspect(bytes, all);
  tool::InspectArguments json;
  json.json = true;
  inspect(bytes, json);
  return 0;
}
