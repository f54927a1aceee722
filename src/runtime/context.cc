// See context.h.
#include "runtime/context.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>

namespace coil::runtime {
namespace {

[[gnu::noinline, gnu::cold, gnu::format(printf, 3, 4)]] int32_t fail(CoilError* error, ErrorCode code, const char* format,
                                                                     ...) {
  error->code = static_cast<int32_t>(code);
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  return error->code;
}

int64_t element_bytes(int32_t dtype) {
  switch (dtype) {
    case COIL_INT16:
    case COIL_FLOAT16:
    case COIL_BFLOAT16:
      return 2;
    case COIL_INT32:
    case COIL_FLOAT32:
      return 4;
    case COIL_INT64:
    case COIL_FLOAT64:
    case COIL_COMPLEX64:
      return 8;
    case COIL_COMPLEX128:
      return 16;
    default:
      return 1;
  }
}

// Bytes from the first element to the end of the last, or -1 when that is no number.
int64_t extent_bytes(const CoilTensorDesc& desc, const int64_t* sizes, const int64_t* strides) {
  int64_t last = 0;
  for (int32_t d = 0; d < desc.ndim; d++) {
    if (sizes[d] == 0) return 0;
    int64_t step;
    if (sizes[d] < 0 || strides[d] < 0 || __builtin_mul_overflow(sizes[d] - 1, strides[d], &step) ||
        __builtin_add_overflow(last, step, &last))
      return -1;
  }
  int64_t bytes;
  return __builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, element_bytes(desc.dtype), &bytes) ? -1 : bytes;
}

// The bytes that a tensor spans; none when it is empty.
struct Span {
  uintptr_t begin = 0, end = 0;
  bool meets(const Span& other) const { return begin < other.end && other.begin < end; }
};

Span span_of(const CoilTensorView& view) {
  int64_t last = 0, dense = 1;
  for (int32_t d = view.ndim; d-- > 0;) {
    if (view.sizes[d] == 0) return {};
    last += (view.sizes[d] - 1) * (view.strides ? view.strides[d] : dense);
    dense *= view.sizes[d];
  }
  const auto begin = reinterpret_cast<uintptr_t>(view.data);
  return {begin, begin + static_cast<uintptr_t>((last + 1) * element_bytes(view.dtype))};
}

std::string list(const int64_t* values, int32_t count) {
  std::string text = "[";
  for (int32_t d = 0; d < count; d++) text += (d ? ", " : "") + std::to_string(values[d]);
  return text + "]";
}

// Whether a caller's output is laid out as the result; null strides mean contiguous; dimensions of size 1 do not matter.
bool same_layout(const CoilTensorView& have, const int64_t* sizes, const int64_t* strides) {
  if (have.ndim && !have.sizes) return false;
  bool empty = false;
  for (int32_t d = 0; d < have.ndim; d++) {
    if (have.sizes[d] != sizes[d]) return false;
    empty |= sizes[d] == 0;
  }
  if (empty) return true;
  int64_t dense = 1;
  for (int32_t d = have.ndim - 1; d >= 0; d--) {
    if (sizes[d] != 1 && (have.strides ? have.strides[d] : dense) != strides[d]) return false;
    dense *= sizes[d];
  }
  return true;
}

[[gnu::noinline, gnu::cold]] int32_t fail_output(CoilError* error, const CoilTensorDesc& desc, int32_t i, const int64_t* sizes,
                                                 const int64_t* strides, const CoilTensorView& have) {
  const bool rank_fits = have.ndim == desc.ndim && (have.sizes || !have.ndim);
  return fail(error, ErrorCode::output_mismatch,
              "output '%s' (%d): the result has dtype number %d, sizes %s, strides %s; the caller's tensor has dtype number "
              "%d, rank %d%s%s%s%s%s; "
              "pass a tensor like the result, or one without data",
              desc.name, i, desc.dtype, list(sizes, desc.ndim).c_str(), list(strides, desc.ndim).c_str(), have.dtype, have.ndim,
              rank_fits ? ", sizes " : "", rank_fits ? list(have.sizes, have.ndim).c_str() : "",
              rank_fits && have.strides ? ", strides " : "",
              rank_fits && have.strides ? list(have.strides, have.ndim).c_str() : "",
              have.device_type != COIL_CPU ? ", on CUDA" : "");
}

}  // namespace

Context::Context(std::shared_ptr<const Model> model)
    : model_(std::move(model)),
      code_(model_->code()),
      symbols_(static_cast<size_t>(code_.num_symbols) + 1),
      input_data_(static_cast<size_t>(code_.num_inputs) + 1),
      output_data_(static_cast<size_t>(code_.num_outputs) + 1),
      arena_(model_->device()) {
  outputs_.reserve(static_cast<size_t>(code_.num_outputs));
  for (int32_t i = 0; i < code_.num_outputs; i++) outputs_.emplace_back(model_->device());
}

Status Context::prepare() {
  if (!model_->cuda() || session_) return ok_status();
  TRY(session_, CudaSession::make(*model_));
  return ok_status();
}

