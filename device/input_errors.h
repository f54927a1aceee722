// How the checks of a call's inputs (host_support.cc) word what is wrong. Cold code: the checks decide, this finds out what to say. All return 1.
#ifndef COIL_DEVICE_INPUT_ERRORS_H_
#define COIL_DEVICE_INPUT_ERRORS_H_

#include "host_support.h"

extern "C" int vsnprintf(char* out, size_t size, const char* format, __builtin_va_list arguments);

#define SLOW __attribute__((noinline, cold))

namespace cd {

enum : int32_t { kFixed = 0, kLinear = 1, kExpr = 2 };
constexpr int64_t kUnsolved = INT64_MIN;

// Where an error goes: its text, and its fields if somebody asks for them.
struct Report {
  CoilError* error;
  CoilInputFault* fault;
};

// An error text under construction; what does not fit is cut.
struct Text {
  char* at;
  char* end;

  SLOW explicit Text(CoilError* error) : at(error->message), end(error->message + sizeof error->message) { *at = 0; }
  __attribute__((format(printf, 2, 3))) SLOW Text& add(const char* format, ...) {
    __builtin_va_list arguments;
    __builtin_va_start(arguments, format);
    const int n = vsnprintf(at, static_cast<size_t>(end - at), format, arguments);
    __builtin_va_end(arguments);
    if (n > 0) at += n < end - at ? n : end - at - 1;
    return *this;
  }
};

// Low bits that must be zero in an address of an element.
inline uintptr_t alignment_mask(int32_t dtype) {
  switch (dtype) {
    case COIL_INT16:
    case COIL_UINT16:
    case COIL_COMPLEX32:
    case COIL_FLOAT16:
    case COIL_BFLOAT16: return 1;
    case COIL_INT32:
    case COIL_UINT32:
    case COIL_FLOAT32:
    case COIL_COMPLEX64: return 3;
    case COIL_INT64:
    case COIL_UINT64:
    case COIL_FLOAT64:
    case COIL_COMPLEX128: return 7;
  }
  return 0;
}

inline int64_t value_of(const Signature& s, const Size& size, const int64_t* symbols) {
  if (size.kind == kFixed) return size.b;
  if (size.kind == kLinear) return size.a * symbols[size.index] + size.b;
  return s.evaluate(size.index, symbols);
}

SLOW int32_t fail_count(const Signature& s, int32_t count, const Report& to);
SLOW int32_t fail_kind(const Signature& s, int32_t i, const CoilTensorView& view, const Report& to);
// `value` is what the size `got` says about the symbol; `solved` its value so far, or kUnsolved.
SLOW int32_t fail_size(const Signature& s, int32_t i, int32_t d, const CoilTensorView& view, int64_t solved, const Report& to);
SLOW int32_t fail_data(const Signature& s, int32_t i, const CoilTensorView& view, const Report& to);
SLOW int32_t fail_expression(const Signature& s, int32_t i, int32_t d, const CoilTensorView& view, int64_t want, const Report& to);
SLOW int32_t fail_strides(const Signature& s, int32_t i, const CoilTensorView& view, const int64_t* symbols, const Report& to);
SLOW int32_t fail_scalar(const Signature& s, int32_t i, int64_t value, int64_t solved, const Report& to);
SLOW int32_t fail_check(const Signature& s, int32_t check, const int64_t* symbols, const Report& to);
SLOW int32_t fail_limit(const Signature& s, int32_t i, const int64_t* symbols, const Report& to);

}  // namespace cd

#endif  // COIL_DEVICE_INPUT_ERRORS_H_
