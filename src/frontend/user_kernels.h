// Registrations of user kernels, checked: from C++ (make_user_kernel), or as JSON (docs/user_kernels.md has the fields).
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "ops/user_kernel.h"

namespace coil {

// `registration` with name, sources, configs and formulas as the user gave them, and `schema` the signature alone ("(Tensor x, float
// alpha=1.0) -> Tensor"). The result has target, schema, args and returns filled in. Error: user_kernel, naming the kernel and the field.
Result<std::shared_ptr<const UserKernel>> make_user_kernel(UserKernel registration);

// One registration as a JSON object, or a list of them. `read` gives the text of a source file that a registration names. `place`: for messages.
using ReadSource = std::function<Result<std::string>(const std::string& file)>;
Result<UserKernels> parse_user_kernels(std::string_view json, const std::string& place, const ReadSource& read);

// A file of registrations, or a folder of such (*.json, by name). Sources are found beside the file that names them.
Result<UserKernels> read_user_kernels(const std::string& path);

// user_kernel if two have one name.
Status check_names(const UserKernels& kernels);

}  // namespace coil
