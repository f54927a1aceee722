// Packages for the runtime's tests: the hand-written models of fixture_model.cpp, compiled once per test process with clang and
// packed here, so that every field can be made wrong.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "coil/coil.h"

namespace coil::runtime_test {

struct Entry {
  std::string name;  // below the root
  std::string data;
};

// The shared object of a model, e.g. shared_object("MASKED") or ("ADD_ONE", "-DBAD_ABI"). Compiled on first use.
const std::string& shared_object(const std::string& model, const std::string& flags = "");
// MODEL "CUDA" is fixture_cuda.cpp, with the objects of CUDA packages.
std::string manifest_of(const std::string& model);
std::string constants_of(const std::string& model);

// The entries of a good package, in order: code, constants (if any), manifest, and what libtorch wants.
std::vector<Entry> entries_of(const std::string& model, const std::string& flags = "");
Entry& entry(std::vector<Entry>& entries, const std::string& suffix);
// A zip of stored entries under root "m", their data at multiples of `alignment` bytes.
std::string pack(const std::vector<Entry>& entries, size_t alignment = 64);
// A good package's bytes.
inline std::string package(const std::string& model, const std::string& flags = "") { return pack(entries_of(model, flags)); }

// The folder of this test process; removed at exit.
const std::string& temp_folder();
std::string write_file(const std::string& name, const std::string& data);

// The fake driver of fake_cuda.cpp: compiled, loaded, and named by COIL_CUDA_DRIVER. Call it before anything opens CUDA.
const std::string& fake_driver();
// A fake libtorch (fake_torch.cpp) over it, in the global scope. Returns a handle for dlsym.
void* fake_torch();

// Opens with default options; fails the test when that fails.
coil_model* open_or_fail(const std::string& path, const coil_options* options = nullptr);

// An owned input or output tensor.
struct Array {
  std::vector<uint8_t> bytes;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int32_t dtype = COIL_DTYPE_FLOAT32;

  static Array floats(std::vector<int64_t> sizes, float first, float step);
  static Array bools(std::vector<int64_t> sizes);  // true at even positions
  static Array int64(int64_t value);               // 0-d
  float* f32() { return reinterpret_cast<float*>(bytes.data()); }
  coil_tensor view();
};

// Inputs of MODEL_MASKED and what it computes.
struct MaskedCall {
  explicit MaskedCall(int64_t batch, float seed = 1);
  std::vector<coil_tensor> views();
  float y(int64_t row, int64_t column);
  float row(int64_t row);
  // Compares outputs 0 and 1; "" or what differs.
  std::string compare(const coil_tensor* outputs);

  int64_t batch;
  Array a, b, mask;
};

}  // namespace coil::runtime_test
