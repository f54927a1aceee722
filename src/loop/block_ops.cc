#include "loop/block_ops.h"

#include <cmath>

#include "loop/memory.h"

namespace coil::interpreter {
namespace {

template <class F>
void floats(DType type, const Slot* const* a, int64_t n, Slot& r, F f) {
  if (type == DType::f64) {
    for (int64_t i = 0; i < n; ++i) r.f[i] = f(a[0]->f[i], a[1]->f[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) r.f[i] = static_cast<float>(f(a[0]->f[i], a[1]->f[i]));
  }
}

template <class F>
void wide_integers(const Slot* const* a, int64_t n, Slot& r, F f) {
  for (int64_t i = 0; i < n; ++i) r.i[i] = f(a[0]->i[i], a[1]->i[i]);
}

template <class F>
void comparison(DType type, const Slot* const* a, int64_t n, Slot& r, F f) {
  if (is_float(type)) {
    for (int64_t i = 0; i < n; ++i) r.i[i] = f(a[0]->f[i], a[1]->f[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) r.i[i] = f(a[0]->i[i], a[1]->i[i]);
  }
}

int64_t wrap_add(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }
int64_t wrap_mul(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); }

// The operations that bodies are mostly made of; false: not one of them.
bool fast_float(ScalarOp op, DType type, const Slot* const* a, int64_t n, Slot& r) {
  switch (op) {
    case ScalarOp::add: floats(type, a, n, r, [](double x, double y) { return x + y; }); return true;
    case ScalarOp::sub: floats(type, a, n, r, [](double x, double y) { return x - y; }); return true;
    case ScalarOp::mul: floats(type, a, n, r, [](double x, double y) { return x * y; }); return true;
    case ScalarOp::div: floats(type, a, n, r, [](double x, double y) { return x / y; }); return true;
    default: return false;
  }
}

bool fast_integer(ScalarOp op, DType type, const Slot* const* a, size_t num_args, int64_t n, Slot& r) {
  if (type != DType::i64 && type != DType::index) return false;
  switch (op) {
    case ScalarOp::add: wide_integers(a, n, r, wrap_add); return true;
    case ScalarOp::mul: wide_integers(a, n, r, wrap_mul); return true;
    case ScalarOp::iadd:
    case ScalarOp::imul:
      for (int64_t i = 0; i < n; ++i) {
        int64_t v = a[0]->i[i];
        for (size_t k = 1; k < num_args; ++k) v = op == ScalarOp::iadd ? wrap_add(v, a[k]->i[i]) : wrap_mul(v, a[k]->i[i]);
        r.i[i] = v;
      }
      return true;
    case ScalarOp::idiv:
      wide_integers(a, n, r, [](int64_t x, int64_t y) { return x >= 0 ? x / y : -((y - 1 - x) / y); });
      return true;
    case ScalarOp::imod:
      wide_integers(a, n, r, [](int64_t x, int64_t y) {
        const int64_t m = x % y;
        return m < 0 ? m + y : m;
      });
      return true;
    default: return false;
  }
}

bool fast_common(ScalarOp op, DType type, const Slot* const* a, int64_t n, Slot& r) {
  switch (op) {
    case ScalarOp::select:
      if (is_float(type)) {
        for (int64_t i = 0; i < n; ++i) r.f[i] = a[0]->i[i] ? a[1]->f[i] : a[2]->f[i];
      } else {
        for (int64_t i = 0; i < n; ++i) r.i[i] = a[0]->i[i] ? a[1]->i[i] : a[2]->i[i];
      }
      return true;
    case ScalarOp::eq: comparison(type, a, n, r, [](auto x, auto y) { return x == y; }); return true;
    case ScalarOp::ne: comparison(type, a, n, r, [](auto x, auto y) { return x != y; }); return true;
    case ScalarOp::lt: comparison(type, a, n, r, [](auto x, auto y) { return x < y; }); return true;
    case ScalarOp::le: comparison(type, a, n, r, [](auto x, auto y) { return x <= y; }); return true;
    case ScalarOp::gt: comparison(type, a, n, r, [](auto x, auto y) { return x > y; }); return true;
    case ScalarOp::ge: comparison(type, a, n, r, [](auto x, auto y) { return x >= y; }); return true;
    default: return false;
  }
}

bool gives_float(ScalarOp op, DType type) {
  if (info(op).result == ResultRule::bits) return !is_float(type);
  return is_float(type) && info(op).result != ResultRule::boolean;
}

}  // namespace

void block_op(ScalarOp op, DType type, const Slot* const* args, size_t num_args, int64_t n, Slot& result) {
  if (is_float(type) ? fast_float(op, type, args, n, result) : fast_integer(op, type, args, num_args, n, result)) return;
  if (fast_common(op, type, args, n, result)) return;
  // The rest goes through the reference for one value.
  const bool to_float = gives_float(op, type);
  Value values[8];
  for (int64_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < num_args; ++k) {
      if (is_float(type)) values[k].f = args[k]->f[i];
      else values[k].i = args[k]->i[i];
    }
    const Value v = apply_scalar(op, type, {values, num_args});
    if (to_float) result.f[i] = v.f;
    else result.i[i] = v.i;
  }
}

void block_cast(DType from, DType to, const Slot& a, int64_t n, Slot& r) {
  if (is_float(from) && is_float(to)) {
    for (int64_t i = 0; i < n; ++i) r.f[i] = to == DType::f64 ? a.f[i] : static_cast<float>(a.f[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    Value v;
    if (is_float(from)) v.f = a.f[i];
    else v.i = a.i[i];
    v = convert(v, from, to);
    if (is_float(to)) r.f[i] = v.f;
    else r.i[i] = v.i;
  }
}

void load_strided(const Tensor& tensor, int64_t first, int64_t stride, int64_t n, Slot& r) {
  with_type(tensor.dtype, [&](auto type) {
    using T = decltype(type);
    for (int64_t i = 0; i < n; ++i) {
      const T v = read_element<T>(tensor.data, first + i * stride);
      if constexpr (std::is_convertible_v<T, double> && !std::is_integral_v<T> && !std::is_same_v<T, Byte>) r.f[i] = v;
      else r.i[i] = static_cast<int64_t>(v);
    }
  });
}

void load_gathered(const Tensor& tensor, const int64_t* offsets, int64_t n, Slot& r) {
  with_type(tensor.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr bool to_float = std::is_convertible_v<T, double> && !std::is_integral_v<T> && !std::is_same_v<T, Byte>;
    for (int64_t i = 0; i < n; ++i) {
      if (offsets[i] < 0) {
        if constexpr (to_float) r.f[i] = 0;
        else r.i[i] = 0;
        continue;
      }
      const T v = read_element<T>(tensor.data, offsets[i]);
      if constexpr (to_float) r.f[i] = v;
      else r.i[i] = static_cast<int64_t>(v);
    }
  });
}

}  // namespace coil::interpreter
