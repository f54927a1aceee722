// See fixture.h.
#include "fixture.h"
#include "tests/paths.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

namespace coil::runtime_test {
namespace {

struct TempFolder {
  TempFolder() {
    char name[] = "/tmp/coil_runtime_test_XXXXXX";
    path = mkdtemp(name);
  }
  ~TempFolder() { std::filesystem::remove_all(path); }
  std::string path;
};

void run_command(const std::string& command) {
  if (std::system(command.c_str()) != 0) {
    std::fprintf(stderr, "failed: %s\n", command.c_str());
    std::abort();
  }
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

const std::string kCompile =
    "clang++-19 -std=c++20 -O1 -fPIC -fno-exceptions -fno-rtti -fvisibility=hidden -fno-stack-protector "
    "-fno-threadsafe-statics "
    "-nostdinc++ -Wall -Wextra -Werror -march=x86-64-v2 -I" COIL_SOURCE_DIR "/device ";

std::string compile_objects(std::initializer_list<const char*> names) {
  std::string list;
  for (const char* name : names) {
    const std::string object = temp_folder() + "/" + name + ".o";
    run_command(kCompile + "-c " COIL_SOURCE_DIR "/device/" + name + ".cc -o " + object);
    list += " " + object;
  }
  return list;
}

// The device objects that every package links, and those of CUDA packages, compiled once.
std::string support_objects(bool cuda) {
  static const std::string all = compile_objects({"host_support", "input_errors", "machine_level", "aoti_adapter", "aoti_call", "aoti_profile"});
  if (!cuda) return all;
  static const std::string more = compile_objects({"cuda_driver", "cuda_host", "cuda_tensor_map", "cuda_graph", "cuda_tape", "cuda_upload", "aoti_cuda"});
  return all + more;
}

void append_number(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) out.push_back(static_cast<char>(value >> (8 * i)));
}

}  // namespace

const std::string& temp_folder() {
  static const TempFolder folder;
  return folder.path;
}

std::string write_file(const std::string& name, const std::string& data) {
  const std::string path = temp_folder() + "/" + name;
  std::ofstream(path, std::ios::binary) << data;
  return path;
}

const std::string& shared_object(const std::string& model, const std::string& flags) {
  static std::map<std::string, std::string> made;
  std::string& bytes = made[model + flags];
  if (!bytes.empty()) return bytes;
  const std::string path = temp_folder() + "/" + model + std::to_string(made.size()) + ".so";
  const bool cuda = model == "CUDA";
  run_command(kCompile + flags + " -DMODEL_" + model +
              " -shared -nostdlib -fuse-ld=lld -Wl,-z,now -Wl,--gc-sections -Wl,-s -Wl,--build-id=none -x c++ " COIL_SOURCE_DIR "/tests/runtime/" +
              (cuda ? "fixture_cuda" : "fixture_model") + ".cpp -x none" + support_objects(cuda) + " -o " + path);
  return bytes = read_file(path);
}

std::string manifest_of(const std::string& model) {
  const std::string head = R"({"format": 1, "coil": "0.1.0", "name": ")" + model + R"(", "kernels": [{"name": "ignored"}], )";
  if (model == "MASKED") {
    return head + R"("symbols": [{"name": "batch", "min": 1, "max": 64, "hint": 4}],
      "inputs": [{"name": "a", "dtype": "float32", "shape": ["batch", 16]},
                 {"name": "b", "dtype": "float32", "shape": ["batch", 16]},
                 {"name": "mask", "dtype": "bool", "shape": ["batch", 16]}],
      "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 16]},
                  {"name": "rows", "dtype": "float32", "shape": ["batch"]}],
      "fixed_inputs": [{"position": 3, "name": "training", "value": false}]})";
  }
  if (model == "LAYOUT") {
    return head +
           R"("symbols": [{"name": "batch", "min": 0, "max": 8, "hint": 2}, {"name": "side", "min": 1, "max": 32, "hint": null},
                                 {"name": "step", "min": 0, "max": null, "hint": 3}],
      "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 3, "side", "2*side"],
                  "min": [0, 3, 1, 2], "max": [8, 3, 32, 64], "hint": [2, 3, 4, 8]},
                 {"name": "step", "dtype": "int64", "shape": []},
                 {"name": "tail", "dtype": "float32", "shape": ["side**2 + 1"]}],
      "outputs": [{"name": "y", "dtype": "float32", "shape": ["2*side", "batch"]}]})";
  }
  if (model == "LATE") {
    return head + R"("symbols": [{"name": "n", "min": 0, "max": 4096}],
      "inputs": [{"name": "x", "dtype": "float32", "shape": ["n"]}],
      "outputs": [{"name": "kept", "dtype": "float32", "shape": ["u0"]}, {"name": "doubled", "dtype": "float32", "shape": ["n"]}]})";
  }
  if (model == "TALK") {
    return head + R"("symbols": [{"name": "n", "min": 1, "max": 8}],
      "inputs": [{"name": "tokens", "dtype": "int64", "shape": ["n"], "min": [1], "max": [8]}, {"name": "places", "dtype": "int64", "shape": ["n"], "min": [1], "max": [8]}],
      "outputs": [{"name": "logits", "dtype": "float32", "shape": ["n", 13]}]})";
  }
  if (model == "CUDA") {
    return head + R"("symbols": [{"name": "batch", "min": 1, "max": 1000}, {"name": "n", "min": 0, "max": 9}],
      "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 4]}, {"name": "ids", "dtype": "int64", "shape": ["batch"]},
                 {"name": "n", "dtype": "int64", "shape": [], "value": "n"}],
      "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 4]}],
      "memory": {"arena_bytes": "16*batch"},
      "targets": [{"device": "cuda", "model": "model", "architectures": ["sm_90"]}]})";
  }
  const bool counter = model == "COUNTER";
  const std::string size = counter ? "4" : "10";
  return head + R"("symbols": [], "inputs": [{"name": "x", "dtype": "float32", "shape": [)" + size + R"(]}], "outputs": [{"name": ")" +
         (counter ? "y" : "add") + R"(", "dtype": "float32", "shape": [)" + size + "]}]}";
}

