// User kernels whose code for CUDA is another compiler's (Triton images), on their way into a program and its generated code. Input: registrations as
// JSON; one of `museum::scaled` is what tests/fuzz/programs/user.pt2 calls.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/fuzz/renamed_program.h"

namespace {

using namespace coil;

const ZipReader& program() {
  static const ZipReader zip = ZipReader::open(std::string(COIL_SOURCE_DIR "/tests/fuzz/programs/user.pt2")).value();
  return zip;
}

// What is said of a foreign kernel is refused by name or becomes a program's text; it is never a bug in coil.
void expect_named(const Error& error) {
  if (error.message.empty() || error.code == ErrorCode::internal) std::abort();
}

// As src/compiler/build_cuda.cc asks for it.
bool lacks_image(const UserKernels& kernels) {
  return std::any_of(kernels.begin(), kernels.end(), [](const auto& k) {
    const auto fits = [](const UserImage& i) { return i.config == 0 && i.sm == 90 && !i.ptx; };
    return k->cuda && !k->cuda->images.empty() && std::none_of(k->cuda->images.begin(), k->cuda->images.end(), fits);
  });
}

Status write_program(const UserKernels& kernels) {
  ReadOptions options;
  options.kernels = kernels;
  TRY(Graph read, read_program(program(), options));
  TRY(const Graph graph, run_passes(std::move(read)));
  TRY(const KernelPlan plan, testing::plan_of(graph, true));
  const cuda::CudaProgram written = cuda::generate_kernels(plan, {{90}, false, 0, {}, {}});
  (void)cuda::host_program_text(plan, written, {graph.in_spec, graph.out_spec, 0, {}, "sm_90", {}, true});
  return ok_status();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto source = [](const std::string& file) -> Result<std::string> { return "// " + file; };
  const Result<UserKernels> kernels = parse_user_kernels({reinterpret_cast<const char*>(data), size}, "input", source);
  if (!kernels.ok()) {
    expect_named(kernels.error());
    return 0;
  }
  if (!check_names(kernels.value()).ok() || lacks_image(kernels.value())) return 0;
  const Status written = write_program(kernels.value());
  if (!written.ok()) expect_named(written.error());
  return 0;
}
