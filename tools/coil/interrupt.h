// Ctrl-C and SIGTERM while an output is being written: nothing of it may stay behind.
#pragma once

#include <string>

namespace coil::tool {

// From now on SIGINT, SIGTERM and SIGHUP remove the unfinished forms of `output` (AtomicFile's temporary names) and then end
// the process as they always do. Call once, before other threads start.
void clean_up_on_signals(const std::string& output);

}  // namespace coil::tool