std::string constants_of(const std::string& model) {
  if (model != "MASKED" && model != "COUNTER" && model != "CUDA") return {};
  std::vector<float> values(model == "MASKED" ? 16 : model == "CUDA" ? 48 : 32, 0.0f);
  for (size_t i = 0; i < 32 && model == "CUDA"; i++) values[i] = static_cast<float>(i);
  if (model == "CUDA") values[32] = 100;
  for (size_t i = 0; i < 16 && model == "MASKED"; i++) values[i] = static_cast<float>(i);
  if (model == "COUNTER") values[16] = 10;
  std::string blob(reinterpret_cast<const char*>(values.data()), values.size() * 4);
  blob += "COILWTS1";
  append_number(blob, 0x1234, 8);
  return blob;
}

std::vector<Entry> entries_of(const std::string& model, const std::string& flags) {
  std::vector<Entry> entries = {{"data/aotinductor/model/m.wrapper.so", shared_object(model, flags)}};
  const std::string constants = constants_of(model);
  if (!constants.empty()) entries.push_back({"data/aotinductor/model/m.wrapper.constants", constants});
  entries.push_back({"data/coil/manifest.json", manifest_of(model)});
  entries.push_back({"data/aotinductor/model/m.wrapper_metadata.json", model == "CUDA" ? R"({"AOTI_DEVICE_KEY": "cuda"})" : R"({"AOTI_DEVICE_KEY": "cpu"})"});
  entries.push_back({"data/aotinductor/model/m.wrapper.cpp", "//\n"});
  entries.push_back({"archive_format", "pt2"});
  entries.push_back({"archive_version", "0"});
  entries.push_back({".data/version", "6\n"});
  entries.push_back({"byteorder", "little"});
  return entries;
}

Entry& entry(std::vector<Entry>& entries, const std::string& suffix) {
  for (Entry& e : entries) {
    if (e.name.ends_with(suffix)) return e;
  }
  std::abort();
}

std::string pack(const std::vector<Entry>& entries, size_t alignment) {
  std::string out, directory;
  for (const Entry& e : entries) {
    const std::string name = "m/" + e.name;
    const uint32_t crc = static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(e.data.data()), static_cast<uInt>(e.data.size())));
    const size_t offset = out.size();
    const size_t unpadded = offset + 30 + name.size() + 4;
    const size_t padding = (alignment - unpadded % alignment) % alignment;
    std::string fields;  // version .. extra length, common to both headers
    append_number(fields, 20, 2);
    append_number(fields, 0x0800, 2);
    append_number(fields, 0, 2);
    append_number(fields, 0, 4);
    append_number(fields, crc, 4);
    append_number(fields, e.data.size(), 4);
    append_number(fields, e.data.size(), 4);
    append_number(fields, name.size(), 2);
    append_number(out, 0x04034b50, 4);
    out += fields;
    append_number(out, 4 + padding, 2);
    out += name + "FB";
    append_number(out, padding, 2);
    out += std::string(padding, 'Z') + e.data;
    append_number(directory, 0x02014b50, 4);
    append_number(directory, 20, 2);
    directory += fields;
    append_number(directory, 0, 8);  // no extra field, no comment, disk 0, no attributes
    append_number(directory, 0, 4);
    append_number(directory, offset, 4);
    directory += name;
  }
  const size_t start = out.size();
  out += directory;
  append_number(out, 0x06054b50, 4);
  append_number(out, 0, 4);
  append_number(out, entries.size(), 2);
  append_number(out, entries.size(), 2);
  append_number(out, directory.size(), 4);
  append_number(out, start, 4);
  append_number(out, 0, 2);
  return out;
}

