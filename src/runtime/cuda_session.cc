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
  if (const cd::CudaResult result = cd::cuda_make_flag(driver, &session->flag_)) {
    CoilError error;
    cd::cuda_fail(&driver, result, &error, "no pinned memory for a context");
    return error_of(error);
  }
  return session;
}

CudaSession::~CudaSession() {
  const cd::CudaScope scope(&driver_, model_.cuda()->context());
  if (used_) driver_.synchronise();  // kernels of the last call may still write to the flag
  if (event_) driver_.delete_event(event_);
  cd::cuda_free_flag(driver_, &flag_);
}

int32_t CudaSession::check_place(const char* kind, const char* name, int32_t number, int32_t slot, const CoilTensorView& view, CoilError* error) {
  const DeviceId here = model_.cuda()->id();
  const auto head = [&] { return std::string(kind) + " '" + name + "' (" + std::to_string(number) + ") is on "; };
  const auto tail = [&] { return ", the model is on " + device_text(here) + "; move it there, or open the model on its device"; };
  if (view.device_type != COIL_CUDA)
    return fail(error, ErrorCode::input_device, head() + (view.device_type == COIL_CPU ? "the CPU" : "another kind of device") + tail());
  if (int32_t code = cd::cuda_check_ordinal(kind, name, number, view.device_index, here.index, error)) return code;
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

// Calls of a context share its memory: a call on another stream than the last one's has to come after it.
int32_t CudaSession::order(void* stream, CoilError* error) {
  if (is_captured(stream)) return 0;
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
  if (!cd::cuda_is_raised(flag_)) return 0;
  if (used_ && !is_captured(stream)) {
    if (const int32_t code = model_.cuda()->synchronise(stream_, error)) return code;
  }
  return cd::cuda_take_flag(model_.code(), flag_, "an earlier call of this context: ", error);
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
  return cd::cuda_is_raised(flag_) ? cd::cuda_take_flag(model_.code(), flag_, "", error) : 0;
}

}  // namespace coil::runtime
