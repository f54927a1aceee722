// See call_sampling.h.
#include "runtime/call_sampling.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace coil::runtime {

void CallSampling::restart() {
  left_ = left_out_ = 0;
  begun_ = false;
  least_ = 0;
}

void CallSampling::recorded(uint64_t call, double cost, int64_t first) {
  constexpr double kUsual = 3;  // times the least cost: more of it was another program that had the processor
  least_ = begun_ ? std::min(least_, cost) : cost;
  cost = std::min(cost, kUsual * least_);
  constexpr double kMostLeftOut = 1 << 20;  // of calls in a row: they may get longer
  const double earned = kShare * static_cast<double>(std::max<uint64_t>(call, 1)), most = static_cast<double>(first) * cost;
  if (!begun_) credit_ = most;
  begun_ = true;
  credit_ = std::min(credit_ + earned - cost, std::max(most, earned));
  if (credit_ >= 0) return;
  const auto steps = static_cast<int64_t>(std::ceil(std::min(-credit_ / earned, kMostLeftOut)));
  random_ = random_ * 6364136223846793005u + 1442695040888963407u;
  left_ = (steps + 1) / 2 + static_cast<int64_t>((random_ >> 33) % static_cast<uint64_t>(steps + 1));  // `steps` on the average
  credit_ += static_cast<double>(left_) * earned;
}

int64_t CallSampling::take_left_out() { return std::exchange(left_out_, 0); }

}  // namespace coil::runtime
