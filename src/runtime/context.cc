// See context.h.
#include "runtime/context.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string>

#include "runtime/nvtx.h"

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
    case COIL_UINT16:
    case COIL_FLOAT16:
    case COIL_BFLOAT16:
      return 2;
    case COIL_INT32:
    case COIL_UINT32:
    case COIL_COMPLEX32:
    case COIL_FLOAT32:
      return 4;
    case COIL_INT64:
    case COIL_UINT64:
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

// How many shapes of an output are kept under their addresses.
constexpr size_t kMostShapes = 64;
// Structs of other outputs are looked for among so many: every call with the caller's memory pays for it.
constexpr int32_t kMostSwapped = 16;

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
  if (num_inputs > 0 && !inputs) return fail(error, ErrorCode::input_null, "the array of inputs is null");
  if (code_.bind(inputs, num_inputs, symbols_.data(), error) != 0) return error->code;
  if (num_outputs != code_.num_outputs)
    return fail(error, ErrorCode::output_mismatch, "the program has %d outputs, the caller passes %d", code_.num_outputs,
                num_outputs);
  return check_written(inputs, error);
}

// What the program writes to of its inputs no other input may show: it is read in any order.
int32_t Context::check_written(const CoilTensorView* inputs, CoilError* error) const {
  for (const int32_t i : written_inputs_) {
    const Span written = span_of(inputs[i]);
    for (int32_t j = 0; j < code_.num_inputs; j++) {
      if (i == j || !written.meets(span_of(inputs[j]))) continue;
      return fail(error, ErrorCode::output_mismatch, "input '%s' (%d), which the program writes to: its memory overlaps that of input '%s' (%d); pass a copy of one of them",
                  code_.inputs[i].name, i, code_.inputs[j].name, j);
    }
  }
  return 0;
}

// The shape of the call under way, under an address that callers may keep: the one it had when it was last told, else a new one in
// the place of the one that was not used for longest.
void Context::set_shape(int32_t i, const int64_t* sizes, const int64_t* strides) {
  Output& output = outputs_[static_cast<size_t>(i)];
  const auto rank = static_cast<size_t>(code_.outputs[i].ndim);
  const auto is_this = [&](const Shape& shape) {
    return std::equal(sizes, sizes + rank, shape.dims.get()) && std::equal(strides, strides + rank, shape.dims.get() + rank);
  };
  if (output.shape >= output.shapes.size() || !is_this(output.shapes[output.shape])) {
    auto found = std::find_if(output.shapes.begin(), output.shapes.end(), is_this);
    if (found == output.shapes.end()) {
      if (output.shapes.size() < kMostShapes) {
        output.shapes.push_back({std::unique_ptr<int64_t[]>(new int64_t[4 * rank + 1]), 0});
        found = output.shapes.end() - 1;
      } else {
        const auto older = [](const Shape& a, const Shape& b) { return a.last_use < b.last_use; };
        found = std::min_element(output.shapes.begin(), output.shapes.end(), older);
      }
      int64_t* dims = found->dims.get();
      for (int copy = 0; copy < 2; copy++) dims = std::copy_n(strides, rank, std::copy_n(sizes, rank, dims));
    }
    output.shape = static_cast<size_t>(found - output.shapes.begin());
  }
  output.shapes[output.shape].last_use = ++uses_;
}

void Context::shape_output(int32_t i, const int64_t* symbols) {
  int64_t sizes[COIL_MAX_RANK], strides[COIL_MAX_RANK];
  code_.output_shape(symbols, i, sizes, strides);
  set_shape(i, sizes, strides);
}

const int64_t* Context::dims_of(int32_t i, bool ours) const {
  const Output& output = outputs_[static_cast<size_t>(i)];
  return output.shapes[output.shape].dims.get() + (ours ? 2 * code_.outputs[i].ndim : 0);
}

bool Context::is_ours(const void* data) const {
  const auto address = reinterpret_cast<uintptr_t>(data);
  if (address < lowest_ || address >= highest_) return false;
  return std::any_of(outputs_.begin(), outputs_.end(), [&](const Output& o) { return o.blocks[0].holds(data) || o.blocks[1].holds(data); });
}

bool Context::holds_input(const Buffer& block) const {
  return reads_ours_ && std::any_of(inputs_, inputs_ + code_.num_inputs, [&](const CoilTensorView& input) { return block.holds(input.data); });
}

