// The arrays of a call on the device that the model is on: inputs copied there, outputs copied back.
#pragma once

#include <vector>

#include "arrays.h"
#include "runtime/context.h"

namespace coil::tool {

// The inputs of a call as the device sees them. On the CPU they are the arrays themselves. Lives no longer than both arguments.
class DeviceInputs {
 public:
  static Result<DeviceInputs> make(const runtime::Model& model, const CallInputs& inputs);
  const std::vector<CoilTensorView>& views() const { return views_; }

 private:
  DeviceInputs() = default;
  std::vector<runtime::Buffer> buffers_;
  std::vector<CoilTensorView> views_;
};

// As to_array, of a tensor of the context's last run, wherever it is. Waits for the run.
Result<NpyArray> fetch_array(runtime::Context& context, const CoilTensorView& view);

// Runs and returns the error as the library words it.
Status run_model(runtime::Context& context, const std::vector<CoilTensorView>& inputs, std::vector<CoilTensorView>& outputs, void* stream = nullptr);
Status synchronise(runtime::Context& context);

// "cuda:0 (sm_90)", "cpu (x86-64-v4)"
std::string where_text(const runtime::Model& model);

}  // namespace coil::tool
