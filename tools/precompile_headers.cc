// Part of the build: writes the device headers as clang has parsed them, one file a set (src/toolchain/precompiled.h), for cmake/precompiled.cmake
// to embed. usage: precompile_headers FOLDER
#include <cstdio>
#include <fstream>
#include <string>

#include "toolchain/precompiled.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: precompile_headers FOLDER\n", stderr);
    return 2;
  }
  for (const coil::toolchain::HeaderSet& set : coil::toolchain::header_sets()) {
    const coil::Result<coil::toolchain::Bytes> bytes = coil::toolchain::precompile(set);
    if (!bytes.ok()) {
      std::fprintf(stderr, "%s\n", bytes.error().to_string().c_str());
      return 1;
    }
    const std::string path = std::string(argv[1]) + "/" + std::string(set.name) + ".pch";
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.value().data()), static_cast<std::streamsize>(bytes.value().size()));
    if (!file.flush()) {
      std::fprintf(stderr, "cannot write %s\n", path.c_str());
      return 1;
    }
  }
  return 0;
}
