// include/coil/coil.h over Model and Context. The border where errors become numbers and texts, and where no exception passes.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "coil/coil.h"
#include "device/dtype_names.h"
#include "runtime/c_handles.h"
#include "runtime/context.h"
#include "runtime/model.h"

using coil::Error;
using coil::ErrorCode;
using coil::runtime::Context;
using coil::runtime::fail;
using coil::runtime::fail_call;
using coil::runtime::fail_exception;
using coil::runtime::fail_null;
using coil::runtime::ManifestTensor;
using coil::runtime::Model;
using coil::runtime::ModelOptions;
using coil::runtime::State;

// A coil_tensor is passed on as it is.
static_assert(sizeof(coil_tensor) == sizeof(CoilTensorView) && offsetof(coil_tensor, data) == offsetof(CoilTensorView, data) &&
              offsetof(coil_tensor, sizes) == offsetof(CoilTensorView, sizes) && offsetof(coil_tensor, strides) == offsetof(CoilTensorView, strides) &&
              offsetof(coil_tensor, rank) == offsetof(CoilTensorView, ndim) && offsetof(coil_tensor, dtype) == offsetof(CoilTensorView, dtype) &&
              offsetof(coil_tensor, device_type) == offsetof(CoilTensorView, device_type) &&
              offsetof(coil_tensor, device_index) == offsetof(CoilTensorView, device_index));
static_assert(COIL_DTYPE_FLOAT32 == +COIL_FLOAT32 && COIL_DTYPE_COMPLEX128 == +COIL_COMPLEX128 && COIL_DTYPE_BFLOAT16 == +COIL_BFLOAT16 &&
              COIL_DTYPE_BOOL == +COIL_BOOL && COIL_DTYPE_FLOAT8_E4M3FN == +COIL_FLOAT8_E4M3FN && COIL_DTYPE_FLOAT8_E8M0FNU == +COIL_FLOAT8_E8M0FNU);
static_assert(sizeof(coil_input_fault) == sizeof(CoilInputFault) && offsetof(coil_input_fault, input) == offsetof(CoilInputFault, input) &&
              offsetof(coil_input_fault, rank) == offsetof(CoilInputFault, ndim) && offsetof(coil_input_fault, strides) == offsetof(CoilInputFault, strides));

namespace {

std::vector<std::vector<coil_dim>> dims_of(const std::vector<ManifestTensor>& tensors) {
  std::vector<std::vector<coil_dim>> all;
  for (const ManifestTensor& tensor : tensors) {
    std::vector<coil_dim>& dims = all.emplace_back();
    for (const auto& dim : tensor.dims) dims.push_back({dim.min, dim.max, dim.symbol.empty() ? nullptr : dim.symbol.c_str(), dim.hint});
  }
  return all;
}

// Fields that an older caller's struct does not have are 0.
coil::Result<ModelOptions> options_of(const coil_options* options) {
  coil_options known = {};
  if (options) {
    if (options->struct_bytes < sizeof options->struct_bytes)
      return Error{ErrorCode::bad_option, "coil_options.struct_bytes is not set", "", "set it to sizeof(coil_options)"};
    std::memcpy(&known, options, std::min<size_t>(options->struct_bytes, sizeof known));
  }
  if (known.verify < COIL_VERIFY_SMALL || known.verify > COIL_VERIFY_NONE)
    return Error{ErrorCode::bad_option, "coil_options.verify is " + std::to_string(known.verify) + ", expected one of coil_verify"};
  return ModelOptions{known.num_threads,
                      known.parallel_for,
                      known.pool,
                      known.device ? known.device : "",
                      static_cast<coil::runtime::Verify>(known.verify),
                      known.program ? known.program : ""};
}

coil_status give_model(coil::Result<std::shared_ptr<Model>> opened, coil_model** out) {
  if (!opened.ok()) return fail(opened.error());
  auto model = std::make_unique<coil_model>();
  model->model = std::move(opened).value();
  model->input_dims = dims_of(model->model->manifest().inputs);
  model->output_dims = dims_of(model->model->manifest().outputs);
  *out = model.release();
  return COIL_OK;
}

template <class F>
coil_status open_with(const coil_options* options, coil_model** out, F open) {
  if (!out) return fail_null("the place for the model");
  *out = nullptr;
  try {
    const auto known = options_of(options);
    if (!known.ok()) return fail(known.error());
    return give_model(open(known.value()), out);
  } catch (...) {
    return fail_exception();
  }
}

coil_status info_of(const char* kind, const std::vector<ManifestTensor>& tensors, const std::vector<std::vector<coil_dim>>& dims, int32_t device_type,
                    int32_t i, coil_tensor_info* info) {
  if (!info) return fail_null("the place for the description");
  if (i < 0 || static_cast<size_t>(i) >= tensors.size())
    return fail(
        Error{ErrorCode::input_name, std::string("there is no ") + kind + " " + std::to_string(i) + "; the program has " + std::to_string(tensors.size())});
  const ManifestTensor& tensor = tensors[static_cast<size_t>(i)];
  *info = {tensor.name.c_str(), tensor.dtype, static_cast<int32_t>(tensor.dims.size()), dims[static_cast<size_t>(i)].data(),
           tensor.scalar ? +COIL_CPU : device_type};
  return COIL_OK;
}

template <class F>
coil_status make_state(const std::shared_ptr<const Model>& model, F make, coil_state** out) {
  *out = nullptr;
  try {
    auto made = make();
    if (!made.ok()) return fail(made.error());
    *out = new coil_state{model, std::move(made).value()};
    return COIL_OK;
  } catch (...) {
    return fail_exception();
  }
}

coil_status copy(coil_context* context, void* to, const void* from, size_t bytes) {
  if (!context) return fail_null("the context");
  if (bytes && (!to || !from)) return fail_null(to ? "the source" : "the destination");
  CoilError error;
  const int32_t code = context->context.model().device().copy(to, from, static_cast<int64_t>(bytes), context->context.stream(), &error);
  return code ? fail_call(error) : COIL_OK;
}

}  // namespace

