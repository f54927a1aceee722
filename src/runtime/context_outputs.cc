// The results of a context: their sizes, the caller's wishes, where they lie, and what they may not overlap. See context.h.
#include <algorithm>
#include <string>

#include "runtime/context.h"
#include "runtime/tensor_span.h"

namespace coil::runtime {
namespace {

// Bytes from the first element to the end of the last, or -1 when that is no number.
int64_t extent_bytes(const CoilTensorDesc& desc, const int64_t* sizes, const int64_t* strides) {
  int64_t last = 0;
  for (int32_t d = 0; d < desc.ndim; d++) {
    if (sizes[d] == 0) return 0;
    int64_t step;
    if (sizes[d] < 0 || strides[d] < 0 || __builtin_mul_overflow(sizes[d] - 1, strides[d], &step) || __builtin_add_overflow(last, step, &last)) return -1;
  }
  int64_t bytes;
  return __builtin_add_overflow(last, 1, &last) || __builtin_mul_overflow(last, element_bytes(desc.dtype), &bytes) ? -1 : bytes;
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

[[gnu::noinline, gnu::cold]] int32_t fail_output(CoilError* error, const CoilTensorDesc& desc, int32_t i, const int64_t* sizes, const int64_t* strides,
                                                 const CoilTensorView& have) {
  const bool rank_fits = have.ndim == desc.ndim && (have.sizes || !have.ndim);
  return fail(error, ErrorCode::output_mismatch,
              "output '%s' (%d): the result has dtype number %d, sizes %s, strides %s; the caller's tensor has dtype number "
              "%d, rank %d%s%s%s%s%s; "
              "pass a tensor like the result, or one without data",
              desc.name, i, desc.dtype, list(sizes, desc.ndim).c_str(), list(strides, desc.ndim).c_str(), have.dtype, have.ndim, rank_fits ? ", sizes " : "",
              rank_fits ? list(have.sizes, have.ndim).c_str() : "", rank_fits && have.strides ? ", strides " : "",
              rank_fits && have.strides ? list(have.strides, have.ndim).c_str() : "", have.device_type != COIL_CPU ? ", on CUDA" : "");
}

}  // namespace

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
    if (int32_t code = session_->check_place("output", desc.name, i, code_.num_inputs + i, wish, error)) return code;
  }
  const bool fits = rank_fits && wish.dtype == desc.dtype && wish.device_type == code_.device_type &&
                    reinterpret_cast<uintptr_t>(wish.data) % static_cast<uintptr_t>(element_bytes(desc.dtype)) == 0 && same_layout(wish, sizes, strides);
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
    return fail(error, ErrorCode::output_mismatch,
                "output '%s' (%d): inputs of this call lie in its results of the last two runs; copy one of them, or pass memory of your own", desc.name, i);
  const int64_t bytes = extent_bytes(desc, sizes, strides);
  CoilError reason{};
  if (bytes < 0 || !block.replace(bytes, &reason)) {
    return fail(error, reason.code ? static_cast<ErrorCode>(reason.code) : ErrorCode::out_of_memory, "no memory for output '%s' of sizes %s (%lld bytes): %s",
                desc.name, list(sizes, desc.ndim).c_str(), static_cast<long long>(bytes),
                reason.code ? reason.message : "more bytes than there are numbers for");
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

int32_t Context::infer(const CoilTensorView* inputs, int32_t num_inputs, CoilTensorView* outputs, int32_t num_outputs, CoilError* error) {
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
    if (int32_t code = session_->check_place("input", code_.inputs[i].name, i, i, inputs[i], error)) {
      fault_.input = i;
      return code;
    }
  }
  return 0;
}

}  // namespace coil::runtime
