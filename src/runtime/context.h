// One call at a time of a model: the memory a call needs, kept between calls, so that a call with sizes seen before allocates
// nothing. Not thread-safe; make one for each thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/cuda_session.h"
#include "runtime/model.h"

namespace coil::runtime {

class Context {
 public:
  // Throws std::bad_alloc.
  explicit Context(std::shared_ptr<const Model> model);
  // What a CUDA device has to give before the first run; run does it otherwise. Nothing on the CPU.
  Status prepare();

  const Model& model() const { return *model_; }

  // Checks the inputs, computes, fills the outputs. An output without data gets memory of this context (valid until the next
  // run); one with data must have the result's dtype, sizes and strides and is written in place. Null strides: contiguous.
  // Returns 0, or the number of an error code with *error filled; the outputs' descriptions are then as they were.
  // On CUDA the work is enqueued on `stream` (null: the default stream) and not waited for. The device's memory that a call
  // uses is this context's: calls on several streams are made to follow one another.
  int32_t run(const CoilTensorView* inputs, int32_t num_inputs, CoilTensorView* outputs, int32_t num_outputs, CoilError* error,
              void* stream = nullptr);

  // Waits for the last run, and tells what its kernels found at fault (an index out of range in the data). Nothing on the CPU.
  int32_t synchronise(CoilError* error);
  void* stream() const { return session_ ? session_->stream() : nullptr; }  // of the last run

  // The same without computing: describes the outputs (their data stays as it is) in memory of this context.
  int32_t infer(const CoilTensorView* inputs, int32_t num_inputs, CoilTensorView* outputs, int32_t num_outputs,
                CoilError* error);

  int64_t arena_bytes() const { return arena_bytes_; }    // what the last run asked for
  int64_t output_bytes() const { return output_bytes_; }  // outputs of the last run in memory of this context

 private:
  struct Output {
    explicit Output(const Device& device) : buffer(device) {}
    Buffer buffer;
    int64_t sizes[COIL_MAX_RANK];
    int64_t strides[COIL_MAX_RANK];
  };

  int32_t bind(const CoilTensorView* inputs, int32_t num_inputs, int32_t num_outputs, CoilError* error);
  int32_t place_output(int32_t i, const CoilTensorView& wish, CoilError* error);
  int32_t check_overlap(const CoilTensorView* inputs, const CoilTensorView* outputs, CoilError* error) const;
  int32_t check_places(const CoilTensorView* inputs, const CoilTensorView* outputs, CoilError* error);
  int32_t enqueue(void* stream, CoilError* error);
  int32_t fail_arena(const CoilError& reason, CoilError* error) const;
  int32_t call_code(void* stream, CoilError* error);
  bool is_late(int32_t i) const { return code_.late_outputs && code_.late_outputs[i]; }
  // CoilCall.allocate.
  int32_t allocate(int32_t output, int64_t bytes, const int64_t* symbols, void** data, CoilError* error);
  void describe(CoilTensorView* outputs) const;

  std::shared_ptr<const Model> model_;
  const CoilModel& code_;
  std::vector<int64_t> symbols_;
  std::vector<void*> input_data_;
  std::vector<void*> output_data_;
  std::vector<Output> outputs_;
  Buffer arena_;
  std::vector<Buffer> late_;                      // scratch memory that the code asks for once it knows its size
  size_t num_late_ = 0;                           // of them in use
  const CoilTensorView* wishes_ = nullptr;        // the caller's outputs, during a run
  std::unique_ptr<CudaSession> session_;  // on CUDA, once prepared
  int64_t arena_bytes_ = 0;
  int64_t output_bytes_ = 0;
};

}  // namespace coil::runtime
