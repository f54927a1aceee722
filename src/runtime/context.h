// One call at a time of a model: the memory a call needs, kept between calls, so that a call with sizes seen before allocates
// nothing. Not thread-safe; make one for each thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "device/cuda/sample_rules.h"
#include "device/model_call.h"
#include "runtime/call_recorder.h"
#include "runtime/cuda_session.h"
#include "runtime/model.h"

namespace coil::runtime {

// A caller's own pool of device memory (PyTorch's), from which calls take their scratch space instead of keeping some between calls.
class ScratchPool {
 public:
  virtual ~ScratchPool() = default;
  // `bytes` of the model's device, aligned to 256, that nothing else uses until the work of the call on its stream is over. Null: there is none, and
  // `reason` says why. Called by the thread that runs the call, any number of times.
  virtual uint8_t* take(int64_t bytes, CoilError* reason) = 0;
};

class Context {
 public:
  // Throws std::bad_alloc.
  explicit Context(std::shared_ptr<const Model> model);
  // What a CUDA device has to give before the first run; run does it otherwise. Nothing on the CPU.
  Status prepare();

  const Model& model() const { return *model_; }

  // Calls from now on read and change this state of the same model, which lives at least as long as it is used; null: the model's. COIL-E213.
  Status use(std::shared_ptr<State> state);

  // Scratch space of calls from now on comes from there; it lives at least as long as it is used. Null: from memory of this context.
  void draw_from(ScratchPool* pool) { pool_ = pool; }

  // Checks the inputs, computes, fills the outputs. An output without data gets memory of this context (valid until the next
  // run; an input of that run may still lie in it); one with data of this context counts as one without; one with data of the
  // caller's must have the result's dtype, sizes and strides and is written in place. Null strides: contiguous.
  // Returns 0, or the number of an error code with *error filled; the outputs' descriptions are then as they were.
  // On CUDA the work is enqueued on `stream` (null: the default stream) and not waited for. The device's memory that a call
  // uses is this context's: calls on several streams are made to follow one another.
  int32_t run(const CoilTensorView* inputs, int32_t num_inputs, CoilTensorView* outputs, int32_t num_outputs, CoilError* error, void* stream = nullptr);

  // Of models that choose tokens (CoilModel::sample): enqueues the choice for each row behind the last run. Fills in the rows' `flag`.
  int32_t choose(std::span<CudaSample> rows, CoilError* error);

  // Waits for the last run, and tells what its kernels found at fault (an index out of range in the data). Nothing on the CPU.
  int32_t synchronise(CoilError* error);
  // What kernels of calls that are over found at fault. Waits only where they did.
  int32_t check(CoilError* error) { return session_ ? session_->check(error) : 0; }
  void* stream() const { return session_ ? session_->stream() : nullptr; }  // of the last run

  // The same without computing: describes the outputs (their data stays as it is) in memory of this context.
  int32_t infer(const CoilTensorView* inputs, int32_t num_inputs, CoilTensorView* outputs, int32_t num_outputs, CoilError* error);

  // Of the last call that failed: which of its inputs is at fault, and how it should lie.
  const CoilInputFault& fault() const { return fault_; }

  int64_t arena_bytes() const { return arena_bytes_; }    // what the last run asked for
  int64_t output_bytes() const { return output_bytes_; }  // outputs of the last run in memory of this context

 private:
  // Sizes and strides of an output, twice: the copy for memory of this context and the one for memory of the caller's, so that the
  // address in a tensor that comes back tells which was described. A shape never changes while callers may hold its address:
  // what they pass is their word about their memory, and is compared with what the call needs, not with itself.
  struct Shape {
    std::unique_ptr<int64_t[]> dims;  // [2][2][rank]: ours or not, sizes or strides
    uint64_t last_use = 0;
  };
  struct Output {
    explicit Output(const Device& device) : blocks{Buffer(device), Buffer(device)} {}
    Buffer blocks[2];  // the second once an input of a call lies in the first
    int block = 0;     // of the last run that used one
    std::vector<Shape> shapes;
    // Of the call under way:
    size_t shape = 0;     // in shapes
    bool placed = false;  // where it is written is known, and so is its shape
    bool ours = false;
    uintptr_t begin = 0, end = 0;  // the caller's memory; none when it is ours
  };

