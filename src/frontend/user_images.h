// Registrations whose code for CUDA is machine code that another compiler made (Triton; python/coil/triton makes them).
#pragma once

#include <string>

#include "base/json_read.h"
#include "base/result.h"
#include "ops/user_kernel.h"

namespace coil {

// "images" and "grids" of a registration's "cuda", if it has them. `name`: the kernel's, for messages.
Status parse_images(JsonValue cuda, const std::string& name, UserKernelCode& code);

// Whether images, grids and initial values fit the signature and the configurations.
Status check_images(const UserKernel& kernel);

}  // namespace coil
