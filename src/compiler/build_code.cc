#include "compiler/build_code.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/parallel.h"
#include "toolchain/compile.h"
#include "toolchain/embedded.h"
#include "toolchain/link.h"

namespace coil {
namespace {

// Text of one translation unit; small enough that both cores have work, large enough that headers are parsed rarely.
constexpr size_t kUnitBytes = 24 * 1024;

std::vector<GeneratedSource> kernel_units(const cpu::CpuProgram& program) {
  std::vector<GeneratedSource> units;
  std::set<std::string> headers;
  std::string body;
  const auto flush = [&] {
    if (body.empty()) return;
    std::string text = "#include \"kernel_args.h\"\n";
    for (const std::string& h : headers) text += "#include \"" + h + "\"\n";
    units.push_back({fmt::format("kernels_{}.cc", units.size()), text + "\n" + body});
    headers.clear();
    body.clear();
  };
  for (const cpu::CpuFunction& f : program.functions) {
    // A unit holds kernels that need the same headers, as far as it fills up: math headers cost more than most kernels.
    const bool more_headers = std::any_of(f.headers.begin(), f.headers.end(), [&](const std::string& h) { return !headers.contains(h); });
    if (!body.empty() && (body.size() + f.text.size() > kUnitBytes || (more_headers && body.size() > kUnitBytes / 2))) flush();
    headers.insert(f.headers.begin(), f.headers.end());
    body += f.text + "\n";
  }
  flush();
  return units;
}

Result<std::vector<toolchain::LinkInput>> device_inputs(const KernelPlan& plan, const std::vector<std::string>& isas) {
  std::vector<toolchain::LinkInput> inputs;
  const std::vector<std::string> needed = device_objects(plan);
  for (const toolchain::EmbeddedObject& o : toolchain::embedded_objects()) {
    const bool neutral = o.isa == "any";  // the AOTI adapter and the host's support
    const bool wanted = !needed.empty() && std::find(isas.begin(), isas.end(), o.isa) != isas.end();
    if (!neutral && !wanted) continue;
    inputs.push_back({std::string(o.name) + "_" + std::string(o.isa), {reinterpret_cast<const uint8_t*>(o.data), o.size}});
  }
  return inputs;
}

}  // namespace

Result<BuiltCode> build_code(const KernelPlan& plan, const cpu::CpuProgram& kernels, const std::string& host_text,
                             const CompileOptions& options, const Dump& dump) {
  BuiltCode built;
  built.sources = kernel_units(kernels);
  std::vector<toolchain::CompileRequest> requests;
  for (const GeneratedSource& unit : built.sources) {
    for (const std::string& isa : options.isas) {
      toolchain::CompileRequest r;
      r.name = unit.name;
      r.source = unit.text;
      r.cpu = "x86-64-" + isa;
      r.opt_level = options.opt_level;
      requests.push_back(std::move(r));
    }
  }
  toolchain::CompileRequest host;
  host.name = "host.cc";
  host.source = host_text;
  host.cpu = "x86-64-v2";
  host.opt_level = 1;
  requests.push_back(host);
  built.sources.push_back({"host.cc", host_text});
  for (const GeneratedSource& s : built.sources) dump.text(s.name, [&] { return s.text; }, LogLevel::code);

  const int threads = options.threads > 0 ? options.threads : usable_cpus();
  TRY(const std::vector<toolchain::Bytes> objects,
      toolchain::compile_all(requests, threads, [&](size_t done, size_t total, std::string_view name) {
        if (options.progress) options.progress(name, done, total);
      }));
  toolchain::LinkRequest link;
  for (size_t i = 0; i < objects.size(); ++i) link.inputs.push_back({requests[i].name, objects[i]});
  TRY(const std::vector<toolchain::LinkInput> device, device_inputs(plan, options.isas));
  link.inputs.insert(link.inputs.end(), device.begin(), device.end());
  link.exports = {"coil_model", "AOTInductor*"};
  link.needed = {"libm.so.6", "libc.so.6"};  // the process may have loaded them out of sight
  TRY(built.code, toolchain::link_shared(link));
  return built;
}

std::vector<FixedArgument> fixed_arguments(const Graph& graph) {
  std::vector<FixedArgument> out;
  for (const GraphInput& in : graph.inputs) {
    if (in.kind != GraphInput::Kind::fixed) continue;
    nlohmann::json value;
    std::visit([&](const auto& v) {
      if constexpr (!std::is_same_v<std::decay_t<decltype(v)>, std::monostate>) value = v;
    }, in.fixed_value);
    out.push_back({in.position, in.name, value.dump()});
  }
  return out;
}

}  // namespace coil
