// The CPU target: kernels compiled per instruction set in parallel, the device library's objects added.
#include "compiler/cpu_target.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include "base/json.h"

#include "base/cpu_limits.h"
#include "base/parallel.h"
#include "codegen/constants.h"
#include "codegen/cpu/cpu_kernels.h"
#include "compiler/debug_info.h"
#include "compiler/device_files.h"
#include "compiler/replace_kernels.h"
#include "compiler/without.h"
#include "device/model_abi.h"
#include "schedule/schedule.h"
#include "toolchain/code_map.h"
#include "toolchain/compile.h"
#include "toolchain/embedded.h"
#include "toolchain/link.h"

namespace coil {
namespace {

// Text of one translation unit; small enough that both cores have work, large enough that headers are parsed rarely.
constexpr size_t kCpuUnitBytes = 24 * 1024;

struct KernelUnit {
  GeneratedSource source;
  const cpu::CpuFunction* user = nullptr;  // a user's kernel, or one that a user edited
};

bool is_foreign(const cpu::CpuFunction& f) { return f.user || !f.replaced.empty(); }

// Takes the functions' texts: those of many kernels are a good part of what a compile holds.
std::vector<KernelUnit> kernel_units(cpu::CpuProgram& program) {
  std::vector<KernelUnit> units;
  std::set<std::string> headers;
  std::string body;
  size_t bytes = 0;  // of the body without comments: what a program calls its things does not decide which kernels share a unit
  const auto flush = [&] {
    if (body.empty()) return;
    std::string text = "#include \"kernel_args.h\"\n";
    for (const std::string& h : headers) text += "#include \"" + h + "\"\n";
    units.push_back({{fmt::format("kernels_{}.cc", units.size()), text + "\n" + body}, nullptr});
    headers.clear();
    body.clear();
    bytes = 0;
  };
  for (cpu::CpuFunction& f : program.functions) {
    if (is_foreign(f)) continue;
    // A unit holds kernels that need the same headers, as far as it fills up: math headers cost more than most kernels.
    const bool more_headers = std::any_of(f.headers.begin(), f.headers.end(), [&](const std::string& h) { return !headers.contains(h); });
    if (!body.empty() && (bytes + f.text.size() - f.comment_bytes > kCpuUnitBytes || (more_headers && bytes > kCpuUnitBytes / 2))) flush();
    headers.insert(f.headers.begin(), f.headers.end());
    body += f.text + "\n";
    bytes += f.text.size() - f.comment_bytes;
    std::string().swap(f.text);
  }
  flush();
  for (cpu::CpuFunction& f : program.functions) {
    if (!is_foreign(f)) continue;
    headers.insert(f.headers.begin(), f.headers.end());
    body = std::move(f.text);
    flush();
    units.back().user = &f;
  }
  return units;
}

toolchain::CompileRequest unit_request(const GeneratedSource& source, const cpu::CpuFunction* user) {
  toolchain::CompileRequest r;
  r.name = source.name;
  r.source = source.text;
  if (!user) return r;
  if (!user->replaced.empty()) {
    r.user_kernel = user->name;
    r.user_hint = "it is the text of --replace-kernel " + user->replaced;
    return r;
  }
  const UserKernelCode& code = *user->user->cpu;
  for (const auto& [file, text] : code.headers) r.headers.push_back({file, text});
  for (const char* file : kUserHeaders) r.headers.push_back({fmt::format("include/{}", file), "#include \"user/math.h\"\n"});
  r.user_kernel = user->user->name;
  r.user_hint = "coil calls it as " + user->user_call;
  return r;
}

// What is compiled: the kernels' units for each architecture, then the host program's files.
std::vector<toolchain::CompileRequest> compile_requests(const HostMachine& machine, const TargetJob& job, std::vector<KernelUnit> units, HostText host,
                                                        std::vector<GeneratedSource>& sources) {
  const size_t before = sources.size();
  for (KernelUnit& unit : units) sources.push_back(std::move(unit.source));
  std::vector<toolchain::CompileRequest> requests;
  for (size_t i = 0; i < units.size(); ++i) {
    for (const std::string& isa : job.architectures) {
      toolchain::CompileRequest r = unit_request(sources[before + i], units[i].user);
      r.cpu = machine.level(isa)->full_name;
      r.opt_level = job.options.opt_level;
      requests.push_back(std::move(r));
    }
  }
  sources.push_back({"host.cc", std::move(host.first)});
  for (size_t i = 0; i < host.further.size(); ++i) sources.push_back({fmt::format("host_{}.cc", i + 1), std::move(host.further[i])});
  for (size_t i = before + units.size(); i < sources.size(); ++i) requests.push_back(host_request(machine, sources[i].text, sources[i].name));
  return requests;
}

toolchain::LinkInput embedded_input(const toolchain::EmbeddedObject& o) {
  return {std::string(o.name) + "_" + std::string(o.isa), {reinterpret_cast<const uint8_t*>(o.data), o.size}};
}

// What the plan needs of the device library: kernels for each architecture, and an archive of routines from which the linker takes what they need.
std::vector<toolchain::LinkInput> library_of(const HostMachine& machine, const KernelPlan& plan, const std::vector<std::string>& architectures, bool onednn) {
  std::vector<toolchain::LinkInput> inputs;
  // One by one: g++ 12 destroys what it has not made where an exception passes a list of temporaries.
  const auto add = [&](const std::vector<std::string_view>& sets) {
    const std::vector<toolchain::LinkInput> objects = device_library(machine, sets);
    inputs.insert(inputs.end(), objects.begin(), objects.end());
  };
  add({"any"});
  if (!device_objects(plan).empty()) add({architectures.begin(), architectures.end()});
  if (!library_routines(plan).empty()) add({"library"});
  if (onednn) add({"onednn"});
  return inputs;
}

}  // namespace

std::vector<toolchain::LinkInput> device_library(const HostMachine& machine, std::span<const std::string_view> sets) {
  std::vector<toolchain::LinkInput> inputs;
  for (const toolchain::EmbeddedObject& o : toolchain::embedded_objects(machine)) {
    if (std::find(sets.begin(), sets.end(), o.isa) != sets.end()) inputs.push_back(embedded_input(o));
  }
  return inputs;
}

toolchain::CompileRequest host_request(const HostMachine& machine, const std::string& text, const std::string& name) {
  toolchain::CompileRequest host;
  host.name = name;
  host.source = text;
  host.cpu = machine.base.full_name;
  host.opt_level = 1;
  return host;
}

Result<std::vector<uint8_t>> link_model(const HostMachine& machine, std::vector<toolchain::LinkInput> inputs, const std::vector<std::string>& more_exports,
                                        std::vector<std::string>* members, bool strip) {
  toolchain::LinkRequest link;
  link.strip = strip;
  link.machine = &machine;
  link.inputs = std::move(inputs);
  link.exports = {"coil_model", "AOTInductor*"};
  link.exports.insert(link.exports.end(), more_exports.begin(), more_exports.end());
  link.needed = {"libm.so.6", "libc.so.6"};  // the process may have loaded them out of sight
  return toolchain::link_shared(link, members);
}

TargetTraits cpu_traits(const HostMachine& machine, const CompileOptions& options, const KeepPackings& keep, const FusionWay* way) {
  const CpuMachine* described = options.machines.cpu(machine.name);
  TargetTraits traits = cpu::traits({options.winograd, keep, described ? std::optional(*described) : std::nullopt});
  if (way) way->apply(traits);
  leave_out(traits, options.without);
  traits.states = options.states;
  return traits;
}

Result<CpuPlan> plan_cpu(const HostMachine& machine, const LoopProgram& loops, const CompileOptions& options, const KeepPackings& keep, const FusionWay* way) {
  CpuPlan p;
  TRY(p.plan, schedule(loops, cpu_traits(machine, options, keep, way)));
  if (options.constants) {
    options.constants->place(p.plan);
  } else {
    layout_constants(p.plan);
  }
  p.program = cpu::generate_kernels(p.plan);
  return p;
}

Status check_library(const HostMachine& machine, const std::vector<std::string>& routines) {
  constexpr std::string_view kSet[] = {"library"};
  if (routines.empty() || !device_library(machine, kSet).empty()) return ok_status();
  return Error{ErrorCode::unsupported_feature,
               fmt::format("this coil was built without library routines for {}, of which the program needs {}", machine.name, routines[0]), "",
               fmt::format("build coil again after `make {}`, which installs what they are made of", machine.name)};
}

Result<TargetContents> build_cpu(const HostMachine& machine, const TargetJob& job, const tune::Record* record, const Dump& dump, const StageDone& done) {
  if (toolchain::embedded_objects(machine).empty()) {
    return Error{ErrorCode::bad_option, fmt::format("this coil was built without code for {}", machine.name), "",
                 "build it where that machine's C and C++ headers are installed (tools/install_deps.sh)"};
  }
  const FusionWay* way = nullptr;
  if (record) {
    TRY(way, recorded_way(*record, job.loops));
  }
  // Arguments that are made on one side of a `?` only get names: where an exception passes, g++ 12 destroys what the other side would have made.
  KeepPackings keep;
  if (record) keep = packings_of(*record);
  TRY(CpuPlan plan, plan_cpu(machine, job.loops, job.options, keep, way));
  TRY_STATUS(check_library(machine, library_routines(plan.plan)));
  HostOptions host;
  host.machine = &machine;
  if (record) {
    TRY_STATUS(apply_record(plan, *record));
    plan.program = cpu::generate_kernels(plan.plan);
    host.tuned_isa = record->hardware.isa;
  }
  dump.text("plan", [&] { return to_string(plan.plan); });
  done("schedule");
  return build_plan(std::move(plan), job, std::move(host), dump, done);
}

Result<TargetContents> build_plan(CpuPlan plan, const TargetJob& job, HostOptions host, const Dump& dump, const StageDone& done) {
  const CompileOptions& options = job.options;
  TargetContents t = contents_of(target_for(*host.machine), job.architectures);
  t.machine = host.machine->name;
  t.plan = std::move(plan.plan);
  cpu::CpuProgram kernels = std::move(plan.program);
  cpu::drop_configs(kernels, t.plan, host.timed);
  TRY(t.replaced, replace_kernels(kernels, t.plan, options.replace_kernels));
  t.device_files = template_files(t.plan);
  mark_edited(options.replace_kernels, t);
  t.num_functions = kernels.functions.size();
  for (const cpu::CpuLaunch& l : kernels.launches) t.functions.push_back(l.function < 0 ? "" : kernels.functions[static_cast<size_t>(l.function)].name);
  SharedConstants alone;
  t.constants_hash = constants_identity(t.plan, options.constants ? *options.constants : alone);
  t.tuned_isa = host.tuned_isa;
  host.in_spec = job.graph.in_spec;
  host.out_spec = job.graph.out_spec;
  host.isas = job.architectures;
  host.constants_hash = t.constants_hash;
  host.libraries = options.libraries;
  const bool onednn = uses_onednn(t.plan, host);
  if (onednn) t.uses.push_back("libdnnl");
  HostText host_text = host_program_text(t.plan, kernels, host);
  done("generate");

  std::vector<toolchain::CompileRequest> requests = compile_requests(*host.machine, job, kernel_units(kernels), std::move(host_text), t.sources);
  const DebugInfo debug(options.debug_folder, t.sources);
  TRY_STATUS(debug.write(t.sources));
  for (toolchain::CompileRequest& r : requests) debug.add_to(r);
  const size_t generated = requests.size();
  LibraryRequests edited = edited_library(*host.machine, job.architectures, used_files(options.replace_kernels, t));
  for (toolchain::CompileRequest& r : edited.requests) requests.push_back(std::move(r));
  for (const GeneratedSource& s : t.sources) dump.text(s.name, [&] { return s.text; }, LogLevel::code);
  const int threads = options.threads > 0 ? options.threads : allowed_cpus();
  TRY(const std::vector<toolchain::Bytes> objects, toolchain::compile_all(
                                                       requests, threads,
                                                       [&](size_t finished, size_t total, std::string_view name) {
                                                         if (options.checkpoint) options.checkpoint();
                                                         if (options.progress) options.progress(name, finished, total);
                                                       },
                                                       options.known()));
  std::vector<toolchain::LinkInput> inputs;
  for (size_t i = 0; i < generated; ++i) inputs.push_back({requests[i].name, objects[i]});
  for (toolchain::LinkInput& o : library_of(*host.machine, t.plan, job.architectures, onednn)) {
    const auto at = std::find(edited.names.begin(), edited.names.end(), o.name);
    if (at != edited.names.end()) o.object = objects[generated + static_cast<size_t>(at - edited.names.begin())];
    inputs.push_back(std::move(o));
  }
  std::vector<std::string> exports;
  if (!host.timed.empty()) exports.push_back(COIL_TUNING_SYMBOL);
  if (host.watched) exports.push_back(COIL_WATCH_SYMBOL);
  TRY(t.code, link_model(*host.machine, std::move(inputs), exports, library_routines(t.plan).empty() ? nullptr : &t.members, !debug.wanted()));
  if (debug.wanted()) {
    TRY(const toolchain::CodeMap map, toolchain::code_map(t.code));
    t.code_map = code_map_text(map);
  }
  add_sources(options.replace_kernels, t);
  done("build");
  return t;
}

std::vector<FixedArgument> fixed_arguments(const Graph& graph) {
  std::vector<FixedArgument> out;
  for (const GraphInput& in : graph.inputs) {
    if (in.kind != GraphInput::Kind::fixed) continue;
    Json value;
    std::visit(
        [&](const auto& v) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(v)>, std::monostate>) value = v;
        },
        in.fixed_value);
    out.push_back({in.position, in.name, value.dump()});
  }
  return out;
}

}  // namespace coil
