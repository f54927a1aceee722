#include "loop/constant_text.h"

#include <functional>
#include <numeric>

#include <fmt/format.h>

#include "base/hash.h"
#include "loop/memory.h"
#include "loop/parse.h"

namespace coil {
namespace {

int64_t count_of(const std::vector<int64_t>& sizes) { return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>()); }

// The place of the element that `element` counts in row-major order.
int64_t position(const TensorData& data, int64_t element) {
  int64_t at = data.offset;
  for (size_t d = data.sizes.size(); d-- > 0;) {
    at += element % data.sizes[d] * data.strides[d];
    element /= data.sizes[d];
  }
  return at;
}

// next(): an element, as a double or an integer, in row-major order.
template <class Next>
TensorData filled(const StoredAs& stored, Next&& next) {
  TensorData data;
  data.dtype = stored.dtype;
  data.sizes = stored.sizes;
  data.strides = stored.strides;
  const auto bytes = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(stored.elements * byte_size(stored.dtype)));
  const int64_t count = count_of(stored.sizes);
  interpreter::with_type(stored.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < count; ++i) {
      const T value = interpreter::to_memory<T>(next());
      std::memcpy(bytes->data() + static_cast<size_t>(position(data, i)) * sizeof(T), &value, sizeof(T));
    }
  });
  data.bytes = *bytes;
  data.owner = bytes;
  return data;
}

std::string element_text(const TensorData& data, int64_t at) {
  return interpreter::with_type(data.dtype, [&](auto zero) -> std::string {
    using T = decltype(zero);
    const T value = interpreter::read_element<T>(data.bytes.data(), at);
    if constexpr (std::is_same_v<T, double>) return fmt::format("{}", value);
    else if (is_float(data.dtype)) return fmt::format("{}", static_cast<float>(value));
    else return fmt::format("{}", static_cast<int64_t>(value));
  });
}

}  // namespace

std::string contents_text(const TensorData& data) {
  const int64_t count = count_of(data.sizes);
  if (count > kShownElements || data.sizes.size() != data.strides.size()) return "";
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = position(data, i);
    if (at < 0 || static_cast<size_t>((at + 1) * byte_size(data.dtype)) > data.bytes.size()) return "";
    text += (i ? ", " : "") + element_text(data, at);
  }
  return "[" + text + "]";
}

std::optional<int64_t> elements_of(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  int64_t last = 0, count = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    int64_t step = 0;
    if (sizes[d] < 0 || strides[d] < 0 || __builtin_mul_overflow(count, sizes[d], &count)) return std::nullopt;
    if (sizes[d] > 0 && (__builtin_mul_overflow(sizes[d] - 1, strides[d], &step) || __builtin_add_overflow(last, step, &last))) return std::nullopt;
  }
  // Elements that share memory are written one after the other: no more of them than there is memory.
  if (count == 0) return 0;
  return std::max(last + 1, count);
}

TensorData read_contents(LoopReader& words, const StoredAs& stored) {
  words.expect("[");
  bool first = true;
  const auto separate = [&] {
    if (!std::exchange(first, false)) words.expect(",");
  };
  TensorData data =
      is_float(stored.dtype) ? filled(stored, [&] { return separate(), words.real(); }) : filled(stored, [&] { return separate(), words.integer(); });
  words.expect("]");
  return data;
}

TensorData drawn_contents(std::string_view name, const StoredAs& stored) {
  uint64_t state = hash64(name);
  const auto next = [&] {  // splitmix64: https://prng.di.unimi.it/splitmix64.c
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  };
  if (is_float(stored.dtype)) return filled(stored, [&] { return static_cast<double>(static_cast<int64_t>(next()) >> 11) * 0x1p-52; });
  return filled(stored, [&] { return static_cast<int64_t>(next() & 1); });
}

TensorData zeros(const StoredAs& stored) {
  return filled(stored, [] { return int64_t{0}; });
}

}  // namespace coil
