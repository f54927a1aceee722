// What a constant's bytes in the blob are: packed in pieces, so that of a large weight there is never a whole copy in memory, and on several threads.
#include <algorithm>
#include <cstring>

#include "base/parallel.h"
#include "codegen/constants.h"
#include "ops/memory.h"
#include "templates/packing.h"

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

int64_t elements_of(const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return n;
}

std::vector<uint8_t> dense_bytes(const TensorData& d) {
  const auto item = static_cast<size_t>(byte_size(d.dtype));
  const auto count = static_cast<size_t>(elements_of(d.sizes));
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

namespace {

std::vector<float> as_floats(std::span<const uint8_t> dense, DType dtype) {
  std::vector<float> out(dense.size() / static_cast<size_t>(byte_size(dtype)));
  interpreter::with_type(dtype, [&](auto type) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(interpreter::read_element<decltype(type)>(dense.data(), static_cast<int64_t>(i)));
  });
  return out;
}

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
  explicit Plain(const BufferInfo& info) {
    const TensorData& d = info.data;
    const auto item = static_cast<size_t>(byte_size(d.dtype));
    if (dense(d)) bytes_ = d.bytes.subspan(static_cast<size_t>(d.offset) * item, static_cast<size_t>(elements_of(d.sizes)) * item);
    else bytes_ = own_ = dense_bytes(d);
    if (info.dtype != d.dtype) bytes_ = own_ = narrowed(bytes_, d.dtype, info.dtype);
  }
  Plain(const Plain&) = delete;
  std::span<const uint8_t> bytes() const { return bytes_; }

 private:
  std::vector<uint8_t> own_;
  std::span<const uint8_t> bytes_;
};

// [oc][ic][kh][kw] as [oc][kh][kw][ic].
std::vector<uint8_t> channels_innermost(const TensorData& d) {
  TensorData moved = d;
  moved.sizes = {d.sizes[0], d.sizes[2], d.sizes[3], d.sizes[1]};
  moved.strides = {d.strides[0], d.strides[2], d.strides[3], d.strides[1]};
  return dense_bytes(moved);
}

std::vector<uint8_t> padded_lines(std::span<const uint8_t> plain, size_t item, const PlanConstant& c) {
  std::vector<uint8_t> out(static_cast<size_t>(c.n * c.batch_stride) * item);
  const size_t bytes = static_cast<size_t>(c.k) * item;
  for (int64_t line = 0; line < c.n; ++line) {
    std::memcpy(out.data() + static_cast<size_t>(line * c.batch_stride) * item, plain.data() + static_cast<size_t>(line) * bytes, bytes);
  }
  return out;
}

std::span<const uint8_t> bytes_of(const std::vector<std::byte>& b) { return {reinterpret_cast<const uint8_t*>(b.data()), b.size()}; }

// Some columns of the matrix that begins at `from`, as the constant is packed: whole panels, unless they are its last ones.
std::vector<std::byte> pack_columns(const uint8_t* from, int64_t item, const PlanConstant& c, int64_t columns) {
  using Packing = PlanConstant::Packing;
  switch (c.packing) {
    case Packing::gemm_b_4bit: return templates::pack_4bit_b(from, c.k, columns, c.row_stride, c.col_stride);
    case Packing::gemm_b_quads: return templates::pack_quads_b(from, 8, c.k, columns, c.row_stride, c.col_stride);
    case Packing::gemm_b_quads_4bit: return templates::pack_quads_b(from, 4, c.k, columns, c.row_stride, c.col_stride);
    case Packing::gemm_b_lines: return templates::pack_lines_b(from, 8 * item, c.k, columns, c.row_stride, c.col_stride);
    case Packing::gemm_b_lines_4bit: return templates::pack_lines_b(from, 4, c.k, columns, c.row_stride, c.col_stride);
    case Packing::gemm_b_integer: return templates::pack_integer_b(from, c.k, columns, c.row_stride, c.col_stride);
    case Packing::gemm_b_pairs:
      return templates::in_pairs(templates::pack_gemm_b(from, static_cast<size_t>(item), c.k, columns, c.row_stride, c.col_stride), c.k);
    default: return templates::pack_gemm_b(from, static_cast<size_t>(item), c.k, columns, c.row_stride, c.col_stride);
  }
}

