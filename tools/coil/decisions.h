// What a compilation decided, out of the manifest of its package: for `coil explain`, and for requirements that a build must meet.
#pragma once

#include <string>
#include <vector>

#include "archive_kind.h"
#include "sizes.h"

namespace coil::tool {

// Whether a kernel of the manifest computes what a reader calls `name`: an operator ("linear", "softmax.max"), a module's path or its end ("attn.q"), the
// kernel's own name or its function's.
bool computes(const Json& kernel, const std::string& name);
// The rows of manifest["kernels"] that do.
std::vector<size_t> kernels_of(const Json& manifest, const std::string& name);

// Why two operators are one kernel, or are not. bad_option for a name that nothing has.
Result<std::string> fusion_sentence(const Json& manifest, const std::string& a, const std::string& b);
// How a kernel is run, and who decided it.
Result<std::string> choice_sentence(const Json& manifest, const std::string& kernel);
// What a call of some sizes needs, and which choices serve it.
Result<std::string> size_sentences(const Json& manifest, const std::vector<std::string>& shapes);
// What the scratch memory holds, the largest first.
Result<std::string> memory_sentences(const Json& manifest, const std::vector<std::string>& shapes);

struct Requirement {
  std::string text;
  bool met = false;
  std::string found;  // "43 kernels"
};
// "kernels <= 40", "fused(a, b)", "not fused(a, b)", "peak <= 2GB", "scratch < 1MiB", "weights <= 100MB", "copies == 0", "replaced == 0", "kernels(softmax) ==
// 1". bad_option for what is none.
Result<std::vector<Requirement>> check_requirements(const Json& manifest, const std::vector<std::string>& texts, const std::vector<std::string>& shapes);
// A line for each that is not met, on stderr; the exit code: 0, or 1.
int report_requirements(const std::vector<Requirement>& requirements);

}  // namespace coil::tool
