// See example_call.h.
#include "example_call.h"

#include <fmt/format.h>

#include <cstring>

#include "shapes.h"
#include "terminal.h"

namespace coil::tool {
namespace {

// A fixed sequence of numbers: runs are comparable.
class Random {
 public:
  uint64_t next() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  uint64_t state_ = 0x9E3779B97F4A7C15;
};

// Values between -1 and 1; integers and booleans 0 or 1, which are in range for any index and any mask.
Result<NpyArray> random_array(const Json& info, Sizes& sizes, Random& random) {
  NpyArray a;
  const std::string dtype = info.at("dtype").get<std::string>();
  if (info.contains("value")) {
    TRY(const int64_t value, sizes.evaluate(info["value"]));
    a.dtype = COIL_INT64;
    a.data.resize(sizeof value);
    std::memcpy(a.data.data(), &value, sizeof value);
    return a;
  }
  TRY(a.shape, sizes.evaluate_all(info.at("shape")));
  double elements = 1;
  for (int64_t n : a.shape) elements *= static_cast<double>(n);
  constexpr double kMost = 0x1p40;  // random numbers are made one by one
  if (elements > kMost)
    return Error{ErrorCode::out_of_memory,
                 fmt::format("input '{}' of sizes [{}] would have {:.3g} elements", info.at("name").get<std::string>(), fmt::join(a.shape, ", "), elements), "",
                 "choose smaller sizes with --shape"};
  const bool half = dtype == "bfloat16" || dtype == "float16";
  const bool floating = half || dtype == "float32" || dtype == "complex64";
  const bool wide = dtype == "float64" || dtype == "complex128";
  const size_t parts = dtype.starts_with("complex") ? 2 : 1;
  const size_t item = floating ? 4 : dtype_bytes_of(dtype) / parts;
  a.data.assign(static_cast<size_t>(a.count()) * item * parts, 0);
  for (int32_t d : {COIL_BOOL, COIL_UINT8, COIL_INT8, COIL_INT16, COIL_INT32, COIL_INT64, COIL_FLOAT32, COIL_FLOAT64, COIL_COMPLEX64, COIL_COMPLEX128}) {
    if (dtype_name(d) == (half ? "float32" : dtype)) a.dtype = d;
  }
  for (size_t i = 0; i < a.data.size(); i += item) {
    const double u = random.uniform();
    const float f = static_cast<float>(2 * u - 1);
    const double d = 2 * u - 1;
    if (floating) {
      std::memcpy(a.data.data() + i, &f, sizeof f);
    } else if (wide) {
      std::memcpy(a.data.data() + i, &d, sizeof d);
    } else {
      a.data[i] = u < 0.5 ? 0 : 1;  // little-endian: the lowest byte
    }
  }
  return a;
}

Status random_inputs(const Json& manifest, Sizes& sizes, CallInputs* inputs) {
  Random random;
  const Json& infos = manifest.at("inputs");
  inputs->arrays.resize(infos.size());
  inputs->strides.resize(infos.size());
  for (size_t i = 0; i < infos.size(); ++i) {
    TRY(NpyArray array, random_array(infos[i], sizes, random));
    TRY_STATUS(place_input(i, std::move(array), manifest, sizes, inputs));
  }
  make_views(inputs);
  return ok_status();
}

void learn_sizes(const Json& manifest, const CallInputs& inputs, Sizes& sizes) {
  for (size_t i = 0; i < inputs.arrays.size(); ++i) {
    const Json& info = manifest.at("inputs").at(i);
    const NpyArray& a = inputs.arrays[i];
    if (!info.contains("value")) {
      sizes.learn(info.at("shape"), a.shape);
    } else if (int64_t value = 0; a.data.size() == sizeof value) {
      std::memcpy(&value, a.data.data(), sizeof value);
      sizes.learn(Json::array({info["value"]}), {value});
    }
  }
}

}  // namespace

Status example_inputs(const GivenInputs& given, const LoadedModel& loaded, Sizes& sizes, CallInputs* inputs) {
  return example_inputs(given, loaded.model->manifest(), loaded.manifest, sizes, inputs);
}

Status example_inputs(const GivenInputs& given, const runtime::Manifest& interface, const Json& manifest, Sizes& sizes, CallInputs* inputs) {
  TRY_STATUS(apply_shapes(given.shapes, sizes));
  for (const std::string& shape : given.shapes) {
    for (const DynamicSize& s : sizes.symbols()) {
      if (s.from_data && shape.starts_with(s.name + "="))
        return Error{ErrorCode::bad_dimension, fmt::format("'{}' follows from the inputs' elements: a call cannot choose it", s.name), "",
                     "leave it out of --shape, or give inputs with -i"};
    }
  }
  if (!given.files.empty()) {
    if (!given.shapes.empty()) return Error{ErrorCode::bad_option, "--shape and --input exclude each other: arrays have sizes", "", ""};
    TRY_STATUS(gather_inputs(given.files, interface, manifest, inputs));
    if (!inputs->ignored.empty()) note(fmt::format("keys that name no input are ignored: {}", fmt::join(inputs->ignored, ", ")));
    learn_sizes(manifest, *inputs, sizes);
  }
  const auto chosen = sizes.fill_defaults();
  if (!given.files.empty()) return ok_status();
  for (const auto& [name, value] : chosen) note(fmt::format("{} is {}; choose with --shape {}=N", name, value, name));
  return random_inputs(manifest, sizes, inputs);
}

}  // namespace coil::tool
