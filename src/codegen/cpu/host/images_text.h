// What the CPU's host program says of kernels that run image by image (ControlMark::Kind::images). In the function, `image` is the number of the
// image, `part` the memory of the worker, laid out for the workers that share the image (in `own`, otherwise the symbols), and `call`, `s` and
// `host` are as in `run`.
#pragma once

#include <string>

#include "schedule/kernel_plan.h"

namespace coil {

// kernels: their calls. attributes: before the definition.
std::string images_function(const KernelPlan& plan, const std::string& name, const std::string& kernels, const std::string& attributes);

// The function's call in `run`. apart: images may be spread over the threads.
std::string images_call(const KernelPlan& plan, const ControlMark& mark, const std::string& name, bool apart);

}  // namespace coil
