// Runs another program and waits for it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace coil::tool {

struct ChildResult {
  int exit_code = 0;  // 128 + the signal's number where a signal ended it
  bool signalled = false;
  std::string output;  // the end of stdout and stderr together
};

// arguments[0]: looked for in PATH. The child's standard input is empty. seconds: after which it is killed (exit code 124); 0: never. bad_option where
// it cannot be started.
Result<ChildResult> run_child(const std::vector<std::string>& arguments, double seconds = 0);

}  // namespace coil::tool
