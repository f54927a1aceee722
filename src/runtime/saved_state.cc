// See saved_state.h.
#include "runtime/saved_state.h"

#include <cstring>
#include <string>

namespace coil::runtime {
namespace {

struct SavedHeader {
  char magic[8];
  uint64_t identity;  // of the package's code and constants
  uint64_t bytes;
  uint64_t runs;
};
constexpr char kStateMagic[8] = {'C', 'O', 'I', 'L', 'S', 'T', 'A', '1'};

}  // namespace

bool is_zero(const uint8_t* data, int64_t bytes) { return bytes == 0 || (data[0] == 0 && std::memcmp(data, data + 1, static_cast<size_t>(bytes - 1)) == 0); }

std::vector<uint8_t> save_bytes(uint64_t identity, const uint8_t* data, int64_t size, std::span<const SavedRun> parts) {
  std::vector<SavedRun> runs;
  for (const SavedRun& part : parts) {
    for (SavedRun run : runs_of_pages(static_cast<int64_t>(part.bytes), [&](int64_t at, int64_t n) { return !is_zero(data + part.begin + at, n); })) {
      run.begin += part.begin;
      runs.push_back(run);
    }
  }
  SavedHeader header{};
  std::memcpy(header.magic, kStateMagic, sizeof kStateMagic);
  header.identity = identity;
  header.bytes = static_cast<uint64_t>(size);
  header.runs = runs.size();
  std::vector<uint8_t> saved(sizeof header + runs.size() * sizeof(SavedRun));
  std::memcpy(saved.data(), &header, sizeof header);
  if (!runs.empty()) std::memcpy(saved.data() + sizeof header, runs.data(), runs.size() * sizeof(SavedRun));
  for (const SavedRun& run : runs) saved.insert(saved.end(), data + run.begin, data + run.begin + run.bytes);
  return saved;
}

Result<SavedState> read_saved(std::span<const uint8_t> saved, uint64_t identity, int64_t size) {
  const auto damaged = [](const char* what) {
    return Error{ErrorCode::state_mismatch, std::string("the saved state is damaged: ") + what, "", "save it again"};
  };
  SavedHeader header;
  if (saved.size() < sizeof header) return damaged("it is shorter than its head");
  std::memcpy(&header, saved.data(), sizeof header);
  if (std::memcmp(header.magic, kStateMagic, sizeof kStateMagic) != 0) return damaged("it does not begin as one");
  if (header.identity != identity || header.bytes != static_cast<uint64_t>(size))
    return Error{ErrorCode::state_mismatch, "the saved state belongs to another model, or to another compile of this one", "",
                 "restore it with the package that it was saved from"};
  if (header.runs > (saved.size() - sizeof header) / sizeof(SavedRun)) return damaged("it ends within its table");
  SavedState state;
  state.runs.resize(header.runs);
  if (!state.runs.empty()) std::memcpy(state.runs.data(), saved.data() + sizeof header, state.runs.size() * sizeof(SavedRun));
  uint64_t end = 0, rest = saved.size() - sizeof header - state.runs.size() * sizeof(SavedRun);
  for (const SavedRun& run : state.runs) {
    if (run.begin < end || run.begin > header.bytes || run.bytes > header.bytes - run.begin || run.bytes > rest)
      return damaged("its table does not fit what follows");
    end = run.begin + run.bytes;
    rest -= run.bytes;
  }
  if (rest != 0) return damaged("something follows its end");
  state.bytes = saved.data() + sizeof header + state.runs.size() * sizeof(SavedRun);
  return state;
}

}  // namespace coil::runtime
