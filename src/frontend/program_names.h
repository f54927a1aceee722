// Which programs an archive holds.
#pragma once

#include <string>
#include <vector>

#include "base/zip_reader.h"

namespace coil {

// Their names; of one that torch.export.save wrote, "model". Empty: it is no archive of programs, or one of the form before PyTorch 2.8.
std::vector<std::string> programs_in(const ZipReader& zip);

}  // namespace coil
