// What a package says of a program, for people: its manifest, and kernels.json beside it (runtime/manifest.h), as one document.
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "base/zip_reader.h"

namespace coil::report {

// `manifest` is the program's. The kernels of each target stand where its other entries do: of the first one at the top, of a later one in its row of
// "targets"; "arena" in their "memory". COIL-E012 where an entry is no JSON.
Result<Json> package_text(const ZipReader& zip, const ZipEntry& manifest);

}  // namespace coil::report
