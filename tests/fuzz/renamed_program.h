// An exported program in which every text that its author chose is another one, and the code that coil writes for it. What a program calls its things
// must not matter: tests/compiler/foreign_text_test.cc and fuzz_text compare the code with that of the program as it was.
#pragma once

#include <algorithm>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/zip_reader.h"
#include "base/zip_writer.h"
#include "codegen/constants.h"
#include "codegen/cpu/cpu_kernels.h"
#include "codegen/cuda/host/host_program.h"
#include "codegen/cpu/host/host_program.h"
#include "frontend/program_reader.h"
#include "frontend/user_kernels.h"
#include "lower/lower.h"
#include "lower/pipeline.h"
#include "passes/pipeline.h"
#include "schedule/schedule.h"
#include "tests/fuzz/code_of.h"

namespace coil::testing {

struct Names {
  std::function<std::string(const std::string& old)> name;  // of what the file refers to by name; different names must stay different
  std::function<std::string(const std::string& old)> text;  // of what nobody refers to
};

class Renamer {
 public:
  using Json = nlohmann::ordered_json;
  explicit Renamer(const Names& names) : names_(names) {}

  // The same archive with other texts in its JSON.
  std::vector<uint8_t> run(const ZipReader& zip) {
    std::vector<std::pair<std::string, std::string>> entries;
    for (const ZipEntry& e : zip.entries()) entries.emplace_back(e.name, zip.read_text(e, uint64_t{1} << 26).value());
    for (const auto& [name, content] : entries) {
      if (name.ends_with(".json")) collect(Json::parse(content));
    }
    ZipWriter out = ZipWriter::in_memory();
    for (const auto& [name, content] : entries) {
      const bool json = name.ends_with(".json");
      CHECK(out.add(name, json ? renamed(Json::parse(content), "").dump(-1, ' ', false, Json::error_handler_t::replace) : content).ok());
    }
    return out.finish_in_memory();
  }

 private:
  static bool holds_values(std::string_view key) { return key.ends_with("_values") || key == "config"; }

  // What the file refers to by name: values, weights, nodes, nested graphs.
  void collect(const Json& json) {
    if (json.is_array()) {
      for (const Json& v : json) collect(v);
    }
    if (!json.is_object()) return;
    for (const auto& [key, value] : json.items()) {
      const bool names_it = key == "parameter_name" || key == "buffer_name" || key == "tensor_constant_name" ||
                            (key == "name" && (json.contains("target") || json.contains("graph")));
      if (names_it && value.is_string()) known_.insert(value.get<std::string>());
      if (holds_values(key)) {
        for (const auto& [name, ignored] : value.items()) known_.insert(name);
      }
      collect(value);
    }
  }

  Json renamed(const Json& json, const std::string& key) {
    if (json.is_array()) {
      Json out = Json::array();
      for (const Json& v : json) out.push_back(renamed(v, key));
      return out;
    }
    if (json.is_string()) return text_of(json.get<std::string>(), key);
    if (!json.is_object()) return json;
    Json out = Json::object();
    const bool argument = json.contains("arg") && json.contains("kind");  // of a node: its name is the operator's
    for (const auto& [name, value] : json.items()) {
      if (argument && name == "name") out[name] = value;
      else if (argument && value.is_object() && value.contains("as_string"))
        out[name] = {{"as_string", json["name"] == "assert_msg" ? names_.text(value["as_string"]) : value["as_string"].get<std::string>()}};
      else if (name == "guards_code") out[name] = Json::array();  // they name inputs in a language of their own
      else if (name == "metadata") out[name] = metadata(value);
      else out[holds_values(key) && known_.contains(name) ? names_.name(name) : name] = renamed(value, name);
    }
    return out;
  }

  std::string text_of(const std::string& old, const std::string& key) {
    if (key == "torch_version" || key == "in_spec" || key == "out_spec") return names_.text(old);
    const bool fixed = key == "target" || key == "expr_str" || key == "type" || key == "path_name" || key == "fqn";
    return !fixed && known_.contains(old) ? names_.name(old) : old;
  }

