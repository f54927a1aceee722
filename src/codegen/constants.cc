#include "codegen/constants.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "schedule/shared_states.h"
#include "templates/packing.h"

namespace coil {
namespace {

constexpr uint64_t kAlignment = 64;

uint64_t aligned(uint64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

uint64_t packed_size(const KernelPlan& plan, const PlanConstant& c) {
  const BufferInfo& info = plan.buffer(c.buffer).info;
  const TensorData& d = info.data;
  const auto bytes = static_cast<uint64_t>(byte_size(info.dtype));
  const auto panels = [&](int64_t n) { return templates::packed_gemm_b_elements(1, n, bytes); };  // their columns
  switch (c.packing) {
    case PlanConstant::Packing::plain:
    case PlanConstant::Packing::few_outputs_weight:
    case PlanConstant::Packing::conv_ohwi: return static_cast<uint64_t>(elements_of(d.sizes)) * bytes;
    case PlanConstant::Packing::padded_lines: return static_cast<uint64_t>(c.n * c.batch_stride) * bytes;
    case PlanConstant::Packing::gemm_b_4bit: return static_cast<uint64_t>(templates::packed_gemm_b_elements(c.k, c.n)) / 2;
    case PlanConstant::Packing::gemm_b_quads: return static_cast<uint64_t>(templates::packed_quads_bytes(c.k, c.n, 8));
    case PlanConstant::Packing::gemm_b_quads_4bit: return static_cast<uint64_t>(templates::packed_quads_bytes(c.k, c.n, 4));
    case PlanConstant::Packing::gemm_b_integer: return static_cast<uint64_t>(templates::packed_integer_b_bytes(c.k, c.n));
    case PlanConstant::Packing::gemm_b_lines: return static_cast<uint64_t>(templates::packed_lines_bytes(c.k, c.n, 8 * byte_size(info.dtype)));
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

}  // namespace

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
                  static_cast<int>(c.packing) * 32 + static_cast<int>(plan.buffer(c.buffer).info.dtype),
                  {c.k, c.n, c.groups, c.batch, c.batch_stride, c.row_stride, c.col_stride, c.first}};
    const auto [it, fresh] = placed.try_emplace(key, at);
    c.offset = it->second;
    if (fresh) at = aligned(at + c.bytes);
  }
  plan.state_offset = at;
  plan.constants_bytes = at + plan.state_stored;
}

Hash128 SharedConstants::hash_of(const TensorData& data) {
  const auto [known, fresh] = hashes_.try_emplace({data.bytes.data(), data.bytes.size()});
  if (fresh) known->second = {data.owner, hash128(data.bytes)};
  return known->second.hash;
}

void SharedConstants::place(KernelPlan& plan) {
  std::set<uint64_t> shared;
  plan.constants_base = end_;
  plan.shared_bytes = 0;
  uint64_t at = end_;
  for (PlanConstant& c : plan.constants) {
    const TensorData& d = plan.buffer(c.buffer).info.data;
    c.bytes = packed_size(plan, c);
    const Hash128 hash = hash_of(d);
    const Key key{hash.low,
                  hash.high,
                  d.bytes.size(),
                  d.offset,
                  d.sizes,
                  d.strides,
                  static_cast<int>(c.packing) * 64 + static_cast<int>(plan.buffer(c.buffer).info.dtype),
                  {c.k, c.n, c.groups, c.batch, c.batch_stride, c.row_stride, c.col_stride, c.first}};
    const auto [it, fresh] = placed_.try_emplace(key, at);
    c.offset = it->second;
    if (fresh) {
      at = aligned(at + c.bytes);
      if (!contents_.insert({hash.low, hash.high, d.bytes.size()}).second) plan.again_bytes += c.bytes;
    }
    if (c.offset < plan.constants_base && shared.insert(c.offset).second) plan.shared_bytes += c.bytes;
  }
  plan.state_offset = at;
  plan.constants_bytes = at + plan.state_stored;
  end_ = aligned(plan.constants_bytes);
}

Status write_constants(const KernelPlan& plan, int threads, ByteSink sink) {
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
    TRY_STATUS(pad(c.offset));
    TRY_STATUS(constant_pieces(plan, c, threads, [&](std::span<const uint8_t> piece) {
      at += piece.size();
      return sink(piece);
    }));
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
