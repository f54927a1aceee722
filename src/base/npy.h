// NumPy's .npy arrays and .npz archives of them: what `coil run` reads and writes. Hostile headers are errors (bad_array).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/zip_reader.h"

namespace coil {

// A dense array in C order. `dtype` is a COIL_* number of device/model_abi.h: COIL_BOOL, COIL_UINT8, COIL_INT8, COIL_INT16,
// COIL_INT32, COIL_INT64, COIL_FLOAT16, COIL_FLOAT32, COIL_FLOAT64, COIL_COMPLEX64 or
// COIL_COMPLEX128. NumPy has no bfloat16.
struct NpyArray {
  int32_t dtype = 0;
  std::vector<int64_t> shape;
  std::vector<uint8_t> data;
  int64_t count() const;  // of elements
};

// Bytes of an element, 0 for an unknown number; NumPy's name of the type ("<f4"), empty when it has none.
size_t npy_item_bytes(int32_t dtype);
std::string npy_descr(int32_t dtype);

// Fortran order and big-endian data are converted. `source` names the bytes in messages.
Result<NpyArray> parse_npy(std::span<const uint8_t> bytes, const std::string& source);
std::vector<uint8_t> to_npy(const NpyArray& array);

// Names without ".npy", in the order of the archive.
using NamedArrays = std::vector<std::pair<std::string, NpyArray>>;
Result<NamedArrays> read_npz(const std::string& path);
Result<NamedArrays> parse_npz(const ZipReader& zip);
Status write_npz(const std::string& path, const NamedArrays& arrays);

}  // namespace coil
