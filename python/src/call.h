// One call of an open model from Python: what it takes and gives as tensors, and the runtime's context between them.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/context.h"
#include "runtime/model.h"
#include "tensor_in.h"

namespace coil::python {

// A state of a model, which it keeps alive.
struct OwnedState {
  std::shared_ptr<const runtime::Model> model;
  std::shared_ptr<runtime::State> state;
};

// Shared by all threads. A call takes a context of its own from a list of idle ones.
class CallableModel {
 public:
  // `memory` keeps the package's bytes alive, or is None.
  CallableModel(std::shared_ptr<runtime::Model> model, nb::object memory);

  const runtime::Model& model() const { return *model_; }
  const std::shared_ptr<runtime::Model>& shared_model() const { return model_; }

  // `flat`: a list or tuple of the model's inputs in order. Results of the kind of the first tensor among them (torch tensors,
  // NumPy arrays, what the object's library imports by DLPack); without any, torch tensors where PyTorch is loaded. The lock of
  // the interpreter is free while it computes. state: null for the model's.
  nb::list run(nb::handle flat, const OwnedState* state);
  OwnedState new_state() const;
  // Waits for the device, and throws what the last calls of each context found at fault.
  void synchronize();
  // Throws what kernels of calls that are over found at fault; waits only where they did.
  void check();
  void reset_state();

 private:
  // PyTorch's caching allocator, for a call whose tensors are PyTorch's: what it keeps free serves coil, and what coil needs for a call serves PyTorch
  // after it. Memory that is given back while the call's kernels are under way goes to later work on the same stream only.
  class TorchScratch : public runtime::ScratchPool {
   public:
    explicit TorchScratch(CallableModel& model) : model_(model) {}
    uint8_t* take(int64_t bytes, CoilError* reason) override;
    void release() { tensors_.clear(); }

   private:
    CallableModel& model_;
    std::vector<nb::object> tensors_;
  };
  struct Call {
    explicit Call(CallableModel& model);
    TorchScratch scratch;
    runtime::Context context;
    std::unique_ptr<TensorIn[]> inputs;
    std::vector<CoilTensorView> in, out;
    std::vector<nb::object> owners;
  };
  class Lease;
  struct Shape {
    nb::object sizes, strides;
    bool in_rows;  // contiguous
  };

  TensorKind describe(Call& call, nb::handle flat, size_t count, nb::object* first);
  std::vector<Shape> infer(Call& call, size_t count);
  void allocate(Call& call, const std::vector<Shape>& shapes, TensorKind kind, const nb::object& first);
  nb::object empty(size_t output, const Shape& shape, TensorKind kind, const nb::object& first);
  bool is_late(size_t output) const;
  void copy_late(Call& call, TensorKind kind, const nb::object& first, void* stream);
  nb::object empty_numpy(size_t output, const Shape& shape);
  const nb::object& device();

  std::shared_ptr<runtime::Model> model_;
  nb::object memory_;
  nb::object device_;       // torch.device, on CUDA
  nb::object numpy_empty_;  // numpy.empty, and the dtypes of the outputs, once an array was passed
  std::vector<nb::object> numpy_dtypes_;
  std::vector<Shape> fixed_;   // of programs without dynamic sizes, once inferred
  std::vector<bool> mutated_;  // inputs that the program writes to
  std::mutex mutex_;
  std::vector<std::unique_ptr<Call>> idle_;
};

}  // namespace coil::python
