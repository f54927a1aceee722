// What the targets' builds share.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/host_machine.h"
#include "graph/graph.h"
#include "package/package_writer.h"
#include "toolchain/compile.h"
#include "toolchain/link.h"

namespace coil {

// Headers of the C++ library that the sources of user kernels may include: device/user/math.h has their functions.
inline constexpr const char* kUserHeaders[] = {"cmath", "math.h", "cstdint", "cstddef", "cstring", "algorithm"};
// The device library's objects for `machine` of these sets ("any", "cuda", "v3": EmbeddedObject::isa), in the library's order.
std::vector<toolchain::LinkInput> device_library(const HostMachine& machine, std::span<const std::string_view> sets);
// Fourier transforms and factorisations are not in every build of coil (cmake/machines.cmake): an error where `routines` are wanted and there are none.
Status check_library(const HostMachine& machine, const std::vector<std::string>& routines);
// The host program's text as a request for every such machine.
toolchain::CompileRequest host_request(const HostMachine& machine, const std::string& text, const std::string& name = "host.cc");
// One shared object that exports a model's entry points. members: as of link_shared. strip: false keeps what debuggers read.
Result<std::vector<uint8_t>> link_model(const HostMachine& machine, std::vector<toolchain::LinkInput> inputs, const std::vector<std::string>& more_exports = {},
                                        std::vector<std::string>* members = nullptr, bool strip = true);

// Non-tensor inputs whose values the export fixed, as the manifest has them.
std::vector<FixedArgument> fixed_arguments(const Graph& graph);

}  // namespace coil
