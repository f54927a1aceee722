#include "codegen/constants.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "base/hash.h"
#include "ops/memory.h"
#include "schedule/shared_states.h"
#include "templates/packing.h"

namespace coil {
namespace {

constexpr uint64_t kAlignment = 64;

uint64_t aligned(uint64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

int64_t numel(const std::vector<int64_t>& sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return n;
}

std::vector<float> as_floats(const std::vector<uint8_t>& dense, DType dtype) {
  std::vector<float> out(dense.size() / static_cast<size_t>(byte_size(dtype)));
  interpreter::with_type(dtype, [&](auto type) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(interpreter::read_element<decltype(type)>(dense.data(), static_cast<int64_t>(i)));
  });
  return out;
}

uint64_t packed_size(const KernelPlan& plan, const PlanConstant& c) {
  const TensorData& d = plan.buffer(c.buffer).info.data;
  const auto bytes = static_cast<uint64_t>(byte_size(d.dtype));
  const auto panels = [&](int64_t n) { return templates::packed_gemm_b_elements(1, n, bytes); };  // their columns
  switch (c.packing) {
    case PlanConstant::Packing::plain:
    case PlanConstant::Packing::few_outputs_weight:
    case PlanConstant::Packing::conv_ohwi: return static_cast<uint64_t>(numel(d.sizes)) * bytes;
    case PlanConstant::Packing::padded_lines: return static_cast<uint64_t>(c.n * c.batch_stride) * bytes;
    case PlanConstant::Packing::gemm_b_4bit: return static_cast<uint64_t>(templates::packed_gemm_b_elements(c.k, c.n)) / 2;
    case PlanConstant::Packing::gemm_b_quads: return static_cast<uint64_t>(templates::packed_quads_bytes(c.k, c.n, 8));
    case PlanConstant::Packing::gemm_b_quads_4bit: return static_cast<uint64_t>(templates::packed_quads_bytes(c.k, c.n, 4));
    case PlanConstant::Packing::gemm_b_integer: return static_cast<uint64_t>(templates::packed_integer_b_bytes(c.k, c.n));
    case PlanConstant::Packing::gemm_b_lines: return static_cast<uint64_t>(templates::packed_lines_bytes(c.k, c.n, 8 * byte_size(d.dtype)));
    case PlanConstant::Packing::gemm_b_lines_4bit: return static_cast<uint64_t>(templates::packed_lines_bytes(c.k, c.n, 4));
    case PlanConstant::Packing::gemm_b_pairs: return static_cast<uint64_t>(c.batch * templates::packed_pairs_elements(c.k, c.n)) * bytes;
    case PlanConstant::Packing::gemm_b: return static_cast<uint64_t>(c.batch * templates::packed_gemm_b_elements(c.k, c.n, bytes)) * bytes;
    case PlanConstant::Packing::conv_weight:
    case PlanConstant::Packing::conv_weight_pairs:
      return static_cast<uint64_t>(c.groups * panels(d.sizes[0] / c.groups) * d.sizes[1] * d.sizes[2] * d.sizes[3]) * bytes;
    case PlanConstant::Packing::conv_weight_integer:
      return static_cast<uint64_t>(c.groups * templates::packed_integer_b_bytes(d.sizes[1] * d.sizes[2] * d.sizes[3], d.sizes[0] / c.groups));
    case PlanConstant::Packing::winograd_2x2_weight:
    case PlanConstant::Packing::winograd_4x4_weight: {
      const int64_t window = winograd_tile(c.packing) + 2;
      return static_cast<uint64_t>(panels(d.sizes[0]) * window * window * d.sizes[1]) * sizeof(float);
    }
    case PlanConstant::Packing::narrow_groups_weight: return static_cast<uint64_t>(panels(d.sizes[0]) * d.sizes[1] * d.sizes[2] * d.sizes[3]) * bytes;
    case PlanConstant::Packing::depthwise_weight: return static_cast<uint64_t>(panels(d.sizes[0]) * d.sizes[2] * d.sizes[3]) * bytes;
  }
  return 0;
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

// [oc][ic][kh][kw] as [oc][kh][kw][ic].
static std::vector<uint8_t> channels_innermost(const TensorData& d) {
  TensorData moved = d;
  moved.sizes = {d.sizes[0], d.sizes[2], d.sizes[3], d.sizes[1]};
  moved.strides = {d.strides[0], d.strides[2], d.strides[3], d.strides[1]};
  return dense_bytes(moved);
}

static std::vector<uint8_t> padded_lines(const std::vector<uint8_t>& plain, size_t item, const PlanConstant& c) {
  std::vector<uint8_t> out(static_cast<size_t>(c.n * c.batch_stride) * item);
  const size_t bytes = static_cast<size_t>(c.k) * item;
  for (int64_t line = 0; line < c.n; ++line) {
    std::memcpy(out.data() + static_cast<size_t>(line * c.batch_stride) * item, plain.data() + static_cast<size_t>(line) * bytes, bytes);
  }
  return out;
}

std::vector<uint8_t> constant_bytes(const KernelPlan& plan, const PlanConstant& c) {
  const TensorData& d = plan.buffer(c.buffer).info.data;
  std::vector<uint8_t> plain = dense_bytes(d);
  const auto item = static_cast<size_t>(byte_size(d.dtype));
  const auto take = [](const std::vector<std::byte>& b) {
    const auto* p = reinterpret_cast<const uint8_t*>(b.data());
    return std::vector<uint8_t>(p, p + b.size());
  };
  const bool pairs = c.packing == PlanConstant::Packing::gemm_b_pairs || c.packing == PlanConstant::Packing::conv_weight_pairs;
  const auto in_rows_or_pairs = [&](const std::vector<std::byte>& panels, int64_t k) { return take(pairs ? templates::in_pairs(panels, k) : panels); };
  switch (c.packing) {
    case PlanConstant::Packing::plain: return plain;
    case PlanConstant::Packing::conv_weight:
    case PlanConstant::Packing::conv_weight_pairs:
      return in_rows_or_pairs(templates::pack_conv_weight(plain.data(), item, d.sizes[0], d.sizes[1], d.sizes[2], d.sizes[3], c.groups),
                              d.sizes[1] * d.sizes[2] * d.sizes[3]);
    case PlanConstant::Packing::narrow_groups_weight:  // panels run over the groups
      return take(templates::pack_conv_weight(plain.data(), item, d.sizes[0], d.sizes[1], d.sizes[2], d.sizes[3], 1));
    case PlanConstant::Packing::conv_weight_integer:
      return take(templates::pack_integer_conv_weight(plain.data(), d.sizes[0], d.sizes[1], d.sizes[2], d.sizes[3], c.groups));
    case PlanConstant::Packing::depthwise_weight: return take(templates::pack_depthwise_weight(plain.data(), item, d.sizes[0], d.sizes[2], d.sizes[3]));
    case PlanConstant::Packing::winograd_2x2_weight:
    case PlanConstant::Packing::winograd_4x4_weight:
      return take(templates::pack_winograd_weight(as_floats(plain, d.dtype).data(), d.sizes[0], d.sizes[1], winograd_tile(c.packing)));
    case PlanConstant::Packing::few_outputs_weight:
    case PlanConstant::Packing::conv_ohwi: return channels_innermost(d);
    case PlanConstant::Packing::padded_lines: return padded_lines(plain, item, c);
    case PlanConstant::Packing::gemm_b_4bit: return take(templates::pack_4bit_b(plain.data() + c.first, c.k, c.n, c.row_stride, c.col_stride));
    case PlanConstant::Packing::gemm_b_quads: return take(templates::pack_quads_b(plain.data() + c.first, 8, c.k, c.n, c.row_stride, c.col_stride));
    case PlanConstant::Packing::gemm_b_quads_4bit: return take(templates::pack_quads_b(plain.data() + c.first, 4, c.k, c.n, c.row_stride, c.col_stride));
    case PlanConstant::Packing::gemm_b_lines:
      return take(
          templates::pack_lines_b(plain.data() + c.first * static_cast<int64_t>(item), 8 * static_cast<int64_t>(item), c.k, c.n, c.row_stride, c.col_stride));
    case PlanConstant::Packing::gemm_b_lines_4bit: return take(templates::pack_lines_b(plain.data() + c.first, 4, c.k, c.n, c.row_stride, c.col_stride));
    case PlanConstant::Packing::gemm_b_integer: return take(templates::pack_integer_b(plain.data() + c.first, c.k, c.n, c.row_stride, c.col_stride));
    case PlanConstant::Packing::gemm_b:
    case PlanConstant::Packing::gemm_b_pairs: break;
  }
  std::vector<uint8_t> out;
  for (int64_t b = 0; b < c.batch; ++b) {
    const uint8_t* from = plain.data() + static_cast<size_t>(c.first + b * c.batch_stride) * item;
    const auto panel = in_rows_or_pairs(templates::pack_gemm_b(from, item, c.k, c.n, c.row_stride, c.col_stride), c.k);
    out.insert(out.end(), panel.begin(), panel.end());
  }
  return out;
}

void layout_constants(KernelPlan& plan) {
  using Key = std::tuple<const uint8_t*, int64_t, std::vector<int64_t>, std::vector<int64_t>, int, std::vector<int64_t>>;
  std::map<Key, uint64_t> placed;
  uint64_t at = 0;
  for (PlanConstant& c : plan.constants) {
    const TensorData& d = plan.buffer(c.buffer).info.data;
    c.bytes = packed_size(plan, c);
    const Key key{d.bytes.data(),
                  d.offset,
                  d.sizes,
                  d.strides,
                  static_cast<int>(c.packing) * 32 + static_cast<int>(d.dtype),
                  {c.k, c.n, c.groups, c.batch, c.batch_stride, c.row_stride, c.col_stride, c.first}};
    const auto [it, fresh] = placed.try_emplace(key, at);
    c.offset = it->second;
    if (fresh) at = aligned(at + c.bytes);
  }
  plan.state_offset = at;
  plan.constants_bytes = at + plan.state_stored;
}

void SharedConstants::place(KernelPlan& plan) {
  std::map<std::pair<const uint8_t*, size_t>, Hash128> hashes;
  std::set<uint64_t> shared;
  plan.constants_base = end_;
  plan.shared_bytes = 0;
  uint64_t at = end_;
  for (PlanConstant& c : plan.constants) {
    const TensorData& d = plan.buffer(c.buffer).info.data;
    c.bytes = packed_size(plan, c);
    const auto [hash, unknown] = hashes.try_emplace({d.bytes.data(), d.bytes.size()});
    if (unknown) hash->second = hash128(d.bytes);
    const Key key{hash->second.low,
                  hash->second.high,
                  d.bytes.size(),
                  d.offset,
                  d.sizes,
                  d.strides,
                  static_cast<int>(c.packing) * 64 + static_cast<int>(d.dtype),
                  {c.k, c.n, c.groups, c.batch, c.batch_stride, c.row_stride, c.col_stride, c.first}};
    const auto [it, fresh] = placed_.try_emplace(key, at);
    c.offset = it->second;
    if (fresh) {
      at = aligned(at + c.bytes);
      if (!contents_.insert({hash->second.low, hash->second.high, d.bytes.size()}).second) plan.again_bytes += c.bytes;
    }
    if (c.offset < plan.constants_base && shared.insert(c.offset).second) plan.shared_bytes += c.bytes;
  }
  plan.state_offset = at;
  plan.constants_bytes = at + plan.state_stored;
  end_ = aligned(plan.constants_bytes);
}

Status write_constants(const KernelPlan& plan, const std::function<Status(std::span<const uint8_t>)>& sink) {
  const std::vector<uint8_t> zeros(kAlignment, 0);
  uint64_t at = plan.constants_base;
  const auto pad = [&](uint64_t to) -> Status {
    while (at < to) {
      const uint64_t n = std::min<uint64_t>(kAlignment, to - at);
      TRY_STATUS(sink(std::span(zeros).first(n)));
      at += n;
    }
    return ok_status();
  };
  const auto put = [&](uint64_t offset, const std::vector<uint8_t>& bytes) -> Status {
    TRY_STATUS(pad(offset));
    TRY_STATUS(sink(bytes));
    at += bytes.size();
    return ok_status();
  };
  for (const PlanConstant& c : plan.constants) {
    if (c.offset < at) continue;  // shares an earlier one's place
    TRY_STATUS(put(c.offset, constant_bytes(plan, c)));
  }
  TRY_STATUS(pad(plan.state_offset));
  if (plan.states) {  // those of other programs too
    for (const SharedState& s : plan.states->states) {
      if (s.offset < plan.state_stored) TRY_STATUS(put(plan.state_offset + s.offset, dense_bytes(s.data)));
    }
    return pad(plan.constants_bytes);
  }
  for (const PlanBuffer& b : plan.buffers) {
    if (b.info.kind != BufferInfo::Kind::state) continue;
    const auto place = static_cast<uint64_t>(b.placement.offset->as_int());
    if (place < plan.state_stored) TRY_STATUS(put(plan.state_offset + place, dense_bytes(b.info.data)));
  }
  return pad(plan.constants_bytes);
}

}  // namespace coil