int32_t Context::bind(const CoilTensorView* inputs, int32_t num_inputs, int32_t num_outputs, CoilError* error) {
  if (num_inputs > 0 && !inputs) return fail(error, ErrorCode::input_null, "the array of inputs is null");
  if (code_.bind(inputs, num_inputs, symbols_.data(), error) != 0) return error->code;
  if (num_outputs != code_.num_outputs)
    return fail(error, ErrorCode::output_mismatch, "the program has %d outputs, the caller passes %d", code_.num_outputs,
                num_outputs);
  for (int32_t i = 0; i < num_outputs; i++) {
    Output& output = outputs_[static_cast<size_t>(i)];
    code_.output_shape(symbols_.data(), i, output.sizes, output.strides);
    if (is_late(i)) std::fill_n(output.sizes, code_.outputs[i].ndim, int64_t{-1}), std::fill_n(output.strides, code_.outputs[i].ndim, int64_t{-1});
  }
  return 0;
}

// Decides where output i is written.
int32_t Context::place_output(int32_t i, const CoilTensorView& wish, CoilError* error) {
  Output& output = outputs_[static_cast<size_t>(i)];
  const CoilTensorDesc& desc = code_.outputs[i];
  if (wish.data) {
    const bool fits = wish.dtype == desc.dtype && wish.ndim == desc.ndim && wish.device_type == code_.device_type &&
                      reinterpret_cast<uintptr_t>(wish.data) % static_cast<uintptr_t>(element_bytes(desc.dtype)) == 0 &&
                      same_layout(wish, output.sizes, output.strides);
    if (!fits) return fail_output(error, desc, i, output.sizes, output.strides, wish);
    output_data_[static_cast<size_t>(i)] = wish.data;
    return 0;
  }
  const int64_t bytes = extent_bytes(desc, output.sizes, output.strides);
  CoilError reason{};
  if (bytes < 0 || !output.buffer.reserve(bytes, &reason))
    return fail(error, reason.code ? static_cast<ErrorCode>(reason.code) : ErrorCode::out_of_memory,
                "no memory for output '%s' of sizes %s (%lld bytes): %s", desc.name, list(output.sizes, desc.ndim).c_str(),
                static_cast<long long>(bytes), reason.code ? reason.message : "more bytes than there are numbers for");
  output_bytes_ += bytes;
  output_data_[static_cast<size_t>(i)] = output.buffer.data();
  return 0;
}

void Context::describe(CoilTensorView* outputs) const {
  const DeviceId device = model_->device().id();
  for (int32_t i = 0; i < code_.num_outputs; i++) {
    const CoilTensorDesc& desc = code_.outputs[i];
    const Output& output = outputs_[static_cast<size_t>(i)];
    outputs[i] = {outputs[i].data, output.sizes, output.strides, desc.ndim, desc.dtype, device.type, device.index};
  }
}

int32_t Context::infer(const CoilTensorView* inputs, int32_t num_inputs, CoilTensorView* outputs, int32_t num_outputs,
                       CoilError* error) {
  if (int32_t code = bind(inputs, num_inputs, num_outputs, error)) return code;
  describe(outputs);
  return 0;
}

// What is computed is written while inputs are still read, in any order.
int32_t Context::check_overlap(const CoilTensorView* inputs, const CoilTensorView* outputs, CoilError* error) const {
  for (int32_t o = 0; o < code_.num_outputs; o++) {
    if (!outputs[o].data) continue;
    const bool malformed = outputs[o].ndim != code_.outputs[o].ndim || (outputs[o].ndim && !outputs[o].sizes);
    if (is_late(o) && malformed) continue;  // refused when its size is known
    const Span out = span_of(outputs[o]);
    const char* kind = nullptr;
    const char* name = nullptr;
    for (int32_t i = 0; i < code_.num_inputs && !kind; i++) {
      if (out.meets(span_of(inputs[i]))) kind = "input", name = code_.inputs[i].name;
    }
    for (int32_t i = 0; i < o && !kind; i++) {
      if (outputs[i].data && out.meets(span_of(outputs[i]))) kind = "output", name = code_.outputs[i].name;
    }
    if (kind)
      return fail(error, ErrorCode::output_mismatch,
                  "output '%s' (%d): its memory overlaps that of %s '%s'; pass memory of its own, or none",
                  code_.outputs[o].name, o, kind, name);
  }
  return 0;
}

// On CUDA: no address that the device cannot use reaches a kernel. Symbolic integers, which bind has read, are on the CPU.
int32_t Context::check_places(const CoilTensorView* inputs, const CoilTensorView* outputs, CoilError* error) {
  for (int32_t i = 0; i < code_.num_inputs; i++) {
    if (inputs[i].device_type == COIL_CPU) continue;  // bind has agreed
    if (int32_t code = session_->check_place("input", code_.inputs[i].name, i, inputs[i], error)) return code;
  }
  for (int32_t i = 0; i < code_.num_outputs; i++) {
    if (!outputs[i].data) continue;
    if (int32_t code = session_->check_place("output", code_.outputs[i].name, code_.num_inputs + i, outputs[i], error))
      return code;
  }
  return 0;
}