// Whether the caller's words about its memory are those with which this context described memory of its own.
bool Context::describes_ours(int32_t i, const CoilTensorView& wish) const {
  const auto describes = [&](int32_t o) {
    const auto rank = static_cast<size_t>(code_.outputs[o].ndim);
    const std::vector<Shape>& shapes = outputs_[static_cast<size_t>(o)].shapes;
    return rank && std::any_of(shapes.begin(), shapes.end(), [&](const Shape& shape) {
      const int64_t* dims = shape.dims.get() + 2 * rank;
      return wish.sizes == dims || wish.strides == dims + rank;
    });
  };
  if (describes(i)) return true;
  for (int32_t o = 0; o < std::min(code_.num_outputs, kMostSwapped); o++) {  // structs that changed places
    if (o != i && describes(o)) return true;
  }
  return false;
}

// Whether the caller's memory for output i, if it passes some, is what the result needs.
int32_t Context::check_wish(int32_t i, const int64_t* symbols, CoilError* error) {
  shape_output(i, symbols);
  Output& output = outputs_[static_cast<size_t>(i)];
  const CoilTensorView& wish = wishes_[i];
  if (output.ours) return 0;
  const CoilTensorDesc& desc = code_.outputs[i];
  const int64_t *sizes = dims_of(i, false), *strides = sizes + desc.ndim;
  const bool rank_fits = wish.ndim == desc.ndim && (wish.sizes || !wish.ndim);
  if (session_ && rank_fits) {
    if (int32_t code = session_->check_place("output", desc.name, code_.num_inputs + i, wish, error)) return code;
  }
  const bool fits = rank_fits && wish.dtype == desc.dtype && wish.device_type == code_.device_type &&
                    reinterpret_cast<uintptr_t>(wish.data) % static_cast<uintptr_t>(element_bytes(desc.dtype)) == 0 &&
                    same_layout(wish, sizes, strides);
  if (!fits) return fail_output(error, desc, i, sizes, strides, wish);
  if (describes_ours(i, wish))
    return fail(error, ErrorCode::output_mismatch,
                "output '%s' (%d): its sizes and strides are those of memory that this context owned, its data is not that memory (any more); set data "
                "to null, or describe memory of your own with sizes of your own or of coil_infer",
                desc.name, i);
  const Span span = span_of(wish);
  output.begin = span.begin, output.end = span.end;
  return check_overlap(i, error);
}

// Decides where output i is written, once its wish is checked.
int32_t Context::place_output(int32_t i, CoilError* error) {
  Output& output = outputs_[static_cast<size_t>(i)];
  if (output.ours) {
    if (int32_t code = place_in_ours(i, error)) return code;
  } else {
    output_data_[static_cast<size_t>(i)] = wishes_[i].data;
  }
  output.placed = true;
  return 0;
}

int32_t Context::place_in_ours(int32_t i, CoilError* error) {
  Output& output = outputs_[static_cast<size_t>(i)];
  const CoilTensorDesc& desc = code_.outputs[i];
  const int64_t *sizes = dims_of(i, true), *strides = sizes + desc.ndim;
  if (holds_input(output.blocks[output.block])) output.block ^= 1;
  Buffer& block = output.blocks[output.block];
  if (holds_input(block))
    return fail(error, ErrorCode::output_mismatch, "output '%s' (%d): inputs of this call lie in its results of the last two runs; copy one of them, or pass memory of your own",
                desc.name, i);
  const int64_t bytes = extent_bytes(desc, sizes, strides);
  CoilError reason{};
  if (bytes < 0 || !block.replace(bytes, &reason)) {
    return fail(error, reason.code ? static_cast<ErrorCode>(reason.code) : ErrorCode::out_of_memory,
                "no memory for output '%s' of sizes %s (%lld bytes): %s", desc.name, list(sizes, desc.ndim).c_str(),
                static_cast<long long>(bytes), reason.code ? reason.message : "more bytes than there are numbers for");
  }
  const auto begin = reinterpret_cast<uintptr_t>(block.data());
  lowest_ = std::min(lowest_, begin), highest_ = std::max(highest_, begin + static_cast<uintptr_t>(block.capacity()));
  output_bytes_ += bytes;
  output_data_[static_cast<size_t>(i)] = block.data();
  return 0;
}

// All wishes are checked before any memory of ours is given up for more.
int32_t Context::place_outputs(CoilError* error) {
  for (int32_t i = 0; i < code_.num_outputs; i++) {
    Output& output = outputs_[static_cast<size_t>(i)];
    output.placed = false, output.begin = output.end = 0;
    output.ours = !wishes_[i].data || is_ours(wishes_[i].data);  // of late ones too: what is placed before them may give their memory up
  }
  for (int32_t i = 0; i < code_.num_outputs; i++) {
    if (is_late(i)) continue;  // its size is not known yet
    if (int32_t code = check_wish(i, symbols_.data(), error)) return code;
  }
  for (int32_t i = 0; i < code_.num_outputs; i++) {
    if (is_late(i)) continue;
    if (int32_t code = place_output(i, error)) return code;
  }
  return 0;
}

