// Ctrl-C and SIGTERM while an output is being written: nothing unfinished of it may stay behind. And while calls are measured: what was measured is kept.
#pragma once

#include <string>

namespace coil::tool {

// From now on SIGINT, SIGTERM and SIGHUP remove the unfinished forms of `output` (AtomicFile's temporary names; empty: there is none) and then end
// the process as they always do. Call once, before other threads start.
void clean_up_on_signals(const std::string& output);

// After that: the first of these signals from now on ends nothing, but asked_to_end() is its number, 0 before. The next one ends the process.
void finish_on_signal();
int asked_to_end();
// "SIGINT".
std::string signal_text(int signal);
// Ends the process as `signal` does, so that who started it sees that.
[[noreturn]] void end_by(int signal);

}  // namespace coil::tool
