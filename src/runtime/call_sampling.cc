// See call_sampling.h.
#include "runtime/call_sampling.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace coil::runtime {

void CallSampling::restart() {
  left_ = left_out_ = since_ = 0;
  begun_ = false;
  least_ = length_ = 0;
}

void CallSampling::recorded(const SampledCall& call) {
  constexpr double kUsual = 3;  // times the least cost: more of it was another program that had the processor
  least_ = begun_ ? std::min(least_, call.cost) : call.cost;
  const double cost = std::min(call.cost, kUsual * least_), own = static_cast<double>(std::max<uint64_t>(call.length, 1));
  // A call that is recorded may take several times what the others do (on a device, where they are graphs): these have been seen. They may also have
  // come with pauses, which earn nothing.
  const double passed = call.entered > last_ ? static_cast<double>(call.entered - last_) : 0;
  if (since_ > 0) length_ = std::clamp(passed / static_cast<double>(since_), 1.0, own);
  const double length = length_ > 0 ? std::min(length_, own) : own;
  const double earned = kShare * length, most = static_cast<double>(call.first) * cost;
  if (!begun_) credit_ = most;
  begun_ = true;
  credit_ = std::min(credit_ + static_cast<double>(since_ + 1) * earned - cost, std::max(most, earned));
  since_ = 0;
  last_ = call.left;
  if (credit_ >= 0) return;
  constexpr double kMostLeftOut = 1 << 20;  // of calls in a row: they may get longer
  const auto steps = static_cast<int64_t>(std::ceil(std::min(-credit_ / earned, kMostLeftOut)));
  random_ = random_ * 6364136223846793005u + 1442695040888963407u;
  left_ = (steps + 1) / 2 + static_cast<int64_t>((random_ >> 33) % static_cast<uint64_t>(steps + 1));  // `steps` on the average
}

int64_t CallSampling::take_left_out() { return std::exchange(left_out_, 0); }

}  // namespace coil::runtime
