// Something to be done before a signal ends the process.
#pragma once

namespace coil::runtime {

// `act` runs once, in a thread of its own, when SIGINT, SIGTERM or SIGHUP comes; then the signal ends the process as it would have. Signals that the process
// handles or ignores now stay as they are, and a handler that it sets later takes our place. The second signal ends the process at once, and so does the
// first one in a child that was forked. Call once.
void act_before_signals_end(void (*act)());

}  // namespace coil::runtime
