// A host program of very many calls is several files, since clang's memory grows with the text that it has at once (by some 60 bytes for each):
// the first has the tables and `run`, the others have functions of calls.
#pragma once

#include <cstdint>
#include <string>

namespace coil {

enum class HostFile : uint8_t { alone, first, further };

// What all files name, and one defines: what: "const int32_t kChoices[2][4]", definition: " = {...};\n".
std::string shared_text(HostFile file, const std::string& what, const std::string& definition);

}  // namespace coil
