#include "compiler/device_call.h"

#include "compiler/call_memory.h"

namespace coil {

Result<DeviceTensors> DeviceTensors::make(const runtime::Model& model, std::span<const CoilTensorView> inputs) {
  DeviceTensors made;
  made.views_.assign(inputs.begin(), inputs.end());
  if (!model.cuda()) return made;
  for (size_t i = 0; i < made.views_.size(); ++i) {
    CoilTensorView& view = made.views_[i];
    if (i < model.manifest().inputs.size() && model.manifest().inputs[i].scalar) continue;
    const std::span<const uint8_t> bytes = borrowed(view).bytes;
    CoilError error = {};
    runtime::Buffer& buffer = made.buffers_.emplace_back(model.device());
    if (!buffer.reserve(static_cast<int64_t>(bytes.size()), &error)) return runtime::error_of(error);
    if (model.device().upload(buffer.data(), bytes.data(), static_cast<int64_t>(bytes.size()), &error)) return runtime::error_of(error);
    view.data = buffer.data();
    view.device_type = model.device().id().type;
    view.device_index = model.device().id().index;
  }
  return made;
}

Result<TensorData> fetched(const runtime::Device& device, const CoilTensorView& result) {
  if (result.device_type == COIL_CPU) return copy_of(result);
  TensorData t = borrowed(result);
  const auto bytes = std::make_shared<std::vector<uint8_t>>(t.bytes.size());
  CoilError error = {};
  if (device.synchronise_all(&error) || device.copy(bytes->data(), result.data, static_cast<int64_t>(bytes->size()), nullptr, &error))
    return runtime::error_of(error);
  t.bytes = *bytes;
  t.owner = bytes;
  return t;
}

}  // namespace coil
