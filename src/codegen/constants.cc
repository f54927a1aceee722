#include "codegen/constants.h"

#include <algorithm>
#include <map>
#include <set>

#include "codegen/packings.h"
#include "device/alignment.h"
#include "schedule/shared_states.h"

namespace coil {
namespace {

constexpr uint64_t kAlignment = cd::kPlacedAlignment;

uint64_t aligned(uint64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

void layout_constants(KernelPlan& plan) {
  using Key = std::tuple<const uint8_t*, int64_t, std::vector<int64_t>, std::vector<int64_t>, std::pair<Packing, DType>, std::vector<int64_t>>;
  std::map<Key, uint64_t> placed;
  uint64_t at = 0;
  for (PlanConstant& c : plan.constants) {
    const TensorData& d = plan.buffer(c.buffer).info.data;
    const DType stored = plan.buffer(c.buffer).info.dtype;
    c.bytes = packed_size(plan.buffer(c.buffer).info, c);
    const Key key{d.bytes.identity(),
                  d.offset,
                  d.sizes,
                  d.strides,
                  {c.packing, stored},
                  {c.k, c.n, c.groups, c.batch, c.batch_stride, c.row_stride, c.col_stride, c.first}};
    const auto [it, fresh] = placed.try_emplace(key, at);
    c.offset = it->second;
    if (fresh) at = aligned(at + c.bytes);
  }
  plan.state_offset = at;
  plan.constants_bytes = at + plan.state_stored;
}

Hash128 SharedConstants::hash_of(const TensorData& data) {
  const auto [known, fresh] = hashes_.try_emplace({data.bytes.identity(), data.bytes.size()});
  if (fresh) known->second = {data.owner, data.bytes.source() ? data.bytes.source()->hash() : hash128(data.bytes.memory())};
  return known->second.hash;
}

void SharedConstants::place(KernelPlan& plan) {
  std::set<uint64_t> shared;
  plan.constants_base = end_;
  plan.shared_bytes = 0;
  uint64_t at = end_;
  for (PlanConstant& c : plan.constants) {
    const TensorData& d = plan.buffer(c.buffer).info.data;
    const DType stored = plan.buffer(c.buffer).info.dtype;
    c.bytes = packed_size(plan.buffer(c.buffer).info, c);
    const Hash128 hash = hash_of(d);
    const Key key{hash.low, hash.high, d.bytes.size(),      d.offset,
                  d.sizes,  d.strides, {c.packing, stored}, {c.k, c.n, c.groups, c.batch, c.batch_stride, c.row_stride, c.col_stride, c.first}};
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
