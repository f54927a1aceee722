#include "call.h"

#include <cstdio>
#include <cstring>

#include "coil/coil.h"
#include "device/huge_pages.h"
#include "errors.h"
#include "torch_ranges.h"

namespace coil::python {
namespace {

[[noreturn]] void raise(const CoilError& error) { throw PythonError{runtime::error_of(error)}; }

// Of a call: with the fields of what is wrong with its inputs.
[[noreturn]] void raise(const CoilError& error, const CoilInputFault& fault) {
  PythonError raised{runtime::error_of(error)};
  raised.input = fault.input;
  raised.expected_strides.assign(fault.strides, fault.strides + fault.ndim);
  throw raised;
}

nb::object tuple_of(const int64_t* values, int32_t count) {
  nb::object tuple = nb::steal(PyTuple_New(count));
  for (int32_t i = 0; i < count; ++i) PyTuple_SetItem(tuple.ptr(), i, PyLong_FromLongLong(values[i]));
  return tuple;
}

bool in_rows(const CoilTensorView& view) {
  int64_t dense = 1;
  for (int32_t d = view.ndim; d-- > 0;) {
    if (view.sizes[d] != 1 && view.strides[d] != dense) return false;
    dense *= view.sizes[d];
  }
  return true;
}

}  // namespace

CallableModel::Call::Call(CallableModel& model)
    : scratch(model),
      context(model.model_),
      inputs(new TensorIn[static_cast<size_t>(model.model_->code().num_inputs)]),
      in(static_cast<size_t>(model.model_->code().num_inputs)),
      out(static_cast<size_t>(model.model_->code().num_outputs)),
      owners(out.size()) {}

uint8_t* CallableModel::TorchScratch::take(int64_t bytes, CoilError* reason) {
  const nb::gil_scoped_acquire lock;
  try {
    const Torch& torch = *torch_or_null();
    const nb::object tensor =
        torch.empty(nb::make_tuple(bytes), nb::make_tuple(1), nb::arg("dtype") = torch.dtypes[COIL_UINT8], nb::arg("device") = model_.device());
    tensors_.push_back(tensor);
    DlTensor described;
    if (!torch.exchange) return reinterpret_cast<uint8_t*>(nb::cast<uintptr_t>(tensor.attr("data_ptr")()));
    if (torch.exchange->describe(tensor.ptr(), &described)) throw nb::python_error();
    return static_cast<uint8_t*>(described.data) + described.byte_offset;
  } catch (const nb::python_error& e) {  // torch.OutOfMemoryError says how much there is, and who has it
    std::snprintf(reason->message, sizeof reason->message, "%s", e.what());
  } catch (const std::bad_alloc&) {
    std::snprintf(reason->message, sizeof reason->message, "no memory on the host");
  }
  reason->code = static_cast<int32_t>(ErrorCode::out_of_memory);
  return nullptr;
}

const nb::object& CallableModel::device() {
  if (!device_.is_valid()) device_ = torch_or_null()->device_class("cuda", model_->device().id().index);
  return device_;
}

// Gives the call back to the idle ones, without the tensors of its last run.
class CallableModel::Lease {
 public:
  explicit Lease(CallableModel& model) : model_(model) {
    {
      std::lock_guard lock(model.mutex_);
      if (!model.idle_.empty()) {
        call_ = std::move(model.idle_.back());
        model.idle_.pop_back();
      }
    }
    if (!call_) call_ = std::make_unique<Call>(model);
  }
  ~Lease() {
    (void)call_->context.use(nullptr);
    call_->scratch.release();
    for (size_t i = 0; i < call_->in.size(); ++i) call_->inputs[i].release();
    for (nb::object& owner : call_->owners) owner.reset();
    std::lock_guard lock(model_.mutex_);
    model_.idle_.push_back(std::move(call_));
  }
  Call& operator*() { return *call_; }

