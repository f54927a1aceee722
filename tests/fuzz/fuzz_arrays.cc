// Arrays of NumPy, alone (.npy) or an archive of them (.npz): what is read is written and read again as it was.
#include <cstdint>
#include <cstdlib>

#include "base/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coil;
  const std::span<const uint8_t> input(data, size);
  const Result<NpyArray> array = parse_npy(input, "input");
  if (array.ok()) {
    const Result<NpyArray> again = parse_npy(to_npy(array.value()), "what was written");
    if (!again.ok() || again.value().data != array.value().data || again.value().shape != array.value().shape) std::abort();
  }
  const Result<ZipReader> zip = ZipReader::from_bytes(input, "input");
  if (zip.ok()) (void)parse_npz(zip.value()).ok();
  return 0;
}
