// See state.h.
#include "runtime/state.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "runtime/model.h"

namespace coil::runtime {
namespace {

constexpr int64_t kPage = 4096;  // of saved states, and the least of any machine that coil runs on

// A saved state: this, then `runs` pairs of where bytes lie and how many they are, rising, then those bytes.
struct SavedHeader {
  char magic[8];
  uint64_t identity;  // of the package's code and constants
  uint64_t bytes;
  uint64_t runs;
};
struct SavedRun {
  uint64_t begin, bytes;
};
constexpr char kMagic[8] = {'C', 'O', 'I', 'L', 'S', 'T', 'A', '1'};

bool is_zero(const uint8_t* data, int64_t bytes) { return bytes == 0 || (data[0] == 0 && std::memcmp(data, data + 1, static_cast<size_t>(bytes - 1)) == 0); }

// Neighbouring pages for which `wanted` holds are one run.
template <class F>
std::vector<SavedRun> runs_of_pages(int64_t bytes, F wanted) {
  std::vector<SavedRun> runs;
  for (int64_t at = 0; at < bytes; at += kPage) {
    const int64_t n = std::min(kPage, bytes - at);
    if (!wanted(at, n)) continue;
    if (!runs.empty() && runs.back().begin + runs.back().bytes == static_cast<uint64_t>(at)) {
      runs.back().bytes += static_cast<uint64_t>(n);
    } else {
      runs.push_back({static_cast<uint64_t>(at), static_cast<uint64_t>(n)});
    }
  }
  return runs;
}

// Which pages of an anonymous mapping have been written to: the kernel's table tells (bit 63: in memory, bit 62: swapped out). All of them where it
// cannot be read.
std::vector<SavedRun> touched(const uint8_t* data, int64_t bytes) {
  const std::vector<SavedRun> all = {{0, static_cast<uint64_t>(bytes)}};
  if (sysconf(_SC_PAGESIZE) != kPage) return all;
  const int file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (file < 0) return all;
  std::vector<uint64_t> entries(static_cast<size_t>((bytes + kPage - 1) / kPage));
  const auto size = static_cast<ssize_t>(entries.size() * sizeof(uint64_t));
  const ssize_t got = pread(file, entries.data(), static_cast<size_t>(size), static_cast<off_t>(reinterpret_cast<uintptr_t>(data) / kPage * sizeof(uint64_t)));
  close(file);
  if (got != size) return all;
  return runs_of_pages(bytes, [&](int64_t at, int64_t) { return (entries[static_cast<size_t>(at / kPage)] >> 62) != 0; });
}

uint64_t stored_bytes(const CoilModel& code) { return std::min(code.state_bytes, code.constants_bytes - code.state_offset); }

}  // namespace

State::State(const Model& model) : model_(model), bytes_(static_cast<int64_t>(model.code().state_bytes)) {}

State::~State() {
  if (!data_) return;
  if (!model_.cuda()) {
    munmap(data_, static_cast<size_t>(bytes_));
    return;
  }
  const cd::CudaScope scope(&model_.cuda()->driver(), model_.cuda()->context());
  if (event_) model_.cuda()->driver().delete_event(event_);
  model_.device().free(data_);
}

Status State::allocate() {
  const auto failed = [&](const std::string& why) { return Error{ErrorCode::out_of_memory, "no memory for the model's state of " + std::to_string(bytes_) + " bytes" + why, "", ""}; };
  if (!model_.cuda()) {
    void* data = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return failed("");
    madvise(data, static_cast<size_t>(bytes_), MADV_NOHUGEPAGE);  // a wish: short conversations take little
    data_ = static_cast<uint8_t*>(data);
    return ok_status();
  }
  CoilError error{};
  data_ = static_cast<uint8_t*>(model_.device().allocate(bytes_, &error));
  if (!data_) return failed(std::string(": ") + error.message);
  const cd::CudaScope scope(&model_.cuda()->driver(), model_.cuda()->context());
  if (const auto result = model_.cuda()->driver().make_event(&event_, cd::kCudaEventNoTiming)) {
    cd::cuda_fail(&model_.cuda()->driver(), result, &error, "cannot make an event");
    return error_of(error);
  }
  return ok_status();
}

Result<std::unique_ptr<State>> State::make(const Model& model) {
  const CoilModel& code = model.code();
  if (!code.state_bytes) return Error{ErrorCode::bad_option, "the program keeps no state from one call to the next", "", ""};
  if (code.state_offset > code.constants_bytes) return Error{ErrorCode::bad_package, "the initial state lies outside of the constants"};
  std::unique_ptr<State> state(new State(model));
  TRY_STATUS(state->allocate());
  TRY_STATUS(state->reset());
  return state;
}

// Calls on the CPU are over when the mutex is free.
Status State::wait() {
  CoilError error{};
  return model_.cuda() && model_.device().synchronise_all(&error) ? Status(error_of(error)) : ok_status();
}

Status State::copy(void* to, const void* from, int64_t bytes) {
  CoilError error{};
  return model_.device().copy(to, from, bytes, nullptr, &error) ? Status(error_of(error)) : ok_status();
}

Status State::fill(const uint8_t* from, int64_t bytes) {
  if (!model_.cuda()) {
    madvise(data_, static_cast<size_t>(bytes_), MADV_DONTNEED);  // fresh pages, which are zero
    for (const SavedRun& run : runs_of_pages(bytes, [&](int64_t at, int64_t n) { return !is_zero(from + at, n); })) std::memcpy(data_ + run.begin, from + run.begin, run.bytes);
    return ok_status();
  }
  const cd::CudaScope scope(&model_.cuda()->driver(), model_.cuda()->context());
  CoilError error{};
  const auto address = reinterpret_cast<cd::CudaAddress>(data_);
  if (const auto result = model_.cuda()->driver().fill(address, 0, static_cast<size_t>(bytes_), nullptr)) {
    cd::cuda_fail(&model_.cuda()->driver(), result, &error, "cannot clear the state");
    return error_of(error);
  }
  if (bytes > 0) TRY_STATUS(copy(data_, from, bytes));
  return wait();
}

Status State::reset() {
  std::lock_guard lock(mutex_);
  TRY_STATUS(wait());
  return fill(model_.constants() + model_.code().state_offset, static_cast<int64_t>(stored_bytes(model_.code())));
}

Result<std::unique_ptr<State>> State::fork() {
  std::unique_ptr<State> other(new State(model_));
  TRY_STATUS(other->allocate());
  std::lock_guard lock(mutex_);
  TRY_STATUS(wait());
  if (model_.cuda()) {
    TRY_STATUS(copy(other->data_, data_, bytes_));
    return other;
  }
  for (const SavedRun& part : touched(data_, bytes_)) {  // what was only read is zero
    const uint8_t* from = data_ + part.begin;
    for (const SavedRun& run : runs_of_pages(static_cast<int64_t>(part.bytes), [&](int64_t at, int64_t n) { return !is_zero(from + at, n); }))
      std::memcpy(other->data_ + part.begin + run.begin, from + run.begin, run.bytes);
  }
  return other;
}

Result<std::vector<uint8_t>> State::save() {
  std::lock_guard lock(mutex_);
  TRY_STATUS(wait());
  std::vector<uint8_t> fetched;
  const uint8_t* data = data_;
  if (model_.cuda()) {
    fetched.resize(static_cast<size_t>(bytes_));
    TRY_STATUS(copy(fetched.data(), data_, bytes_));
    data = fetched.data();
  }
  std::vector<SavedRun> runs;
  for (const SavedRun& part : model_.cuda() ? std::vector<SavedRun>{{0, static_cast<uint64_t>(bytes_)}} : touched(data, bytes_)) {
    for (SavedRun run : runs_of_pages(static_cast<int64_t>(part.bytes), [&](int64_t at, int64_t n) { return !is_zero(data + part.begin + at, n); })) {
      run.begin += part.begin;
      runs.push_back(run);
    }
  }
  SavedHeader header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.identity = model_.identity();
  header.bytes = static_cast<uint64_t>(bytes_);
  header.runs = runs.size();
  std::vector<uint8_t> saved(sizeof header + runs.size() * sizeof(SavedRun));
  std::memcpy(saved.data(), &header, sizeof header);
  if (!runs.empty()) std::memcpy(saved.data() + sizeof header, runs.data(), runs.size() * sizeof(SavedRun));
  for (const SavedRun& run : runs) saved.insert(saved.end(), data + run.begin, data + run.begin + run.bytes);
  return saved;
}

Status State::restore(const uint8_t* bytes, size_t size) {
  const auto damaged = [](const char* what) { return Error{ErrorCode::state_mismatch, std::string("the saved state is damaged: ") + what, "", "save it again"}; };
  SavedHeader header;
  if (size < sizeof header) return damaged("it is shorter than its head");
  std::memcpy(&header, bytes, sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return damaged("it does not begin as one");
  if (header.identity != model_.identity() || header.bytes != static_cast<uint64_t>(bytes_))
    return Error{ErrorCode::state_mismatch, "the saved state belongs to another model, or to another compile of this one", "", "restore it with the package that it was saved from"};
  if (header.runs > (size - sizeof header) / sizeof(SavedRun)) return damaged("it ends within its table");
  std::vector<SavedRun> runs(header.runs);
  if (!runs.empty()) std::memcpy(runs.data(), bytes + sizeof header, runs.size() * sizeof(SavedRun));
  uint64_t end = 0, rest = size - sizeof header - runs.size() * sizeof(SavedRun);
  for (const SavedRun& run : runs) {
    if (run.begin < end || run.begin > header.bytes || run.bytes > header.bytes - run.begin || run.bytes > rest) return damaged("its table does not fit what follows");
    end = run.begin + run.bytes;
    rest -= run.bytes;
  }
  if (rest != 0) return damaged("something follows its end");
  std::lock_guard lock(mutex_);
  TRY_STATUS(wait());
  TRY_STATUS(fill(nullptr, 0));
  const uint8_t* from = bytes + sizeof header + runs.size() * sizeof(SavedRun);
  for (const SavedRun& run : runs) {
    TRY_STATUS(copy(data_ + run.begin, from, static_cast<int64_t>(run.bytes)));
    from += run.bytes;
  }
  return wait();
}

}  // namespace coil::runtime
