// The constants blob of a package: what is where, and its bytes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/hash.h"
#include "base/result.h"
#include "schedule/kernel_plan.h"

namespace coil {

// Fills offset and bytes of every PlanConstant (64-byte aligned), state_offset and constants_bytes. Constants of equal content
// that are packed alike share their place.
void layout_constants(KernelPlan& plan);

// One blob for several programs, each behind the ones before: what an earlier program has with the same bytes, packed alike, is not stored again.
class SharedConstants {
 public:
  void place(KernelPlan& plan);
  // Of a tensor's storage, which is read once however many constants and programs have it.
  Hash128 hash_of(const TensorData& data);

 private:
  using Key = std::tuple<uint64_t, uint64_t, uint64_t, int64_t, std::vector<int64_t>, std::vector<int64_t>, std::pair<Packing, DType>, std::vector<int64_t>>;
  std::map<Key, uint64_t> placed_;
  std::set<std::tuple<uint64_t, uint64_t, uint64_t>> contents_;  // hash and size of what is there in some form
  struct Known {
    std::shared_ptr<const void> owner;  // no other storage gets the address
    Hash128 hash;
  };
  std::map<std::pair<const uint8_t*, size_t>, Known> hashes_;
  uint64_t end_ = 0;
};

using ByteSink = FunctionRef<Status(std::span<const uint8_t>)>;

// The bytes of one constant as the blob holds them, in pieces that up to `threads` threads make.
Status constant_pieces(const KernelPlan& plan, const PlanConstant& constant, int threads, ByteSink sink);
// The same in one.
std::vector<uint8_t> constant_bytes(const KernelPlan& plan, const PlanConstant& constant);

// The whole blob in order, in pieces (padding included); of a shared one what begins at constants_base.
Status write_constants(const KernelPlan& plan, int threads, ByteSink sink);

}  // namespace coil