int32_t Context::allocate(int32_t output, int64_t bytes, const int64_t* symbols, void** data, CoilError* error) {
  if (output >= 0) {
    Output& o = outputs_[static_cast<size_t>(output)];
    code_.output_shape(symbols, output, o.sizes, o.strides);
    if (place_output(output, wishes_[output], error)) return 1;
    *data = output_data_[static_cast<size_t>(output)];
    return 0;
  }
  if (num_late_ == late_.size()) late_.emplace_back(model_->device());
  Buffer& buffer = late_[num_late_++];
  CoilError reason{};
  if (!buffer.reserve(bytes, &reason)) {
    fail(error, ErrorCode::out_of_memory, "no memory for scratch space of %lld bytes, which the data asks for: %s", static_cast<long long>(bytes), reason.message);
    return 1;
  }
  arena_bytes_ += bytes;
  *data = buffer.data();
  return 0;
}

int32_t Context::call_code(void* stream, CoilError* error) {
  num_late_ = 0;
  const CoilHost& host = model_->host();
  const CoilCall call = {symbols_.data(),
                         model_->constants(),
                         model_->state(),
                         input_data_.data(),
                         output_data_.data(),
                         arena_.data(),
                         session_ ? nullptr : &host,
                         model_->loaded(),
                         stream,
                         session_ ? session_->flag() : nullptr,
                         [](void* owner, int32_t output, int64_t bytes, const int64_t* symbols, void** data, CoilError* problem) {
                           return static_cast<Context*>(owner)->allocate(output, bytes, symbols, data, problem);
                         },
                         this};
  error->code = 0;
  if (!code_.run(&call, error)) return 0;
  return error->code ? error->code : fail(error, ErrorCode::internal, "the model's code failed without a reason");
}

int32_t Context::enqueue(void* stream, CoilError* error) {
  const bool uses_state = model_->state() != nullptr;
  if (int32_t code = session_->begin(stream, uses_state, error)) return code;
  const int32_t failed = call_code(stream, error);
  CoilError later;
  const int32_t ended = session_->end(stream, uses_state, failed ? &later : error);  // what was enqueued before a failure runs
  return failed ? failed : ended;
}

int32_t Context::run(const CoilTensorView* inputs, int32_t num_inputs, CoilTensorView* outputs, int32_t num_outputs,
                     CoilError* error, void* stream) {
  if (int32_t code = bind(inputs, num_inputs, num_outputs, error)) return code;
  if (num_outputs > 0 && !outputs) return fail(error, ErrorCode::input_null, "the array of outputs is null");
  std::optional<cd::CudaScope> scope;
  if (const CudaDevice* cuda = model_->cuda()) {
    if (!session_) {
      const Status prepared = prepare();
      if (!prepared.ok()) return fail(error, prepared.error().code, "%s", prepared.error().message.c_str());
    }
    scope.emplace(&cuda->driver(), cuda->context());
    if (int32_t code = check_places(inputs, outputs, error)) return code;
  } else if (stream) {
    return fail(error, ErrorCode::bad_option, "the model runs on the CPU, which has no streams; pass none");
  }
  for (int32_t i = 0; i < num_inputs; i++) input_data_[static_cast<size_t>(i)] = inputs[i].data;
  output_bytes_ = 0;
  wishes_ = outputs;
  bool owned = true;
  for (int32_t i = 0; i < num_outputs; i++) {
    if (is_late(i)) continue;  // its size is not known yet
    if (int32_t code = place_output(i, outputs[i], error)) return code;
    owned &= outputs[i].data == nullptr;
  }
  if (!owned) {
    if (int32_t code = check_overlap(inputs, outputs, error)) return code;
  }
  arena_bytes_ = code_.arena_bytes(symbols_.data(), model_->host().num_workers);
  CoilError reason{};
  if (arena_bytes_ && !arena_.reserve(arena_bytes_, &reason)) return fail_arena(reason, error);
  int32_t failed;
  if (session_ && !model_->state()) {
    failed = enqueue(stream, error);
  } else if (model_->state()) {
    std::lock_guard lock(model_->state_mutex());
    failed = session_ ? enqueue(stream, error) : call_code(nullptr, error);
  } else {
    failed = call_code(nullptr, error);
  }
  if (failed) return failed;
  for (int32_t i = 0; i < num_outputs; i++) outputs[i].data = output_data_[static_cast<size_t>(i)];
  describe(outputs);
  return 0;
}

int32_t Context::fail_arena(const CoilError& reason, CoilError* error) const {
  const std::string& formula = model_->target().arena_formula;
  return fail(error, static_cast<ErrorCode>(reason.code), "no memory for the scratch space of %lld bytes%s%s: %s",
              static_cast<long long>(arena_bytes_), formula.empty() ? "" : ", by the formula ", formula.c_str(),
              reason.message);
}

int32_t Context::synchronise(CoilError* error) { return session_ ? session_->synchronise(error) : 0; }

}  // namespace coil::runtime
