#include "codegen/packings.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "ops/element_count.h"
#include "templates/packing.h"

namespace coil {
namespace {

int64_t panel_columns(const TensorData& d, int64_t n) { return templates::packed_gemm_b_elements(1, n, static_cast<size_t>(byte_size(d.dtype))); }

std::vector<uint8_t> taken(const std::vector<std::byte>& b) {
  const auto* p = reinterpret_cast<const uint8_t*>(b.data());
  return std::vector<uint8_t>(p, p + b.size());
}

// [oc][ic][kh][kw] as [oc][kh][kw][ic].
std::vector<uint8_t> channels_innermost(const PackingSource& s) {
  const TensorData& d = s.data;
  TensorData moved = d;
  moved.sizes = {d.sizes[0], d.sizes[2], d.sizes[3], d.sizes[1]};
  moved.strides = {d.strides[0], d.strides[2], d.strides[3], d.strides[1]};
  return dense_bytes(moved);
}

std::vector<uint8_t> padded_lines(const PackingSource& s) {
  const PlanConstant& c = s.c;
  std::vector<uint8_t> out(static_cast<size_t>(c.n * c.batch_stride) * s.item());
  const size_t bytes = static_cast<size_t>(c.k) * s.item();
  for (int64_t line = 0; line < c.n; ++line) {
    std::memcpy(out.data() + static_cast<size_t>(line * c.batch_stride) * s.item(), s.data.bytes.data() + static_cast<size_t>(line) * bytes, bytes);
  }
  return out;
}

std::vector<std::byte> panels(const uint8_t* from, size_t item, const PlanConstant& c, int64_t columns) {
  return templates::pack_gemm_b(from, item, c.k, columns, c.row_stride, c.col_stride);
}
std::vector<std::byte> paired_panels(const uint8_t* from, size_t item, const PlanConstant& c, int64_t columns) {
  return templates::in_pairs(panels(from, item, c, columns), c.k);
}
std::vector<std::byte> panels_4bit(const uint8_t* from, size_t, const PlanConstant& c, int64_t columns) {
  return templates::pack_4bit_b(from, c.k, columns, c.row_stride, c.col_stride);
}
std::vector<std::byte> panels_codes(const uint8_t* from, size_t, const PlanConstant& c, int64_t columns) {
  return templates::pack_4bit_b(from, c.k, columns, c.row_stride, c.col_stride, templates::place_in(c.codes));
}
std::vector<std::byte> quads_codes(const uint8_t* from, size_t, const PlanConstant& c, int64_t columns) {
  return templates::pack_quads_b(from, 4, c.k, columns, c.row_stride, c.col_stride, templates::place_in(c.codes));
}
std::vector<std::byte> integer_panels(const uint8_t* from, size_t, const PlanConstant& c, int64_t columns) {
  return templates::pack_integer_b(from, c.k, columns, c.row_stride, c.col_stride);
}
template <int BITS>
std::vector<std::byte> quads(const uint8_t* from, size_t, const PlanConstant& c, int64_t columns) {
  return templates::pack_quads_b(from, BITS, c.k, columns, c.row_stride, c.col_stride);
}
// BITS 0: all that an element has.
template <int BITS>
std::vector<std::byte> lines(const uint8_t* from, size_t item, const PlanConstant& c, int64_t columns) {
  return templates::pack_lines_b(from, BITS ? BITS : 8 * static_cast<int64_t>(item), c.k, columns, c.row_stride, c.col_stride);
}

// groups: of panels that do not run over them.
std::vector<std::byte> conv_panels(const PackingSource& s, int64_t groups) {
  return templates::pack_conv_weight(s.data.bytes.data(), s.item(), s.size(0), s.size(1), s.size(2), s.size(3), groups);
}

uint64_t elements_of_window(const TensorData& d, int64_t panels) {
  return static_cast<uint64_t>(panels * d.sizes[1] * d.sizes[2] * d.sizes[3]) * static_cast<uint64_t>(byte_size(d.dtype));
}

uint64_t dense_size(const TensorData& d, const PlanConstant&) { return static_cast<uint64_t>(element_count(d.sizes) * byte_size(d.dtype)); }

uint64_t panels_4bit_size(const TensorData&, const PlanConstant& c) { return static_cast<uint64_t>(c.batch * templates::packed_gemm_b_elements(c.k, c.n)) / 2; }
template <int BITS>
uint64_t quads_size(const TensorData&, const PlanConstant& c) {
  return static_cast<uint64_t>(c.batch * templates::packed_quads_bytes(c.k, c.n, BITS));
}

uint64_t conv_panels_size(const TensorData& d, const PlanConstant& c) { return elements_of_window(d, c.groups * panel_columns(d, d.sizes[0] / c.groups)); }

uint64_t winograd_size(const TensorData& d, const PlanConstant& c) {
  const int64_t window = winograd_tile(c.packing) + 2;
  return static_cast<uint64_t>(panel_columns(d, d.sizes[0]) * window * window * d.sizes[1]) * sizeof(float);
}

std::vector<uint8_t> winograd(const PackingSource& s) {
  return taken(templates::pack_winograd_weight(as_floats(s.data.bytes, s.data.dtype).data(), s.size(0), s.size(1), winograd_tile(s.c.packing)));
}

constexpr PackingRow kRows[] = {
    {kPlain, dense_size},
    {kPaddedLines, [](const TensorData& d, const PlanConstant& c) { return static_cast<uint64_t>(c.n * c.batch_stride * byte_size(d.dtype)); }, nullptr,
     padded_lines},
    {packings::gemm_b,
     [](const TensorData& d, const PlanConstant& c) {
       const auto bytes = static_cast<size_t>(byte_size(d.dtype));
       return static_cast<uint64_t>(c.batch * templates::packed_gemm_b_elements(c.k, c.n, bytes)) * bytes;
     },
     panels},
    {packings::gemm_b_pairs,
     [](const TensorData& d, const PlanConstant& c) {
       return static_cast<uint64_t>(c.batch * templates::packed_pairs_elements(c.k, c.n) * byte_size(d.dtype));
     },
     paired_panels},
    {packings::gemm_b_4bit, panels_4bit_size, panels_4bit},
    {packings::gemm_b_codes, panels_4bit_size, panels_codes},
    {packings::gemm_b_integer, [](const TensorData&, const PlanConstant& c) { return static_cast<uint64_t>(templates::packed_integer_b_bytes(c.k, c.n)); },
     integer_panels},
    {packings::gemm_b_quads, quads_size<8>, quads<8>},
    {packings::gemm_b_quads_4bit, quads_size<4>, quads<4>},
    {packings::gemm_b_quads_codes, quads_size<4>, quads_codes},
    {packings::gemm_b_lines,
     [](const TensorData& d, const PlanConstant& c) { return static_cast<uint64_t>(templates::packed_lines_bytes(c.k, c.n, 8 * byte_size(d.dtype))); },
     lines<0>},
    {packings::gemm_b_lines_4bit, [](const TensorData&, const PlanConstant& c) { return static_cast<uint64_t>(templates::packed_lines_bytes(c.k, c.n, 4)); },
     lines<4>},
    {packings::conv_weight, conv_panels_size, nullptr, [](const PackingSource& s) { return taken(conv_panels(s, s.c.groups)); }},
    {packings::conv_weight_pairs,
     [](const TensorData& d, const PlanConstant& c) {
       return static_cast<uint64_t>(c.groups * templates::packed_pairs_elements(d.sizes[1] * d.sizes[2] * d.sizes[3], d.sizes[0] / c.groups) *
                                    byte_size(d.dtype));
     },
     nullptr, [](const PackingSource& s) { return taken(templates::in_pairs(conv_panels(s, s.c.groups), s.window())); }},
    {packings::conv_weight_integer,
     [](const TensorData& d, const PlanConstant& c) {
       return static_cast<uint64_t>(c.groups * templates::packed_integer_b_bytes(d.sizes[1] * d.sizes[2] * d.sizes[3], d.sizes[0] / c.groups));
     },
     nullptr,
     [](const PackingSource& s) {
       return taken(templates::pack_integer_conv_weight(s.data.bytes.data(), s.size(0), s.size(1), s.size(2), s.size(3), s.c.groups));
     }},
    {packings::depthwise_weight,
     [](const TensorData& d, const PlanConstant&) {
       return static_cast<uint64_t>(panel_columns(d, d.sizes[0]) * d.sizes[2] * d.sizes[3] * byte_size(d.dtype));
     },
     nullptr, [](const PackingSource& s) { return taken(templates::pack_depthwise_weight(s.data.bytes.data(), s.item(), s.size(0), s.size(2), s.size(3))); }},
    {packings::narrow_groups_weight,  // panels run over the groups
     [](const TensorData& d, const PlanConstant&) { return elements_of_window(d, panel_columns(d, d.sizes[0])); }, nullptr,
     [](const PackingSource& s) { return taken(conv_panels(s, 1)); }},
    {packings::few_outputs_weight, dense_size, nullptr, channels_innermost},
    {packings::winograd_2x2_weight, winograd_size, nullptr, winograd},
    {packings::winograd_4x4_weight, winograd_size, nullptr, winograd},
    {packings::conv_ohwi, dense_size, nullptr, channels_innermost},
};

}  // namespace

const PackingRow& packing_row(Packing packing) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows), [&](const PackingRow& r) { return r.packing == packing; });
  CHECK(row != std::end(kRows), "a packing without a row in codegen/packings.cc");
  return *row;
}

uint64_t packed_size(const BufferInfo& info, const PlanConstant& c) {
  TensorData stored = info.data;
  stored.dtype = info.dtype;
  return packing_row(c.packing).size(stored, c);
}

}  // namespace coil
