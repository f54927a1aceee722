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
#include "runtime/range_tool.h"

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

}  // namespace

// A loop on the pool's threads.
struct CallRecorder::Loop {
  CallRecorder* recorder;
  CoilChunkFn fn;
  void* context;
  int32_t kernel;
};

CallRecorder::CallRecorder(std::shared_ptr<const Model> model)
    : held_(std::move(model)), model_(*held_), table_(model_.kernel_table()), lanes_(static_cast<size_t>(std::max(model_.host().num_workers, 1))) {
  const Nvtx* nvtx = Nvtx::get();
  if (!nvtx || !nvtx->of_kernels()) return;
  nvtx_ = nvtx;
  ranges_ = range_names(*table_);
}

CallRecorder::~CallRecorder() = default;

bool CallRecorder::is_captured(void* stream) const {
  const cd::CudaDriver& driver = model_.cuda()->driver();
  const cd::CudaScope scope(&driver, model_.cuda()->context());
  int32_t capturing = 0;
  return driver.is_capturing(stream, &capturing) != cd::kCudaSuccess || capturing;
}

bool CallRecorder::begin(void* stream) {
  profiles_ = take_profiles(model_);
  tool_ = RangeToolScope::current();
  if (profiles_.empty() && !nvtx_ && !tool_) return false;
  if (tool_ && ranges_.empty()) ranges_ = range_names(*table_);
  call_ = CallRecord{};
  call_.table = table_;
  call_.model = held_;
  call_.thread = this_thread();
  call_.stream = stream;
  marked_ = false;
  if (profiles_.empty()) {
    if (model_.cuda() && is_captured(stream)) return false;
  } else if (model_.cuda()) {
    if (!marks_) marks_ = CudaMarks::make(*model_.cuda());
    if (!marks_ || !marks_->begin(stream)) {  // captured: its kernels do not run now
      for (auto& profile : profiles_) profile->add(nullptr);
      profiles_.clear();
      return false;
    }
    marked_ = true;
  } else if (std::any_of(profiles_.begin(), profiles_.end(), [](const auto& p) { return p->options().counters; })) {
    if (!counters_) counters_ = std::make_unique<Counters>();
    call_.counted = counters_->start();  // of this thread; a context may go from thread to thread
    for (auto& profile : profiles_) profile->set_counters_note(call_.counted ? "" : counters_->note());
  }
  call_.begin = call_.checked = call_.placed = ticks_now();
  return true;
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
  KernelSpan span{kernel, this_thread(), 0, 0, 0, {}};
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
  if (r.call_.counted && worker == 0) r.counters_->read(span.counters);
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
  if (!r.call_.counted || worker != 0) return;
  uint64_t after[3] = {};
  r.counters_->read(after);
  for (int i = 0; i < 3; i++) span.counters[i] = after[i] - span.counters[i];
}

void CallRecorder::watched_loop(void* pool, int64_t count, int64_t grain, CoilChunkFn fn, void* context) {
  auto& r = *static_cast<CallRecorder*>(pool);
  Loop loop = {&r, fn, context, r.current_.load(std::memory_order_relaxed)};
  r.host_->parallel_for(r.host_->pool, count, grain, watched_chunk, &loop);
}

void CallRecorder::watched_chunk(void* context, int64_t begin, int64_t end, int32_t worker) {
  const Loop& loop = *static_cast<Loop*>(context);
  ChunkSpan span = {loop.kernel, this_thread(), ticks_now(), 0, end - begin};
  loop.fn(loop.context, begin, end, worker);
  span.end = ticks_now();
  Lane& lane = loop.recorder->lane(worker);
  if (!keep(lane.chunks, span)) lane.lost = true;
}

int32_t CallRecorder::run(const CoilCall& call, CoilError* error) {
  for (Lane& lane : lanes_) lane.kernels.clear(), lane.chunks.clear(), lane.sizes.clear(), lane.lost = false;
  call_.sizes.assign(call.symbols, call.symbols + model_.code().num_symbols);
  current_ = -1;
  CoilCall watched = call;
  CoilHost host;
  if (call.host && call.host->num_workers > 1) {
    host_ = call.host;
    host = {host_->num_workers, this, watched_loop};
    watched.host = &host;
  }
  const CoilTrace trace = {begin_kernel, end_kernel, this};
  call_.traced = model_.code().run_traced != nullptr;
  call_.placed = ticks_now();  // a call with state may have waited for another one
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
    call_.kernels.insert(call_.kernels.end(), lane.kernels.begin(), lane.kernels.end());
    call_.chunks.insert(call_.chunks.end(), lane.chunks.begin(), lane.chunks.end());
    lane.kernels.clear(), lane.chunks.clear(), lane.sizes.clear();
  }
  std::stable_sort(call_.kernels.begin(), call_.kernels.end(), [](const KernelSpan& a, const KernelSpan& b) { return a.begin < b.begin; });
}

void CallRecorder::finish(int32_t failed) noexcept {
  call_.end = ticks_now();
  call_.failed = failed;
  if (nvtx_ && failed && current_.load(std::memory_order_relaxed) >= 0) nvtx_->pop();  // it failed in a kernel
  close_range();
  current_.store(-1, std::memory_order_relaxed);
  if (profiles_.empty()) return;
  if (!call_.computed) call_.computed = call_.placed;  // it failed before its kernels
  std::shared_ptr<const CallRecord> record;
  try {
    merge();
    if (marked_) {
      call_.clock = marks_->times(call_.begin, failed != 0, &call_.kernels);
      call_.end = ticks_now();
    }
    record = std::make_shared<const CallRecord>(call_);
    for (auto& profile : profiles_) profile->add(record);
  } catch (const std::bad_alloc&) {  // no memory for what would be shown
  }
  profiles_.clear();
}

}  // namespace coil::runtime
