#include "compiler/program_values.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include <fmt/format.h>

#include "base/npy.h"
#include "base/text.h"
#include "compiler/call_memory.h"
#include "compiler/target.h"
#include "loop/interpret.h"
#include "ops/memory.h"
#include "lower/lower.h"
#include "lower/pipeline.h"
#include "passes/pipeline.h"

namespace coil {
namespace {

constexpr std::string_view kPrefix = "coil.value:";

bool has_array_type(const ValueInfo& v) {
  if (!v.is_tensor()) return false;
  const DType d = v.tensor().dtype;
  return !is_complex(d) && !is_float8(d) && !is_wide_unsigned(d);
}

// The program with every value as a result too.
Graph with_all_results(const Graph& graph) {
  Graph out = with_own_pool(graph);
  for (const Node& node : out.nodes) {
    for (ValueId id : node.outputs) {
      if (!id.valid() || !has_array_type(out.value(id))) continue;
      GraphOutput more;
      more.value = id;
      more.name = std::string(kPrefix) + out.value(id).name;
      out.outputs.push_back(std::move(more));
    }
  }
  return out;
}

NpyArray array_of(const TensorData& t) {
  NpyArray a;
  a.shape = t.sizes;
  const DType type = t.dtype == DType::bf16 ? DType::f32 : t.dtype;  // NumPy has no bfloat16; inputs of it are taken as float32
  a.dtype = info(type).shim_number;
  const int64_t n = element_count(t.sizes);
  const auto size = static_cast<size_t>(byte_size(type));
  a.data.resize(static_cast<size_t>(n) * size);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t at = t.offset + offset_of(index_of(i, t.sizes), t.strides);
    uint8_t* to = a.data.data() + static_cast<size_t>(i) * size;
    if (t.dtype == DType::bf16) {
      const auto v = static_cast<float>(static_cast<double>(interpreter::read_element<interpreter::Bf16>(t.bytes.data(), at)));
      std::memcpy(to, &v, sizeof v);
    } else {
      std::memcpy(to, t.bytes.data() + static_cast<size_t>(at) * size, size);
    }
  }
  return a;
}

}  // namespace

Result<NamedTensors> values_of_program(const Graph& graph, const CompileOptions& options, std::span<const CoilTensorView> inputs) {
  std::vector<TensorData> tensors;
  for (const CoilTensorView& v : inputs) tensors.push_back(borrowed(v));
  return values_of_program(graph, options, tensors);
}

Result<NamedTensors> values_of_program(const Graph& graph, const CompileOptions& given, const std::vector<TensorData>& inputs) {
  CompileOptions options = given;
  options.skip_passes.clear();
  for (const Pass& p : graph_passes()) {
    if (can_be_left_out(p.name)) options.skip_passes.emplace_back(p.name);
  }
  TRY(const Graph plain, simplified(with_own_pool(graph), options));
  const Graph all = with_all_results(plain);
  TRY(const LoopProgram loops, lower(all, {.library = false, .int4_block = options.int4_block}));
  TRY(const std::vector<TensorData> results, interpret(loops, inputs));
  NamedTensors out;
  size_t next = 0;
  for (const LoopOutput& o : loops.outputs) {
    if (o.kind == LoopOutput::Kind::check) continue;
    const TensorData& t = results[next++];
    if (o.name.starts_with(kPrefix)) out[o.name.substr(kPrefix.size())] = t;
  }
  return out;
}

namespace {

Result<LoopProgram> lowered_with_all(const Graph& graph, const Target& target, const CompileOptions& options) {
  return lower(with_all_results(graph), target.lowering(options));
}

}  // namespace

Result<std::map<std::string, std::string>> values_of_buffers(const Graph& graph, const Target& target, const CompileOptions& options) {
  TRY(const LoopProgram loops, lowered_with_all(graph, target, options));
  std::map<std::string, std::string> out;
  for (const LoopOutput& o : loops.outputs) {
    if (o.kind != LoopOutput::Kind::user) continue;
    const std::string& name = loops.buffer(o.source).name;
    out.try_emplace(name, o.name.starts_with(kPrefix) ? o.name.substr(kPrefix.size()) : o.name);
  }
  return out;
}

Result<std::string> value_after(const Graph& graph, const Target& target, const CompileOptions& options, const std::string& buffer) {
  TRY(const LoopProgram loops, lowered_with_all(graph, target, options));
  std::map<BufferId, std::string> values;
  for (const LoopOutput& o : loops.outputs) {
    if (o.kind == LoopOutput::Kind::user && o.name.starts_with(kPrefix)) values.try_emplace(o.source, o.name.substr(kPrefix.size()));
  }
  std::set<BufferId> reached;
  for (size_t b = 0; b < loops.buffers.size(); ++b) {
    if (loops.buffers[b].name == buffer) reached.insert(BufferId(b));
  }
  for (const auto& [id, name] : values) {
    if (reached.contains(id)) return name;
  }
  for (const Loop& loop : loops.loops) {
    const std::vector<BufferId> from = reads(loops, loop);
    if (std::none_of(from.begin(), from.end(), [&](BufferId id) { return reached.contains(id); })) continue;
    for (BufferId id : loop.outputs) {
      reached.insert(id);
      if (values.contains(id)) return values.at(id);
    }
  }
  return std::string();
}

Result<NamedTensors> inputs_of(const ProgramDocument& document, const NamedTensors& values, const Graph& graph, std::span<const CoilTensorView> inputs) {
  std::map<std::string, TensorData> called;
  size_t next = 0;
  for (const GraphInput& in : graph.inputs) {
    if (in.kind != GraphInput::Kind::user && in.kind != GraphInput::Kind::user_symint) continue;
    if (next < inputs.size()) called[graph.value(in.value).name] = borrowed(inputs[next]);
    ++next;
  }
  NamedTensors out;
  for (const std::string& name : document.inputs()) {
    const auto value = values.find(name);
    const auto given = called.find(name);
    if (value == values.end() && given == called.end())
      return Error{ErrorCode::unsupported_feature, fmt::format("the contents of '{}' are not known", shown(name)), "", ""};
    out[name] = value != values.end() ? value->second : given->second;
  }
  return out;
}

Status save_program(const ProgramDocument& document, const NamedTensors& inputs, const std::string& folder) {
  std::error_code wrong;
  std::filesystem::create_directories(folder, wrong);
  if (wrong) return Error{ErrorCode::file_unwritable, fmt::format("cannot make the folder '{}': {}", shown(folder), wrong.message()), "", ""};
  NamedArrays arrays;
  for (const std::string& name : document.inputs()) arrays.emplace_back(fmt::format("in_{}", arrays.size()), array_of(inputs.at(name)));
  TRY_STATUS(document.write(folder + "/program.pt2"));
  return write_npz(folder + "/inputs.npz", arrays);
}

}  // namespace coil
