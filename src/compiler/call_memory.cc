#include "compiler/call_memory.h"

#include <algorithm>
#include <cstring>

#include "base/result.h"

namespace coil {
namespace {

DType dtype_of(int32_t number) {
  for (int i = 0; i <= static_cast<int>(DType::c32); ++i) {
    if (info(static_cast<DType>(i)).shim_number == number) return static_cast<DType>(i);
  }
  CHECK(false, "a dtype number that nothing has");
  return DType::f32;
}

// Elements from the first to the last.
int64_t span_of(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  if (element_count(sizes) == 0) return 0;
  int64_t last = 0;
  for (size_t d = 0; d < sizes.size(); ++d) last += (sizes[d] - 1) * strides[d];
  return last + 1;
}

}  // namespace

std::vector<int64_t> index_of(int64_t n, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> index(sizes.size());
  for (size_t d = sizes.size(); d-- > 0; n /= sizes[d]) index[d] = n % sizes[d];
  return index;
}

int64_t offset_of(const std::vector<int64_t>& index, const std::vector<int64_t>& strides) {
  int64_t offset = 0;
  for (size_t d = 0; d < index.size(); ++d) offset += index[d] * strides[d];
  return offset;
}

TensorData borrowed(const CoilTensorView& v) {
  TensorData t;
  const DType type = dtype_of(v.dtype);
  t.dtype = is_float8(type) ? DType::u8 : part_type(type);
  t.sizes.assign(v.sizes, v.sizes + v.ndim);
  t.strides.resize(t.sizes.size());
  int64_t dense = 1;
  for (size_t d = t.sizes.size(); d-- > 0; dense *= t.sizes[d]) t.strides[d] = v.strides ? v.strides[d] : dense;
  if (is_complex(type)) {
    for (int64_t& s : t.strides) s *= 2;
    t.sizes.push_back(2);
    t.strides.push_back(1);
  }
  t.bytes = {static_cast<const uint8_t*>(v.data), static_cast<size_t>(span_of(t.sizes, t.strides) * byte_size(t.dtype))};
  return t;
}

TensorData copy_of(const CoilTensorView& view) {
  TensorData t = borrowed(view);
  const auto bytes = std::make_shared<std::vector<uint8_t>>(t.bytes.begin(), t.bytes.end());
  t.bytes = *bytes;
  t.owner = bytes;
  return t;
}

OwnInputs::OwnInputs(std::span<const CoilTensorView> from) : views(from.begin(), from.end()) {
  for (CoilTensorView& v : views) {
    const TensorData t = borrowed(v);
    memory.emplace_back(t.bytes.size() + 64);
    if (!t.bytes.empty()) std::memcpy(memory.back().data(), t.bytes.data(), t.bytes.size());
    v.data = memory.back().data();
  }
}

}  // namespace coil
