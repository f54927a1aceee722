// Calls of a model for measurements: on arrays from files, or on random ones of the sizes that the command line gives.
#pragma once

#include <string>
#include <vector>

#include "arrays.h"
#include "device_arrays.h"
#include "load_model.h"
#include "options.h"
#include "sizes.h"

namespace coil::tool {

// Of files or of shapes. Sizes that neither gives are chosen, with a note that says so. Fills `sizes` and `inputs`.
// Random values lie between -1 and 1; integers and booleans are 0 or 1, which are in range for any index and any mask.
Status example_inputs(const GivenInputs& given, const LoadedModel& loaded, Sizes& sizes, CallInputs* inputs);
// The same by what a manifest says.
Status example_inputs(const GivenInputs& given, const runtime::Manifest& interface, const Json& manifest, Sizes& sizes, CallInputs* inputs);

// One call with outputs in the context's memory, as a user makes it.
class Caller {
 public:
  Caller(runtime::Context& context, const DeviceInputs& inputs) : context_(context), inputs_(inputs), outputs_(context.model().manifest().outputs.size()) {}
  Status call() {
    for (CoilTensorView& o : outputs_) o.data = nullptr;
    return run_model(context_, inputs_.views(), outputs_);
  }
  Status synchronise() { return tool::synchronise(context_); }
  const runtime::Model& model() const { return context_.model(); }

 private:
  runtime::Context& context_;
  const DeviceInputs& inputs_;
  std::vector<CoilTensorView> outputs_;
};

}  // namespace coil::tool
