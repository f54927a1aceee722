// The little of Fortran's run time library that LAPACK calls.
#include <stddef.h>
#include <string.h>

extern "C" {

// to = a // b, cut or filled up with blanks.
void _gfortran_concat_string(size_t length, char* to, size_t a_length, const char* a, size_t b_length, const char* b) {
  for (size_t i = 0; i < length; ++i) to[i] = i < a_length ? a[i] : i - a_length < b_length ? b[i - a_length] : ' ';
}

// LAPACK reports wrong arguments here, which the callers' checks rule out: the routine then returns with its info.
void xerbla_(const char*, const int*, size_t) {}

// x to an integer power, as compilers' run time libraries have it.
#define COIL_POWER(name, type)                              \
  type name(type x, int n) {                                \
    unsigned left = n < 0 ? 0u - (unsigned)n : (unsigned)n; \
    type power = 1;                                         \
    for (; left != 0; left >>= 1, x *= x) {                 \
      if (left & 1) power *= x;                             \
    }                                                       \
    return n < 0 ? 1 / power : power;                       \
  }
COIL_POWER(__powisf2, float)
COIL_POWER(__powidf2, double)
}
