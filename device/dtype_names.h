// PyTorch's names of the dtypes of model_abi.h, for all that words them: packages, the runtime, the tools.
#ifndef COIL_DEVICE_DTYPE_NAMES_H_
#define COIL_DEVICE_DTYPE_NAMES_H_

#include "model_abi.h"

namespace cd {

constexpr int32_t kMostDtype = COIL_FLOAT8_E8M0FNU;

// Null: there is no such dtype.
constexpr const char* dtype_name(int32_t dtype) {
  switch (dtype) {
    case COIL_UINT8: return "uint8";
    case COIL_INT8: return "int8";
    case COIL_INT16: return "int16";
    case COIL_INT32: return "int32";
    case COIL_INT64: return "int64";
    case COIL_FLOAT16: return "float16";
    case COIL_FLOAT32: return "float32";
    case COIL_FLOAT64: return "float64";
    case COIL_UINT16: return "uint16";
    case COIL_UINT32: return "uint32";
    case COIL_UINT64: return "uint64";
    case COIL_COMPLEX32: return "complex32";
    case COIL_COMPLEX64: return "complex64";
    case COIL_COMPLEX128: return "complex128";
    case COIL_BOOL: return "bool";
    case COIL_BFLOAT16: return "bfloat16";
    case COIL_FLOAT8_E5M2: return "float8_e5m2";
    case COIL_FLOAT8_E4M3FN: return "float8_e4m3fn";
    case COIL_FLOAT8_E5M2FNUZ: return "float8_e5m2fnuz";
    case COIL_FLOAT8_E4M3FNUZ: return "float8_e4m3fnuz";
    case COIL_FLOAT8_E8M0FNU: return "float8_e8m0fnu";
  }
  return nullptr;
}

}  // namespace cd

#endif  // COIL_DEVICE_DTYPE_NAMES_H_
