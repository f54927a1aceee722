#include "loop/block_ops.h"

#include <cmath>

#include "expr/convert.h"
#include "expr/scalar_rows.h"
#include "ops/memory.h"

namespace coil::interpreter {
namespace {

// Operands that an operation does not have are the first one again.
struct Operands {
  Operands(const Slot* const* args, size_t num_args) : a(args[0]), b(args[num_args > 1 ? 1 : 0]), c(args[num_args > 2 ? 2 : 0]) {}
  const Slot *a, *b, *c;
};

template <class T, class Row>
void float_rows(const Operands& x, DType type, int64_t n, Slot& r) {
  for (int64_t i = 0; i < n; ++i) {
    const T v = Row::of_floats(static_cast<T>(x.a->f[i]), static_cast<T>(x.b->f[i]), static_cast<T>(x.c->f[i]));
    if constexpr (info(Row::kOp).result == ResultRule::boolean) r.i[i] = v != 0;
    else r.f[i] = type == DType::f64 ? static_cast<double>(v) : static_cast<float>(v);
  }
}

template <class Row>
void integer_rows(const Operands& x, DType type, int64_t n, Slot& r) {
  if (type == DType::i64 || type == DType::index || info(Row::kOp).result == ResultRule::boolean) {
    for (int64_t i = 0; i < n; ++i) r.i[i] = Row::of_integers(x.a->i[i], x.b->i[i], x.c->i[i], 64, false);
  } else {
    const int bits = 8 * byte_size(type);
    for (int64_t i = 0; i < n; ++i) r.i[i] = wrap(Row::of_integers(x.a->i[i], x.b->i[i], x.c->i[i], bits, is_bool(type)), type);
  }
}

// Sums and products of indices have any number of operands. Where nobody looks they may leave int64.
void index_sum(ScalarOp op, const Slot* const* a, size_t num_args, int64_t n, Slot& r) {
  for (int64_t i = 0; i < n; ++i) {
    int64_t v = a[0]->i[i];
    for (size_t k = 1; k < num_args; ++k) v = op == ScalarOp::iadd ? scalar::add_wrap(v, a[k]->i[i]) : scalar::mul_wrap(v, a[k]->i[i]);
    r.i[i] = v;
  }
}

void select(DType type, const Slot* const* a, int64_t n, Slot& r) {
  if (is_float(type)) {
    for (int64_t i = 0; i < n; ++i) r.f[i] = a[0]->i[i] ? a[1]->f[i] : a[2]->f[i];
  } else {
    for (int64_t i = 0; i < n; ++i) r.i[i] = a[0]->i[i] ? a[1]->i[i] : a[2]->i[i];
  }
}

void bit_pattern(ScalarOp op, DType type, const Slot& a, int64_t n, Slot& r) {
  for (int64_t i = 0; i < n; ++i) {
    const bool from_float = is_float(type);
    const Value in = from_float ? Value{.f = a.f[i]} : Value{.i = a.i[i]};
    const Value v = apply_scalar(op, type, {&in, 1});
    if (from_float) r.i[i] = v.i;
    else r.f[i] = v.f;
  }
}

}  // namespace

void block_op(ScalarOp op, DType type, const Slot* const* args, size_t num_args, int64_t n, Slot& result) {
  if (op == ScalarOp::select) return select(type, args, n, result);
  if (op == ScalarOp::iadd || op == ScalarOp::imul) return index_sum(op, args, num_args, n, result);
  if (info(op).result == ResultRule::bits) return bit_pattern(op, type, *args[0], n, result);
  const Operands x(args, num_args);
  scalar::with_row(op, [&](auto row) {
    using Row = decltype(row);
    CHECK(is_float(type) ? Row::kForFloats : Row::kForIntegers, info(op).name);
    if (!is_float(type)) return integer_rows<Row>(x, type, n, result);
    if (type == DType::f64 || Row::kRounded == scalar::Rounded::once) return float_rows<double, Row>(x, type, n, result);
    return float_rows<float, Row>(x, type, n, result);
  });
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
