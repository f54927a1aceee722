// What a context asks about a caller's tensors and says of them.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>

#include "base/result.h"
#include "device/model_abi.h"

namespace coil::runtime {

// Fills the error; gives its code.
[[gnu::noinline, gnu::cold, gnu::format(printf, 3, 4)]] inline int32_t fail(CoilError* error, ErrorCode code, const char* format, ...) {
  error->code = static_cast<int32_t>(code);
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  return error->code;
}

inline int64_t element_bytes(int32_t dtype) {
  switch (dtype) {
    case COIL_INT16:
    case COIL_UINT16:
    case COIL_FLOAT16:
    case COIL_BFLOAT16: return 2;
    case COIL_INT32:
    case COIL_UINT32:
    case COIL_COMPLEX32:
    case COIL_FLOAT32: return 4;
    case COIL_INT64:
    case COIL_UINT64:
    case COIL_FLOAT64:
    case COIL_COMPLEX64: return 8;
    case COIL_COMPLEX128: return 16;
    default: return 1;
  }
}

// The bytes that a tensor spans; none when it is empty.
struct Span {
  uintptr_t begin = 0, end = 0;
  bool meets(const Span& other) const { return begin < other.end && other.begin < end; }
};

inline Span span_of(const CoilTensorView& view) {
  int64_t last = 0, dense = 1;
  for (int32_t d = view.ndim; d-- > 0;) {
    if (view.sizes[d] == 0) return {};
    last += (view.sizes[d] - 1) * (view.strides ? view.strides[d] : dense);
    dense *= view.sizes[d];
  }
  const auto begin = reinterpret_cast<uintptr_t>(view.data);
  return {begin, begin + static_cast<uintptr_t>((last + 1) * element_bytes(view.dtype))};
}

}  // namespace coil::runtime
