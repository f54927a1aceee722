// --program of the commands that are given programs: which one of an archive that holds several.
#pragma once

#include <string>

#include "command_line.h"

namespace coil::tool {

inline void add_archive_option(CommandLine& app, std::string& program) {
  app.add_option("--program", program, "which program of an archive that holds several; default: `model`, or the only one").type_name("NAME");
}

}  // namespace coil::tool
