// See state.h.
#include "runtime/state.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/forks.h"
#include "device/model_call.h"
#include "runtime/model.h"
#include "runtime/saved_state.h"

namespace coil::runtime {
namespace {

constexpr uint64_t kFew = 1 << 20;  // bytes that are copied in a fraction of a millisecond

// Memory without pages: at `where`, in place of what is there, or anywhere (null). Null: it failed.
uint8_t* zero_pages(void* where, size_t bytes) {
  void* data = mmap(where, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (where ? MAP_FIXED : 0), -1, 0);
  if (data == MAP_FAILED) return nullptr;
  madvise(data, bytes, MADV_NOHUGEPAGE);  // a wish: short conversations take little
  return static_cast<uint8_t*>(data);
}

}  // namespace

State::State(const Model& model) : model_(model), bytes_(static_cast<int64_t>(model.code().state_bytes)) {}

State::~State() {
  if (!data_) return;
  if (!model_.cuda()) {
    if (given_.use_count() > 1) {  // a fork that has not been used needs it yet
      given_->adopt(mapped_bytes());
    } else {
      munmap(data_, mapped_bytes());
    }
    return;
  }
  const cd::CudaScope scope(&model_.cuda()->driver(), model_.cuda()->context());
  if (event_) model_.cuda()->driver().delete_event(event_);
  model_.device().free(data_);
}

Status State::allocate() {
  const auto failed = [&](const std::string& why) {
    return Error{ErrorCode::out_of_memory, "no memory for the model's state of " + std::to_string(bytes_) + " bytes" + why, "", ""};
  };
  if (!model_.cuda()) {
    data_ = zero_pages(nullptr, mapped_bytes());
    return data_ ? ok_status() : Status(failed(""));
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

Result<std::unique_ptr<State>> State::make(const Model& model, bool forks) {
  const CoilModel& code = model.code();
  if (!code.state_bytes) return Error{ErrorCode::bad_option, "the program keeps no state from one call to the next", "", ""};
  if (code.state_offset > code.constants_bytes) return Error{ErrorCode::bad_package, "the initial state lies outside of the constants"};
  std::unique_ptr<State> state(new State(model));
  TRY_STATUS(state->allocate());
  state->forks_ = forks;
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
    TRY_STATUS(give_late());
    lacked_ = nullptr;
    own_alone();
    for (const SavedRun& run : runs_of_pages(bytes, [&](int64_t at, int64_t n) { return !is_zero(from + at, n); }))
      std::memcpy(data_ + run.begin, from + run.begin, run.bytes);
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
  return fill(model_.constants() + model_.code().state_offset, static_cast<int64_t>(cd::stored_state(model_.code())));
}

// The state and a page that says how often it was changed.
size_t State::mapped_bytes() const {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (static_cast<size_t>(bytes_) + page - 1) / page * page + page;
}
uint64_t& State::changes_in_file() const { return *reinterpret_cast<uint64_t*>(data_ + mapped_bytes() - static_cast<size_t>(sysconf(_SC_PAGESIZE))); }

Status State::enter(bool changes) {
  if (lacked_) TRY_STATUS(take_late());
  if (changes && given_) TRY_STATUS(give_late());
  if (!common_) return ok_status();
  if (process_ != fork_generation()) return leave_parent();
  if (changes && frozen_) {
    if (!pages_->map(data_, false)) return Error{ErrorCode::out_of_memory, "no memory to map the model's state anew, whose pages forks have too", "", ""};
    common_ = frozen_ = false;
    return ok_status();
  }
  if (changes) std::atomic_ref(changes_in_file()).store(++changes_, std::memory_order_release);
  return ok_status();
}

// What the parent process has, as it was when it made this one, at the same address.
Status State::leave_parent() {
  const Error changed{ErrorCode::state_mismatch, "the state was made before a fork of the process, and the parent process has changed it since", "",
                      "make states, and conversations, in the process that uses them"};
  const auto same = [&] { return std::atomic_ref(changes_in_file()).load(std::memory_order_acquire) == changes_; };
  if (!same()) return changed;
  uint8_t* own = zero_pages(nullptr, mapped_bytes());
  if (!own) return Error{ErrorCode::out_of_memory, "no memory for the model's state of " + std::to_string(bytes_) + " bytes in a forked process", "", ""};
  for (const SavedRun& part : file_parts()) std::memcpy(own + part.begin, data_ + part.begin, part.bytes);
  std::atomic_thread_fence(std::memory_order_acquire);
  if (!same() || mremap(own, mapped_bytes(), mapped_bytes(), MREMAP_MAYMOVE | MREMAP_FIXED, data_) == MAP_FAILED) {
    munmap(own, mapped_bytes());
    return changed;
  }
  pages_ = nullptr, common_ = frozen_ = false;
  return ok_status();
}

std::vector<SavedRun> State::file_parts() const {
  std::vector<SavedRun> parts;
  const auto end = static_cast<uint64_t>(bytes_);
  for (const SavedRun& part : pages_->parts()) {
    if (part.begin < end) parts.push_back({part.begin, std::min(part.bytes, end - part.begin)});
  }
  return parts;
}

std::vector<SavedRun> State::written() const {
  if (common_) return file_parts();
  const std::vector<SavedRun> own = own_pages(data_, bytes_);
  return pages_ ? either(own, file_parts(), bytes_) : own;
}

bool State::take_file() {
  std::shared_ptr<SharedPages> pages = SharedPages::make(static_cast<int64_t>(mapped_bytes()), model_.shared_states());
  if (!pages || !pages->map(data_, true)) return false;
  pages_ = std::move(pages), common_ = true, frozen_ = false;
  process_ = fork_generation(), changes_ = 0;
  return true;
}

void State::own_alone() {
  const bool ours = common_ && !frozen_ && process_ == fork_generation();
  if (ours && madvise(data_, mapped_bytes(), MADV_REMOVE) == 0) {
    std::atomic_ref(changes_in_file()).store(++changes_, std::memory_order_release);
    return;
  }
  if (forks_ && take_file()) return;
  if (!zero_pages(data_, mapped_bytes())) {
    std::memset(data_, 0, static_cast<size_t>(bytes_));
    return;
  }
  pages_ = nullptr, common_ = frozen_ = false;
}

void State::copy_parts(State& to, std::span<const SavedRun> parts) const {
  for (const SavedRun& part : parts) {  // what was only read is zero
    const uint8_t* from = data_ + part.begin;
    uint8_t* there = to.data_ + part.begin;
    const auto matters = [&](int64_t at, int64_t n) { return to.pages_ || !is_zero(from + at, n); };
    for (const SavedRun& run : runs_of_pages(static_cast<int64_t>(part.bytes), matters)) std::memcpy(there + run.begin, from + run.begin, run.bytes);
  }
}

// Whether `other` is a mapping of this one's file now, to which nobody writes any more: this one leaves it with its next change, which takes longer than a
// fork does, as the system takes its pages away one by one.
bool State::map_in_common(State& other) {
  if (!pages_->map(other.data_, false)) return false;
  other.pages_ = pages_;
  frozen_ = common_;
  return true;
}

Status State::give_late() {
  if (given_.use_count() > 1) {  // a fork that has not been used has it, too
    const std::vector<SavedRun> own = own_pages(data_, bytes_);
    uint64_t count = 0;
    for (const SavedRun& run : own) count += run.bytes;
    std::shared_ptr<SharedPages> pages;
    if (count > kFew && copied_ + count > static_cast<uint64_t>(pages_->bytes_with_memory()))
      pages = SharedPages::copy(data_, either(own, file_parts(), bytes_), static_cast<int64_t>(mapped_bytes()), model_.shared_states());
    if (pages && pages->map(data_, false)) {
      given_->leave_in(pages);
      pages_ = std::move(pages), copied_ = 0;
    } else {
      given_->copy(own, copied_ + count);
      copied_ += count;
    }
  }
  given_ = nullptr;
  return ok_status();
}

Status State::take_late() {
  TRY(std::shared_ptr<SharedPages> pages, lacked_->bring(data_, &copied_));
  if (pages) pages_ = std::move(pages);
  lacked_ = nullptr;
  return ok_status();
}

Status State::fork_pages(State& other) {
  if (common_) {
    if (!map_in_common(other)) copy_parts(other, written());
    return ok_status();
  }
  if (pages_ && map_in_common(other)) {
    if (!lacked_ && !given_) given_ = std::make_shared<LatePages>(data_, bytes_, copied_);
    other.lacked_ = lacked_ ? lacked_ : given_;
    return ok_status();
  }
  if (lacked_) TRY_STATUS(take_late());
  const std::vector<SavedRun> all = written();
  uint64_t count = 0;
  for (const SavedRun& run : all) count += run.bytes;
  std::shared_ptr<SharedPages> pages;
  if (!pages_ && count > kFew) pages = SharedPages::copy(data_, all, static_cast<int64_t>(mapped_bytes()), model_.shared_states());
  if (pages && pages->map(data_, false)) {
    pages_ = std::move(pages);
    if (map_in_common(other)) return ok_status();
  }
  copy_parts(other, written());
  return ok_status();
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
  if (!lacked_) TRY_STATUS(enter(false));  // (else nothing has used it since it was forked itself)
  other->forks_ = forks_;
  TRY_STATUS(fork_pages(*other));
  return other;
}

Result<std::vector<uint8_t>> State::save() {
  std::lock_guard lock(mutex_);
  TRY_STATUS(wait());
  TRY_STATUS(enter(false));
  std::vector<uint8_t> fetched;
  const uint8_t* data = data_;
  if (model_.cuda()) {
    fetched.resize(static_cast<size_t>(bytes_));
    TRY_STATUS(copy(fetched.data(), data_, bytes_));
    data = fetched.data();
  }
  return save_bytes(model_.identity(), data, bytes_, model_.cuda() ? std::vector<SavedRun>{{0, static_cast<uint64_t>(bytes_)}} : written());
}

Status State::restore(const uint8_t* bytes, size_t size) {
  TRY(const SavedState saved, read_saved({bytes, size}, model_.identity(), bytes_));
  std::lock_guard lock(mutex_);
  TRY_STATUS(wait());
  TRY_STATUS(fill(nullptr, 0));
  const uint8_t* from = saved.bytes;
  for (const SavedRun& run : saved.runs) {
    TRY_STATUS(copy(data_ + run.begin, from, static_cast<int64_t>(run.bytes)));
    from += run.bytes;
  }
  return wait();
}

Status State::read(int64_t begin, std::span<uint8_t> to) {
  std::lock_guard lock(mutex_);
  TRY_STATUS(wait());
  TRY_STATUS(enter(false));
  return copy(to.data(), data_ + begin, static_cast<int64_t>(to.size()));
}

Status State::write(int64_t begin, std::span<const uint8_t> from) {
  std::lock_guard lock(mutex_);
  TRY_STATUS(wait());
  if (model_.cuda()) {
    TRY_STATUS(copy(data_ + begin, from.data(), static_cast<int64_t>(from.size())));
    return wait();
  }
  TRY_STATUS(enter(true));
  // Pages that are zero stay without memory.
  for (int64_t at = 0, size = static_cast<int64_t>(from.size()); at < size;) {
    const int64_t n = std::min(size - at, kSavedPage - (begin + at) % kSavedPage);
    if (!(is_zero(from.data() + at, n) && is_zero(data_ + begin + at, n))) std::memcpy(data_ + begin + at, from.data() + at, static_cast<size_t>(n));
    at += n;
  }
  return ok_status();
}

Status State::reset(int64_t begin, int64_t bytes) {
  std::lock_guard lock(mutex_);
  TRY_STATUS(wait());
  const auto stored = static_cast<int64_t>(cd::stored_state(model_.code()));
  const int64_t known = std::clamp<int64_t>(stored - begin, 0, bytes);  // of the part, in the package; the rest is zero
  const uint8_t* from = model_.constants() + model_.code().state_offset + begin;
  if (model_.cuda()) {
    const cd::CudaScope scope(&model_.cuda()->driver(), model_.cuda()->context());
    CoilError error{};
    if (const auto result = model_.cuda()->driver().fill(reinterpret_cast<cd::CudaAddress>(data_) + static_cast<cd::CudaAddress>(begin), 0,
                                                         static_cast<size_t>(bytes), nullptr)) {
      cd::cuda_fail(&model_.cuda()->driver(), result, &error, "cannot clear a part of the state");
      return error_of(error);
    }
    if (known > 0) TRY_STATUS(copy(data_ + begin, from, known));
    return wait();
  }
  TRY_STATUS(enter(true));
  const int64_t page = sysconf(_SC_PAGESIZE), first = (begin + page - 1) / page * page, end = (begin + bytes) / page * page;
  const bool shows_others = pages_ && !common_;  // pages that are given back would show again what forks have in common
  if (first < end && !shows_others && madvise(data_ + first, static_cast<size_t>(end - first), common_ ? MADV_REMOVE : MADV_DONTNEED) == 0) {
    std::memset(data_ + begin, 0, static_cast<size_t>(first - begin));
    std::memset(data_ + end, 0, static_cast<size_t>(begin + bytes - end));
  } else {
    std::memset(data_ + begin, 0, static_cast<size_t>(bytes));
  }
  if (known > 0) std::memcpy(data_ + begin, from, static_cast<size_t>(known));
  return ok_status();
}

}  // namespace coil::runtime
