// Packages that cannot be opened: cut off, corrupted, incomplete, contradictory, of another version or machine. Each is refused
// with a code, and a right package opens afterwards.
#include <gtest/gtest.h>

#include <cstdlib>

#include "fixture.h"

namespace coil::runtime_test {
namespace {

// The status of opening these bytes; opening must not succeed.
coil_status open_status(const std::string& bytes) {
  coil_model* model = nullptr;
  const coil_status status = coil_open(write_file("bad.pt2", bytes).c_str(), nullptr, &model);
  EXPECT_EQ(model != nullptr, status == COIL_OK);
  coil_close(model);
  return status;
}

void expect_refused(const std::string& bytes, coil_status code, const std::string& text) {
  EXPECT_EQ(open_status(bytes), code) << coil_last_error();
  EXPECT_NE(std::string(coil_last_error()).find(text), std::string::npos) << coil_last_error();
}

TEST(BadPackage, NoFile) {
  coil_model* model = nullptr;
  EXPECT_EQ(coil_open("/nonexistent/model.pt2", nullptr, &model), 1);
  EXPECT_NE(std::string(coil_last_error()).find("/nonexistent/model.pt2"), std::string::npos);
  EXPECT_NE(coil_open("/tmp", nullptr, &model), COIL_OK);
}

TEST(BadPackage, NotAnArchive) {
  EXPECT_EQ(open_status(""), 10);
  EXPECT_EQ(open_status("hello"), 10);
  EXPECT_EQ(open_status(std::string(100000, 'x')), 10);
}

TEST(BadPackage, CutOff) {
  const std::string bytes = package("MASKED");
  for (size_t i = 1; i < 60; i++) EXPECT_NE(open_status(bytes.substr(0, bytes.size() * i / 60)), COIL_OK) << i;
  for (size_t i = 1; i < 200; i++) EXPECT_NE(open_status(bytes.substr(0, bytes.size() - i)), COIL_OK) << i;
}

TEST(BadPackage, CorruptedCode) {
  // Any changed byte of the code is found before it runs.
  const std::string good = package("MASKED");
  const std::string code = shared_object("MASKED");
  const size_t start = good.find(code);
  ASSERT_NE(start, std::string::npos);
  for (size_t i = 0; i < code.size(); i += code.size() / 50) {
    std::string bytes = good;
    bytes[start + i] = static_cast<char>(bytes[start + i] ^ 0x40);
    EXPECT_NE(open_status(bytes), COIL_OK) << "byte " << i;
  }
  EXPECT_EQ(open_status(good), COIL_OK);
}

TEST(BadPackage, MissingEntries) {
  for (const char* name : {"m.wrapper.so", "m.wrapper.constants", "manifest.json"}) {
    std::vector<Entry> entries = entries_of("MASKED");
    std::erase_if(entries, [&](const Entry& e) { return e.name.ends_with(name); });
    expect_refused(pack(entries), 301, name == std::string("m.wrapper.constants") ? "constants" : name);
  }
}

TEST(BadPackage, ConstantsOfAnotherModel) {
  std::vector<Entry> entries = entries_of("MASKED");
  std::string& constants = entry(entries, "constants").data;
  const std::string good = constants;
  constants.pop_back();
  expect_refused(pack(entries), 301, "the constants have 79 bytes, the code expects 64");
  constants = good;
  constants[72] = static_cast<char>(constants[72] ^ 1);
  expect_refused(pack(entries), 301, "another compile of the model");
  constants = good.substr(0, 64);  // without a trailer the size decides
  EXPECT_EQ(open_status(pack(entries)), COIL_OK) << coil_last_error();
}

TEST(BadPackage, ManifestThatContradictsTheCode) {
  auto with_manifest = [](const std::string& from, const std::string& to) {
    std::vector<Entry> entries = entries_of("MASKED");
    std::string& manifest = entry(entries, "manifest.json").data;
    const size_t at = manifest.find(from);
    EXPECT_NE(at, std::string::npos);
    manifest.replace(at, from.size(), to);
    return pack(entries);
  };
  expect_refused(with_manifest("\"bool\"", "\"int8\""), 301, "'mask' (2) differs");
  expect_refused(with_manifest("\"name\": \"rows\"", "\"name\": \"row\""), 301, "'row' (1) differs");
  expect_refused(with_manifest("\"shape\": [\"batch\"]", "\"shape\": [\"batch\", 1]"), 301, "'rows' (1) differs");
  expect_refused(with_manifest("\"format\": 1", "\"format\": 2"), 302, "format 2");
  for (const char* none : {"[3]", "[-1]", "[1, 1]", "[1, 0]", "[9223372036854775807]", "[true]", "{}"}) {  // of two outputs
    EXPECT_NE(open_status(with_manifest("\"format\": 1", "\"format\": 1, \"none_results\": " + std::string(none))), COIL_OK) << none;
  }
  EXPECT_EQ(open_status(with_manifest("\"format\": 1", "\"format\": 1, \"none_results\": [0, 2, 4]")), COIL_OK);
  EXPECT_NE(open_status(with_manifest("\"format\": 1", "\"format\": \"1\"")), COIL_OK);
  EXPECT_NE(open_status(with_manifest("\"bool\"", "\"boolean\"")), COIL_OK);
  EXPECT_NE(open_status(with_manifest("\"inputs\"", "\"in\"")), COIL_OK);
  EXPECT_NE(open_status(with_manifest("{", "")), COIL_OK);
  EXPECT_NE(open_status(with_manifest("\"min\": 1", "\"min\": \"x\"")), COIL_OK);
}

TEST(BadPackage, OtherVersionOrMaker) {
  expect_refused(package("ADD_ONE", "-DBAD_ABI"), 302, "boundary version 9, this runtime has version 2");
  expect_refused(package("ADD_ONE", "-DNO_SYMBOL"), 301, "coil_model");
  std::vector<Entry> entries = entries_of("ADD_ONE");
  entry(entries, "m.wrapper.so").data = "not a shared object, but long enough to hold the header of one, which takes 64 bytes";
  expect_refused(pack(entries), 301, "not a shared object");
}

TEST(BadPackage, OtherMachine) {
  std::vector<Entry> entries = entries_of("ADD_ONE");
  entry(entries, "m.wrapper.so").data[18] = static_cast<char>(0xb7);  // e_machine: aarch64
  expect_refused(pack(entries), 303, "code for aarch64; this machine is x86-64");
}

TEST(BadPackage, NoCodeForTheProcessor) {
  const std::string bytes = package("ADD_ONE", "-DLEVELS=3,4");
  setenv("COIL_ISA", "x86-64-v2", 1);
  expect_refused(bytes, 303, "the package holds code for x86-64-v3, x86-64-v4; this machine runs x86-64-v2 (limited by COIL_ISA)");
  setenv("COIL_ISA", "fastest", 1);
  expect_refused(bytes, 402, "COIL_ISA=fastest is not one of");
  setenv("COIL_ISA", "v3", 1);
  coil_model* model = nullptr;
  const coil_status status = coil_open(write_file("levels.pt2", bytes).c_str(), nullptr, &model);
  if (status == COIL_OK) EXPECT_STREQ(coil_isa(model), "x86-64-v3");
  else EXPECT_EQ(status, 303);  // this machine is older
  coil_close(model);
  unsetenv("COIL_ISA");
}

TEST(BadPackage, CodeCutOffInside) {
  // A right checksum over half a shared object: what a maker of packages with a full disk might write.
  for (size_t keep : {10, 63, 64, 100, 1000, 5000}) {
    std::vector<Entry> entries = entries_of("ADD_ONE");
    entry(entries, "m.wrapper.so").data.resize(keep);
    EXPECT_EQ(open_status(pack(entries)), 301) << keep << ": " << coil_last_error();
  }
}

TEST(BadPackage, UnalignedEntriesAreCopied) {
  for (size_t alignment : {1, 2, 8, 32}) EXPECT_EQ(open_status(pack(entries_of("MASKED"), alignment)), COIL_OK) << coil_last_error();
}

TEST(BadPackage, BadOptions) {
  const std::string path = write_file("good.pt2", package("ADD_ONE"));
  coil_model* model = nullptr;
  coil_options options = {};
  EXPECT_EQ(coil_open(path.c_str(), &options, &model), 402);
  EXPECT_NE(std::string(coil_last_error()).find("struct_bytes"), std::string::npos);
  options.struct_bytes = sizeof options;
  options.num_threads = -1;
  EXPECT_EQ(coil_open(path.c_str(), &options, &model), 402);
  options.num_threads = 1 << 20;
  EXPECT_EQ(coil_open(path.c_str(), &options, &model), 402);
  options.num_threads = 0;
  options.parallel_for = [](void*, int64_t count, int64_t, coil_chunk_function body, void* context) { body(context, 0, count, 0); };
  EXPECT_EQ(coil_open(path.c_str(), &options, &model), 402);
  EXPECT_NE(std::string(coil_last_error()).find("num_threads"), std::string::npos);
}

}  // namespace
}  // namespace coil::runtime_test
