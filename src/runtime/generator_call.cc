// See generator_call.h.
#include "runtime/generator_call.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/half.h"

namespace coil::runtime {
namespace {

void widen(int32_t dtype, std::span<const uint16_t> from, float* to) {
  if (dtype == COIL_FLOAT16) std::transform(from.begin(), from.end(), to, [](uint16_t bits) { return from_f16(bits); });
  else std::transform(from.begin(), from.end(), to, [](uint16_t bits) { return from_bf16(bits); });
}

// A number that the host reads, and not the device.
bool by_host(const ManifestTensor& info) { return info.dims.empty() && info.scalar; }

}  // namespace

Status GeneratorCall::start(const GenerationForm& form, std::span<const int64_t> tokens, std::span<const int64_t> places, const std::shared_ptr<State>& state,
                            const Source* source) {
  const Model& model = context_.model();
  const std::vector<ManifestTensor>& infos = model.manifest().inputs;
  const int64_t rows = std::max<int64_t>(form.slots, 1), room = room_for(static_cast<int64_t>(tokens.size()));
  all_ = static_cast<int64_t>(tokens.size());
  TRY_STATUS(context_.use(state));
  std::vector<CoilTensorView> inputs(infos.size());
  CoilError error{};
  if (!memory_.reserve(2 * room, &error)) return error_of(error);
  host_.assign(static_cast<size_t>(2 * room), 0);
  int64_t used = set(&inputs[static_cast<size_t>(form.tokens)], infos[static_cast<size_t>(form.tokens)], 0, token_sizes_, rows, tokens);
  if (form.places >= 0)
    used = std::max(used, set(&inputs[static_cast<size_t>(form.places)], infos[static_cast<size_t>(form.places)], room, place_sizes_, rows, places));
  if (form.source >= 0) set_source(form, source, &inputs[static_cast<size_t>(form.source)]);
  if (model.device().copy(memory_.data(), host_.data(), used, nullptr, &error)) return error_of(error);
  return run(&inputs);
}

Status GeneratorCall::start_next(const GenerationForm& form, int64_t place, const std::shared_ptr<State>& state, const Source* source) {
  const std::vector<ManifestTensor>& infos = context_.model().manifest().inputs;
  const int64_t token = 0;
  all_ = 1;
  TRY_STATUS(context_.use(state));
  std::vector<CoilTensorView> inputs(infos.size());
  host_.assign(static_cast<size_t>(2 * room_for(1)), 0);
  set(&inputs[static_cast<size_t>(form.tokens)], infos[static_cast<size_t>(form.tokens)], 0, token_sizes_, 1, {&token, 1});
  if (form.places >= 0) set(&inputs[static_cast<size_t>(form.places)], infos[static_cast<size_t>(form.places)], room_for(1), place_sizes_, 1, {&place, 1});
  if (form.source >= 0) set_source(form, source, &inputs[static_cast<size_t>(form.source)]);
  return run(&inputs);
}

Status GeneratorCall::next_inputs(const GenerationForm& form, CudaSample* row) {
  const std::vector<ManifestTensor>& infos = context_.model().manifest().inputs;
  const auto bytes = [](const ManifestTensor& info) { return info.dtype == COIL_INT64 ? 8 : 4; };
  CoilError error{};
  if (!memory_.reserve(2 * room_for(1), &error)) return error_of(error);
  row->next_token = memory_.data();
  row->token_bytes = bytes(infos[static_cast<size_t>(form.tokens)]);
  if (form.places < 0 || by_host(infos[static_cast<size_t>(form.places)])) return ok_status();
  row->next_place = memory_.data() + room_for(1);
  row->place_bytes = bytes(infos[static_cast<size_t>(form.places)]);
  return ok_status();
}

void GeneratorCall::set_source(const GenerationForm& form, const Source* source, CoilTensorView* view) const {
  const DeviceId device = context_.model().device().id();
  view->data = source->states.data(), view->sizes = const_cast<int64_t*>(source->sizes), view->ndim = 3;
  view->dtype = context_.model().manifest().inputs[static_cast<size_t>(form.source)].dtype;
  view->device_type = device.type, view->device_index = device.index;
}

Status GeneratorCall::run(std::vector<CoilTensorView>* inputs) {
  outputs_.assign(static_cast<size_t>(context_.model().code().num_outputs), CoilTensorView{});
  CoilError error{};
  if (context_.run(inputs->data(), static_cast<int32_t>(inputs->size()), outputs_.data(), static_cast<int32_t>(outputs_.size()), &error))
    return error_of(error);
  return ok_status();
}

Status GeneratorCall::finish() {
  CoilError error{};
  return context_.synchronise(&error) ? Status(error_of(error)) : ok_status();
}

// An input at `at` of the memory on the device, unless it is a number that the host reads. Returns the end of what has to be copied there.
int64_t GeneratorCall::set(CoilTensorView* view, const ManifestTensor& info, int64_t at, int64_t (&sizes)[3], int64_t rows, std::span<const int64_t> values) {
  if (info.dims.empty()) values = values.first(1);
  const auto n = static_cast<int64_t>(values.size());
  uint8_t* to = host_.data() + at;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t wide = values[static_cast<size_t>(i)];
    const auto narrow = static_cast<int32_t>(wide);
    if (info.dtype == COIL_INT64) std::memcpy(to + 8 * i, &wide, 8);
    else std::memcpy(to + 4 * i, &narrow, 4);
  }
  sizes[0] = rows, sizes[1] = n / rows, sizes[2] = n;
  const bool host = by_host(info);
  const Device& device = host ? cpu_device() : context_.model().device();
  view->data = (host ? host_.data() : static_cast<uint8_t*>(memory_.data())) + at;
  view->sizes = info.dims.size() == 2 ? sizes : sizes + 2;
  view->ndim = static_cast<int32_t>(info.dims.size());
  view->dtype = info.dtype;
  view->device_type = device.id().type;
  view->device_index = device.id().index;
  return host ? 0 : at + n * (info.dtype == COIL_INT64 ? 8 : 4);
}

