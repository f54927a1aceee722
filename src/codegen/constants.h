// The constants blob of a package: what is where, and its bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "schedule/kernel_plan.h"

namespace coil {

// Fills offset and bytes of every PlanConstant (64-byte aligned), state_offset and constants_bytes. Constants of equal content
// that are packed alike share their place.
void layout_constants(KernelPlan& plan);

// The bytes of one constant as the blob holds them.
std::vector<uint8_t> constant_bytes(const KernelPlan& plan, const PlanConstant& constant);

// The whole blob in order, in pieces (padding included).
Status write_constants(const KernelPlan& plan, const std::function<Status(std::span<const uint8_t>)>& sink);

// A tensor's elements in row-major order.
std::vector<uint8_t> dense_bytes(const TensorData& data);

}  // namespace coil
