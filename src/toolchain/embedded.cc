#include "toolchain/embedded.h"

#include <algorithm>

#include "base/host_machine.h"

namespace coil::toolchain {

// The table goes machine by machine.
std::span<const EmbeddedObject> embedded_objects(const HostMachine& machine) {
  const std::span<const EmbeddedObject> all = embedded_objects();
  const auto its_own = [&](const EmbeddedObject& o) { return o.machine == machine.name; };
  const auto first = std::find_if(all.begin(), all.end(), its_own), last = std::find_if_not(first, all.end(), its_own);
  return {first, last};
}

}  // namespace coil::toolchain
