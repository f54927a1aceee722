// Running products of complex numbers along a dimension.
#include "device/library/linalg.h"

namespace linalg {
namespace {

template <class T>
void multiply_lines(const CoilLibraryCall* call) {
  const int64_t outer = call->sizes[0], n = call->sizes[1], inner = call->sizes[2];
  const T* in = static_cast<const T*>(call->in[0]);
  T* out = static_cast<T*>(call->out[0]);
  for (int64_t line = 0; line < outer * inner; ++line) {
    const int64_t start = line / inner * n * inner + line % inner;
    T product_so_far = number<T>(1);
    for (int64_t k = 0; k < n; ++k) out[start + k * inner] = product_so_far = product(product_so_far, in[start + k * inner]);
  }
}

}  // namespace
}  // namespace linalg

// [outer, n, inner] -> the same. sizes: outer, n, inner.
COIL_LIBRARY_ROUTINE(complex_cumprod) {
  call->dtype == COIL_COMPLEX64 ? linalg::multiply_lines<linalg::c64>(call) : linalg::multiply_lines<linalg::c128>(call);
  return 0;
}
