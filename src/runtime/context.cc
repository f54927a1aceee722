// See context.h.
#include "runtime/context.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/nvtx.h"
#include "runtime/range_tool.h"
#include "runtime/tensor_span.h"

namespace coil::runtime {

Context::Context(std::shared_ptr<const Model> model)
    : model_(std::move(model)),
      code_(model_->code()),
      state_(model_->state()),
      symbols_(static_cast<size_t>(code_.num_symbols) + 1),
      input_data_(static_cast<size_t>(code_.num_inputs) + 1),
      output_data_(static_cast<size_t>(code_.num_outputs) + 1),
      arena_(model_->device()) {
  outputs_.reserve(static_cast<size_t>(code_.num_outputs));
  for (int32_t i = 0; i < code_.num_outputs; i++) outputs_.emplace_back(model_->device());
  const std::vector<ManifestTensor>& inputs = model_->manifest().inputs;
  for (int32_t i = 0; i < code_.num_inputs && static_cast<size_t>(i) < inputs.size(); i++) {
    if (inputs[static_cast<size_t>(i)].mutated) written_inputs_.push_back(i);
  }
}

Status Context::prepare() {
  if (!model_->cuda() || session_) return ok_status();
  TRY(session_, CudaSession::make(*model_));
  return ok_status();
}

Status Context::use(std::shared_ptr<State> state) {
  if (state) TRY_STATUS(model_->takes_states_of(state->model()));
  own_state_ = std::move(state);
  state_ = own_state_ ? own_state_.get() : model_->state();
  return ok_status();
}

int32_t Context::bind(const CoilTensorView* inputs, int32_t num_inputs, int32_t num_outputs, CoilError* error) {
  fault_.input = -1, fault_.ndim = 0;
  if (num_inputs > 0 && !inputs) return fail(error, ErrorCode::input_null, "the array of inputs is null");
  if (code_.bind(inputs, num_inputs, symbols_.data(), error) != 0) return fail_bind(inputs, num_inputs, error);
  if (num_outputs != code_.num_outputs)
    return fail(error, ErrorCode::output_mismatch, "the program has %d outputs, the caller passes %d", code_.num_outputs, num_outputs);
  return check_written(inputs, error);
}

// Words and fields of one look, which may be another than that of bind: numbers in memory may change meanwhile.
[[gnu::noinline, gnu::cold]] int32_t Context::fail_bind(const CoilTensorView* inputs, int32_t num_inputs, CoilError* error) {
  if (code_.find_fault) code_.find_fault(inputs, num_inputs, symbols_.data(), &fault_, error);
  return error->code;
}

// What the program writes to of its inputs no other input may show: it is read in any order.
int32_t Context::check_written(const CoilTensorView* inputs, CoilError* error) {
  for (const int32_t i : written_inputs_) {
    const Span written = span_of(inputs[i]);
    for (int32_t j = 0; j < code_.num_inputs; j++) {
      if (i == j || !written.meets(span_of(inputs[j]))) continue;
      fault_.input = i;
      return fail(error, ErrorCode::output_mismatch,
                  "input '%s' (%d), which the program writes to: its memory overlaps that of input '%s' (%d); pass a copy of one of them", code_.inputs[i].name,
                  i, code_.inputs[j].name, j);
    }
  }
  return 0;
}

int32_t Context::allocate_scratch(int64_t bytes, void** data, CoilError* error) {
  CoilError reason{};
  if (pool_) {
    *data = bytes ? pool_->take(bytes, &reason) : nullptr;
  } else {
    if (num_late_ == late_.size()) late_.emplace_back(model_->device());
    Buffer& buffer = late_[num_late_++];
    *data = buffer.reserve(bytes, &reason) ? buffer.data() : nullptr;
  }
  if (bytes && !*data)
    return fail(error, ErrorCode::out_of_memory, "no memory for scratch space of %lld bytes, which the data asks for: %s", static_cast<long long>(bytes),
                reason.message);
  arena_bytes_ += bytes;
  return 0;
}

// The model's code, through which no exception passes, calls this.
int32_t Context::allocate(int32_t output, int64_t bytes, const int64_t* symbols, void** data, CoilError* error) noexcept try {
  if (output < 0) return allocate_scratch(bytes, data, error) ? 1 : 0;
  if (check_wish(output, symbols, error) || place_output(output, error)) return 1;
  *data = output_data_[static_cast<size_t>(output)];
  return 0;
} catch (const std::bad_alloc&) {
  fail(error, ErrorCode::out_of_memory, "no memory to describe what only the data sizes");
  return 1;
}

int32_t Context::call_code(void* stream, CoilError* error) {
  num_late_ = 0;
  const CoilHost& host = model_->host();
  const CoilCall call = {symbols_.data(),
                         model_->constants(),
                         state_ ? state_->data() : nullptr,
                         input_data_.data(),
                         output_data_.data(),
                         arena_data_,
                         session_ ? nullptr : &host,
                         model_->loaded(),
                         stream,
                         session_ ? session_->flag() : nullptr,
                         [](void* owner, int32_t output, int64_t bytes, const int64_t* symbols, void** data, CoilError* problem) {
                           return static_cast<Context*>(owner)->allocate(output, bytes, symbols, data, problem);
                         },
                         this};
  error->code = 0;
  if (!(watching_ ? watching_->run(call, error) : code_.run(&call, error))) {
    const bool placed = std::all_of(outputs_.begin(), outputs_.end(), [](const Output& o) { return o.placed; });
    return placed ? 0 : fail(error, ErrorCode::internal, "the model's code left out an output");
  }
  return error->code ? error->code : fail(error, ErrorCode::internal, "the model's code failed without a reason");
}

int32_t Context::enqueue(void* stream, CoilError* error) {
  if (int32_t code = session_->begin(stream, state_, error)) return code;
  const int32_t failed = session_->is_captured(stream) && hold_memory(error) ? static_cast<int32_t>(ErrorCode::out_of_memory) : call_code(stream, error);
  CoilError later;
  const int32_t ended = session_->end(stream, state_, failed ? &later : error);  // what was enqueued before a failure runs
  return failed ? failed : ended;
}

// A captured call is replayed when nobody asks the context.
int32_t Context::hold_memory(CoilError* error) {
  bool held = arena_.hold();
  for (Output& output : outputs_) {
    for (Buffer& block : output.blocks) held = block.hold() && held;
  }
  for (Buffer& block : late_) held = block.hold() && held;
  return held ? 0 : fail(error, ErrorCode::out_of_memory, "no memory to note what a captured call uses");
}

// What a call needs before its code runs: memory for outputs and scratch space.
int32_t Context::start(const CoilTensorView* inputs, CoilTensorView* outputs, CoilError* error) {
  inputs_ = inputs;
  wishes_ = outputs;
  reads_ours_ = false;
  for (int32_t i = 0; i < code_.num_inputs; i++) {
    const auto address = reinterpret_cast<uintptr_t>(inputs[i].data);
    reads_ours_ |= address >= lowest_ && address < highest_;
    input_data_[static_cast<size_t>(i)] = inputs[i].data;
  }
  output_bytes_ = 0;
  if (int32_t code = place_outputs(error)) return code;
  arena_bytes_ = code_.arena_bytes(symbols_.data(), model_->host().num_workers);
  CoilError reason{};
  return reserve_arena(&reason) ? 0 : fail_arena(reason, error);
}

bool Context::reserve_arena(CoilError* reason) {
  if (pool_) {
    arena_data_ = arena_bytes_ ? pool_->take(arena_bytes_, reason) : nullptr;
    return arena_data_ || !arena_bytes_;
  }
  const bool reserved = !arena_bytes_ || arena_.reserve(arena_bytes_, reason);
  arena_data_ = arena_.data();
  return reserved;
}

int32_t Context::run(const CoilTensorView* inputs, int32_t num_inputs, CoilTensorView* outputs, int32_t num_outputs, CoilError* error, void* stream) {
  if (__builtin_expect(watchers.load(std::memory_order_relaxed) == 0, true)) return run_call(inputs, num_inputs, outputs, num_outputs, error, stream);
  return run_recorded(inputs, num_inputs, outputs, num_outputs, error, stream);
}

// Somebody watches calls, perhaps this one.
[[gnu::noinline, gnu::cold]] int32_t Context::run_recorded(const CoilTensorView* inputs, int32_t num_inputs, CoilTensorView* outputs, int32_t num_outputs,
                                                           CoilError* error, void* stream) {
  if (!recorder_) recorder_ = std::make_unique<CallRecorder>(model_);
  if (recorder_->leaves_out()) return run_call(inputs, num_inputs, outputs, num_outputs, error, stream);
  const NvtxRange range(Nvtx::get(), model_->name().c_str());
  const ToolRange tool_range("coil: " + model_->name());
  watching_ = recorder_->begin(stream) ? recorder_.get() : nullptr;
  struct End {
    Context& context;
    int32_t failed = static_cast<int32_t>(ErrorCode::out_of_memory);  // an exception passes
    ~End() {
      if (context.watching_) context.watching_->finish(failed);
      context.watching_ = nullptr;
    }
  } end{*this};
  return end.failed = run_call(inputs, num_inputs, outputs, num_outputs, error, stream);
}

int32_t Context::run_call(const CoilTensorView* inputs, int32_t num_inputs, CoilTensorView* outputs, int32_t num_outputs, CoilError* error, void* stream) {
  if (int32_t code = bind(inputs, num_inputs, num_outputs, error)) return code;
  if (watching_) watching_->checked();
  if (num_outputs > 0 && !outputs) return fail(error, ErrorCode::input_null, "the array of outputs is null");
  std::optional<cd::CudaScope> scope;
  if (const CudaDevice* cuda = model_->cuda()) {
    if (!session_) {
      const Status prepared = prepare();
      if (!prepared.ok()) return fail(error, prepared.error().code, "%s", prepared.error().message.c_str());
    }
    scope.emplace(&cuda->driver(), cuda->context());
    if (int32_t code = check_places(inputs, error)) return code;
  } else if (stream) {
    return fail(error, ErrorCode::bad_option, "the model runs on the CPU, which has no streams; pass none");
  }
  if (int32_t code = start(inputs, outputs, error)) return drop_lost(code);
  int32_t failed;
  if (session_ && !state_) {
    failed = enqueue(stream, error);
  } else if (state_) {
    std::lock_guard lock(state_->mutex());
    const Status entered = state_->enter(true);
    if (!entered.ok()) return drop_lost(fail(error, entered.error().code, "%s", entered.error().message.c_str()));
    failed = session_ ? enqueue(stream, error) : call_code(nullptr, error);
  } else {
    failed = call_code(nullptr, error);
  }
  if (failed) return drop_lost(failed);
  for (int32_t i = 0; i < num_outputs; i++) {
    outputs[i].data = output_data_[static_cast<size_t>(i)];
    describe(i, outputs_[static_cast<size_t>(i)].ours, &outputs[i]);
  }
  return 0;
}

// After a failure: memory of ours that was given up for more is named by no struct of the call.
int32_t Context::drop_lost(int32_t code) {
  for (int32_t i = 0; i < code_.num_outputs; i++) {
    CoilTensorView& wish = wishes_[i];
    if (outputs_[static_cast<size_t>(i)].ours && wish.data && !is_ours(wish.data)) wish.data = nullptr;
  }
  return code;
}

int32_t Context::fail_arena(const CoilError& reason, CoilError* error) const {
  const std::string& formula = model_->target().arena_formula;
  return fail(error, static_cast<ErrorCode>(reason.code), "no memory for the scratch space of %lld bytes%s%s: %s", static_cast<long long>(arena_bytes_),
              formula.empty() ? "" : ", by the formula ", formula.c_str(), reason.message);
}

int32_t Context::choose(std::span<CudaSample> rows, CoilError* error) {
  if (!session_ || !code_.sample) return fail(error, ErrorCode::internal, "the model does not choose tokens");
  const cd::CudaScope scope(&model_->cuda()->driver(), model_->cuda()->context());
  for (CudaSample& row : rows) row.flag = session_->flag();
  CoilCall call = {};
  call.device = model_->loaded();
  call.stream = session_->stream();
  error->code = 0;
  if (!code_.sample(&call, rows.data(), static_cast<int32_t>(rows.size()), error)) return 0;
  return error->code ? error->code : fail(error, ErrorCode::internal, "the choice of a token failed without a reason");
}

int32_t Context::synchronise(CoilError* error) { return session_ ? session_->synchronise(error) : 0; }

}  // namespace coil::runtime
