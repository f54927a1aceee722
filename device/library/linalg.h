// What the linear algebra routines share: LAPACK's names by element type, matrices of a batch, the loop over it.
//
// Matrices are column-major, as LAPACK has them: a matrix of m rows and n columns is a tensor [n, m], and a batch is in front. LAPACK
// works in place, so a routine copies its input to its output first. Work space comes from the C heap, an element of the batch at a time.
#ifndef COIL_DEVICE_LIBRARY_LINALG_H_
#define COIL_DEVICE_LIBRARY_LINALG_H_

#include <stdlib.h>
#include <string.h>

#include "device/host_support.h"
#include "device/library.h"

namespace linalg {

template <class R>
struct Complex {
  R re, im;
};
using c64 = Complex<float>;
using c128 = Complex<double>;

template <class T>
struct Traits {
  using Real = T;
  static constexpr bool kComplex = false;
};
template <class R>
struct Traits<Complex<R>> {
  using Real = R;
  static constexpr bool kComplex = true;
};
template <class T>
using Real = typename Traits<T>::Real;
template <class T>
inline constexpr bool kComplex = Traits<T>::kComplex;

template <class T>
T number(double x) {
  if constexpr (kComplex<T>) return {static_cast<Real<T>>(x), 0};
  else return static_cast<T>(x);
}
template <class T>
Real<T> real_part(const T& x) {
  if constexpr (kComplex<T>) return x.re;
  else return x;
}
template <class T>
bool is_zero(const T& x) {
  if constexpr (kComplex<T>) return x.re == 0 && x.im == 0;
  else return x == 0;
}
template <class T>
T product(const T& a, const T& b) {
  if constexpr (kComplex<T>) return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  else return a * b;
}

// The routine of the type among those of the four types.
template <class T, class F>
constexpr F pick(F s, F d, F c, F z) {
  if constexpr (kComplex<T>) return sizeof(T) == 8 ? c : z;
  else return sizeof(T) == 4 ? s : d;
}

// Declares a Fortran routine for the four types. Characters' lengths follow the arguments.
#define COIL_FORTRAN(name, ...) extern "C" void s##name##_(__VA_ARGS__), d##name##_(__VA_ARGS__), c##name##_(__VA_ARGS__), z##name##_(__VA_ARGS__);
#define COIL_PICK(T, name) ::linalg::pick<T>(s##name##_, d##name##_, c##name##_, z##name##_)

using Int = const int*;
using Char = const char*;

// Memory for one call, freed at its end. A null `data` after construction with a size: there is none left.
class Workspace {
 public:
  explicit Workspace(int64_t bytes) : data_(bytes > 0 ? malloc(static_cast<size_t>(bytes)) : nullptr), bytes_(bytes) {}
  Workspace(const Workspace&) = delete;
  ~Workspace() { free(data_); }
  bool missing() const { return bytes_ > 0 && !data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_;
  int64_t bytes_;
};

// Tensors of a call, one element of the batch at a time.
template <class T>
const T* input(const CoilLibraryCall* call, int i, int64_t at, int64_t elements) {
  return static_cast<const T*>(call->in[i]) + at * elements;
}
template <class T>
T* output(const CoilLibraryCall* call, int i, int64_t at, int64_t elements) {
  return static_cast<T*>(call->out[i]) + at * elements;
}
template <class T>
T* copied(T* to, const T* from, int64_t elements) {
  memcpy(to, from, static_cast<size_t>(elements) * sizeof(T));
  return to;
}

// f(i) for each element of the batch; it gives false when memory runs out. `work`: operations an element, roughly.
template <class F>
int32_t for_batch(const CoilLibraryCall* call, int64_t count, int64_t work, const F& f) {
  struct Context {
    const F* f;
    int32_t failed;
  } context{&f, 0};
  auto chunk = [](void* p, int64_t begin, int64_t end, int32_t) {
    Context* c = static_cast<Context*>(p);
    for (int64_t i = begin; i < end; ++i) {
      if (!(*c->f)(i)) __atomic_store_n(&c->failed, 1, __ATOMIC_RELAXED);
    }
  };
  const int64_t grain = 20000 / (work + 1) + 1;
  if (count <= grain || call->host->num_workers == 1) {
    if (count > 0) chunk(&context, 0, count, 0);
  } else {
    call->host->parallel_for(call->host->pool, count, grain, chunk, &context);
  }
  constexpr int32_t kOutOfMemory = 401;
  return context.failed ? cd::fail(call->error, kOutOfMemory, "%s: there is no memory for the work space", call->subject) : 0;
}

// Op<T>::run(call) for the call's element type.
template <template <class> class Op>
int32_t dispatch(const CoilLibraryCall* call) {
  switch (call->dtype) {
    case COIL_FLOAT32: return Op<float>::run(call);
    case COIL_FLOAT64: return Op<double>::run(call);
    case COIL_COMPLEX64: return Op<c64>::run(call);
    default: return Op<c128>::run(call);
  }
}

}  // namespace linalg
#endif  // COIL_DEVICE_LIBRARY_LINALG_H_
