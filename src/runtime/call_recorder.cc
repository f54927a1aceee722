// See call_recorder.h.
#include "runtime/call_recorder.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "runtime/counters.h"
#include "runtime/cuda_marks.h"
#include "runtime/model.h"
#include "runtime/nvtx.h"

namespace coil::runtime {
namespace {

uint32_t this_thread() {
  thread_local const auto id = static_cast<uint32_t>(syscall(SYS_gettid));
  return id;
}

// Nothing that watches may throw through the model's code: a span that finds no memory is left out.
template <class T>
bool keep(std::vector<T>& list, const T& value) noexcept {
  try {
    list.push_back(value);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// For the next call; its lists keep their memory.
void clear(CallRecord* call) {
  CallRecord next;
  next.sizes.swap(call->sizes), next.kernels.swap(call->kernels), next.chunks.swap(call->chunks), next.counters.swap(call->counters);
  next.sizes.clear(), next.kernels.clear(), next.chunks.clear(), next.counters.clear();
  *call = std::move(next);
}

// Ticks from one reading of the clock to the next.
double price_of_clock() {
  static const double price = [] {
    constexpr int kReadings = 256;
    uint64_t least = UINT64_MAX;  // of three: another program may run in between
    for (int i = 0; i < 3; i++) {
      const uint64_t begin = ticks_now();
      for (int k = 0; k < kReadings; k++) (void)ticks_now();
      least = std::min(least, ticks_now() - begin);
    }
    return std::max(1.0, static_cast<double>(least) / kReadings);
  }();
  return price;
}

}  // namespace

// A loop on the pool's threads.
struct CallRecorder::Loop {
  CallRecorder* recorder;
  CoilChunkFn fn;
  void* context;
  int32_t kernel;
};

CallRecorder::CallRecorder(std::shared_ptr<const Model> model)
    : held_(std::move(model)),
      model_(*held_),
      table_(model_.kernel_table()),
      lanes_(static_cast<size_t>(std::max(model_.host().num_workers, 1))),
      ranges_of_calls_(Nvtx::get() != nullptr) {
  lanes_[0].kernels.reserve(table_->kernels.size());
  const Nvtx* nvtx = Nvtx::get();
  if (!nvtx || !nvtx->of_kernels()) return;
  nvtx_ = nvtx;
  ranges_ = range_names(*table_);
}

CallRecorder::~CallRecorder() {
  for (const auto& marks : kept_) marks->close();  // profiles may outlive us, and the device
  if (!clock_ || !clock_->event) return;
  const cd::CudaScope scope(&model_.cuda()->driver(), model_.cuda()->context());
  model_.cuda()->driver().delete_event(clock_->event);
}

bool CallRecorder::is_captured(void* stream) const {
  const cd::CudaDriver& driver = model_.cuda()->driver();
  const cd::CudaScope scope(&driver, model_.cuda()->context());
  int32_t capturing = 0;
  return driver.is_capturing(stream, &capturing) != cd::kCudaSuccess || capturing;
}

// Of this thread; a context may go from thread to thread.
void CallRecorder::begin_counting() {
  if (!counters_) counters_ = std::make_unique<Counters>();
  call_.counted = counters_->start();
  for (auto& profile : profiles_) profile->set_counters_note(call_.counted ? "" : counters_->note());
  if (!call_.counted) return;
  const uint64_t before = ticks_now();
  Counts counts;
  counters_->read(counts.data());
  reading_ = ticks_now() - before;
}

bool CallRecorder::begin(void* stream) {
  entered_ = ticks_now();
  if (const uint32_t changes = profile_changes.load(std::memory_order_relaxed); changes != changes_) {
    changes_ = changes;
    sampling_.restart();
  }
  profiles_ = take_profiles(model_);
  tool_ = RangeToolScope::current();
  idle_ = profiles_.empty();
  if (profiles_.empty() && !nvtx_ && !tool_) return false;
  if (tool_ && ranges_.empty()) ranges_ = range_names(*table_);
  clear(&call_);
  wants_all_ = std::any_of(profiles_.begin(), profiles_.end(), [](const auto& p) { return p->options().all_calls; });
  call_.table = table_;
  call_.model = held_;
  call_.thread = this_thread();
  call_.stream = stream;
  marked_ = false;
  if (profiles_.empty()) {
    if (model_.cuda() && is_captured(stream)) return false;
  } else if (model_.cuda()) {
    if (!begin_marks(stream)) {
      give_back();
      return false;
    }
    marked_ = true;
  } else if (std::any_of(profiles_.begin(), profiles_.end(), [](const auto& p) { return p->options().counters; })) {
    begin_counting();
  }
  call_.begin = call_.checked = call_.placed = ticks_now();
  return true;
}

// The call is not recorded after all.
void CallRecorder::give_back() {
  for (auto& profile : profiles_) profile->add(nullptr);
  profiles_.clear();
}

// False: the stream is being captured (its kernels do not run now), or no marks are free.
bool CallRecorder::begin_marks(void* stream) try {
  if (is_captured(stream)) return false;
  marks_ = wants_all_ ? nullptr : free_marks(stream);
  if (!wants_all_) {
    if (!marks_) sampling_.lost();
    return marks_ && marks_->begin_late(stream);
  }
  if (kept_.empty()) {
    if (auto made = CudaMarks::make(*model_.cuda())) kept_.push_back(std::move(made));
  }
  if (kept_.empty()) return false;
  kept_[0]->settle();
  marks_ = kept_[0];
  return marks_->begin(stream);
} catch (const std::bad_alloc&) {
  return false;
}

// For a call that is not waited for. Null: those of earlier calls are all still needed.
std::shared_ptr<CudaMarks> CallRecorder::free_marks(void* stream) {
  constexpr size_t kMostKept = 4;      // calls that the device has yet to do
  constexpr double kClockSeconds = 5;  // the device's float milliseconds are exact to half a microsecond so long
  if (!clock_) clock_ = std::make_unique<CudaClock>();
  if (!clock_->known || ticks_now() - clock_->ticks > ticks_of_seconds(kClockSeconds)) {
    for (const auto& marks : kept_) marks->settle();  // their times are by the clock as it was
    if (!CudaMarks::set_clock(*model_.cuda(), stream, clock_.get())) return nullptr;
  }
  const auto found = std::find_if(kept_.begin(), kept_.end(), [](const auto& marks) { return marks->is_free(); });
  if (found != kept_.end()) return *found;
  if (kept_.size() == kMostKept) return nullptr;
  auto made = CudaMarks::make(*model_.cuda());
  if (made) kept_.push_back(made);
  return made;
}

const char* CallRecorder::range_name(int32_t kernel) const {
  return static_cast<size_t>(kernel) < ranges_.size() ? ranges_[static_cast<size_t>(kernel)].c_str() : "kernel";
}

void CallRecorder::close_range() {
  if (open_) tool_->pop(open_);
  open_ = nullptr;
}

void CallRecorder::begin_kernel(const CoilTrace* trace, int32_t kernel, int32_t worker, const int64_t* symbols) {
  auto& r = *static_cast<CallRecorder*>(trace->owner);
  Lane& lane = r.lane(worker);
  KernelSpan span{kernel, this_thread(), 0, 0, 0, 0};
  if (r.table_->sizes_from_data) {
    span.sizes = static_cast<uint32_t>(lane.sizes.size());
    try {
      lane.sizes.insert(lane.sizes.end(), symbols, symbols + r.model_.code().num_symbols);
    } catch (const std::bad_alloc&) {
      lane.lost = true;
    }
  }
  if (worker == 0) r.current_.store(kernel, std::memory_order_relaxed);
  if (r.nvtx_) r.nvtx_->push(r.range_name(kernel));
  if (r.tool_ && worker == 0) r.open_ = r.tool_->push(r.range_name(kernel));  // the other workers' threads are not the caller's
  if (r.marked_) r.marks_->begin_kernel();
  if (Counts counts; r.call_.counted && worker == 0) {
    r.counters_->read(counts.data());
    if (keep(r.call_.counters, counts)) span.counted = static_cast<uint32_t>(r.call_.counters.size());
  }
  span.begin = ticks_now();
  if (!keep(lane.kernels, span)) lane.lost = true;
}

void CallRecorder::end_kernel(const CoilTrace* trace, int32_t kernel, int32_t worker) {
  const uint64_t now = ticks_now();
  auto& r = *static_cast<CallRecorder*>(trace->owner);
  Lane& lane = r.lane(worker);
  if (worker == 0) r.current_.store(-1, std::memory_order_relaxed);
  if (r.marked_) r.marks_->end_kernel();
  if (r.nvtx_) r.nvtx_->pop();
  if (worker == 0) r.close_range();
  if (lane.kernels.empty() || lane.kernels.back().kernel != kernel) return;  // its begin was left out
  KernelSpan& span = lane.kernels.back();
  span.end = now;
  if (span.counted == 0) return;
  Counts after, &counts = r.call_.counters[span.counted - 1];
  r.counters_->read(after.data());
  for (size_t i = 0; i < after.size(); i++) counts[i] = after[i] - counts[i];
}

void CallRecorder::begin_timed(const CoilTrace* trace, int32_t kernel, int32_t worker, const int64_t*) {
  auto& r = *static_cast<CallRecorder*>(trace->owner);
  if (worker == 0) r.current_.store(kernel, std::memory_order_relaxed);
}

void CallRecorder::end_timed(const CoilTrace* trace, int32_t kernel, int32_t worker) {
  const uint64_t now = ticks_now();
  auto& r = *static_cast<CallRecorder*>(trace->owner);
  Lane& lane = r.lane(worker);
  if (worker == 0) r.current_.store(-1, std::memory_order_relaxed);
  if (!keep(lane.kernels, KernelSpan{kernel, lane.thread, lane.last, now, 0, 0})) lane.lost = true;
  lane.last = now;
}

void CallRecorder::watched_loop(void* pool, int64_t count, int64_t grain, CoilChunkFn fn, void* context) {
  auto& r = *static_cast<CallRecorder*>(pool);
  Loop loop = {&r, fn, context, r.current_.load(std::memory_order_relaxed)};
  if (count <= grain && loop.kernel >= 0) {  // one thread does all of it: the kernel's own times say that
    r.host_->parallel_for(r.host_->pool, count, grain, fn, context);
    return;
  }
  r.host_->parallel_for(r.host_->pool, count, grain, watched_chunk, &loop);
  if (loop.kernel < 0) r.lanes_[0].last = ticks_now();  // kernels ran in it; the next one comes after all of them
}

void CallRecorder::watched_chunk(void* context, int64_t begin, int64_t end, int32_t worker) {
  const Loop& loop = *static_cast<Loop*>(context);
  Lane& lane = loop.recorder->lane(worker);
  ChunkSpan span = {loop.kernel, this_thread(), ticks_now(), 0, end - begin};
  if (loop.kernel < 0) lane.thread = span.thread, lane.last = span.begin;
  loop.fn(loop.context, begin, end, worker);
  span.end = ticks_now();
  if (!keep(lane.chunks, span)) lane.lost = true;
}

int32_t CallRecorder::run(const CoilCall& call, CoilError* error) {
  for (Lane& lane : lanes_) lane.kernels.clear(), lane.chunks.clear(), lane.sizes.clear(), lane.last = 0, lane.lost = false;
  call_.sizes.assign(call.symbols, call.symbols + model_.code().num_symbols);
  current_ = -1;
  CoilCall watched = call;
  CoilHost host;
  if (call.host && call.host->num_workers > 1) {
    host_ = call.host;
    host = {host_->num_workers, this, watched_loop};
    watched.host = &host;
  }
  const CoilTrace trace = only_times() ? CoilTrace{begin_timed, end_timed, this} : CoilTrace{begin_kernel, end_kernel, this};
  call_.traced = model_.code().run_traced != nullptr;
  lanes_[0].thread = call_.thread;
  lanes_[0].last = call_.placed = ticks_now();  // a call with state may have waited for another one
  const int32_t failed = call_.traced ? model_.code().run_traced(&watched, &trace, error) : model_.code().run(&watched, error);
  call_.computed = ticks_now();
  return failed;
}

// All lanes as one list, in order of time.
void CallRecorder::merge() {
  for (Lane& lane : lanes_) {
    const auto first = static_cast<uint32_t>(call_.sizes.size());
    for (KernelSpan& span : lane.kernels) {
      if (table_->sizes_from_data) span.sizes += first;
      if (!span.end) span.end = std::max(span.begin, call_.computed);  // the call failed in it
    }
    call_.sizes.insert(call_.sizes.end(), lane.sizes.begin(), lane.sizes.end());
    if (lane.kernels.empty() && lane.chunks.empty() && lane.sizes.empty()) continue;
    call_.kernels.insert(call_.kernels.end(), lane.kernels.begin(), lane.kernels.end());
    call_.chunks.insert(call_.chunks.end(), lane.chunks.begin(), lane.chunks.end());
    lane.kernels.clear(), lane.chunks.clear(), lane.sizes.clear();
  }
  const auto earlier = [](const KernelSpan& a, const KernelSpan& b) { return a.begin < b.begin; };
  if (!std::is_sorted(call_.kernels.begin(), call_.kernels.end(), earlier)) std::stable_sort(call_.kernels.begin(), call_.kernels.end(), earlier);
}

void CallRecorder::finish(int32_t failed) noexcept {
  call_.end = ticks_now();
  call_.failed = failed;
  const int32_t open = failed ? current_.load(std::memory_order_relaxed) : -1;  // it failed in a kernel
  if (nvtx_ && open >= 0) nvtx_->pop();
  close_range();
  current_.store(-1, std::memory_order_relaxed);
  if (profiles_.empty()) return;
  if (!call_.computed) call_.computed = call_.placed;  // it failed before its kernels
  try {
    if (open >= 0 && only_times()) lanes_[0].kernels.push_back({open, lanes_[0].thread, lanes_[0].last, call_.computed, 0, 0});
    merge();
    const bool late = marked_ && !wants_all_;
    if (marked_ && !late) {
      call_.clock = marks_->times(call_.begin, failed != 0, &call_.kernels);
      call_.end = ticks_now();
    }
    call_.left_out = sampling_.take_left_out();
    const auto record = std::make_shared<CallRecord>(call_);
    if (late) marks_->leave(record, *clock_);
    for (auto& profile : profiles_) profile->add(record, late ? marks_ : nullptr);
  } catch (const std::bad_alloc&) {  // no memory for what would be shown
  }
  profiles_.clear();
  if (wants_all_ || failed) return;
  constexpr int64_t kFirst = 128, kFirstOfDevice = 4;  // recorded in any case: a tenth of a millisecond, and some milliseconds
  const uint64_t left = ticks_now();
  sampling_.recorded({entered_, left, call_.end - call_.begin, cost_of_recording(left), marked_ ? kFirstOfDevice : kFirst});
}

// What the call under way would have taken less, in ticks: what stands before and after it is measured, events have a usual price. On a device it is at
// most all that the host did (it may have had but one graph to launch), and what the marks keep the device from doing.
double CallRecorder::cost_of_recording(uint64_t finished) const {
  constexpr double kMarksOfKernel = 2e-6;  // seconds: kernels begin apart, and do not start early
  if (marked_) return static_cast<double>(finished - entered_) + static_cast<double>(call_.kernels.size() * ticks_of_seconds(kMarksOfKernel));
  constexpr double kUnseen = 2.2;  // caches and branches meet other data afterwards, and its way here
  const double around = static_cast<double>(call_.begin - entered_ + finished - call_.end), clock = price_of_clock();
  const double exact = only_times() ? 0 : 2 * clock, counting = call_.counted ? 2 * static_cast<double>(reading_) : 0;
  const double kernels = static_cast<double>(call_.kernels.size()) * (2 * clock + exact + counting);
  const double chunks = static_cast<double>(call_.chunks.size()) * 3 * clock / static_cast<double>(lanes_.size());
  return kUnseen * (around + kernels + chunks);
}

}  // namespace coil::runtime
