// See cuda_session.h.
#include "runtime/cuda_session.h"

#include <cstdio>
#include <string>

namespace coil::runtime {
namespace {

int32_t fail(CoilError* error, ErrorCode code, const std::string& text) {
  error->code = static_cast<int32_t>(code);
  std::snprintf(error->message, sizeof error->message, "%s", text.c_str());
  return error->code;
}

bool is_empty(const CoilTensorView& view) {
  for (int32_t d = 0; d < view.ndim; d++) {
    if (view.sizes[d] == 0) return true;
  }
  return false;
}

struct Place {
  uint32_t memory_type = 0;  // 0: not CUDA's
  int32_t ordinal = -1;
  uint32_t managed = 0;
};

Place place_of(const cd::CudaDriver& driver, const void* data) {
  Place place;
  const int32_t attributes[] = {cd::kCudaPointerMemoryType, cd::kCudaPointerOrdinal, cd::kCudaPointerManaged};
  void* values[] = {&place.memory_type, &place.ordinal, &place.managed};
  if (driver.pointer_attributes(3, attributes, values, reinterpret_cast<cd::CudaAddress>(data)) != cd::kCudaSuccess) return {};
  return place;
}

}  // namespace

CudaSession::CudaSession(const Model& model)
    : model_(model), driver_(model.cuda()->driver()), known_(static_cast<size_t>(model.code().num_inputs) + static_cast<size_t>(model.code().num_outputs)) {}

Result<std::unique_ptr<CudaSession>> CudaSession::make(const Model& model) {
  std::unique_ptr<CudaSession> session(new CudaSession(model));
  const cd::CudaDriver& driver = session->driver_;
  const cd::CudaScope scope(&driver, model.cuda()->context());
  void* host = nullptr;
  cd::CudaAddress device = 0;
  cd::CudaResult result = driver.allocate_host(&host, sizeof(int32_t), cd::kCudaHostPortable | cd::kCudaHostMapped);
  session->flag_ = static_cast<int32_t*>(host);
  if (result == cd::kCudaSuccess) {
    *session->flag_ = 0;
    result = driver.host_address(&device, host, 0);
  }
  if (result != cd::kCudaSuccess) {
    CoilError error;
    cd::cuda_fail(&driver, result, &error, "no pinned memory for a context");
    return Error{static_cast<ErrorCode>(error.code), error.message, "", ""};
  }
  session->device_flag_ = reinterpret_cast<int32_t*>(device);
  return session;
}

CudaSession::~CudaSession() {
  const cd::CudaScope scope(&driver_, model_.cuda()->context());
  if (used_) driver_.synchronise();  // kernels of the last call may still write to the flag
  if (event_) driver_.delete_event(event_);
  if (flag_) driver_.free_host(flag_);
}

int32_t CudaSession::check_place(const char* kind, const char* name, int32_t slot, const CoilTensorView& view, CoilError* error) {
  const DeviceId here = model_.cuda()->id();
  const auto head = [&] { return std::string(kind) + " '" + name + "' is on "; };
  const auto tail = [&] { return ", the model was opened on " + device_text(here) + "; move it there, or open the model on its device"; };
  if (view.device_type != COIL_CUDA)
    return fail(error, ErrorCode::input_device, head() + (view.device_type == COIL_CPU ? "the CPU" : "another kind of device") + tail());
  if (view.device_index != here.index) return fail(error, ErrorCode::input_device, head() + device_text({COIL_CUDA, view.device_index}) + tail());
  const void*& known = known_[static_cast<size_t>(slot)];
  if (known == view.data || is_empty(view)) return 0;
  const Place place = place_of(driver_, view.data);
  if (place.memory_type != cd::kCudaMemoryDevice && !place.managed)
    return fail(error, ErrorCode::input_device,
                head() + device_text({COIL_CUDA, view.device_index}) + " by its description, but its address is that of " +
                    (place.memory_type == cd::kCudaMemoryHost ? "pinned host memory" : "host memory") + "; copy it to the device");
  if (place.ordinal != here.index && !place.managed)
    return fail(error, ErrorCode::input_device, head() + device_text({COIL_CUDA, place.ordinal}) + " by its address" + tail());
  known = view.data;
  return 0;
}

// What kernels reported since somebody looked. `when` stands before the words for it.
int32_t CudaSession::take_flag(const char* when, CoilError* error) {
  const int32_t flag = __atomic_load_n(flag_, __ATOMIC_ACQUIRE);
  if (__builtin_expect(flag == 0, true)) return 0;
  __atomic_store_n(flag_, 0, __ATOMIC_RELEASE);
  CoilError words{};
  if (model_.code().flag_error) model_.code().flag_error(flag, &words);
  if (!words.code) {
    words.code = static_cast<int32_t>(ErrorCode::input_value);
    std::snprintf(words.message, sizeof words.message, "a kernel reported fault %d in the data", flag);
  }
  return fail(error, static_cast<ErrorCode>(words.code), when + std::string(words.message));
}

bool CudaSession::is_captured(void* stream) const {
  int32_t capturing = 0;
  driver_.is_capturing(stream, &capturing);
  return capturing != 0;
}

// Calls of a context share its memory: a call on another stream than the last one's has to come after it.
int32_t CudaSession::order(void* stream, CoilError* error) {
  if (is_captured(stream)) return 0;  // a captured graph cannot wait for work outside; its owner orders the replays
  cd::CudaResult result;
  if (event_) {
    result = driver_.wait_event(stream, event_, 0);
  } else {
    result = driver_.synchronise();
    if (result == cd::kCudaSuccess) result = driver_.make_event(&event_, cd::kCudaEventNoTiming);
  }
  return result == cd::kCudaSuccess ? 0 : cd::cuda_fail(&driver_, result, error, "work of a former call failed");
}

// The flag stays up until the call that raised it is over: what it holds back (device/cuda/commit.h) may not have run yet.
int32_t CudaSession::take_earlier_flag(void* stream, CoilError* error) {
  if (__builtin_expect(__atomic_load_n(flag_, __ATOMIC_ACQUIRE) == 0, true)) return 0;
  if (used_ && !is_captured(stream)) {
    if (const int32_t code = model_.cuda()->synchronise(stream_, error)) return code;
  }
  return take_flag("an earlier call of this context: ", error);
}

int32_t CudaSession::begin(void* stream, State* state, CoilError* error) {
  if (const int32_t code = take_earlier_flag(stream, error)) return code;
  if (used_ && stream != stream_) {
    if (const int32_t code = order(stream, error)) return code;
  }
  if (state) {
    const cd::CudaResult result = is_captured(stream) ? cd::CudaResult{cd::kCudaSuccess} : driver_.wait_event(stream, state->event(), 0);
    if (result != cd::kCudaSuccess) return cd::cuda_fail(&driver_, result, error, "cannot wait for the model's state");
  }
  return 0;
}

int32_t CudaSession::end(void* stream, State* state, CoilError* error) {
  stream_ = stream;
  used_ = true;
  if (!state && !event_) return 0;
  if (is_captured(stream)) return 0;
  cd::CudaResult result = cd::kCudaSuccess;
  if (state) result = driver_.record_event(state->event(), stream);
  if (event_ && result == cd::kCudaSuccess) result = driver_.record_event(event_, stream);
  return result == cd::kCudaSuccess ? 0 : cd::cuda_fail(&driver_, result, error, "cannot record an event");
}

int32_t CudaSession::synchronise(CoilError* error) {
  if (used_) {
    if (const int32_t code = model_.cuda()->synchronise(stream_, error)) return code;
  }
  return take_flag("", error);
}

}  // namespace coil::runtime
