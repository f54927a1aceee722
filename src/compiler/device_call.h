// Calls of packages on the device that they are for: inputs copied there, results copied back.
#pragma once

#include <span>
#include <vector>

#include "ops/tensor_data.h"
#include "runtime/buffer.h"
#include "runtime/model.h"

namespace coil {

// The inputs of a call where the model wants them. On the CPU they are the tensors themselves. Lives no longer than the model and what it was made of.
class DeviceTensors {
 public:
  static Result<DeviceTensors> make(const runtime::Model& model, std::span<const CoilTensorView> inputs);
  const std::vector<CoilTensorView>& views() const { return views_; }

 private:
  std::vector<runtime::Buffer> buffers_;
  std::vector<CoilTensorView> views_;
};

// A copy of a result, after everything on the device is done. Errors: the device's.
Result<TensorData> fetched(const runtime::Device& device, const CoilTensorView& result);

}  // namespace coil
