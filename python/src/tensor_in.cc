#include "tensor_in.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "errors.h"

namespace coil::python {
namespace {

[[noreturn]] void refuse(ErrorCode code, const char* name, const std::string& what, std::string hint = "") {
  throw PythonError{Error{code, "input '" + std::string(name) + "' " + what, "", std::move(hint)}};
}

std::string kind_of(nb::handle object) { return nb::cast<std::string>(object.type().attr("__name__")); }

int32_t dtype_number(const DlDtype& d) {
  if (d.lanes != 1) return -1;
  switch (d.code << 8 | d.bits) {
    case kDlUint << 8 | 8: return COIL_UINT8;
    case kDlUint << 8 | 16: return COIL_UINT16;
    case kDlUint << 8 | 32: return COIL_UINT32;
    case kDlUint << 8 | 64: return COIL_UINT64;
    case kDlInt << 8 | 8: return COIL_INT8;
    case kDlInt << 8 | 16: return COIL_INT16;
    case kDlInt << 8 | 32: return COIL_INT32;
    case kDlInt << 8 | 64: return COIL_INT64;
    case kDlFloat << 8 | 16: return COIL_FLOAT16;
    case kDlFloat << 8 | 32: return COIL_FLOAT32;
    case kDlFloat << 8 | 64: return COIL_FLOAT64;
    case kDlComplex << 8 | 32: return COIL_COMPLEX32;
    case kDlComplex << 8 | 64: return COIL_COMPLEX64;
    case kDlComplex << 8 | 128: return COIL_COMPLEX128;
    case kDlBool << 8 | 8: return COIL_BOOL;
    case kDlBfloat << 8 | 16: return COIL_BFLOAT16;
    case kDlFloat8E4m3fn << 8 | 8: return COIL_FLOAT8_E4M3FN;
    case kDlFloat8E4m3fnuz << 8 | 8: return COIL_FLOAT8_E4M3FNUZ;
    case kDlFloat8E5m2 << 8 | 8: return COIL_FLOAT8_E5M2;
    case kDlFloat8E5m2fnuz << 8 | 8: return COIL_FLOAT8_E5M2FNUZ;
    case kDlFloat8E8m0fnu << 8 | 8: return COIL_FLOAT8_E8M0FNU;
    default: return -1;
  }
}

// Of the struct module, native sizes; -1: another.
int32_t dtype_of_format(const char* format, Py_ssize_t bytes) {
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (std::strlen(format) != 1) {
    return !std::strcmp(format, "Zf") ? COIL_COMPLEX64 : !std::strcmp(format, "Zd") ? COIL_COMPLEX128 : -1;
  }
  switch (*format) {
    case '?': return COIL_BOOL;
    case 'e': return COIL_FLOAT16;
    case 'f': return COIL_FLOAT32;
    case 'd': return COIL_FLOAT64;
    case 'b':
    case 'h':
    case 'i':
    case 'l':
    case 'q':
    case 'n': return bytes == 1 ? COIL_INT8 : bytes == 2 ? COIL_INT16 : bytes == 4 ? COIL_INT32 : bytes == 8 ? COIL_INT64 : -1;
    case 'B':
    case 'H':
    case 'I':
    case 'L':
    case 'Q':
    case 'N': return bytes == 1 ? COIL_UINT8 : bytes == 2 ? COIL_UINT16 : bytes == 4 ? COIL_UINT32 : bytes == 8 ? COIL_UINT64 : -1;
    default: return -1;
  }
}

// ---- PyTorch

// What a type of tensor objects is; found once for each type, which is then kept alive.
struct TorchType {
  PyTypeObject* type = nullptr;
  bool is_plain = false;  // torch.Tensor, Parameter, ...: no subclass that keeps its data elsewhere
};

class TorchDoor {
 public:
  static TorchDoor* get() {
    static TorchDoor* door = nullptr;  // never destroyed: Python objects must not outlive the interpreter's end
    if (door) return door;
    const nb::object modules = nb::module_::import_("sys").attr("modules");
    const nb::object torch = modules.attr("get")("torch");
    if (torch.is_none() || !nb::hasattr(torch, "Tensor") || !nb::hasattr(torch, "empty_strided")) return nullptr;  // or still importing
    auto made = std::make_unique<TorchDoor>();
    made->open(nb::module_::import_("coil._torch"));
    return door = made.release();
  }