void Context::describe(int32_t i, bool ours, CoilTensorView* output) const {
  const DeviceId device = model_->device().id();
  const CoilTensorDesc& desc = code_.outputs[i];
  const int64_t* dims = dims_of(i, ours);
  *output = {output->data, dims, dims + desc.ndim, desc.ndim, desc.dtype, device.type, device.index};
}

int32_t Context::infer(const CoilTensorView* inputs, int32_t num_inputs, CoilTensorView* outputs, int32_t num_outputs,
                       CoilError* error) {
  if (int32_t code = bind(inputs, num_inputs, num_outputs, error)) return code;
  for (int32_t i = 0; i < num_outputs; i++) {
    if (is_late(i)) {
      int64_t unknown[COIL_MAX_RANK];
      std::fill_n(unknown, COIL_MAX_RANK, int64_t{-1});
      set_shape(i, unknown, unknown);
    } else {
      shape_output(i, symbols_.data());
    }
  }
  for (int32_t i = 0; i < num_outputs; i++) describe(i, is_ours(outputs[i].data), &outputs[i]);
  return 0;
}

// What is computed is written while inputs are still read, in any order. Of the other outputs those are looked at that lie in the
// caller's memory and were checked before: each pair once.
int32_t Context::check_overlap(int32_t o, CoilError* error) const {
  const Span out = {outputs_[static_cast<size_t>(o)].begin, outputs_[static_cast<size_t>(o)].end};
  const char* kind = nullptr;
  const char* name = nullptr;
  for (int32_t i = 0; i < code_.num_inputs && !kind; i++) {
    if (out.meets(span_of(inputs_[i]))) kind = "input", name = code_.inputs[i].name;
  }
  for (int32_t i = 0; i < code_.num_outputs && !kind; i++) {
    const Output& other = outputs_[static_cast<size_t>(i)];
    if (i != o && out.meets({other.begin, other.end})) kind = "output", name = code_.outputs[i].name;
  }
  if (!kind) return 0;
  return fail(error, ErrorCode::output_mismatch, "output '%s' (%d): its memory overlaps that of %s '%s'; pass memory of its own, or none",
              code_.outputs[o].name, o, kind, name);
}

// On CUDA: no address that the device cannot use reaches a kernel. Symbolic integers, which bind has read, are on the CPU.
int32_t Context::check_places(const CoilTensorView* inputs, CoilError* error) {
  for (int32_t i = 0; i < code_.num_inputs; i++) {
    if (inputs[i].device_type == COIL_CPU) continue;  // bind has agreed
    if (int32_t code = session_->check_place("input", code_.inputs[i].name, i, inputs[i], error)) return code;
  }
  return 0;
}

int32_t Context::allocate_scratch(int64_t bytes, void** data, CoilError* error) {
  if (num_late_ == late_.size()) late_.emplace_back(model_->device());
  Buffer& buffer = late_[num_late_++];
  CoilError reason{};
  if (!buffer.reserve(bytes, &reason))
    return fail(error, ErrorCode::out_of_memory, "no memory for scratch space of %lld bytes, which the data asks for: %s", static_cast<long long>(bytes), reason.message);
  arena_bytes_ += bytes;
  *data = buffer.data();
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
  return arena_bytes_ && !arena_.reserve(arena_bytes_, &reason) ? fail_arena(reason, error) : 0;
}

int32_t Context::run(const CoilTensorView* inputs, int32_t num_inputs, CoilTensorView* outputs, int32_t num_outputs,
                     CoilError* error, void* stream) {
  if (__builtin_expect(watchers.load(std::memory_order_relaxed) == 0, true)) return run_call(inputs, num_inputs, outputs, num_outputs, error, stream);
  return run_recorded(inputs, num_inputs, outputs, num_outputs, error, stream);
}

// Somebody watches calls, perhaps this one.
[[gnu::noinline, gnu::cold]] int32_t Context::run_recorded(const CoilTensorView* inputs, int32_t num_inputs, CoilTensorView* outputs, int32_t num_outputs,
                                                           CoilError* error, void* stream) {
  if (!recorder_) recorder_ = std::make_unique<CallRecorder>(model_);
  const NvtxRange range(Nvtx::get(), model_->name().c_str());
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
  return fail(error, static_cast<ErrorCode>(reason.code), "no memory for the scratch space of %lld bytes%s%s: %s",
              static_cast<long long>(arena_bytes_), formula.empty() ? "" : ", by the formula ", formula.c_str(),
              reason.message);
}

int32_t Context::synchronise(CoilError* error) { return session_ ? session_->synchronise(error) : 0; }

}  // namespace coil::runtime
