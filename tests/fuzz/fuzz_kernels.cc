// Registrations of user kernels (docs/user_kernels.md), as a JSON file has them: fields, signatures, configurations, formulas.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "frontend/user_kernels.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coil;
  const auto read = [](const std::string& file) -> Result<std::string> { return "// " + file; };
  const Result<UserKernels> kernels = parse_user_kernels({reinterpret_cast<const char*>(data), size}, "input", read);
  if (!kernels.ok()) {
    if (kernels.error().message.empty()) std::abort();
    return 0;
  }
  (void)check_names(kernels.value()).ok();
  return 0;
}