  const Torch& torch() const { return torch_; }

  const TorchType* find(PyTypeObject* type) {
    for (const TorchType& t : types_) {
      if (t.type == type) return &t;
    }
    return add(type);
  }

  bool flag(const nb::object& method, nb::handle object) const {
    PyObject* result = PyObject_CallFunctionObjArgs(method.ptr(), object.ptr(), nullptr);
    if (!result) throw nb::python_error();
    const bool yes = result == Py_True;
    Py_DECREF(result);
    return yes;
  }

  nb::object is_neg, is_conj, describe, unreadable;

 private:
  void open(const nb::object& glue) {
    torch_.empty_cpu = glue.attr("empty_cpu");
    torch_.empty = glue.attr("empty_strided");
    torch_.device_class = glue.attr("device");
    tensor_ = glue.attr("Tensor");
    is_neg = glue.attr("is_neg");
    is_conj = glue.attr("is_conj");
    describe = glue.attr("describe");
    unreadable = glue.attr("unreadable");
    plain_ = glue.attr("is_plain");
    for (const auto [number, dtype] : nb::cast<nb::dict>(glue.attr("dtypes"))) torch_.dtypes[nb::cast<int>(number)] = nb::borrow(dtype);
    const nb::object capsule = nb::getattr(tensor_, "__dlpack_c_exchange_api__", nb::none());
    if (capsule.is_none()) return;
    const auto* exchange = static_cast<const DlExchange*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    if (!exchange) PyErr_Clear();
    if (exchange && exchange->version.major == 1 && exchange->describe) torch_.exchange = exchange;
  }

  const TorchType* add(PyTypeObject* type) {
    const int is_tensor = PyObject_IsSubclass(reinterpret_cast<PyObject*>(type), tensor_.ptr());
    if (is_tensor < 0) throw nb::python_error();
    if (!is_tensor) return nullptr;
    if (types_.size() > 100) types_.clear();  // a program that makes types in a loop
    Py_INCREF(type);
    types_.push_back({type, nb::cast<bool>(plain_(nb::handle(reinterpret_cast<PyObject*>(type))))});
    return &types_.back();
  }