 private:
  CallableModel& model_;
  std::unique_ptr<Call> call_;
};

CallableModel::CallableModel(std::shared_ptr<runtime::Model> model, nb::object memory) : model_(std::move(model)), memory_(std::move(memory)) {
  for (const runtime::ManifestTensor& t : model_->manifest().inputs) mutated_.push_back(t.mutated);
}

TensorKind CallableModel::describe(Call& call, nb::handle flat, size_t count, nb::object* first) {
  const bool is_list = PyList_Check(flat.ptr());
  TensorKind kind = TensorKind::none;
  const auto& tensors = model_->manifest().inputs;
  size_t i = 0;
  try {
    for (; i < count; ++i) {
      const auto at = static_cast<Py_ssize_t>(i);
      const nb::handle item = is_list ? PyList_GetItem(flat.ptr(), at) : PyTuple_GetItem(flat.ptr(), at);
      TensorIn& input = call.inputs[i];
      const char* name = tensors[i].name.c_str();
      if (tensors[i].scalar) {
        input.set_number(item, name);
      } else {
        input.set(item, name);
        if (mutated_[i] && input.read_only())
          throw PythonError{
              Error{ErrorCode::input_value, "input '" + tensors[i].name + "' is read-only, and the program writes to it", "", "pass a writable copy"}};
        if (kind == TensorKind::none) {
          kind = input.kind();
          if (kind == TensorKind::other) *first = nb::borrow(item);
        }
      }
      call.in[i] = input.view();
    }
  } catch (PythonError& refused) {
    refused.input = static_cast<int>(i);
    throw;
  }
  return kind != TensorKind::none ? kind : torch_or_null() ? TensorKind::torch : TensorKind::numpy;
}

std::vector<CallableModel::Shape> CallableModel::infer(Call& call, size_t count) {
  CoilError error{};
  for (CoilTensorView& view : call.out) view = {};
  if (call.context.infer(call.in.data(), static_cast<int32_t>(count), call.out.data(), static_cast<int32_t>(call.out.size()), &error))
    raise(error, call.context.fault());
  std::vector<Shape> shapes;
  for (const CoilTensorView& view : call.out) shapes.push_back({tuple_of(view.sizes, view.ndim), tuple_of(view.strides, view.ndim), in_rows(view)});
  return shapes;
}

nb::object CallableModel::empty_numpy(size_t output, const Shape& shape) {
  if (!numpy_empty_.is_valid()) {
    const nb::object arrays = nb::module_::import_("coil._arrays");
    std::vector<nb::object> dtypes;
    for (size_t i = 0; i < static_cast<size_t>(model_->code().num_outputs); ++i) dtypes.push_back(arrays.attr("numpy_dtype")(model_->code().outputs[i].dtype));
    numpy_dtypes_ = std::move(dtypes);
    numpy_empty_ = nb::module_::import_("numpy").attr("empty");
  }
  if (!shape.in_rows) return nb::module_::import_("coil._arrays").attr("empty_numpy")(shape.sizes, shape.strides, numpy_dtypes_[output]);
  PyObject* made = PyObject_CallFunctionObjArgs(numpy_empty_.ptr(), shape.sizes.ptr(), numpy_dtypes_[output].ptr(), nullptr);
  if (!made) throw nb::python_error();
  return nb::steal(made);
}

nb::object CallableModel::empty(size_t output, const Shape& shape, TensorKind kind, const nb::object& first) {
  const int32_t dtype = model_->code().outputs[output].dtype;
  if (kind == TensorKind::torch) {
    const Torch& torch = *torch_or_null();
    const nb::object& torch_dtype = torch.dtypes[dtype];
    if (!model_->cuda()) {
      PyObject* made = PyObject_CallFunctionObjArgs(torch.empty_cpu.ptr(), shape.sizes.ptr(), shape.strides.ptr(), torch_dtype.ptr(), nullptr);
      if (!made) throw nb::python_error();
      return nb::steal(made);
    }
    return torch.empty(shape.sizes, shape.strides, nb::arg("dtype") = torch_dtype, nb::arg("device") = device());
  }
  if (kind == TensorKind::numpy) return empty_numpy(output, shape);
  return nb::module_::import_("coil._arrays").attr("empty_like")(first, shape.sizes, shape.strides, dtype, model_->cuda() != nullptr);
}

// Of a tensor without gaps, in some order of the dimensions.
static int64_t bytes_of(const CoilTensorView& t) {
  int64_t bytes = static_cast<int64_t>(coil_dtype_bytes(t.dtype));
  for (int32_t d = 0; d < t.ndim; ++d) bytes *= t.sizes[d];
  return bytes;
}

void CallableModel::allocate(Call& call, const std::vector<Shape>& shapes, TensorKind kind, const nb::object& first) {
  const DlExchange* exchange = kind == TensorKind::torch ? torch_or_null()->exchange : nullptr;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const CoilTensorDesc& desc = model_->code().outputs[i];
    if (is_late(i)) {  // only the call itself tells its size
      call.owners[i] = nb::object();
      call.out[i] = {};
      continue;
    }
    call.owners[i] = empty(i, shapes[i], kind, first);
    if (exchange) {
      DlTensor t;
      if (exchange->describe(call.owners[i].ptr(), &t)) throw nb::python_error();
      call.out[i] = {
          static_cast<char*>(t.data) + t.byte_offset, t.sizes, t.strides, t.rank, desc.dtype, model_->device().id().type, model_->device().id().index};
      if (!model_->cuda()) cd::ask_huge_pages(call.out[i].data, bytes_of(call.out[i]));
    } else {
      TensorIn described;
      described.set(call.owners[i], desc.name);
      call.out[i] = described.view();
      call.out[i].sizes = call.out[i].strides = nullptr;  // of `described`; filled below from the shapes
    }
  }
}

bool CallableModel::is_late(size_t output) const { return cd::is_late(model_->code(), static_cast<int32_t>(output)); }