// Matrices, some columns at a time.
Status matrix_pieces(std::span<const uint8_t> plain, int64_t item, const PlanConstant& c, int threads, ByteSink sink) {
  constexpr int64_t kUnit = 32, kPiece = 1 << 20;  // columns of whole panels of all packings; bytes that are worth a thread's while
  const int64_t batch = c.packing == PlanConstant::Packing::gemm_b || c.packing == PlanConstant::Packing::gemm_b_pairs ? c.batch : 1;
  const int64_t columns = std::max<int64_t>(kPiece / std::max<int64_t>(c.k * item, 1) / kUnit, 1) * kUnit, per_matrix = (c.n + columns - 1) / columns;
  const int64_t count = batch * per_matrix, at_once = std::max(threads, 1) * int64_t{4};
  for (int64_t begin = 0; begin < count; begin += at_once) {
    std::vector<std::vector<std::byte>> packed(static_cast<size_t>(std::min(at_once, count - begin)));
    parallel_each(packed.size(), threads, [&](size_t i) {
      const int64_t piece = begin + static_cast<int64_t>(i), col = piece % per_matrix * columns;
      const int64_t first = c.first + piece / per_matrix * c.batch_stride + col * c.col_stride;
      packed[i] = pack_columns(plain.data() + first * item, item, c, std::min(columns, c.n - col));
    });
    for (const std::vector<std::byte>& p : packed) TRY_STATUS(sink(bytes_of(p)));
  }
  return ok_status();
}

std::vector<std::byte> packed_convolution(std::span<const uint8_t> plain, size_t item, const TensorData& d, const PlanConstant& c) {
  using Packing = PlanConstant::Packing;
  const std::vector<int64_t>& s = d.sizes;
  switch (c.packing) {
    case Packing::conv_weight: return templates::pack_conv_weight(plain.data(), item, s[0], s[1], s[2], s[3], c.groups);
    case Packing::conv_weight_pairs:
      return templates::in_pairs(templates::pack_conv_weight(plain.data(), item, s[0], s[1], s[2], s[3], c.groups), s[1] * s[2] * s[3]);
    case Packing::narrow_groups_weight: return templates::pack_conv_weight(plain.data(), item, s[0], s[1], s[2], s[3], 1);  // panels run over the groups
    case Packing::conv_weight_integer: return templates::pack_integer_conv_weight(plain.data(), s[0], s[1], s[2], s[3], c.groups);
    case Packing::depthwise_weight: return templates::pack_depthwise_weight(plain.data(), item, s[0], s[2], s[3]);
    default: return templates::pack_winograd_weight(as_floats(plain, d.dtype).data(), s[0], s[1], winograd_tile(c.packing));
  }
}

}  // namespace

Status constant_pieces(const KernelPlan& plan, const PlanConstant& c, int threads, ByteSink sink) {
  using Packing = PlanConstant::Packing;
  const BufferInfo& info = plan.buffer(c.buffer).info;
  if (c.packing == Packing::few_outputs_weight || c.packing == Packing::conv_ohwi) return sink(channels_innermost(info.data));
  const Plain plain(info);
  const auto item = static_cast<size_t>(byte_size(info.dtype));
  switch (c.packing) {
    case Packing::plain: return sink(plain.bytes());
    case Packing::padded_lines: return sink(padded_lines(plain.bytes(), item, c));
    case Packing::conv_weight:
    case Packing::conv_weight_pairs:
    case Packing::narrow_groups_weight:
    case Packing::conv_weight_integer:
    case Packing::depthwise_weight:
    case Packing::winograd_2x2_weight:
    case Packing::winograd_4x4_weight: return sink(bytes_of(packed_convolution(plain.bytes(), item, info.data, c)));
    default: return matrix_pieces(plain.bytes(), static_cast<int64_t>(item), c, threads, sink);
  }
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