  Json metadata(const Json& old) {
    Json out = Json::object();
    for (const auto& [key, value] : old.items()) {
      if (!value.is_string()) continue;
      const std::string text = value.get<std::string>();
      if (key == "stack_trace") {
        // A frame whose parts are anything, or no frame at all.
        out[key] = "File \"" + names_.text(text) + "\", line " + names_.text(text) + ", in " + names_.text(text) + "\n    " + names_.text(text);
      } else {
        out[key] = key == "nn_module_stack" ? names_.text(text) + "," + names_.text(text) + "," + names_.text(text) : names_.text(text);
      }
    }
    return out;
  }

  const Names& names_;
  std::set<std::string> known_;
};

// The generated texts of a program.
struct Generated {
  std::vector<std::string> kernels, cuda_kernels;
  std::vector<std::set<std::string>> cuda_headers;  // of the kernels for CUDA
  std::string host, cuda_host;                      // the latter empty: no program for CUDA
};

inline Result<std::shared_ptr<const UserKernel>> scaled_kernel(const std::string& file) {
  UserKernel k;
  k.name = "museum::scaled";
  k.schema = "(Tensor x, float by) -> Tensor";
  k.cpu.emplace();
  k.cpu->source = "void scaled(auto x, double by, auto out, coil::Range r) {\n  for (int64_t i = r.begin; i < r.end; ++i) out(i, 0) = x(i, 0) * (float)by;\n}";
  k.cpu->range = "x.size(0)";
  k.cpu->file = file;
  k.cuda.emplace();
  k.cuda->source = "__device__ void scaled(auto x, double by, auto out) { out(blockIdx.x, threadIdx.x) = x(blockIdx.x, threadIdx.x) * (float)by; }";
  k.cuda->file = file;
  k.cuda->grid = {"x.size(0)"};
  k.cuda->block = "4";
  return make_user_kernel(std::move(k));
}

inline bool fits_cuda(const LoopProgram& program) {
  return std::none_of(program.loops.begin(), program.loops.end(), [](const Loop& l) {
    return std::holds_alternative<Library>(l.def) || std::holds_alternative<Region>(l.def);  // the parts of a region may hold routines
  });
}

// As the targets of src/compiler do it, but without them: a fuzzer is linked without the compiler (LLVM).
inline Result<KernelPlan> plan_of(const Graph& graph, bool cuda) {
  const LowerOptions lowering = {
      .straight_line = cuda, .library = !cuda, .quantised_products = true, .signed_rows_only = cuda, .split_columns = !cuda, .int4_block = {}};
  TRY(LoopProgram lowered, lower(graph, lowering));
  TRY(const LoopProgram loops, run_loop_passes(std::move(lowered), {lowering, {}, {}}));
  if (cuda && !fits_cuda(loops)) return Error{ErrorCode::unsupported_feature, "not for CUDA", "", ""};
  TRY(KernelPlan plan, schedule(loops, cuda ? cuda::traits({{90}, false, 0, {}, {}}) : cpu::traits()));
  layout_constants(plan);
  return plan;
}

// file: of the user kernel's source.
inline Result<Generated> generated(std::span<const uint8_t> archive, const std::string& file) {
  TRY(const ZipReader zip, ZipReader::from_bytes(archive, "input"));
  ReadOptions options;
  options.check_weights = false;
  TRY(const std::shared_ptr<const UserKernel> kernel, scaled_kernel(file));
  options.kernels = {kernel};
  TRY(Graph read, read_program(zip, options));
  TRY(const Graph graph, run_passes(std::move(read)));
  Generated out;
  TRY(const KernelPlan plan, plan_of(graph, false));
  const cpu::CpuProgram program = cpu::generate_kernels(plan);
  for (const cpu::CpuFunction& f : program.functions) out.kernels.push_back(f.text);
  out.host = host_program_text(plan, program, {&this_machine(), graph.in_spec, graph.out_spec, {"v3"}, 0, "", {}, true}).first;
  const Result<KernelPlan> cuda_plan = plan_of(graph, true);
  if (!cuda_plan.ok()) return out;
  const cuda::CudaProgram cuda_program = cuda::generate_kernels(cuda_plan.value(), {{90}, false, 0, {}, {}});
  for (const cuda::CudaFunction& f : cuda_program.functions) {
    out.cuda_kernels.push_back(f.text);
    out.cuda_headers.emplace_back(f.headers.begin(), f.headers.end());
  }
  out.cuda_host = cuda::host_program_text(cuda_plan.value(), cuda_program, {graph.in_spec, graph.out_spec, 0, {}, "sm_90", {}, true});
  return out;
}

}  // namespace coil::testing