// Results that only the data sizes: the context made them, and its memory is for the next call. On a GPU they are copied in the order of `stream`.
void CallableModel::copy_late(Call& call, TensorKind kind, const nb::object& first, void* stream) {
  CoilError error{};
  for (size_t i = 0; i < call.out.size(); ++i) {
    if (!is_late(i)) continue;
    const CoilTensorView& made = call.out[i];
    call.owners[i] = empty(i, {tuple_of(made.sizes, made.ndim), tuple_of(made.strides, made.ndim), in_rows(made)}, kind, first);
    TensorIn described;
    described.set(call.owners[i], model_->code().outputs[i].name);
    const int64_t bytes = bytes_of(made);
    int32_t failed = 0;
    if (bytes) {
      nb::gil_scoped_release release;
      failed = model_->device().copy(described.view().data, made.data, bytes, stream, &error);
    }
    if (failed) raise(error);
  }
}

OwnedState CallableModel::new_state() const { return {model_, value_or_throw(runtime::State::make(*model_, true))}; }

nb::list CallableModel::run(nb::handle flat, const OwnedState* state) {
  if (!PyList_Check(flat.ptr()) && !PyTuple_Check(flat.ptr())) throw nb::type_error("expected a list or a tuple of inputs");
  const size_t count = static_cast<size_t>(PyObject_Size(flat.ptr()));
  Lease lease(*this);
  Call& call = *lease;
  if (state) throw_if(call.context.use(state->state));
  if (count != call.in.size())
    throw PythonError{Error{
        ErrorCode::input_count,
        "the program has " + std::to_string(call.in.size()) + (call.in.size() == 1 ? " input" : " inputs") + ", the caller passes " + std::to_string(count), "",
        ""}};
  nb::object first;
  const TensorKind kind = describe(call, flat, count, &first);
  const bool fixed = model_->code().num_symbols == 0;
  std::vector<Shape> dynamic;
  if (!fixed) {
    dynamic = infer(call, count);
  } else if (fixed_.empty()) {
    fixed_ = infer(call, count);
  }
  const std::vector<Shape>& shapes = fixed ? fixed_ : dynamic;
  allocate(call, shapes, kind, first);
  std::vector<int64_t> dims;
  if (kind != TensorKind::torch || !torch_or_null()->exchange) {  // sizes of objects that have no lasting ones
    dims.reserve(call.out.size() * 2 * COIL_MAX_RANK);
    for (size_t i = 0; i < shapes.size(); ++i) {
      if (is_late(i)) continue;
      const size_t at = dims.size(), rank = static_cast<size_t>(PyTuple_Size(shapes[i].sizes.ptr()));
      for (const nb::object& list : {shapes[i].sizes, shapes[i].strides}) {
        for (size_t d = 0; d < rank; ++d) dims.push_back(PyLong_AsLongLong(PyTuple_GetItem(list.ptr(), static_cast<Py_ssize_t>(d))));
      }
      call.out[i].sizes = dims.data() + at;
      call.out[i].strides = dims.data() + at + rank;
    }
  }
  const bool with_torch = model_->cuda() && kind == TensorKind::torch;
  void* stream = with_torch ? torch_stream(model_->device().id().index) : nullptr;
  call.context.draw_from(with_torch ? &call.scratch : nullptr);
  CoilError error{};
  int32_t failed;
  {
    nb::gil_scoped_release release;
    const runtime::RangeTool* tool = kind == TensorKind::torch ? torch_profiler() : nullptr;
    const runtime::RangeToolScope told(tool);
    failed = call.context.run(call.in.data(), static_cast<int32_t>(count), call.out.data(), static_cast<int32_t>(call.out.size()), &error, stream);
    if (!failed && model_->cuda() && kind != TensorKind::torch) failed = call.context.synchronise(&error);
  }
  if (failed) raise(error, call.context.fault());
  copy_late(call, kind, first, stream);
  nb::list results = nb::steal<nb::list>(PyList_New(static_cast<Py_ssize_t>(call.owners.size())));
  for (size_t i = 0; i < call.owners.size(); ++i) PyList_SetItem(results.ptr(), static_cast<Py_ssize_t>(i), call.owners[i].release().ptr());
  return results;
}

void CallableModel::synchronize() {
  std::vector<std::unique_ptr<Call>> calls;
  {
    std::lock_guard lock(mutex_);
    calls.swap(idle_);
  }
  CoilError error{};
  int32_t failed = 0;
  {
    nb::gil_scoped_release release;
    for (const auto& call : calls) {
      if (!failed) failed = call->context.synchronise(&error);
    }
  }
  {
    std::lock_guard lock(mutex_);
    for (auto& call : calls) idle_.push_back(std::move(call));
  }
  if (failed) raise(error);
}

void CallableModel::check() {
  CoilError error{};
  int32_t failed = 0;
  {
    std::lock_guard lock(mutex_);
    for (const auto& call : idle_) {
      if (!failed) failed = call->context.check(&error);
    }
  }
  if (failed) raise(error);
}

void CallableModel::reset_state() {
  nb::gil_scoped_release release;
  throw_if(model_->reset_state());
}

}  // namespace coil::python
