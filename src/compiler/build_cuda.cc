// The CUDA target: kernels to cubins by NVRTC, one set per architecture, inside a shared object for the host.
#include <algorithm>
#include <future>
#include <set>
#include <system_error>

#include <fmt/format.h>

#include "base/cpu_limits.h"
#include "base/parallel.h"
#include "codegen/constants.h"
#include "codegen/cuda/grids.h"
#include "codegen/cuda/host/control_text.h"
#include "codegen/cuda/host/host_program.h"
#include "codegen/cuda/host/routine_text.h"
#include "codegen/cuda/templates/arithmetic.h"
#include "codegen/cuda/token_choice.h"
#include "codegen/interface/limits.h"
#include "compiler/cuda_target.h"
#include "compiler/debug_info.h"
#include "compiler/device_files.h"
#include "compiler/replace_kernels.h"
#include "compiler/without.h"
#include "device/model_abi.h"
#include "loop/join_rows.h"
#include "schedule/schedule.h"
#include "toolchain/data_object.h"
#include "toolchain/nvrtc.h"

namespace coil {
namespace {

constexpr size_t kCudaUnitBytes = 16 * 1024;  // of one NVRTC program: the headers are parsed once in each

struct CudaUnit {
  std::set<std::string> headers;
  std::set<int> sms;
  std::string body;
  size_t bytes = 0;    // of the body without comments: what a program calls its things does not decide which kernels share a unit
  bool large = false;  // a template or a user's kernel: a unit of its own
  const cuda::CudaFunction* user = nullptr;
};

// Functions that are compiled for the same architectures, in units that threads can share.
std::vector<CudaUnit> cuda_units(const cuda::CudaProgram& program) {
  std::vector<CudaUnit> out;
  for (const cuda::CudaFunction& f : program.functions) {
    if (f.image) continue;
    const bool large =
        f.user || !f.replaced.empty() || std::any_of(f.headers.begin(), f.headers.end(), [](const std::string& h) { return h == "cuda/params.h"; });
    const auto fits = [&](const CudaUnit& u) { return !large && !u.large && u.sms == f.sms && u.bytes + f.text.size() - f.comment_bytes <= kCudaUnitBytes; };
    auto place = std::find_if(out.begin(), out.end(), fits);
    if (place == out.end()) {
      out.push_back({{}, f.sms, "", 0, large, f.user || !f.replaced.empty() ? &f : nullptr});
      place = out.end() - 1;
    }
    place->headers.insert(f.headers.begin(), f.headers.end());
    place->body += f.text + "\n";
    place->bytes += f.text.size() - f.comment_bytes;
  }
  return out;
}

// sm_90 is compiled as sm_90a: exactly that chip, with its matrix and copy engines.
std::string arch_name(int sm) { return fmt::format("sm_{}{}", sm, sm == 90 ? "a" : ""); }

// CudaImage::kind
constexpr int kOneChip = 0, kOneMajor = 1, kPtx = 2;

// What NVRTC makes: the unit's text for an architecture.
struct Image {
  int sm, kind;
};
std::vector<Image> images_of(const CudaUnit& u, const CudaArchitectures& wanted) {
  std::vector<Image> out;
  for (const int sm : u.sms) {
    if (std::count(wanted.chips.begin(), wanted.chips.end(), sm)) out.push_back({sm, sm == 90 ? kOneChip : kOneMajor});
    if (std::count(wanted.ptx.begin(), wanted.ptx.end(), sm)) out.push_back({sm, kPtx});
  }
  return out;
}

void add_user(toolchain::CudaRequest& r, const cuda::CudaFunction& f) {
  if (!f.replaced.empty()) {
    r.user_kernel = f.name;
    r.user_hint = "it is the text of --replace-kernel " + f.replaced;
    return;
  }
  for (const auto& [file, text] : f.user->cuda->headers) r.headers.push_back({file, text});
  for (const char* file : kUserHeaders) r.headers.push_back({file, "\n"});  // what they declare is built in
  r.user_kernel = f.user->name;
  r.user_hint = "coil calls it as " + f.user_call;
}

// Units' texts, and what NVRTC is to make of them.
struct Compilation {
  std::vector<GeneratedSource> sources;
  std::vector<toolchain::CudaRequest> requests;
  std::vector<Image> images;
};

void add_edited(toolchain::CudaRequest& r, const std::set<std::string>& headers, const std::vector<KernelReplacement>& replacements) {
  const EditedFiles files = edited_files(replacements, std::vector<std::string>(headers.begin(), headers.end()));
  if (files.empty()) return;
  for (toolchain::VirtualFile& f : headers_of(files)) r.headers.push_back(std::move(f));
  if (r.user_kernel.empty()) r.user_kernel = files[0]->device;
  r.user_hint += (r.user_hint.empty() ? "" : "; ") + edited_hint(files);
}

Compilation compilation_of(const cuda::CudaProgram& program, const std::vector<std::string>& architectures,
                           const std::vector<KernelReplacement>& replacements) {
  Compilation c;
  const CudaArchitectures wanted = cuda_architectures(architectures);
  for (const CudaUnit& u : cuda_units(program)) {
    std::string text;
    for (const std::string& h : u.headers) text += "#include \"" + h + "\"\n";
    const std::string name = fmt::format("kernels_{}.cu", c.sources.size());
    c.sources.push_back({name, text + "\n" + u.body});
    for (const Image& image : images_of(u, wanted)) {
      const bool ptx = image.kind == kPtx;
      c.requests.push_back({name, c.sources.back().text, ptx ? fmt::format("compute_{}", image.sm) : arch_name(image.sm), ptx, {}, "", "", false});
      if (u.user) add_user(c.requests.back(), *u.user);
      add_edited(c.requests.back(), u.headers, replacements);
      c.images.push_back(image);
    }
  }
  return c;
}

Result<std::vector<toolchain::Bytes>> compile_all(const Compilation& c, const CompileOptions& options, const toolchain::Nvrtc& nvrtc) {
  const int threads = options.threads > 0 ? options.threads : allowed_cpus();
  return nvrtc.compile_all(
      c.requests, threads,
      [&](size_t finished, size_t total, std::string_view name) {
        if (options.checkpoint) options.checkpoint();
        if (options.progress) options.progress(name, finished, total);
      },
      options.known());
}

// Functions that another compiler made, each in an image of its own. PTX ends with a zero, as the driver wants it.
void add_foreign_images(const cuda::CudaProgram& program, const HostMachine& machine, cuda::HostOptions& host, std::vector<std::vector<uint8_t>>& objects) {
  for (size_t f = 0; f < program.functions.size(); ++f) {
    const UserImage* image = program.functions[f].image;
    if (!image) continue;
    std::vector<uint8_t> bytes(image->code.begin(), image->code.end());
    if (image->ptx) bytes.push_back(0);
    const std::string symbol = fmt::format("coil_image_{}", host.images.size());
    host.images.push_back({image->sm, image->ptx ? kPtx : image->sm == 90 ? kOneChip : kOneMajor, symbol, bytes.size(), static_cast<int>(f)});
    objects.push_back(toolchain::data_object(machine, symbol, bytes));
  }
}

// Every user kernel of images has one for each architecture of the package.
Status check_images(const KernelPlan& plan, const CudaArchitectures& wanted) {
  for (const Kernel& kernel : plan.kernels) {
    const auto* user = std::get_if<UserCallKernel>(&kernel.def);
    if (!user || user->def.kernel->cuda->images.empty()) continue;
    const std::vector<UserImage>& images = user->def.kernel->cuda->images;
    const auto lacks = [&](int sm, bool ptx) {
      return std::none_of(images.begin(), images.end(), [&](const UserImage& i) { return i.config == 0 && i.sm == sm && i.ptx == ptx; });
    };
    std::string missing;
    for (const int sm : wanted.chips) missing += lacks(sm, false) ? fmt::format(" sm_{}", sm) : "";
    for (const int sm : wanted.ptx) missing += lacks(sm, true) ? fmt::format(" compute_{}", sm) : "";
    if (missing.empty()) continue;
    return Error{ErrorCode::user_kernel, fmt::format("the kernel '{}' has no machine code for{}", user->def.kernel->name, missing),
                 kernel.origins.empty() ? "" : kernel.origins[0].source, "compile it for the same --target"};
  }
  return ok_status();
}

}  // namespace

// Every kernel gets all dimensions: half of the 4 KiB that its parameters may take.
static constexpr size_t kMostSymbols = 256;

Status check_cuda(const LoopProgram& loops, bool host_routines) {
  for (const Loop& loop : loops.loops) {
    const std::string where = loop.origins.empty() ? "" : loop.origins[0].source;
    if (const auto* library = std::get_if<Library>(&loop.def); library && !host_routines && !JoinRows::of(*library)) {
      return Error{ErrorCode::unsupported_op, fmt::format("coil has no CUDA code for '{}': it computes it by a library for the CPU", loop.op), where,
                   "compile it without --no-host-routines, for the CPU, or leave this operator outside of the model"};
    }
    if (const auto* region = std::get_if<Region>(&loop.def)) {
      for (const RegionPart& part : region->parts) TRY_STATUS(check_cuda(*part.program, host_routines));
    }
  }
  return ok_status();
}

// Sizes that are known now and that kernels cannot count; others are looked at in each call.
static Status check_counts(const std::vector<SizeLimit>& limits) {
  for (const SizeLimit& limit : limits) {
    const std::optional<int64_t> least = lower_bound(limit.amount);
    if (!limit.counted || !limit.condition.empty() || !least || static_cast<double>(*least) < limit.most) continue;
    return Error{ErrorCode::unsupported_feature, fmt::format("{} are {}, of which kernels for CUDA take fewer than {:.0f}", limit.what, *least, limit.most), "",
                 "compile for the CPU, or split what is so large"};
  }
  return ok_status();
}

TargetTraits cuda_traits(const cuda::CudaSettings& settings, const CompileOptions& options, const FusionWay* way) {
  TargetTraits traits = cuda::traits(settings);
  traits.arithmetic = cuda::arithmetic_of(options.tf32);
  if (way) way->apply(traits);
  leave_out(traits, options.without);
  traits.states = options.states;
  return traits;
}

Result<CudaPlan> plan_cuda(const TargetJob& job, const std::optional<CudaMachine>& tuned,
                           std::function<std::vector<Choice>(const std::string& problem)> choices, const FusionWay* way) {
  const CompileOptions& options = job.options;
  CudaPlan p;
  const CudaArchitectures wanted = cuda_architectures(job.architectures);
  std::set<int, std::greater<>> known(wanted.chips.begin(), wanted.chips.end());
  known.insert(wanted.ptx.begin(), wanted.ptx.end());
  p.settings.sms.assign(known.begin(), known.end());
  p.settings.libraries = options.libraries;
  p.settings.machines = options.machines.gpus;
  if (tuned) {
    p.settings.tuned_sm = tuned->sm;
    if (!options.machines.gpu(tuned->sm) && *tuned != cuda_machine(tuned->sm)) p.settings.machines.push_back(*tuned);
  }
  p.settings.choices = std::move(choices);
  TRY(p.plan, schedule(job.loops, cuda_traits(p.settings, options, way)));
  if (p.plan.pool->num_symbols() > kMostSymbols)
    return Error{ErrorCode::unsupported_feature,
                 fmt::format("the program has {} dynamic dimensions, and kernels for CUDA have parameters for at most {}", p.plan.pool->num_symbols() - 1,
                             kMostSymbols - 1),
                 "", "give dimensions that are equal one torch.export.Dim, make some of them fixed, or compile for the CPU"};
  if (options.constants) {
    options.constants->place(p.plan);
  } else {
    layout_constants(p.plan);
  }
  TRY_STATUS(check_counts(size_limits(p.plan, cuda::kInterface)));
  return p;
}

// On a thread of its own, or when it is asked for where there is none to be had.
static std::future<Result<std::shared_ptr<const toolchain::Nvrtc>>> load_beside() try {
  return std::async(std::launch::async, toolchain::Nvrtc::load);
} catch (const std::system_error&) {
  return std::async(std::launch::deferred, toolchain::Nvrtc::load);
}

Result<TargetContents> build_cuda(const TargetJob& job, const tune::Record* record, const Dump& dump, const StageDone& done) {
  // Loading NVRTC takes longer than scheduling a small program.
  std::future<Result<std::shared_ptr<const toolchain::Nvrtc>>> loading = load_beside();
  const FusionWay* way = nullptr;
  if (record) {
    TRY(way, recorded_way(*record, job.loops));
  }
  std::function<std::vector<Choice>(const std::string& problem)> choices;
  if (record) choices = choices_of(*record);
  TRY(CudaPlan plan, plan_cuda(job, record ? record_machine(*record) : std::nullopt, std::move(choices), way));
  if (record) TRY_STATUS(apply_record(plan, *record));
  dump.text("plan_cuda", [&] { return to_string(plan.plan); });
  done("schedule");
  TRY(const std::shared_ptr<const toolchain::Nvrtc> nvrtc, loading.get());
  return build_plan(std::move(plan), job, *nvrtc, {}, dump, done);
}

Status build_cubins(const CudaPlan& plan, const TargetJob& job, const toolchain::Nvrtc& nvrtc) {
  const Compilation compilation = compilation_of(cuda::generate_kernels(plan.plan, plan.settings), job.architectures, {});
  const Result<std::vector<toolchain::Bytes>> cubins = compile_all(compilation, job.options, nvrtc);
  if (!cubins.ok()) return cubins.error();
  return ok_status();
}

// Of each kernel, the last one that its launch computes.
static std::vector<size_t> last_of_launches(const cuda::CudaProgram& program) {
  std::vector<size_t> last(program.calls.size());
  for (size_t k = last.size(); k-- > 0;) last[k] = k + 1 < last.size() && program.calls[k + 1].joined ? last[k + 1] : k;
  return last;
}

// The names of the kernels' functions, and what the program calls of other libraries.
static void name_functions(const cuda::CudaProgram& program, TargetContents& t) {
  t.num_functions = program.functions.size();
  for (const std::string& library : program.libraries) t.uses.push_back(library == "libcudnn" ? "libcudnn.so.9" : "libcublasLt.so.13");
  for (const cuda::CudaCall& c : program.calls) {
    const std::vector<cuda::CudaLaunch>& launches = c.launches.empty() && c.together ? c.together->launches : c.launches;
    t.functions.push_back(c.joined ? t.functions.back() : launches.empty() ? "" : program.functions[static_cast<size_t>(launches[0].function)].name);
  }
}

// The shared object: the program that launches the kernels, their images and the device library.
static Status link_host(const cuda::CudaProgram& program, const Compilation& compilation, std::span<const toolchain::Bytes> cubins, cuda::HostOptions host,
                        const Dump& dump, TargetContents& t) {
  const HostMachine& machine = this_machine();
  std::vector<std::vector<uint8_t>> objects;
  for (size_t i = 0; i < cubins.size(); ++i) {
    const std::string symbol = fmt::format("coil_image_{}", i);
    host.images.push_back({compilation.images[i].sm, compilation.images[i].kind, symbol, cubins[i].size(), -1});
    objects.push_back(toolchain::data_object(machine, symbol, cubins[i]));
  }
  add_foreign_images(program, machine, host, objects);
  const std::string host_text = cuda::host_program_text(t.plan, program, host);
  t.sources.push_back({"host.cc", host_text});
  dump.text("host_cuda.cc", [&] { return host_text; }, LogLevel::code);
  TRY(const toolchain::Bytes host_object, toolchain::compile_cpp(host_request(machine, host_text)));
  std::vector<toolchain::LinkInput> inputs = {{"host.cc", host_object}};
  for (size_t i = 0; i < objects.size(); ++i) inputs.push_back({host.images[i].symbol, objects[i]});
  const std::string_view sets[] = {"any", "cuda"};
  for (const toolchain::LinkInput& o : device_library(machine, sets)) inputs.push_back(o);
  const std::vector<std::string> routines = cuda::host_routines(t.plan);
  if (!routines.empty()) {
    TRY_STATUS(check_library(machine, routines));
    constexpr std::string_view kLibrary[] = {"library"};
    for (const toolchain::LinkInput& o : device_library(machine, kLibrary)) inputs.push_back(o);
  }
  std::vector<std::string> exports;
  if (!host.timed.empty()) exports.push_back(COIL_TUNING_SYMBOL);
  if (host.watched) exports.push_back(COIL_WATCH_SYMBOL);
  TRY(t.code, link_model(machine, std::move(inputs), exports, routines.empty() ? nullptr : &t.members));
  return ok_status();
}

Result<TargetContents> build_plan(CudaPlan plan, const TargetJob& job, const toolchain::Nvrtc& nvrtc, CudaHooks hooks, const Dump& dump,
                                  const StageDone& done) {
  const CompileOptions& options = job.options;
  TargetContents t = contents_of(cuda_target(), job.architectures);
  t.needs = {"libcuda.so.1"};
  t.plan = std::move(plan.plan);
  TRY_STATUS(check_images(t.plan, cuda_architectures(job.architectures)));
  plan.settings.joins = !hooks.any();  // who looks at each kernel has each run by itself
  cuda::CudaProgram program = cuda::generate_kernels(t.plan, plan.settings);
  if (!hooks.any()) cuda::add_token_choice(t.plan, plan.settings, program);
  if (hooks.program) *hooks.program = program;
  TRY(t.replaced, replace_kernels(program, t.plan, options.replace_kernels));
  mark_edited(program, options.replace_kernels, t);
  TRY_STATUS(check_counts(cuda::grid_limits(t.plan, program)));
  name_functions(program, t);
  if (hooks.launched_with) *hooks.launched_with = last_of_launches(program);
  t.graphs = options.graphs && !t.plan.kernels.empty() && !hooks.any() && !cuda::waits(t.plan);
  if (plan.settings.tuned_sm && !hooks.any()) t.tuned_isa = fmt::format("sm_{}", plan.settings.tuned_sm);
  SharedConstants alone;
  t.constants_hash = constants_identity(t.plan, options.constants ? *options.constants : alone);
  done("generate");

  Compilation compilation = compilation_of(program, job.architectures, options.replace_kernels);
  t.sources = std::move(compilation.sources);
  for (const GeneratedSource& s : t.sources) dump.text(s.name, [&] { return s.text; }, LogLevel::code);
  const DebugInfo debug(options.debug_folder, t.sources);
  TRY_STATUS(debug.write(t.sources));
  if (debug.wanted()) {
    for (toolchain::CudaRequest& r : compilation.requests) r.source = debug.placed({r.name, r.source}), r.lines = true;
  }
  TRY(const std::vector<toolchain::Bytes> cubins, compile_all(compilation, options, nvrtc));

  cuda::HostOptions host;
  host.in_spec = job.graph.in_spec;
  host.out_spec = job.graph.out_spec;
  host.graphs = t.graphs;
  host.timed = std::move(hooks.timed);
  host.watched = hooks.launched_with != nullptr;
  host.constants_hash = t.constants_hash;
  host.architectures = fmt::format("{}", fmt::join(t.architectures, ", "));
  TRY_STATUS(link_host(program, compilation, cubins, std::move(host), dump, t));
  add_sources(options.replace_kernels, t);
  done("build");
  return t;
}

}  // namespace coil
