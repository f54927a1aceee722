// Python's tensors as the runtime sees them: torch tensors, NumPy arrays, anything with DLPack; for symbolic sizes, integers.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

#include "device/model_abi.h"
#include "dlpack_abi.h"

namespace coil::python {

namespace nb = nanobind;

enum class TensorKind : uint8_t { none, torch, numpy, other };

// One tensor of a call. Lives no longer than the object it describes, of which it holds what it must.
class TensorIn {
 public:
  TensorIn() = default;
  ~TensorIn() { release(); }
  TensorIn(const TensorIn&) = delete;
  TensorIn& operator=(const TensorIn&) = delete;

  // Describes `object`, the argument called `name`. Throws PythonError or a Python exception.
  void set(nb::handle object, const char* name);
  // An integer (or an array of one) for a symbolic size.
  void set_number(nb::handle object, const char* name);
  void release();

  const CoilTensorView& view() const { return view_; }
  TensorKind kind() const { return kind_; }
  bool read_only() const { return read_only_; }

 private:
  bool set_torch(nb::handle object, const char* name);
  bool set_buffer(nb::handle object, const char* name);
  void set_dlpack(nb::handle object, const char* name);
  void take(const DlTensor& tensor, const char* name);
  void point(void* data, int32_t rank, int32_t dtype, const DlDevice& device);

  CoilTensorView view_{};
  TensorKind kind_ = TensorKind::none;
  bool read_only_ = false;
  bool has_buffer_ = false;
  int64_t number_ = 0;
  int64_t sizes_[COIL_MAX_RANK], strides_[COIL_MAX_RANK];
  Py_buffer buffer_{};
  DlManaged* managed_ = nullptr;
  DlManagedVersioned* versioned_ = nullptr;
};

// What coil takes from PyTorch when the first torch tensor comes by.
struct Torch {
  nb::object empty_cpu;                  // (sizes, strides, dtype) -> tensor
  nb::object empty;                      // torch.empty_strided
  nb::object dtypes[64];                 // by number
  nb::object device_class;               // torch.device
  const DlExchange* exchange = nullptr;  // null: PyTorch before 2.10
};
// Null when PyTorch is not loaded.
const Torch* torch_or_null();

// The stream that PyTorch enqueues on.
void* torch_stream(int32_t device_index);

}  // namespace coil::python