  int32_t run_call(const CoilTensorView* inputs, int32_t num_inputs, CoilTensorView* outputs, int32_t num_outputs, CoilError* error, void* stream);
  int32_t run_recorded(const CoilTensorView* inputs, int32_t num_inputs, CoilTensorView* outputs, int32_t num_outputs, CoilError* error, void* stream);
  int32_t bind(const CoilTensorView* inputs, int32_t num_inputs, int32_t num_outputs, CoilError* error);
  int32_t fail_bind(const CoilTensorView* inputs, int32_t num_inputs, CoilError* error);
  int32_t check_written(const CoilTensorView* inputs, CoilError* error);
  void set_shape(int32_t i, const int64_t* sizes, const int64_t* strides);
  const int64_t* dims_of(int32_t i, bool ours) const;
  void shape_output(int32_t i, const int64_t* symbols);
  bool is_ours(const void* data) const;
  bool holds_input(const Buffer& block) const;
  bool describes_ours(int32_t i, const CoilTensorView& wish) const;
  int32_t check_wish(int32_t i, const int64_t* symbols, CoilError* error);
  int32_t place_output(int32_t i, CoilError* error);
  int32_t place_in_ours(int32_t i, CoilError* error);
  int32_t place_outputs(CoilError* error);
  int32_t check_overlap(int32_t o, CoilError* error) const;
  int32_t check_places(const CoilTensorView* inputs, CoilError* error);
  int32_t start(const CoilTensorView* inputs, CoilTensorView* outputs, CoilError* error);
  int32_t enqueue(void* stream, CoilError* error);
  int32_t drop_lost(int32_t code);
  int32_t fail_arena(const CoilError& reason, CoilError* error) const;
  int32_t call_code(void* stream, CoilError* error);
  bool is_late(int32_t i) const { return cd::is_late(code_, i); }
  // CoilCall.allocate.
  int32_t allocate(int32_t output, int64_t bytes, const int64_t* symbols, void** data, CoilError* error) noexcept;
  int32_t allocate_scratch(int64_t bytes, void** data, CoilError* error);
  bool reserve_arena(CoilError* reason);
  void describe(int32_t i, bool ours, CoilTensorView* output) const;

  std::shared_ptr<const Model> model_;
  const CoilModel& code_;
  std::shared_ptr<State> own_state_;
  State* state_ = nullptr;  // null: the program has none
  std::vector<int64_t> symbols_;
  std::vector<void*> input_data_;
  std::vector<void*> output_data_;
  std::vector<Output> outputs_;
  std::vector<int32_t> written_inputs_;
  Buffer arena_;
  uint8_t* arena_data_ = nullptr;  // of the call under way: arena_'s, or the pool's
  ScratchPool* pool_ = nullptr;
  std::vector<Buffer> late_;                      // scratch memory that the code asks for once it knows its size
  size_t num_late_ = 0;                           // of them in use
  const CoilTensorView* inputs_ = nullptr;        // the caller's, during a run
  CoilTensorView* wishes_ = nullptr;              // the caller's outputs, during a run
  uint64_t uses_ = 0;                             // of shapes
  uintptr_t lowest_ = UINTPTR_MAX, highest_ = 0;  // blocks of outputs lie between them
  bool reads_ours_ = false;                       // an input of the call may lie in one
  int32_t hold_memory(CoilError* error);          // of ours that a call named, for as long as the context lives
  std::unique_ptr<CudaSession> session_;          // on CUDA, once prepared
  int64_t arena_bytes_ = 0;
  int64_t output_bytes_ = 0;
  CoilInputFault fault_ = {-1, 0, {}};
  std::unique_ptr<CallRecorder> recorder_;  // once a call was watched
  CallRecorder* watching_ = nullptr;        // during a call that is recorded
};

}  // namespace coil::runtime
