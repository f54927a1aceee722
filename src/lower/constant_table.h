// Tables of numbers that are known while lowering.
#pragma once

#include <algorithm>
#include <memory>
#include <type_traits>
#include <utility>

#include "lower/lowering.h"

namespace coil::lowering {

// The numbers in row-major order, as many as the sizes say.
template <class T>
TensorData table_data(std::vector<int64_t> sizes, std::vector<T> values) {
  static_assert(std::is_arithmetic_v<T> && std::is_signed_v<T> && sizeof(T) >= 4);
  constexpr bool kWide = sizeof(T) == 8;
  TensorData data;
  auto held = std::make_shared<std::vector<T>>(std::move(values));
  data.bytes = {reinterpret_cast<const uint8_t*>(held->data()), held->size() * sizeof(T)};
  data.owner = held;
  data.dtype = std::is_floating_point_v<T> ? (kWide ? DType::f64 : DType::f32) : kWide ? DType::i64 : DType::i32;
  data.strides.assign(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) data.strides[i - 1] = data.strides[i] * std::max<int64_t>(sizes[i], 1);
  data.sizes = std::move(sizes);
  return data;
}

template <class T>
View constant_table(Op& op, const std::string& name, std::vector<int64_t> sizes, std::vector<T> values) {
  return op.rec.constant(name, table_data(std::move(sizes), std::move(values)));
}

}  // namespace coil::lowering
