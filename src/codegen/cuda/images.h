// Launches of machine code that another compiler made (UserImage): its parameters one by one, as C++ text of the host program.
#pragma once

#include <functional>
#include <string>

#include "schedule/kernel_plan.h"

namespace coil::cuda {

// When the image may be launched: what it was specialised for holds in this call. Empty: always.
std::string image_condition(const KernelPlan& plan, const UserCallKernel& kernel, const UserImage& image);

// Statements that define `params`, and how many these are. `address` gives a buffer's address as text.
struct ImageParams {
  std::string text;
  size_t count = 0;
};
ImageParams image_params(const KernelPlan& plan, const UserCallKernel& kernel, const UserImage& image, const std::function<std::string(BufferId)>& address,
                         const std::string& indent);

// Statements that refuse a call whose numbers are too large for the types that the kernel has for them.
std::string image_checks(const UserCallKernel& kernel, const std::string& label);

}  // namespace coil::cuda
