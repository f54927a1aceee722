#include "ops/user_kernel.h"

namespace coil {

std::string config_text(const UserKernel::Config& config) {
  std::string text;
  for (const auto& [name, value] : config) text += (text.empty() ? "" : " ") + name + "=" + std::to_string(value);
  return text.empty() ? "no constants" : text;
}

}  // namespace coil
