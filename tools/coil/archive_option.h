// --program of the commands that are given programs: which one of an archive that holds several.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace coil::tool {

inline void add_archive_option(CLI::App& app, std::string& program) {
  app.add_option("--program", program, "which program of an archive that holds several; default: `model`, or the only one")->type_name("NAME");
}

}  // namespace coil::tool
