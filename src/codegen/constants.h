// The constants blob of a package: what is where, and its bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "schedule/kernel_plan.h"

namespace coil {

// Fills offset and bytes of every PlanConstant (64-byte aligned), state_offset and constants_bytes. Constants of equal content
// that are packed alike share their place.
void layout_constants(KernelPlan& plan);

// One blob for several programs, each behind the ones before: what an earlier program has with the same bytes, packed alike, is not stored again.
class SharedConstants {
 public:
  void place(KernelPlan& plan);

 private:
  using Key = std::tuple<uint64_t, uint64_t, uint64_t, int64_t, std::vector<int64_t>, std::vector<int64_t>, std::pair<Packing, DType>, std::vector<int64_t>>;
  std::map<Key, uint64_t> placed_;
  std::set<std::tuple<uint64_t, uint64_t, uint64_t>> contents_;  // hash and size of what is there in some form
  uint64_t end_ = 0;
};

// The bytes of one constant as the blob holds them.
std::vector<uint8_t> constant_bytes(const KernelPlan& plan, const PlanConstant& constant);

// The whole blob in order, in pieces (padding included); of a shared one what begins at constants_base.
Status write_constants(const KernelPlan& plan, const std::function<Status(std::span<const uint8_t>)>& sink);

}  // namespace coil
