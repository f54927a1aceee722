#include "codegen/cpu/host/host_files.h"

#include <fmt/format.h>

namespace coil {

std::string shared_text(HostFile file, const std::string& what, const std::string& definition) {
  if (file == HostFile::alone) return "static " + what + definition;
  const std::string declared = fmt::format("extern \"C\" __attribute__((visibility(\"hidden\"))) {};\n", what);
  return file == HostFile::first ? declared + what + definition : declared;
}

}  // namespace coil
