// What a constant's bytes in the blob are: packed in pieces, so that of a large weight there is never a whole copy in memory, and on several threads.
#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "codegen/constants.h"
#include "codegen/packings.h"
#include "ops/element_count.h"
#include "ops/memory.h"

namespace coil {
namespace {

bool dense(const TensorData& d) {
  int64_t expected = 1;
  for (size_t i = d.sizes.size(); i-- > 0;) {
    if (d.sizes[i] != 1 && d.strides[i] != expected) return false;
    expected *= d.sizes[i];
  }
  return true;
}

}  // namespace

std::vector<uint8_t> dense_bytes(const TensorData& d) {
  const auto item = static_cast<size_t>(byte_size(d.dtype));
  const auto count = static_cast<size_t>(element_count(d.sizes));
  std::vector<uint8_t> out(count * item);
  if (out.empty()) return out;
  const uint8_t* base = d.bytes.data() + static_cast<size_t>(d.offset) * item;
  if (dense(d)) {
    std::memcpy(out.data(), base, out.size());
    return out;
  }
  std::vector<int64_t> at(d.sizes.size(), 0);
  int64_t offset = 0;
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(out.data() + i * item, base + offset * static_cast<int64_t>(item), item);
    for (size_t k = at.size(); k-- > 0;) {
      offset += d.strides[k];
      if (++at[k] < d.sizes[k]) break;
      offset -= d.strides[k] * d.sizes[k];
      at[k] = 0;
    }
  }
  return out;
}

std::vector<float> as_floats(std::span<const uint8_t> dense, DType dtype) {
  std::vector<float> out(dense.size() / static_cast<size_t>(byte_size(dtype)));
  interpreter::with_type(dtype, [&](auto type) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(interpreter::read_element<decltype(type)>(dense.data(), static_cast<int64_t>(i)));
  });
  return out;
}

namespace {

// The elements in row-major order in another type, which has each of them.
std::vector<uint8_t> narrowed(std::span<const uint8_t> dense, DType from, DType to) {
  const std::vector<float> numbers = as_floats(dense, from);
  std::vector<uint8_t> out(numbers.size() * static_cast<size_t>(byte_size(to)));
  interpreter::with_type(to, [&](auto type) {
    using T = decltype(type);
    if constexpr (std::is_same_v<T, interpreter::Half> || std::is_same_v<T, interpreter::Bf16>) {
      for (size_t i = 0; i < numbers.size(); ++i) {
        const T value = T::from(numbers[i]);
        std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
      }
    } else {
      CHECK(false, "a constant that is stored in a type without 16 bits");
    }
  });
  return out;
}

// The elements in row-major order as they are stored: where they lie if they lie so, else a copy.
class Plain {
 public:
  explicit Plain(const BufferInfo& info) : stored_(info.data) {
    const TensorData& d = info.data;
    const auto item = static_cast<size_t>(byte_size(d.dtype));
    std::span<const uint8_t> bytes;
    if (dense(d)) bytes = d.bytes.subspan(static_cast<size_t>(d.offset) * item, static_cast<size_t>(element_count(d.sizes)) * item);
    else bytes = own_ = dense_bytes(d);
    if (info.dtype != d.dtype) bytes = own_ = narrowed(bytes, d.dtype, info.dtype);
    stored_.bytes = bytes;
    stored_.dtype = info.dtype;
    stored_.offset = 0;
    int64_t stride = 1;
    for (size_t i = stored_.sizes.size(); i-- > 0;) {
      stored_.strides[i] = stride;
      stride *= stored_.sizes[i];
    }
  }
  Plain(const Plain&) = delete;
  const TensorData& stored() const { return stored_; }

 private:
  TensorData stored_;
  std::vector<uint8_t> own_;
};

std::span<const uint8_t> bytes_of(const std::vector<std::byte>& b) { return {reinterpret_cast<const uint8_t*>(b.data()), b.size()}; }

// Matrices, some columns at a time.
Status matrix_pieces(const PackingRow& row, const TensorData& stored, const PlanConstant& c, int threads, ByteSink sink) {
  constexpr int64_t kUnit = 32, kPiece = 1 << 20;  // columns of whole panels of all packings; bytes that are worth a thread's while
  const int64_t item = byte_size(stored.dtype);
  const int64_t columns = std::max<int64_t>(kPiece / std::max<int64_t>(c.k * item, 1) / kUnit, 1) * kUnit, per_matrix = (c.n + columns - 1) / columns;
  const int64_t count = c.batch * per_matrix, at_once = std::max(threads, 1) * int64_t{4};
  for (int64_t begin = 0; begin < count; begin += at_once) {
    std::vector<std::vector<std::byte>> packed(static_cast<size_t>(std::min(at_once, count - begin)));
    parallel_each(packed.size(), threads, [&](size_t i) {
      const int64_t piece = begin + static_cast<int64_t>(i), col = piece % per_matrix * columns;
      const int64_t first = c.first + piece / per_matrix * c.batch_stride + col * c.col_stride;
      packed[i] = row.columns(stored.bytes.data() + first * item, static_cast<size_t>(item), c, std::min(columns, c.n - col));
    });
    for (const std::vector<std::byte>& p : packed) TRY_STATUS(sink(bytes_of(p)));
  }
  return ok_status();
}

}  // namespace

Status constant_pieces(const KernelPlan& plan, const PlanConstant& c, int threads, ByteSink sink) {
  const Plain plain(plan.buffer(c.buffer).info);
  const PackingRow& row = packing_row(c.packing);
  if (row.columns) return matrix_pieces(row, plain.stored(), c, threads, sink);
  if (row.whole) return sink(row.whole({plain.stored(), c}));
  return sink(plain.stored().bytes);
}

std::vector<uint8_t> constant_bytes(const KernelPlan& plan, const PlanConstant& c) {
  std::vector<uint8_t> out;
  const Status done = constant_pieces(plan, c, 1, [&](std::span<const uint8_t> piece) {
    out.insert(out.end(), piece.begin(), piece.end());
    return ok_status();
  });
  CHECK(done.ok(), "memory takes all pieces");
  return out;
}

}  // namespace coil
