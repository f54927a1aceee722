// The text of a loop program: what is read is a verified program, whose text is read as the same again.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "loop/parse.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coil;
  if (size > 1 << 16) return 0;
  const auto program = parse_loops({reinterpret_cast<const char*>(data), size});
  if (!program.ok()) {
    if (program.error().message.empty() || program.error().code == ErrorCode::internal) std::abort();
    return 0;
  }
  const std::string text = to_string(program.value());
  const auto again = parse_loops(text);
  if (again.ok() && to_string(again.value()) == text) return 0;
  std::fprintf(stderr, "%s\n---- was:\n%s\n", again.ok() ? to_string(again.value()).c_str() : again.error().to_string().c_str(), text.c_str());
  std::abort();
}
