// Saved states: what a server keeps of a conversation and reads again. Input: the bytes. They are compared with the identity and size that their own head
// says, so that a mutation does not end there; a state of a moderate size is put together from them, saved, and read again.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "runtime/saved_state.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace coil;
  using namespace coil::runtime;
  const std::span<const uint8_t> bytes(data, size);
  uint64_t identity = 0;
  int64_t length = 0;
  if (size >= 24) {
    std::memcpy(&identity, data + 8, 8);
    std::memcpy(&length, data + 16, 8);
  }
  if (length < 0) length = 1 << 20;
  const Result<SavedState> saved = read_saved(bytes, identity, length);
  if (!saved.ok()) {
    if (saved.error().message.empty()) std::abort();
    return 0;
  }
  if (length > 1 << 20) return 0;
  std::vector<uint8_t> state(static_cast<size_t>(length));
  const uint8_t* from = saved.value().bytes;
  for (const SavedRun& run : saved.value().runs) {
    if (run.bytes > 0) std::memcpy(state.data() + run.begin, from, run.bytes);
    from += run.bytes;
  }
  if (from != data + size) std::abort();
  const std::vector<uint8_t> again = save_bytes(identity, state.data(), length, std::vector<SavedRun>{{0, static_cast<uint64_t>(length)}});
  const Result<SavedState> reread = read_saved(again, identity, length);
  if (!reread.ok()) std::abort();
  std::vector<uint8_t> same(static_cast<size_t>(length));
  from = reread.value().bytes;
  for (const SavedRun& run : reread.value().runs) {
    std::memcpy(same.data() + run.begin, from, run.bytes);
    from += run.bytes;
  }
  if (same != state) std::abort();
  return 0;
}
