// data/coil/manifest.json: what a package says about itself beyond its code. The runtime reads the part below and ignores the
// rest. What is for `coil inspect`, reports and profiles stands beside it in kernels.json:
//   {"kernels": [...], "not_fused": [...], "layouts": [...], "arena": [...],     of the first target
//    "targets": [{"model": "cuda", "kernels": [...], ...}]}                      of later ones; absent: there are none
// In packages from before that entry it is part of the manifest, "arena" of its "memory".
//
//   {"format": 1,                                   other numbers: COIL-E302
//    "coil": "0.1.0", "name": "minilm",
//    "symbols": [{"name": "batch", "min": 1, "max": 64, "hint": 4}, ...],      max null: no limit; hint null: unknown
//    "inputs":  [{"name": "x", "dtype": "float32", "shape": ["batch", 3, "2*batch + 1"],
//                 "min": [1, 3, 3], "max": [64, 3, 129], "hint": [4, 3, 9]}, ...],   the three lists may be absent
//    "outputs": [... the same ...],
//    "none_results": [1, ...],                      places among all flattened results where the program gives None, rising;
//                                                   may be absent; the outputs fill the other places
//    "fixed_inputs": [{"position": 1, "name": "flag", "value": true}, ...],    non-tensor inputs that the export fixed, by
//                                                                              their place among all flattened inputs
//    "argument_names": ["x", "flag"],               of the program's call, positional ones first; may be absent
//    "targets": [{"device": "cpu", "model": "model", "isas": ["v3", "v4"]},    what the package has code for, best first;
//                {"device": "cuda", "model": "cuda",                           `model` is the folder below data/aotinductor;
//                 "architectures": ["sm_90", "sm_80"]}],                       absent or not objects: one for the CPU, "model";
//                {"device": "cpu", "machine": "aarch64", ...}                  a CPU's machine (base/host_machine.h); absent: "x86-64"
//    "memory": {"arena_bytes": "4*batch*seq"}}                                 the formula of a call's scratch space, for messages;
//                                                                              a target with a "memory" of its own has its own
// An input with a "value" is a symbolic integer: a 0-d int64 tensor that is on the CPU for every target.
// An input with "mutated" is written to by the program; one with "whole_storage" has to begin where its storage does,
// and one with "exact_strides" to lie as the exported one did.
// An output with a "number" ("int", "float", "bool") is a Python number of the program, given as a 0-d tensor.
// A string in a shape is a symbol's name or an expression of them. Without the lists, ranges and hints are those of the symbol,
// or unknown for an expression. inputs and outputs agree with those of the code (model_abi.h) in number, dtype and rank.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace coil::runtime {

inline constexpr uint64_t kMaxManifest = uint64_t{1} << 28;  // bytes

struct ManifestDim {
  std::string symbol;  // name or expression; empty: fixed, min == max
  int64_t min = 0;
  int64_t max = INT64_MAX;
  int64_t hint = -1;  // -1: unknown
};

struct ManifestTensor {
  std::string name;
  int32_t dtype = 0;  // COIL_FLOAT32, ...
  std::vector<ManifestDim> dims;
  bool scalar = false;   // a symbolic integer
  bool mutated = false;  // an input that the program writes to
  bool whole_storage = false;
  bool exact_strides = false;
  std::string number;  // of an output: "int", "float", "bool", or empty for a tensor
};

// A buffer that the program changes from call to call.
struct ManifestState {
  std::string name;
  int32_t dtype = 0;
  std::vector<int64_t> sizes;
  int64_t offset = 0;
};

struct Target {
  int32_t device_type = 0;         // COIL_CPU, COIL_CUDA
  std::string machine = "x86-64";  // of a CPU
  std::string model = "model";
  std::vector<std::string> architectures;  // "sm_90", or "v3"
  std::string arena_formula;               // or empty
  std::vector<ManifestState> states;       // may be absent from packages of one program that were made before
};

struct FixedInput {
  int64_t position = 0;
  std::string name;
  std::variant<std::monostate, bool, int64_t, double, std::string> value;  // monostate: None
};

struct Manifest {
  std::string name;
  std::string coil_version;
  std::vector<ManifestTensor> inputs;
  std::vector<ManifestTensor> outputs;
  std::vector<int32_t> output_places;  // of each output among all flattened results
  std::vector<FixedInput> fixed_inputs;
  std::vector<std::string> argument_names;
  std::vector<Target> targets;  // never empty
};

Result<Manifest> parse_manifest(std::string_view json);

// What a folder of the package may be called: its name goes into the names of entries, and nothing may lead elsewhere.
bool is_folder_name(std::string_view name);

}  // namespace coil::runtime
