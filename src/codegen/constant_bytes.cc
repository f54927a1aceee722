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
    TensorData d = info.data;
    if (const std::shared_ptr<const ByteSource> halves = info.dtype == DType::f16 && d.bytes.source() ? d.bytes.source()->in_halves() : nullptr) {
      d.bytes = stored_.bytes = halves;
      d.dtype = stored_.dtype = DType::f16;
    }
    if (d.bytes.source()) {
      if (dense(d) && info.dtype == d.dtype && d.offset == 0) return;  // read where they are packed
      made_.resize(d.bytes.size());
      d.bytes.source()->read(0, made_);
      d.bytes = made_;
    }
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
  std::vector<uint8_t> own_, made_;
};

std::span<const uint8_t> bytes_of(const std::vector<std::byte>& b) { return {reinterpret_cast<const uint8_t*>(b.data()), b.size()}; }

// Some columns of a matrix, whose first element is at `first`, packed. Of bytes that are in no memory these columns alone are made, where they lie side by
// side.
std::vector<std::byte> packed_columns(const PackingRow& row, const TensorData& stored, const PlanConstant& c, int64_t first, int64_t columns) {
  const auto item = static_cast<size_t>(byte_size(stored.dtype));
  const ByteSource* source = stored.bytes.source();
  if (!source || c.row_stride != 1 || c.col_stride < c.k) return row.columns(stored.bytes.data() + static_cast<size_t>(first) * item, item, c, columns);
  std::vector<uint8_t> made(static_cast<size_t>((columns - 1) * c.col_stride + c.k) * item);
  source->read(static_cast<uint64_t>(first) * item, made);
  return row.columns(made.data(), item, c, columns);
}

// Matrices, some columns at a time. What is packed is written while what follows is being packed.
Status matrix_pieces(const PackingRow& row, const TensorData& stored, const PlanConstant& c, int threads, ByteSink sink) {
  constexpr int64_t kUnit = 32, kPiece = 1 << 20;  // columns of whole panels of all packings; bytes that are worth a thread's while
  const int64_t item = byte_size(stored.dtype);
  const int64_t columns = std::max<int64_t>(kPiece / std::max<int64_t>(c.k * item, 1) / kUnit, 1) * kUnit, per_matrix = (c.n + columns - 1) / columns;
  const int64_t count = c.batch * per_matrix, at_once = std::max(threads, 1) * int64_t{2};
  std::vector<std::vector<std::byte>> packed, before;
  Status done = ok_status();
  const auto write = [&] {
    for (const std::vector<std::byte>& p : before) {
      if (done.ok()) done = sink(bytes_of(p));
    }
  };
  for (int64_t begin = 0; begin < count && done.ok(); begin += at_once, before.swap(packed)) {
    packed.assign(static_cast<size_t>(std::min(at_once, count - begin)), {});
    parallel_each(packed.size() + 1, threads, [&](size_t place) {
      if (place == 0) return write();  // in order, by whichever thread
      const size_t i = place - 1;
      const int64_t piece = begin + static_cast<int64_t>(i), col = piece % per_matrix * columns;
      const int64_t first = c.first + piece / per_matrix * c.batch_stride + col * c.col_stride;
      packed[i] = packed_columns(row, stored, c, first, std::min(columns, c.n - col));
    });
  }
  write();
  return done;
}

// A whole matrix whose columns are contiguous: packed from where it lies, instead of from a copy in rows.
bool lies_by_columns(const TensorData& d, const PlanConstant& c) {
  const bool whole = d.offset == 0 && c.first == 0 && c.batch == 1 && d.sizes == std::vector<int64_t>{c.k, c.n};
  return whole && c.row_stride == c.n && c.col_stride == 1 && d.strides == std::vector<int64_t>{1, c.k};
}

}  // namespace

Status constant_pieces(const KernelPlan& plan, const PlanConstant& constant, int threads, ByteSink sink) {
  PlanConstant c = constant;
  BufferInfo info = plan.buffer(c.buffer).info;
  const PackingRow& row = packing_row(c.packing);
  if (row.columns && lies_by_columns(info.data, c)) {
    info.data.sizes = {c.n, c.k}, info.data.strides = {c.k, 1};
    c.row_stride = 1, c.col_stride = c.k;
  }
  const Plain plain(info);
  if (row.columns) return matrix_pieces(row, plain.stored(), c, threads, sink);
  if (row.whole) return sink(row.whole({plain.stored(), c}));
  const StoredBytes& bytes = plain.stored().bytes;
  Status done = ok_status();
  bytes.each_piece([&](std::span<const uint8_t> piece) {
    done = sink(piece);
    return done.ok();
  });
  return done;
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
