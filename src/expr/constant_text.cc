#include "expr/constant_text.h"

#include <cmath>
#include <functional>
#include <numeric>

#include <fmt/format.h>

#include "base/hash.h"
#include "ops/memory.h"

namespace coil {
namespace {

constexpr uint64_t kMostContents = uint64_t{4} << 30;  // bytes of all constants together

int64_t count_of(const std::vector<int64_t>& sizes) { return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>()); }

int64_t parts_of(DType dtype) { return is_complex(dtype) ? 2 : 1; }

// The place of the element that `element` counts in row-major order.
int64_t position(const TensorData& data, int64_t element) {
  int64_t at = data.offset;
  for (size_t d = data.sizes.size(); d-- > 0;) {
    at += element % data.sizes[d] * data.strides[d];
    element /= data.sizes[d];
  }
  return at;
}

// next(): a number, as a double or an integer, in row-major order.
template <class Next>
TensorData filled(const StoredAs& stored, Next&& next) {
  TensorData data;
  data.dtype = stored.dtype;
  data.sizes = stored.sizes;
  data.strides = stored.strides;
  const auto bytes = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(stored.elements * byte_size(stored.dtype)));
  const int64_t count = count_of(stored.sizes), parts = parts_of(stored.dtype);
  interpreter::with_type(part_type(stored.dtype), [&](auto zero) {
    using T = decltype(zero);
    for (int64_t i = 0; i < count * parts; ++i) {
      const T value = interpreter::to_memory<T>(next());
      std::memcpy(bytes->data() + static_cast<size_t>(position(data, i / parts) * parts + i % parts) * sizeof(T), &value, sizeof(T));
    }
  });
  data.bytes = *bytes;
  data.owner = bytes;
  return data;
}

std::string number_text(DType dtype, const uint8_t* numbers, int64_t at) {
  return interpreter::with_type(dtype, [&](auto zero) -> std::string {
    using T = decltype(zero);
    const T value = interpreter::read_element<T>(numbers, at);
    if constexpr (std::is_same_v<T, double>) return fmt::format("{}", value);
    else if (is_float(dtype)) return fmt::format("{}", static_cast<float>(value));
    else return fmt::format("{}", static_cast<int64_t>(value));
  });
}

bool numbers_of(const std::vector<Expr>& exprs, std::vector<int64_t>* values) {
  for (Expr e : exprs) {
    if (!e || !e->is_constant() || e->as_int() < 0) return false;
    values->push_back(e->as_int());
  }
  return true;
}

// The memory that these sizes and strides need, in elements; nullopt: more than can be counted.
std::optional<int64_t> elements_of(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  int64_t last = 0, count = 1;
  for (size_t d = 0; d < sizes.size(); ++d) {
    int64_t step = 0;
    if (__builtin_mul_overflow(count, sizes[d], &count)) return std::nullopt;
    if (sizes[d] > 0 && (__builtin_mul_overflow(sizes[d] - 1, strides[d], &step) || __builtin_add_overflow(last, step, &last))) return std::nullopt;
  }
  // Elements that share memory are written one after the other: no more of them than there is memory.
  if (count == 0) return 0;
  return std::max(last + 1, count);
}

}  // namespace

std::string contents_text(const TensorData& data) {
  if (data.sizes.size() != data.strides.size()) return "";
  int64_t count = 1;
  for (int64_t size : data.sizes) {
    if (__builtin_mul_overflow(count, size, &count)) return "";
  }
  if (count < 0 || count > kShownElements) return "";
  const int64_t parts = parts_of(data.dtype);
  std::string text;
  for (int64_t i = 0; i < count * parts; ++i) {
    const int64_t at = position(data, i / parts);
    if (at < 0 || static_cast<size_t>((at + 1) * byte_size(data.dtype)) > data.bytes.size()) return "";
    text += (i ? ", " : "") + number_text(part_type(data.dtype), data.bytes.data(), at * parts + i % parts);
  }
  return "[" + text + "]";
}

std::optional<StoredAs> stored_as(TextReader& words, DType dtype, const std::vector<Expr>& sizes, const std::vector<Expr>& strides, uint64_t* used) {
  if (words.failed()) return std::nullopt;
  StoredAs stored{dtype, {}, {}, 0};
  if (!numbers_of(sizes, &stored.sizes) || !numbers_of(strides, &stored.strides) || stored.sizes.size() != stored.strides.size()) {
    words.fail("what is stored has sizes and strides that are numbers of 0 or more");
    return std::nullopt;
  }
  const std::optional<int64_t> elements = elements_of(stored.sizes, stored.strides);
  const uint64_t most = (kMostContents - *used) / static_cast<uint64_t>(byte_size(dtype));
  if (!elements || static_cast<uint64_t>(*elements) > most) {
    words.fail(fmt::format("the constants take more than {} bytes", kMostContents));
    return std::nullopt;
  }
  stored.elements = *elements;
  *used += static_cast<uint64_t>(*elements * byte_size(dtype));
  return stored;
}

TensorData read_contents(TextReader& words, const StoredAs& stored) {
  words.expect("[");
  bool first = true;
  const auto separate = [&] {
    if (!std::exchange(first, false)) words.expect(",");
  };
  TensorData data = is_float(part_type(stored.dtype)) ? filled(stored, [&] { return separate(), words.real(); })
                                                      : filled(stored, [&] { return separate(), words.integer(); });
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
  if (!is_float(part_type(stored.dtype))) return filled(stored, [&] { return static_cast<int64_t>(next() & 1); });
  // Roots of negative variances would make a whole network NaN.
  const bool variance = name.ends_with("running_var");
  return filled(stored, [&] {
    const double number = static_cast<double>(static_cast<int64_t>(next()) >> 11) * 0x1p-52;
    return variance ? std::fabs(number) : number;
  });
}

TensorData zeros(const StoredAs& stored) {
  return filled(stored, [] { return int64_t{0}; });
}

}  // namespace coil
