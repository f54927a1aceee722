// What a ProgramDocument holds; for the files that implement it.
#pragma once

#include "base/json.h"

#include "frontend/program_document.h"

namespace coil {

// Names of values in an argument or a result; a nested graph has names of its own.
void names_in(const Json& json, std::vector<std::string>& out);

struct ProgramDocument::Contents {
  Json program;
  std::map<std::string, TensorData> weights;     // by their names in the model
  std::map<std::string, std::string> kinds;      // of those: "parameter", "buffer", "tensor_constant"
  std::map<std::string, std::string> weight_of;  // the name of an input value -> that in the model

  Json& graph() { return program["graph_module"]["graph"]; }
  const Json& graph() const { return program.at("graph_module").at("graph"); }

  std::vector<std::string> defined_by(const Json& node) const {
    std::vector<std::string> out;
    names_in(node.at("outputs"), out);
    return out;
  }
  std::vector<std::string> used_by(const Json& node) const {
    std::vector<std::string> out;
    for (const Json& input : node.at("inputs")) names_in(input.at("arg"), out);
    return out;
  }
  bool is_tensor(const std::string& name) const { return graph().at("tensor_values").contains(name); }

  // Steps of ProgramDocument::cut.
  struct Slice;
  Result<Slice> slice_of(const std::vector<std::string>& outputs, const std::set<std::string>& given) const;
  std::vector<std::string> take_inputs(const Contents& from, const Slice& slice, const std::vector<std::string>& before);
  void set_outputs(const std::vector<std::string>& names);
  void set_call(const std::vector<std::string>& callers, size_t results);
  void forget_types(const std::set<std::string>& alive);
};

}  // namespace coil