  Torch torch_;
  nb::object tensor_, plain_;
  std::vector<TorchType> types_;
};

}  // namespace

const Torch* torch_or_null() {
  TorchDoor* door = TorchDoor::get();
  return door ? &door->torch() : nullptr;
}

void* torch_stream(int32_t device_index) {
  TorchDoor* door = TorchDoor::get();
  if (!door) return nullptr;
  void* stream = nullptr;
  if (const DlExchange* exchange = door->torch().exchange) {
    if (exchange->current_stream(kDlCuda, device_index, &stream)) throw nb::python_error();
    return stream;
  }
  const nb::object current = nb::module_::import_("torch").attr("cuda").attr("current_stream")(device_index);
  return reinterpret_cast<void*>(nb::cast<uintptr_t>(current.attr("cuda_stream")));
}

// ---- One tensor

void TensorIn::point(void* data, int32_t rank, int32_t dtype, const DlDevice& device) {
  view_ = {data, sizes_, strides_, rank, dtype, device.type == kDlCuda || device.type == kDlCudaManaged ? +COIL_CUDA : +COIL_CPU, device.index};
  if (view_.device_type == COIL_CPU) view_.device_index = 0;
}

void TensorIn::take(const DlTensor& t, const char* name) {
  if (t.rank < 0 || t.rank > COIL_MAX_RANK) refuse(ErrorCode::input_rank, name, "has " + std::to_string(t.rank) + " dimensions, more than any program takes");
  const bool known = t.device.type == kDlCpu || t.device.type == kDlCuda || t.device.type == kDlCudaHost || t.device.type == kDlCudaManaged;
  if (!known) refuse(ErrorCode::input_device, name, "is on a device of DLPack type " + std::to_string(t.device.type), "move it to the CPU or to CUDA");
  const int32_t dtype = dtype_number(t.dtype);
  if (dtype < 0)
    refuse(ErrorCode::input_dtype, name,
           "has a dtype that coil does not know (DLPack code " + std::to_string(t.dtype.code) + ", " + std::to_string(t.dtype.bits) + " bits)");
  int64_t dense = 1;
  for (int32_t d = t.rank; d-- > 0;) {
    sizes_[d] = t.sizes[d];
    strides_[d] = t.strides ? t.strides[d] : dense;
    dense *= t.sizes[d];
  }
  point(static_cast<char*>(t.data) + t.byte_offset, t.rank, dtype, t.device);
}

bool TensorIn::set_torch(nb::handle object, const char* name) {
  TorchDoor* door = TorchDoor::get();
  const TorchType* type = door ? door->find(Py_TYPE(object.ptr())) : nullptr;
  if (!type) return false;
  if (!type->is_plain) {
    refuse(ErrorCode::input_dtype, name, "is a " + kind_of(object) + ", a tensor subclass that coil cannot read", "pass a plain torch.Tensor");
  }
  kind_ = TensorKind::torch;
  if (door->torch().exchange) {
    DlTensor t;
    if (door->torch().exchange->describe(object.ptr(), &t)) {
      const nb::python_error error;  // takes the exception
      const nb::tuple known = nb::cast<nb::tuple>(door->unreadable(object));
      const std::string what = nb::cast<std::string>(known[0]);
      if (!what.empty()) refuse(ErrorCode::input_device, name, what, nb::cast<std::string>(known[1]));
      const std::string text = nb::cast<std::string>(nb::str(nb::handle(error.value())));
      refuse(ErrorCode::input_device, name, "cannot be read: " + text.substr(0, text.find('\n')), "pass a dense tensor on the CPU or on CUDA");
    }
    take(t, name);
  } else {
    // (address, sizes, strides, dtype number, is CUDA, device index)
    const nb::tuple d = nb::cast<nb::tuple>(door->describe(object));
    const nb::tuple sizes = nb::cast<nb::tuple>(d[1]), strides = nb::cast<nb::tuple>(d[2]);
    if (sizes.size() > COIL_MAX_RANK) refuse(ErrorCode::input_rank, name, "has too many dimensions");
    for (size_t i = 0; i < sizes.size(); ++i) {
      sizes_[i] = nb::cast<int64_t>(sizes[i]);
      strides_[i] = nb::cast<int64_t>(strides[i]);
    }
    point(reinterpret_cast<void*>(nb::cast<uintptr_t>(d[0])), static_cast<int32_t>(sizes.size()), nb::cast<int32_t>(d[3]),
          {nb::cast<bool>(d[4]) ? kDlCuda : kDlCpu, nb::cast<int32_t>(d[5])});
  }
  // Views whose sign is applied when they are read: nobody reads one of no elements.
  const bool empty = std::find(view_.sizes, view_.sizes + view_.ndim, 0) != view_.sizes + view_.ndim;
  if (!empty && (door->flag(door->is_neg, object) || door->flag(door->is_conj, object)))
    refuse(ErrorCode::input_stride, name, "is a lazily negated or conjugated view", "pass x.resolve_neg() or x.resolve_conj()");
  return true;
}

// NumPy arrays, and whatever else shows its memory by the buffer protocol.
bool TensorIn::set_buffer(nb::handle object, const char* name) {
  if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_STRIDED_RO | PyBUF_FORMAT)) {
    PyErr_Clear();
    return false;
  }
  has_buffer_ = true;
  const int32_t dtype = dtype_of_format(buffer_.format ? buffer_.format : "B", buffer_.itemsize);
  if (dtype < 0) refuse(ErrorCode::input_dtype, name, "has a dtype that coil does not know (format '" + std::string(buffer_.format) + "')");
  if (buffer_.ndim > COIL_MAX_RANK) refuse(ErrorCode::input_rank, name, "has too many dimensions");
  for (int d = 0; d < buffer_.ndim; ++d) {
    sizes_[d] = buffer_.shape[d];
    if (buffer_.strides[d] % buffer_.itemsize) refuse(ErrorCode::input_stride, name, "has a stride that is no multiple of its elements' size");
    strides_[d] = buffer_.strides[d] / buffer_.itemsize;
  }
  read_only_ = buffer_.readonly;
  kind_ = TensorKind::numpy;
  point(buffer_.buf, buffer_.ndim, dtype, {kDlCpu, 0});
  return true;
}

