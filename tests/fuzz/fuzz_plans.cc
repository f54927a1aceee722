// The text of a kernel plan: what is read is a verified plan, whose text is read as the same again.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "schedule/parse_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coil;
  if (size > 1 << 16) return 0;
  const auto plan = parse_plan({reinterpret_cast<const char*>(data), size});
  if (!plan.ok()) {
    if (plan.error().message.empty() || plan.error().code == ErrorCode::internal) std::abort();
    return 0;
  }
  const std::string text = to_string(plan.value());
  const auto again = parse_plan(text);
  if (again.ok() && to_string(again.value()) == text) return 0;
  std::fprintf(stderr, "%s\n---- was:\n%s\n", again.ok() ? to_string(again.value()).c_str() : again.error().to_string().c_str(), text.c_str());
  std::abort();
}
