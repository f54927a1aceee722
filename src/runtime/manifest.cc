// See manifest.h.
#include "runtime/manifest.h"

#include <algorithm>
#include <utility>

#include "base/json_read.h"
#include "device/dtype_names.h"
#include "device/model_abi.h"

namespace coil::runtime {
namespace {

constexpr int64_t kFormat = 1;

Result<int32_t> dtype_of(JsonValue value) {
  TRY(const std::string_view name, value.as_string());
  for (int32_t number = 0; number <= cd::kMostDtype; ++number) {
    if (const char* known = cd::dtype_name(number); known && known == name) return number;
  }
  return value.error("unknown dtype '" + std::string(name) + "'");
}

// The integer member, or `none` when it is absent or null.
Result<int64_t> int_or(JsonValue object, std::string_view key, int64_t none) {
  const std::optional<JsonValue> value = object.find(key);
  if (!value) return none;
  return value->as_int();
}

// The list member's elements; none when it is absent or null.
Result<std::vector<JsonValue>> list_or_none(JsonValue object, std::string_view key) {
  std::vector<JsonValue> values;
  const std::optional<JsonValue> value = object.find(key);
  if (!value) return values;
  TRY(const JsonArray array, value->as_array());
  for (JsonValue item : array) values.push_back(item);
  return values;
}

Result<std::vector<ManifestDim>> read_symbols(JsonValue root) {
  std::vector<ManifestDim> symbols;
  TRY(const std::vector<JsonValue> list, list_or_none(root, "symbols"));
  for (JsonValue item : list) {
    ManifestDim symbol;
    TRY(symbol.symbol, item.get_string("name"));
    TRY(symbol.min, int_or(item, "min", 0));
    TRY(symbol.max, int_or(item, "max", INT64_MAX));
    TRY(symbol.hint, int_or(item, "hint", -1));
    symbols.push_back(std::move(symbol));
  }
  return symbols;
}

Result<ManifestDim> read_dim(JsonValue value, const std::vector<ManifestDim>& symbols) {
  ManifestDim dim;
  if (!value.is_string()) {
    TRY(dim.min, value.as_int());
    if (dim.min < 0) return value.error("a size is negative");
    dim.max = dim.hint = dim.min;
    return dim;
  }
  TRY(const std::string_view text, value.as_string());
  const auto known = std::find_if(symbols.begin(), symbols.end(), [&](const ManifestDim& s) { return s.symbol == text; });
  if (known != symbols.end()) return *known;
  dim.symbol = text;
  return dim;
}

// Overwrites a property of the dims by the list of that name, if there is one.
Status read_list(JsonValue tensor, std::string_view key, int64_t none, int64_t ManifestDim::* member, std::vector<ManifestDim>* dims) {
  if (!tensor.find(key)) return ok_status();
  TRY(const std::vector<JsonValue> list, list_or_none(tensor, key));
  if (list.size() != dims->size()) return tensor.error(std::string(key) + " and shape differ in length");
  for (size_t d = 0; d < list.size(); d++) {
    (*dims)[d].*member = none;
    if (list[d].is_null()) continue;
    TRY((*dims)[d].*member, list[d].as_int());
  }
  return ok_status();
}

Result<std::vector<ManifestTensor>> read_tensors(JsonValue root, std::string_view key, const std::vector<ManifestDim>& symbols) {
  std::vector<ManifestTensor> tensors;
  TRY(const JsonArray list, root.get_array(key));
  for (JsonValue item : list) {
    ManifestTensor tensor;
    TRY(tensor.name, item.get_string("name"));
    TRY(const JsonValue dtype, item.get("dtype"));
    TRY(tensor.dtype, dtype_of(dtype));
    TRY(const JsonArray shape, item.get_array("shape"));
    for (JsonValue size : shape) {
      TRY(ManifestDim dim, read_dim(size, symbols));
      tensor.dims.push_back(std::move(dim));
    }
    TRY_STATUS(read_list(item, "min", 0, &ManifestDim::min, &tensor.dims));
    TRY_STATUS(read_list(item, "max", INT64_MAX, &ManifestDim::max, &tensor.dims));
    TRY_STATUS(read_list(item, "hint", -1, &ManifestDim::hint, &tensor.dims));
    tensor.scalar = item.find("value").has_value();
    tensor.mutated = item.find("mutated").has_value();
    tensor.whole_storage = item.find("whole_storage").has_value();
    tensor.exact_strides = item.find("exact_strides").has_value();
    if (item.find("number")) {
      TRY(tensor.number, item.get_string("number"));
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

Result<FixedInput> read_fixed_input(JsonValue item) {
  FixedInput input;
  TRY(input.position, item.get_int("position"));
  TRY(input.name, item.get_string("name"));
  TRY(const JsonValue value, item.get("value"));
  switch (value.kind()) {
    case JsonKind::null: break;
    case JsonKind::boolean: {
      TRY(input.value, value.as_bool());
      break;
    }
    case JsonKind::number: {
      if (value.is_int()) {
        TRY(input.value, value.as_int());
      } else {
        TRY(input.value, value.as_double());
      }
      break;
    }
    case JsonKind::string: {
      TRY(const std::string_view text, value.as_string());
      input.value = std::string(text);
      break;
    }
    default: return value.error("expected a number, a boolean, a string or null");
  }
  return input;
}

// Those of the manifest, or of a target.
Result<std::vector<ManifestState>> read_states(JsonValue object, const std::vector<ManifestState>& none) {
  if (!object.find("states")) return none;
  std::vector<ManifestState> states;
  TRY(const std::vector<JsonValue> list, list_or_none(object, "states"));
  for (JsonValue item : list) {
    ManifestState state;
    TRY(state.name, item.get_string("name"));
    TRY(const JsonValue dtype, item.get("dtype"));
    TRY(state.dtype, dtype_of(dtype));
    TRY(const JsonArray shape, item.get_array("shape"));
    for (JsonValue size : shape) {
      TRY(const int64_t value, size.as_int());
      state.sizes.push_back(value);
    }
    TRY(state.offset, item.get_int("offset"));
    states.push_back(std::move(state));
  }
  return states;
}

// Of the manifest or of a target; `none` when it has none.
Result<std::string> read_formula(JsonValue object, const std::string& none) {
  const std::optional<JsonValue> memory = object.find("memory");
  if (!memory) return none;
  const std::optional<JsonValue> formula = memory->find("arena_bytes");
  if (!formula || !formula->is_string()) return none;
  TRY(const std::string_view text, formula->as_string());
  return std::string(text);
}

Result<Target> read_target(JsonValue item, const std::string& formula, const std::vector<ManifestState>& states) {
  Target target;
  TRY(const std::string_view device, item.get_string("device"));
  if (device != "cpu" && device != "cuda") return item.error("unknown device '" + std::string(device) + "'");
  target.device_type = device == "cpu" ? COIL_CPU : COIL_CUDA;
  TRY(target.model, item.get_string("model"));
  if (!is_folder_name(target.model)) return item.error("'" + target.model + "' is no name of a folder");
  if (const std::optional<JsonValue> machine = item.find("machine")) {
    TRY(const std::string_view name, machine->as_string());
    target.machine = name;
  }
  TRY(const std::vector<JsonValue> list, list_or_none(item, device == "cpu" ? "isas" : "architectures"));
  for (JsonValue value : list) {
    TRY(const std::string_view name, value.as_string());
    target.architectures.emplace_back(name);
  }
  TRY(target.arena_formula, read_formula(item, formula));
  TRY(target.states, read_states(item, states));
  return target;
}

// Where each output stands among the results: in the places that None does not take.
Result<std::vector<int32_t>> read_places(JsonValue root, size_t num_outputs) {
  TRY(const std::vector<JsonValue> list, list_or_none(root, "none_results"));
  std::vector<int32_t> places;
  int64_t next = 0;
  for (JsonValue item : list) {
    TRY(const int64_t none, item.as_int());
    if (none < next || none > static_cast<int64_t>(num_outputs + list.size())) return item.error("none_results must rise and be places of results");
    for (; next < none; next++) places.push_back(static_cast<int32_t>(next));
    next = none + 1;
  }
  for (; places.size() < num_outputs; next++) places.push_back(static_cast<int32_t>(next));
  if (places.size() != num_outputs) return root.error("none_results leave a hole");
  return places;
}

Result<std::vector<Target>> read_targets(JsonValue root) {
  std::vector<Target> targets;
  TRY(const std::vector<JsonValue> list, list_or_none(root, "targets"));
  TRY(const std::string formula, read_formula(root, ""));
  TRY(const std::vector<ManifestState> states, read_states(root, {}));
  for (JsonValue item : list) {
    if (item.is_string()) continue;  // "cpu:x86-64-v3" of packages for the CPU only
    TRY(Target target, read_target(item, formula, states));
    targets.push_back(std::move(target));
  }
  if (targets.empty()) targets.emplace_back().arena_formula = formula;
  return targets;
}

}  // namespace

bool is_folder_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

Result<Manifest> parse_manifest(std::string_view json) {
  TRY(const JsonDoc document, JsonDoc::parse(json, "data/coil/manifest.json"));
  const JsonValue root = document.root();
  TRY(const int64_t format, root.get_int("format"));
  if (format != kFormat)
    return Error{ErrorCode::package_version, "the package has format " + std::to_string(format) + ", this runtime reads format " + std::to_string(kFormat), "",
                 "compile the program again with this version of coil, or use its runtime"};
  Manifest manifest;
  TRY(manifest.name, root.get_string("name"));
  TRY(manifest.coil_version, root.get_string("coil"));
  TRY(const std::vector<ManifestDim> symbols, read_symbols(root));
  TRY(manifest.inputs, read_tensors(root, "inputs", symbols));
  TRY(manifest.outputs, read_tensors(root, "outputs", symbols));
  TRY(manifest.output_places, read_places(root, manifest.outputs.size()));
  TRY(const std::vector<JsonValue> fixed, list_or_none(root, "fixed_inputs"));
  for (JsonValue item : fixed) {
    TRY(FixedInput input, read_fixed_input(item));
    manifest.fixed_inputs.push_back(std::move(input));
  }
  TRY(const std::vector<JsonValue> names, list_or_none(root, "argument_names"));
  for (JsonValue item : names) {
    TRY(const std::string_view name, item.as_string());
    manifest.argument_names.emplace_back(name);
  }
  TRY(manifest.targets, read_targets(root));
  return manifest;
}

}  // namespace coil::runtime
