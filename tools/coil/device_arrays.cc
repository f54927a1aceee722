#include "device_arrays.h"

#include <fmt/format.h>

namespace coil::tool {
namespace {

Error error_of(const CoilError& error) { return Error{static_cast<ErrorCode>(error.code), error.message, "", ""}; }

// Bytes from the first element to the end of the last.
size_t extent_bytes(const CoilTensorView& view) {
  int64_t last = 0, dense = 1;
  for (int32_t d = view.ndim; d-- > 0;) {
    if (view.sizes[d] == 0) return 0;
    last += (view.sizes[d] - 1) * (view.strides ? view.strides[d] : dense);
    dense *= view.sizes[d];
  }
  return static_cast<size_t>(last + 1) * dtype_bytes(view.dtype);
}

}  // namespace

Result<DeviceInputs> DeviceInputs::make(const runtime::Model& model, const CallInputs& inputs) {
  DeviceInputs made;
  made.views_ = inputs.views;
  if (!model.cuda()) return made;
  for (size_t i = 0; i < made.views_.size(); ++i) {
    CoilTensorView& view = made.views_[i];
    if (i < model.manifest().inputs.size() && model.manifest().inputs[i].scalar) continue;
    CoilError error{};
    const auto bytes = static_cast<int64_t>(extent_bytes(view));
    runtime::Buffer& buffer = made.buffers_.emplace_back(model.device());
    if (!buffer.reserve(bytes, &error))
      return error_of(error).with_context(fmt::format("no memory for input '{}' of {} bytes", model.manifest().inputs[i].name, bytes));
    if (model.device().upload(buffer.data(), view.data, bytes, &error)) return error_of(error);
    view.data = buffer.data();
    view.device_type = model.device().id().type;
    view.device_index = model.device().id().index;
  }
  return made;
}

Result<NpyArray> fetch_array(runtime::Context& context, const CoilTensorView& view) {
  if (view.device_type == COIL_CPU) return to_array(view);
  std::vector<uint8_t> bytes(extent_bytes(view));
  CoilError error{};
  if (context.model().device().copy(bytes.data(), view.data, static_cast<int64_t>(bytes.size()), context.stream(), &error)) return error_of(error);
  CoilTensorView copy = view;
  copy.data = bytes.data();
  return to_array(copy);
}

Status run_model(runtime::Context& context, const std::vector<CoilTensorView>& inputs, std::vector<CoilTensorView>& outputs, void* stream) {
  CoilError error{};
  const int32_t code = context.run(inputs.data(), static_cast<int32_t>(inputs.size()), outputs.data(), static_cast<int32_t>(outputs.size()), &error, stream);
  if (code == 0) return ok_status();
  return Error{static_cast<ErrorCode>(code), error.message, "", ""};
}

Status synchronise(runtime::Context& context) {
  CoilError error{};
  if (context.synchronise(&error) == 0) return ok_status();
  return error_of(error);
}

std::string where_text(const runtime::Model& model) { return model.cuda() ? fmt::format("{} ({})", model.device().text(), model.isa()) : model.isa(); }

}  // namespace coil::tool
