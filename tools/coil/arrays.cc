#include "arrays.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "coil/coil.h"
#include "base/half.h"
#include "sizes.h"

namespace coil::tool {
namespace {

// Calls f(offset) for every element in C order, `offset` following `strides`.
template <class F>
void for_each_offset(const std::vector<int64_t>& sizes, const int64_t* strides, F f) {
  int64_t count = 1;
  for (int64_t s : sizes) count *= s;
  std::vector<int64_t> index(sizes.size(), 0);
  int64_t offset = 0;
  for (int64_t n = 0; n < count; ++n) {
    f(offset);
    for (size_t d = sizes.size(); d-- > 0;) {
      offset += strides[d];
      if (++index[d] < sizes[d]) break;
      offset -= strides[d] * sizes[d];
      index[d] = 0;
    }
  }
}

std::vector<int64_t> dense_strides(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= std::max<int64_t>(sizes[d], 1);
  }
  return strides;
}

// Whether the strides reach the same elements as dense ones.
bool is_dense(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return true;
  const std::vector<int64_t> dense = dense_strides(sizes);
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] != 1 && strides[d] != dense[d]) return false;
  }
  return true;
}

// Spreads dense data out to `strides`. False: several elements share a place (stride 0) and differ.
bool spread(NpyArray& array, const std::vector<int64_t>& strides) {
  int64_t last = 0;
  for (size_t d = 0; d < strides.size(); ++d) last += (array.shape[d] - 1) * strides[d];
  const size_t item = dtype_bytes(array.dtype);
  std::vector<uint8_t> data(static_cast<size_t>(last + 1) * item);
  std::vector<bool> written(static_cast<size_t>(last + 1));
  const uint8_t* from = array.data.data();
  bool fits = true;
  for_each_offset(array.shape, strides.data(), [&](int64_t offset) {
    uint8_t* to = data.data() + static_cast<size_t>(offset) * item;
    if (written[static_cast<size_t>(offset)] && std::memcmp(to, from, item) != 0) fits = false;
    written[static_cast<size_t>(offset)] = true;
    std::memcpy(to, from, item);
    from += item;
  });
  array.data = std::move(data);
  return fits;
}

void narrow(NpyArray& array, int32_t dtype) {
  const size_t count = array.data.size() / sizeof(float);
  std::vector<uint8_t> data(count * 2);
  for (size_t i = 0; i < count; ++i) {
    float value;
    std::memcpy(&value, array.data.data() + i * sizeof value, sizeof value);
    const uint16_t bits = dtype == COIL_BFLOAT16 ? to_bf16(value) : to_f16(value);
    std::memcpy(data.data() + i * 2, &bits, 2);
  }
  array.data = std::move(data);
  array.dtype = dtype;
}

}  // namespace

Status place_input(size_t i, NpyArray array, const Json& manifest, Sizes& sizes, CallInputs* inputs) {
  const Json& info = manifest.at("inputs").at(i);
  const std::string name = info.at("name").get<std::string>();
  const std::string dtype = info.at("dtype").get<std::string>();
  if (array.dtype == COIL_FLOAT32 && dtype == "bfloat16") narrow(array, COIL_BFLOAT16);
  if (array.dtype == COIL_FLOAT32 && dtype == "float16") narrow(array, COIL_FLOAT16);
  std::vector<int64_t> strides = dense_strides(array.shape);
  if (info.contains("strides") && info["strides"].size() == array.shape.size()) {
    // Unsolvable strides belong to an input that the runtime refuses anyway.
    const Result<std::vector<int64_t>> wanted = sizes.evaluate_all(info["strides"]);
    const bool usable = wanted.ok() && std::all_of(wanted.value().begin(), wanted.value().end(), [](int64_t s) { return s >= 0 && s < (int64_t{1} << 40); });
    if (usable && !is_dense(array.shape, wanted.value())) {
      strides = wanted.value();
      if (!spread(array, strides)) {
        return Error{ErrorCode::input_stride,
                     fmt::format("input '{}' was exported as an expanded tensor: its elements along the expanded dimension "
                                 "must be equal, but they differ",
                                 name),
                     "", "export the program with an input that is not expanded"};
      }
    }
  }
  inputs->arrays[i] = std::move(array);
  inputs->strides[i] = std::move(strides);
  return ok_status();
}

void make_views(CallInputs* inputs) {
  inputs->views.clear();
  for (size_t i = 0; i < inputs->arrays.size(); ++i) {
    NpyArray& a = inputs->arrays[i];
    inputs->views.push_back({a.data.data(), a.shape.data(), inputs->strides[i].data(), static_cast<int32_t>(a.shape.size()), a.dtype, COIL_CPU, 0});
  }
}

NpyArray to_array(const CoilTensorView& view) {
  NpyArray array;
  array.dtype = view.dtype == COIL_BFLOAT16 ? COIL_FLOAT32 : view.dtype;
  array.shape.assign(view.sizes, view.sizes + view.ndim);
  const size_t from_bytes = dtype_bytes(view.dtype), to_bytes = dtype_bytes(array.dtype);
  array.data.resize(static_cast<size_t>(array.count()) * to_bytes);
  const uint8_t* from = static_cast<const uint8_t*>(view.data);
  uint8_t* to = array.data.data();
  const std::vector<int64_t> strides = view.strides ? std::vector<int64_t>(view.strides, view.strides + view.ndim) : dense_strides(array.shape);
  for_each_offset(array.shape, strides.data(), [&](int64_t offset) {
    const uint8_t* item = from + static_cast<size_t>(offset) * from_bytes;
    if (view.dtype == COIL_BFLOAT16) {
      uint16_t bits;
      std::memcpy(&bits, item, sizeof bits);
      const float value = from_bf16(bits);
      std::memcpy(to, &value, sizeof value);
    } else {
      std::memcpy(to, item, from_bytes);
    }
    to += to_bytes;
  });
  return array;
}

std::string dtype_name(int32_t dtype) { return coil_dtype_name(dtype); }

size_t dtype_bytes(int32_t dtype) { return dtype == COIL_BFLOAT16 ? 2 : npy_item_bytes(dtype); }

}  // namespace coil::tool