const std::string& fake_driver() {
  static const std::string path = [] {
    const std::string library = temp_folder() + "/libfakecuda.so";
    run_command("clang++-19 -std=c++20 -O1 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror -x c++ " COIL_SOURCE_DIR "/tests/runtime/fake_cuda.cpp -o " +
                library);
    setenv("COIL_CUDA_DRIVER", library.c_str(), 1);
    if (!dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL)) std::abort();
    return library;
  }();
  return path;
}

void* fake_torch() {
  static void* const handle = [] {
    const std::string library = temp_folder() + "/libfaketorch.so";
    run_command("clang++-19 -std=c++20 -O1 -fPIC -shared -fvisibility=hidden -Wall -Wextra -Werror -x c++ " COIL_SOURCE_DIR
                "/tests/runtime/fake_torch.cpp -x none " +
                fake_driver() + " -o " + library);
    return dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL);
  }();
  if (!handle) std::abort();
  return handle;
}

coil_model* open_or_fail(const std::string& path, const coil_options* options) {
  coil_model* model = nullptr;
  EXPECT_EQ(coil_open(path.c_str(), options, &model), COIL_OK) << coil_last_error();
  return model;
}

Array Array::floats(std::vector<int64_t> sizes, float first, float step) {
  Array array;
  int64_t n = 1;
  for (int64_t size : sizes) n *= size;
  array.sizes = std::move(sizes);
  array.bytes.resize(static_cast<size_t>(n) * 4);
  for (int64_t i = 0; i < n; i++) array.f32()[i] = first + step * static_cast<float>(i % 97);
  return array;
}

Array Array::bools(std::vector<int64_t> sizes) {
  Array array;
  int64_t n = 1;
  for (int64_t size : sizes) n *= size;
  array.sizes = std::move(sizes);
  array.dtype = COIL_DTYPE_BOOL;
  array.bytes.resize(static_cast<size_t>(n));
  for (size_t i = 0; i < array.bytes.size(); i++) array.bytes[i] = i % 2 == 0;
  return array;
}

Array Array::int64(int64_t value) {
  Array array;
  array.dtype = COIL_DTYPE_INT64;
  array.bytes.resize(8);
  std::memcpy(array.bytes.data(), &value, 8);
  return array;
}

coil_tensor Array::view() {
  return {bytes.data(), sizes.data(), strides.empty() ? nullptr : strides.data(), static_cast<int32_t>(sizes.size()), dtype, COIL_DEVICE_CPU, 0};
}

MaskedCall::MaskedCall(int64_t rows, float seed)
    : batch(rows), a(Array::floats({rows, 16}, seed, 0.5f)), b(Array::floats({rows, 16}, -seed, 0.25f)), mask(Array::bools({rows, 16})) {}

std::vector<coil_tensor> MaskedCall::views() { return {a.view(), b.view(), mask.view()}; }

float MaskedCall::y(int64_t row, int64_t column) {
  const size_t i = static_cast<size_t>(row * 16 + column);
  return (mask.bytes[i] ? a.f32()[i] * b.f32()[i] : 0.0f) + static_cast<float>(column);
}

float MaskedCall::row(int64_t row) {
  float sum = 0;
  for (int64_t column = 0; column < 16; column++) sum += y(row, column);
  return sum;
}

std::string MaskedCall::compare(const coil_tensor* outputs) {
  if (outputs[0].rank != 2 || outputs[0].sizes[0] != batch || outputs[0].sizes[1] != 16 || outputs[1].rank != 1 || outputs[1].sizes[0] != batch)
    return "wrong shape";
  for (int64_t r = 0; r < batch; r++) {
    if (static_cast<const float*>(outputs[1].data)[r] != row(r)) return "wrong sum of row " + std::to_string(r);
    for (int64_t c = 0; c < 16; c++) {
      if (static_cast<const float*>(outputs[0].data)[r * 16 + c] != y(r, c)) return "wrong y in row " + std::to_string(r);
    }
  }
  return "";
}

}  // namespace coil::runtime_test
