// What a context needs besides memory to run on a CUDA device: the word through which kernels report, the order of its calls on
// streams, and the check that pointers are the device's. Used by one call at a time, like its context.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "device/cuda_call.h"
#include "runtime/model.h"

namespace coil::runtime {

class CudaSession {
 public:
  static Result<std::unique_ptr<CudaSession>> make(const Model& model);
  ~CudaSession();
  CudaSession(const CudaSession&) = delete;
  CudaSession& operator=(const CudaSession&) = delete;

  // Whether the tensor `name` (input or output `number`; `slot` is a number of it among both) lies on the model's device. Looks at the
  // tensor's words and, when the address is not that of the slot's last call, asks the driver. COIL-E206.
  int32_t check_place(const char* kind, const char* name, int32_t number, int32_t slot, const CoilTensorView& view, CoilError* error);

  // Before a call is enqueued on `stream`: fails when a former call was found at fault, and orders this one after the former
  // calls on other streams, with which it shares memory. After: what the next one needs for it. state: that of the call, or null.
  int32_t begin(void* stream, State* state, CoilError* error);
  int32_t end(void* stream, State* state, CoilError* error);

  // What the kernels of calls that are over found at fault; waits for nothing where they found nothing.
  int32_t check(CoilError* error) { return take_earlier_flag(stream_, error); }

  bool is_captured(void* stream) const { return cd::cuda_is_captured(driver_, stream); }

  // Waits for the last call's stream, then tells what its kernels found at fault.
  int32_t synchronise(CoilError* error);

  int32_t* flag() const { return flag_.device; }  // for kernels
  void* stream() const { return stream_; }        // of the last call

 private:
  explicit CudaSession(const Model& model);
  int32_t take_earlier_flag(void* stream, CoilError* error);
  int32_t order(void* stream, CoilError* error);

  const Model& model_;
  const cd::CudaDriver& driver_;
  cd::CudaFlag flag_;
  std::vector<const void*> known_;  // addresses that were found to be the device's, one a slot
  void* stream_ = nullptr;
  bool used_ = false;
  // The first change of streams waits for the device; from then on an event marks the end of each call.
  void* event_ = nullptr;
};

}  // namespace coil::runtime
