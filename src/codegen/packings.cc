#include "codegen/packings.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "ops/memory.h"
#include "templates/packing.h"

namespace coil {
namespace {

// A constant that is being packed: its elements in row-major order, and what the plan says of it.
struct Source {
  const TensorData& data;
  const PlanConstant& c;
  const std::vector<uint8_t>& plain;

  size_t item() const { return static_cast<size_t>(byte_size(data.dtype)); }
  int64_t size(size_t dim) const { return data.sizes[dim]; }
  int64_t window() const { return size(1) * size(2) * size(3); }  // of a convolution's weight: inputs of a result
  // Elements of a product's batch, at the slice that is read.
  const uint8_t* batch(int64_t b) const { return plain.data() + static_cast<size_t>(c.first + b * c.batch_stride) * item(); }
};

int64_t numel(const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return n;
}

int64_t panel_columns(const TensorData& d, int64_t n) { return templates::packed_gemm_b_elements(1, n, static_cast<size_t>(byte_size(d.dtype))); }

std::vector<uint8_t> taken(const std::vector<std::byte>& b) {
  const auto* p = reinterpret_cast<const uint8_t*>(b.data());
  return std::vector<uint8_t>(p, p + b.size());
}

std::vector<float> as_floats(const Source& s) {
  std::vector<float> out(s.plain.size() / s.item());
  interpreter::with_type(s.data.dtype, [&](auto type) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(interpreter::read_element<decltype(type)>(s.plain.data(), static_cast<int64_t>(i)));
  });
  return out;
}

// [oc][ic][kh][kw] as [oc][kh][kw][ic].
std::vector<uint8_t> channels_innermost(const Source& s) {
  const TensorData& d = s.data;
  TensorData moved = d;
  moved.sizes = {d.sizes[0], d.sizes[2], d.sizes[3], d.sizes[1]};
  moved.strides = {d.strides[0], d.strides[2], d.strides[3], d.strides[1]};
  return dense_bytes(moved);
}

std::vector<uint8_t> padded_lines(const Source& s) {
  const PlanConstant& c = s.c;
  std::vector<uint8_t> out(static_cast<size_t>(c.n * c.batch_stride) * s.item());
  const size_t bytes = static_cast<size_t>(c.k) * s.item();
  for (int64_t line = 0; line < c.n; ++line) {
    std::memcpy(out.data() + static_cast<size_t>(line * c.batch_stride) * s.item(), s.plain.data() + static_cast<size_t>(line) * bytes, bytes);
  }
  return out;
}

std::vector<uint8_t> panels_of_batches(const Source& s) {
  std::vector<uint8_t> out;
  for (int64_t b = 0; b < s.c.batch; ++b) {
    std::vector<std::byte> panels = templates::pack_gemm_b(s.batch(b), s.item(), s.c.k, s.c.n, s.c.row_stride, s.c.col_stride);
    if (s.c.packing == packings::gemm_b_pairs) panels = templates::in_pairs(panels, s.c.k);
    const auto* p = reinterpret_cast<const uint8_t*>(panels.data());
    out.insert(out.end(), p, p + panels.size());
  }
  return out;
}

// groups: of panels that do not run over them.
std::vector<std::byte> conv_panels(const Source& s, int64_t groups) {
  return templates::pack_conv_weight(s.plain.data(), s.item(), s.size(0), s.size(1), s.size(2), s.size(3), groups);
}

uint64_t elements_of_window(const TensorData& d, int64_t panels) {
  return static_cast<uint64_t>(panels * d.sizes[1] * d.sizes[2] * d.sizes[3]) * static_cast<uint64_t>(byte_size(d.dtype));
}

uint64_t dense_size(const TensorData& d, const PlanConstant&) { return static_cast<uint64_t>(numel(d.sizes) * byte_size(d.dtype)); }

uint64_t conv_panels_size(const TensorData& d, const PlanConstant& c) { return elements_of_window(d, c.groups * panel_columns(d, d.sizes[0] / c.groups)); }

uint64_t winograd_size(const TensorData& d, const PlanConstant& c) {
  const int64_t window = winograd_tile(c.packing) + 2;
  return static_cast<uint64_t>(panel_columns(d, d.sizes[0]) * window * window * d.sizes[1]) * sizeof(float);
}

std::vector<uint8_t> winograd(const Source& s) {
  return taken(templates::pack_winograd_weight(as_floats(s).data(), s.size(0), s.size(1), winograd_tile(s.c.packing)));
}

struct Row {
  Packing packing;
  uint64_t (*size)(const TensorData& d, const PlanConstant& c);
  std::vector<uint8_t> (*bytes)(const Source& s);
};

constexpr Row kRows[] = {
    {kPlain, dense_size, [](const Source& s) { return s.plain; }},
    {kPaddedLines, [](const TensorData& d, const PlanConstant& c) { return static_cast<uint64_t>(c.n * c.batch_stride * byte_size(d.dtype)); }, padded_lines},
    {packings::gemm_b,
     [](const TensorData& d, const PlanConstant& c) {
       const auto bytes = static_cast<size_t>(byte_size(d.dtype));
       return static_cast<uint64_t>(c.batch * templates::packed_gemm_b_elements(c.k, c.n, bytes)) * bytes;
     },
     panels_of_batches},
    {packings::gemm_b_pairs,
     [](const TensorData& d, const PlanConstant& c) {
       return static_cast<uint64_t>(c.batch * templates::packed_pairs_elements(c.k, c.n) * byte_size(d.dtype));
     },
     panels_of_batches},
    {packings::gemm_b_4bit, [](const TensorData&, const PlanConstant& c) { return static_cast<uint64_t>(templates::packed_gemm_b_elements(c.k, c.n)) / 2; },
     [](const Source& s) { return taken(templates::pack_4bit_b(s.plain.data() + s.c.first, s.c.k, s.c.n, s.c.row_stride, s.c.col_stride)); }},
    {packings::gemm_b_integer, [](const TensorData&, const PlanConstant& c) { return static_cast<uint64_t>(templates::packed_integer_b_bytes(c.k, c.n)); },
     [](const Source& s) { return taken(templates::pack_integer_b(s.plain.data() + s.c.first, s.c.k, s.c.n, s.c.row_stride, s.c.col_stride)); }},
    {packings::gemm_b_quads, [](const TensorData&, const PlanConstant& c) { return static_cast<uint64_t>(templates::packed_quads_bytes(c.k, c.n, 8)); },
     [](const Source& s) { return taken(templates::pack_quads_b(s.plain.data() + s.c.first, 8, s.c.k, s.c.n, s.c.row_stride, s.c.col_stride)); }},
    {packings::gemm_b_quads_4bit, [](const TensorData&, const PlanConstant& c) { return static_cast<uint64_t>(templates::packed_quads_bytes(c.k, c.n, 4)); },
     [](const Source& s) { return taken(templates::pack_quads_b(s.plain.data() + s.c.first, 4, s.c.k, s.c.n, s.c.row_stride, s.c.col_stride)); }},
    {packings::gemm_b_lines,
     [](const TensorData& d, const PlanConstant& c) { return static_cast<uint64_t>(templates::packed_lines_bytes(c.k, c.n, 8 * byte_size(d.dtype))); },
     [](const Source& s) {
       return taken(templates::pack_lines_b(s.batch(0), 8 * static_cast<int64_t>(s.item()), s.c.k, s.c.n, s.c.row_stride, s.c.col_stride));
     }},
    {packings::gemm_b_lines_4bit, [](const TensorData&, const PlanConstant& c) { return static_cast<uint64_t>(templates::packed_lines_bytes(c.k, c.n, 4)); },
     [](const Source& s) { return taken(templates::pack_lines_b(s.plain.data() + s.c.first, 4, s.c.k, s.c.n, s.c.row_stride, s.c.col_stride)); }},
    {packings::conv_weight, conv_panels_size, [](const Source& s) { return taken(conv_panels(s, s.c.groups)); }},
    {packings::conv_weight_pairs,
     [](const TensorData& d, const PlanConstant& c) {
       return static_cast<uint64_t>(c.groups * templates::packed_pairs_elements(d.sizes[1] * d.sizes[2] * d.sizes[3], d.sizes[0] / c.groups) *
                                    byte_size(d.dtype));
     },
     [](const Source& s) { return taken(templates::in_pairs(conv_panels(s, s.c.groups), s.window())); }},
    {packings::conv_weight_integer,
     [](const TensorData& d, const PlanConstant& c) {
       return static_cast<uint64_t>(c.groups * templates::packed_integer_b_bytes(d.sizes[1] * d.sizes[2] * d.sizes[3], d.sizes[0] / c.groups));
     },
     [](const Source& s) { return taken(templates::pack_integer_conv_weight(s.plain.data(), s.size(0), s.size(1), s.size(2), s.size(3), s.c.groups)); }},
    {packings::depthwise_weight,
     [](const TensorData& d, const PlanConstant&) {
       return static_cast<uint64_t>(panel_columns(d, d.sizes[0]) * d.sizes[2] * d.sizes[3] * byte_size(d.dtype));
     },
     [](const Source& s) { return taken(templates::pack_depthwise_weight(s.plain.data(), s.item(), s.size(0), s.size(2), s.size(3))); }},
    {packings::narrow_groups_weight,  // panels run over the groups
     [](const TensorData& d, const PlanConstant&) { return elements_of_window(d, panel_columns(d, d.sizes[0])); },
     [](const Source& s) { return taken(conv_panels(s, 1)); }},
    {packings::few_outputs_weight, dense_size, channels_innermost},
    {packings::winograd_2x2_weight, winograd_size, winograd},
    {packings::winograd_4x4_weight, winograd_size, winograd},
    {packings::conv_ohwi, dense_size, channels_innermost},
};

const Row& row_of(Packing packing) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const Row& r) { return r.packing == packing; });
  CHECK(row != std::end(kRows), "a packing without a row in codegen/packings.cc");
  return *row;
}

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
  const auto count = static_cast<size_t>(numel(d.sizes));
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

uint64_t packed_size(const TensorData& data, const PlanConstant& c) { return row_of(c.packing).size(data, c); }

std::vector<uint8_t> packed_bytes(const TensorData& data, const PlanConstant& c) {
  const std::vector<uint8_t> plain = dense_bytes(data);
  return row_of(c.packing).bytes({data, c, plain});
}

}  // namespace coil