// The program gives the logits of all tokens of the call, or of the last ones.
Status GeneratorCall::find_rows(const GenerationForm& form, std::span<const int64_t> wanted, std::vector<const uint8_t*>* rows) const {
  const CoilTensorView& view = outputs_[static_cast<size_t>(form.logits)];
  int64_t have = 1;
  for (int32_t d = 0; d + 1 < view.ndim; ++d) have *= view.sizes[d];
  if (!wanted.empty() && wanted.front() < all_ - have)
    return wrong_form("it gives the logits of " + std::to_string(have) + " tokens where those of " + std::to_string(all_ - wanted.front()) + " are asked for");
  const int64_t width = view.dtype == COIL_FLOAT32 ? 4 : 2, row = view.ndim > 1 && view.strides ? view.strides[view.ndim - 2] : form.vocabulary;
  const bool apart = view.strides && view.ndim == 3 && view.sizes[0] > 1 && view.strides[0] != view.sizes[1] * row;
  if (view.strides && (view.strides[view.ndim - 1] != 1 || apart)) return wrong_form("its logits are not contiguous");
  rows->clear();
  for (const int64_t r : wanted) rows->push_back(static_cast<const uint8_t*>(view.data) + (have - all_ + r) * row * width);
  return ok_status();
}

Status GeneratorCall::logits(const GenerationForm& form, std::span<const int64_t> wanted, std::vector<float>* logits) {
  const int64_t vocabulary = form.vocabulary;
  const int32_t dtype = outputs_[static_cast<size_t>(form.logits)].dtype;
  const int64_t width = dtype == COIL_FLOAT32 ? 4 : 2;
  std::vector<const uint8_t*> rows;
  TRY_STATUS(find_rows(form, wanted, &rows));
  if (logits) logits->resize(wanted.size() * static_cast<size_t>(vocabulary));
  if (width == 2) fetched_.resize(static_cast<size_t>(vocabulary));
  CoilError error{};
  float* to = logits ? logits->data() : nullptr;
  for (const uint8_t* from : rows) {
    if (context_.model().device().copy(width == 4 ? static_cast<void*>(to) : fetched_.data(), from, vocabulary * width, context_.stream(), &error))
      return error_of(error);
    if (width == 2) widen(dtype, fetched_, to);
    to += vocabulary;
  }
  return finish();  // what the call has found
}

Status GeneratorCall::choose(const GenerationForm& form, std::span<const int64_t> wanted, const ChoiceMemory& choices, int64_t first,
                             std::span<CudaSample> rows) {
  std::vector<const uint8_t*> logits;
  TRY_STATUS(find_rows(form, wanted, &logits));
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].logits = logits[i];
    rows[i].scratch = choices.scratch(static_cast<int64_t>(i));
    rows[i].result = choices.device_number(first + static_cast<int64_t>(i));
    rows[i].chances = rows[i].num_best < 0 ? nullptr : choices.device_chances(first + static_cast<int64_t>(i));
  }
  CoilError error{};
  return context_.choose(rows, &error) ? Status(error_of(error)) : ok_status();
}

Status GeneratorCall::take_source(const GenerationForm& form, std::span<const int64_t> tokens, Source* source) {
  const CoilTensorView& made = outputs_[static_cast<size_t>(form.logits)];
  int64_t values = 1;
  for (int32_t d = made.ndim; d-- > 0; values *= made.sizes[d]) {
    if (made.strides && made.sizes[d] > 1 && made.strides[d] != values) return wrong_form("what its encoder makes is not contiguous");
    source->sizes[d] = made.sizes[d];
  }
  const int64_t bytes = values * (made.dtype == COIL_FLOAT32 ? 4 : 2);
  CoilError error{};
  if (!source->states.reserve(bytes, &error)) return error_of(error);
  if (context_.model().device().copy(source->states.data(), made.data, bytes, context_.stream(), &error)) return error_of(error);
  source->tokens.assign(tokens.begin(), tokens.end());
  return finish();
}

}  // namespace coil::runtime
