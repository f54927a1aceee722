// NumPy arrays to the inputs of a call, and its outputs back.
#pragma once

#include <string>
#include <vector>

#include "archive_kind.h"
#include "base/npy.h"
#include "device/model_abi.h"
#include "runtime/model.h"

namespace coil::tool {

class Sizes;

// The inputs of a call, in memory of their own. Not copyable: the views point into it.
struct CallInputs {
  std::vector<NpyArray> arrays;  // one per input of the model, converted to its dtype and strides
  std::vector<std::vector<int64_t>> strides;
  std::vector<CoilTensorView> views;
  std::vector<std::string> ignored;  // keys of archives that name no input
};

// `arguments` are those of --input: "a.npz", "x.npy", "name=x.npy". Within an archive, keys are names of inputs or "in_N", N
// counting all flattened inputs of the program; single files without a name go to the tensor inputs in order.
// Converted: float32 for float16 and bfloat16 inputs; any integer for a symbolic size. A value for an input that the export
// fixed must be the fixed one. Everything else (dtypes, ranks, sizes) the runtime checks. Errors: input_count, input_name,
// input_value, input_stride, bad_array, file_*.
Status gather_inputs(const std::vector<std::string>& arguments, const runtime::Model& model, const Json& manifest, CallInputs* inputs);

// The same by what a manifest says.
Status gather_inputs(const std::vector<std::string>& arguments, const runtime::Manifest& interface, const Json& manifest, CallInputs* inputs);

// Puts `array` into the model's layout as input i: the last step of gather_inputs, for arrays that are not read from files.
Status place_input(size_t i, NpyArray array, const Json& manifest, Sizes& sizes, CallInputs* inputs);
// Views of all arrays, once they are placed.
void make_views(CallInputs* inputs);

// A dense copy in C order; bfloat16 becomes float32.
NpyArray to_array(const CoilTensorView& view);

std::string dtype_name(int32_t dtype);  // "float32"
size_t dtype_bytes(int32_t dtype);

}  // namespace coil::tool