void TensorIn::set_dlpack(nb::handle object, const char* name) {
  kind_ = TensorKind::other;
  nb::object capsule;
  try {
    capsule = object.attr("__dlpack__")(nb::arg("max_version") = nb::make_tuple(1, 0));
  } catch (nb::python_error& e) {
    if (!e.matches(PyExc_TypeError)) throw;
    capsule = object.attr("__dlpack__")();
  }
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned")) {
    versioned_ = static_cast<DlManagedVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned");
    if (versioned_->version.major != 1) refuse(ErrorCode::input_dtype, name, "speaks a version of DLPack that coil does not know");
    read_only_ = versioned_->flags & kDlReadOnly;
    take(versioned_->tensor, name);
  } else if (PyCapsule_IsValid(capsule.ptr(), "dltensor")) {
    managed_ = static_cast<DlManaged*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
    PyCapsule_SetName(capsule.ptr(), "used_dltensor");
    take(managed_->tensor, name);
  } else {
    refuse(ErrorCode::input_dtype, name, "gives no DLPack capsule from __dlpack__");
  }
}

void TensorIn::set(nb::handle object, const char* name) {
  release();
  if (set_torch(object, name)) return;
  if (!PyBytes_Check(object.ptr()) && set_buffer(object, name)) return;
  // NumPy's extension types (bfloat16 of ml_dtypes) have no buffer format.
  if (nb::hasattr(object, "dtype") && nb::hasattr(object, "view") &&
      nb::cast<std::string>(nb::str(nb::handle(nb::object(object.attr("dtype"))))) == "bfloat16") {
    const nb::object bits = object.attr("view")("uint16");
    if (PyObject_GetBuffer(bits.ptr(), &buffer_, PyBUF_STRIDED_RO) == 0) {
      has_buffer_ = true;
      for (int d = 0; d < std::min(buffer_.ndim, COIL_MAX_RANK); ++d) sizes_[d] = buffer_.shape[d], strides_[d] = buffer_.strides[d] / 2;
      read_only_ = buffer_.readonly;
      kind_ = TensorKind::numpy;
      if (buffer_.ndim > COIL_MAX_RANK) refuse(ErrorCode::input_rank, name, "has too many dimensions");
      return point(buffer_.buf, buffer_.ndim, COIL_BFLOAT16, {kDlCpu, 0});
    }
    PyErr_Clear();
  }
  if (nb::hasattr(object, "__dlpack__")) return set_dlpack(object, name);
  refuse(ErrorCode::input_dtype, name, "is a " + kind_of(object) + ", not a tensor", "pass a torch tensor, a NumPy array, or anything with __dlpack__");
}

void TensorIn::set_number(nb::handle object, const char* name) {
  release();
  if (PyBool_Check(object.ptr()) || !PyIndex_Check(object.ptr())) refuse(ErrorCode::input_dtype, name, "is a " + kind_of(object) + ", expected an integer");
  number_ = PyLong_AsLongLong(nb::steal(PyNumber_Index(object.ptr())).ptr());
  if (number_ == -1 && PyErr_Occurred()) throw nb::python_error();
  point(&number_, 0, COIL_INT64, {kDlCpu, 0});
}

void TensorIn::release() {
  if (has_buffer_) PyBuffer_Release(&buffer_);
  if (managed_ && managed_->deleter) managed_->deleter(managed_);
  if (versioned_ && versioned_->deleter) versioned_->deleter(versioned_);
  has_buffer_ = read_only_ = false;
  managed_ = nullptr;
  versioned_ = nullptr;
  kind_ = TensorKind::none;
}

}  // namespace coil::python