extern "C" {

const char* coil_version(void) { return COIL_VERSION; }
const char* coil_last_error(void) { return coil::runtime::last_error(); }

const char* coil_dtype_name(int32_t dtype) {
  const char* name = cd::dtype_name(dtype);
  return name ? name : "unknown";
}

size_t coil_dtype_bytes(int32_t dtype) {
  switch (dtype) {
    case COIL_DTYPE_UINT8:
    case COIL_DTYPE_INT8:
    case COIL_DTYPE_BOOL:
    case COIL_DTYPE_FLOAT8_E5M2:
    case COIL_DTYPE_FLOAT8_E4M3FN:
    case COIL_DTYPE_FLOAT8_E5M2FNUZ:
    case COIL_DTYPE_FLOAT8_E4M3FNUZ:
    case COIL_DTYPE_FLOAT8_E8M0FNU: return 1;
    case COIL_DTYPE_INT16:
    case COIL_DTYPE_UINT16:
    case COIL_DTYPE_FLOAT16:
    case COIL_DTYPE_BFLOAT16: return 2;
    case COIL_DTYPE_INT32:
    case COIL_DTYPE_UINT32:
    case COIL_DTYPE_COMPLEX32:
    case COIL_DTYPE_FLOAT32: return 4;
    case COIL_DTYPE_INT64:
    case COIL_DTYPE_UINT64:
    case COIL_DTYPE_FLOAT64:
    case COIL_DTYPE_COMPLEX64: return 8;
    case COIL_DTYPE_COMPLEX128: return 16;
    default: return 0;
  }
}

coil_status coil_open(const char* path, const coil_options* options, coil_model** model) {
  if (!path) return fail_null("the path");
  return open_with(options, model, [&](const ModelOptions& o) { return Model::open(path, o); });
}

coil_status coil_open_memory(const void* bytes, size_t size, const coil_options* options, coil_model** model) {
  if (!bytes) return fail_null("the package's address");
  return open_with(options, model, [&](const ModelOptions& o) { return Model::open_memory({static_cast<const uint8_t*>(bytes), size}, o); });
}

int32_t coil_num_programs(const coil_model* model) { return model ? static_cast<int32_t>(model->model->package().programs.size()) : 0; }
const char* coil_program_name(const coil_model* model, int32_t i) {
  if (!model || i < 0 || i >= coil_num_programs(model)) return nullptr;
  return model->model->package().programs[static_cast<size_t>(i)].c_str();
}
const char* coil_model_program(const coil_model* model) { return model ? model->model->package().program.c_str() : ""; }

coil_status coil_open_program(const coil_model* model, const char* name, coil_model** program) try {
  if (!model) return fail_null("the model");
  if (!name || !program) return fail_null(name ? "the place for the model" : "the program's name");
  *program = nullptr;
  return give_model(model->model->open_program(name), program);
} catch (...) {
  return fail_exception();
}

void coil_close(coil_model* model) { delete model; }

int32_t coil_num_inputs(const coil_model* model) { return model ? model->model->code().num_inputs : 0; }
int32_t coil_num_outputs(const coil_model* model) { return model ? model->model->code().num_outputs : 0; }
int32_t coil_output_position(const coil_model* model, int32_t i) {
  if (!model) return -1;
  const std::vector<int32_t>& places = model->model->manifest().output_places;
  return i < 0 || static_cast<size_t>(i) >= places.size() ? -1 : places[static_cast<size_t>(i)];
}
coil_status coil_input_info(const coil_model* model, int32_t i, coil_tensor_info* info) try {
  if (!model) return fail_null("the model");
  return info_of("input", model->model->manifest().inputs, model->input_dims, coil_model_device_type(model), i, info);
} catch (...) {
  return fail_exception();
}
coil_status coil_output_info(const coil_model* model, int32_t i, coil_tensor_info* info) try {
  if (!model) return fail_null("the model");
  return info_of("output", model->model->manifest().outputs, model->output_dims, coil_model_device_type(model), i, info);
} catch (...) {
  return fail_exception();
}
int32_t coil_find_input(const coil_model* model, const char* name) {
  if (!model || !name) return -1;
  const std::vector<ManifestTensor>& inputs = model->model->manifest().inputs;
  for (size_t i = 0; i < inputs.size(); i++) {
    if (inputs[i].name == name) return static_cast<int32_t>(i);
  }
  return -1;
}
const char* coil_isa(const coil_model* model) { return model ? model->model->isa().c_str() : ""; }
int32_t coil_num_threads(const coil_model* model) { return model ? model->model->host().num_workers : 0; }
int32_t coil_model_device_type(const coil_model* model) { return model ? model->model->device().id().type : -1; }
int32_t coil_model_device_index(const coil_model* model) { return model ? model->model->device().id().index : -1; }
int32_t coil_cuda_device_count(void) try {
  const auto info = coil::runtime::cuda_info();
  if (info.ok()) return static_cast<int32_t>(info.value().devices.size());
  fail(info.error());
  return 0;
} catch (...) {
  fail_exception();
  return 0;
}
coil_status coil_reset_state(coil_model* model) try {
  if (!model) return fail_null("the model");
  const coil::Status status = model->model->reset_state();
  return status.ok() ? COIL_OK : fail(status.error());
} catch (...) {
  return fail_exception();
}

size_t coil_state_bytes(const coil_model* model) { return model ? static_cast<size_t>(model->model->code().state_bytes) : 0; }

coil_status coil_state_create(const coil_model* model, coil_state** state) {
  if (!model) return fail_null("the model");
  if (!state) return fail_null("the place for the state");
  return make_state(model->model, [&] { return State::make(*model->model, true); }, state);
}

coil_status coil_state_fork(coil_state* state, coil_state** copy) {
  if (!state) return fail_null("the state");
  if (!copy) return fail_null("the place for the state");
  return make_state(state->model, [&] { return state->state->fork(); }, copy);
}

void coil_state_destroy(coil_state* state) { delete state; }

coil_status coil_state_reset(coil_state* state) try {
  if (!state) return fail_null("the state");
  const coil::Status status = state->state->reset();
  return status.ok() ? COIL_OK : fail(status.error());
} catch (...) {
  return fail_exception();
}

coil_status coil_state_save(coil_state* state, void* bytes, size_t* size) try {
  if (!state) return fail_null("the state");
  if (!size) return fail_null("the place for the size");
  const auto saved = state->state->save();
  if (!saved.ok()) return fail(saved.error());
  return coil::runtime::give_bytes(saved.value(), bytes, size);
} catch (...) {
  return fail_exception();
}

coil_status coil_state_restore(coil_state* state, const void* bytes, size_t size) try {
  if (!state) return fail_null("the state");
  if (!bytes) return fail_null("the saved state");
  const coil::Status status = state->state->restore(static_cast<const uint8_t*>(bytes), size);
  return status.ok() ? COIL_OK : fail(status.error());
} catch (...) {
  return fail_exception();
}

coil_status coil_context_use_state(coil_context* context, coil_state* state) try {
  if (!context) return fail_null("the context");
  std::shared_ptr<State> shared;
  if (state) {
    // The state's memory needs its model.
    struct Both {
      std::shared_ptr<const Model> model;
      std::shared_ptr<State> state;
    };
    const auto both = std::make_shared<Both>(Both{state->model, state->state});
    shared = std::shared_ptr<State>(both, both->state.get());
  }
  const coil::Status status = context->context.use(std::move(shared));
  return status.ok() ? COIL_OK : fail(status.error());
} catch (...) {
  return fail_exception();
}

coil_status coil_context_create(coil_model* model, coil_context** context) {
  if (!model) return fail_null("the model");
  if (!context) return fail_null("the place for the context");
  try {
    *context = nullptr;
    std::unique_ptr<coil_context> made(new coil_context{Context(model->model)});
    if (const coil::Status status = made->context.prepare(); !status.ok()) return fail(status.error());
    *context = made.release();
    return COIL_OK;
  } catch (...) {
    return fail_exception();
  }
}
void coil_context_destroy(coil_context* context) { delete context; }

coil_status coil_run_on(coil_context* context, void* stream, const coil_tensor* inputs, int32_t num_inputs, coil_tensor* outputs, int32_t num_outputs) try {
  if (!context) return fail_null("the context");
  CoilError error;
  const int32_t code = context->context.run(reinterpret_cast<const CoilTensorView*>(inputs), num_inputs, reinterpret_cast<CoilTensorView*>(outputs),
                                            num_outputs, &error, stream);
  return code ? fail_call(error) : COIL_OK;
} catch (...) {
  return fail_exception();
}

coil_status coil_run(coil_context* context, const coil_tensor* inputs, int32_t num_inputs, coil_tensor* outputs, int32_t num_outputs) {
  return coil_run_on(context, nullptr, inputs, num_inputs, outputs, num_outputs);
}

coil_status coil_synchronize(coil_context* context) try {
  if (!context) return fail_null("the context");
  CoilError error;
  const int32_t code = context->context.synchronise(&error);
  return code ? fail_call(error) : COIL_OK;
} catch (...) {
  return fail_exception();
}

coil_status coil_alloc(coil_model* model, size_t bytes, void** data) try {
  if (!model || !data) return fail_null(model ? "the place for the address" : "the model");
  CoilError error;
  *data = model->model->device().allocate(bytes > INT64_MAX ? -1 : static_cast<int64_t>(bytes), &error);
  return *data ? COIL_OK : fail_call(error);
} catch (...) {
  return fail_exception();
}
void coil_free(coil_model* model, void* data) {
  if (model && data) model->model->device().free(data);
}

coil_status coil_copy_to_device(coil_context* context, void* device, const void* host, size_t bytes) try {
  return copy(context, device, host, bytes);
} catch (...) {
  return fail_exception();
}

coil_status coil_copy_from_device(coil_context* context, void* host, const void* device, size_t bytes) try {
  const coil_status status = copy(context, host, device, bytes);
  return status == COIL_OK ? coil_synchronize(context) : status;
} catch (...) {
  return fail_exception();
}

coil_status coil_infer(coil_context* context, const coil_tensor* inputs, int32_t num_inputs, coil_tensor* outputs, int32_t num_outputs) try {
  if (!context) return fail_null("the context");
  if (num_outputs > 0 && !outputs) return fail_null("the array of outputs");
  CoilError error;
  const int32_t code =
      context->context.infer(reinterpret_cast<const CoilTensorView*>(inputs), num_inputs, reinterpret_cast<CoilTensorView*>(outputs), num_outputs, &error);
  return code ? fail_call(error) : COIL_OK;
} catch (...) {
  return fail_exception();
}

coil_status coil_memory_of_run(const coil_context* context, coil_memory* memory) {
  if (!context || !memory) return fail_null(context ? "the place for the numbers" : "the context");
  const CoilModel& code = context->context.model().code();
  *memory = {context->context.arena_bytes(), context->context.output_bytes(), static_cast<int64_t>(code.constants_bytes),
             static_cast<int64_t>(code.state_bytes)};
  return COIL_OK;
}

coil_status coil_fault_of_run(const coil_context* context, coil_input_fault* fault) {
  if (!context || !fault) return fail_null(context ? "the place for the fault" : "the context");
  std::memcpy(fault, &context->context.fault(), sizeof *fault);
  return COIL_OK;
}

}  // extern "C"
