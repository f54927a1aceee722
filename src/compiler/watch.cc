#include "compiler/watch.h"

#include <atomic>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "base/cpu_limits.h"
#include "base/zip_writer.h"
#include "codegen/constants.h"
#include "codegen/interface/watch_text.h"
#include "compiler/cpu_target.h"
#include "compiler/cuda_target.h"
#include "compiler/device_call.h"
#include "compiler/dump.h"
#include "compiler/replace_kernels.h"
#include "package/package_writer.h"
#include "schedule/schedule.h"

namespace coil {

namespace {

Result<TargetContents> build_for_cpu(const LoopProgram& loops, const CompileOptions& options, const Dump& dump, WatchedBuild& build) {
  const TargetChoice& choice = options.targets[0];
  const tune::Record* record = options.tune.replay ? &*options.tune.replay : nullptr;
  const FusionWay* way = nullptr;
  KeepPackings keep;
  if (record) {
    TRY(way, recorded_way(*record, loops));
    keep = packings_of(*record);
  }
  TRY(CpuPlan plan, plan_cpu(this_machine(), loops, options, keep, way));
  build.loops = laid_out(loops, cpu_traits(this_machine(), options, keep, way));
  HostOptions host;
  host.watched = true;
  if (record) {
    TRY_STATUS(apply_record(plan, *record));
    plan.program = cpu::generate_kernels(plan.plan);
    host.tuned_isa = record->hardware.isa;
  }
  build.program = plan.program;
  dump.text("plan", [&] { return to_string(plan.plan); });
  const TargetJob job{loops, build.graph, options, choice.architectures};
  return build_plan(std::move(plan), job, std::move(host), dump, [](const std::string&) {});
}

Result<TargetContents> build_for_cuda(const LoopProgram& loops, const CompileOptions& options, const Dump& dump, WatchedBuild& build) {
  const TargetChoice& choice = options.targets[0];
  const TargetJob job{loops, build.graph, options, choice.architectures};
  const tune::Record* record = options.tune.replay ? &*options.tune.replay : nullptr;
  const FusionWay* way = nullptr;
  std::function<std::vector<Choice>(const std::string& problem)> choices;
  if (record) {
    TRY(way, recorded_way(*record, loops));
    choices = choices_of(*record);
  }
  TRY(CudaPlan plan, plan_cuda(job, record ? record_machine(*record) : std::nullopt, std::move(choices), way));
  build.loops = laid_out(loops, cuda_traits(plan.settings, options, way));
  if (record) TRY_STATUS(apply_record(plan, *record));
  dump.text("plan_cuda", [&] { return to_string(plan.plan); });
  TRY(const std::shared_ptr<const toolchain::Nvrtc> nvrtc, toolchain::Nvrtc::load());
  return build_plan(std::move(plan), job, *nvrtc, {{}, &build.launched_with, &build.cuda_program}, dump, [](const std::string&) {});
}

Status check_target(const Target& target) {
  if (&target == &cuda_target() || &target == &target_for(this_machine())) return ok_status();
  return Error{ErrorCode::bad_option, fmt::format("kernels are compared one by one on this machine's processor or GPU, not for {}", target.names.label), "",
               "leave out --target, or name a level of this machine's CPU"};
}

// The package that a model is opened from.
Status pack(TargetContents contents, const CompileOptions& options, WatchedBuild& build) {
  build.functions = contents.functions;
  PackageContents package;
  package.name = "watched";
  package.fixed_inputs = fixed_arguments(build.graph);
  package.argument_names = build.graph.forward_arg_names;
  package.targets.push_back(std::move(contents));
  TRY(const std::vector<std::string> replaced, check_replacements({&package.targets[0]}, options.replace_kernels));
  ZipWriter zip = ZipWriter::in_memory();
  TRY_STATUS(write_package(zip, package));
  build.plan = std::move(package.targets[0].plan);
  build.package = zip.finish_in_memory();
  for (size_t k = build.launched_with.size(); k < build.plan.kernels.size(); ++k) build.launched_with.push_back(k);
  return ok_status();
}

// build has the graph. options: without image by image.
Result<WatchedBuild> build_loops(WatchedBuild build, const LoopProgram& loops, const CompileOptions& options, const Dump& dump) {
  build.cuda = options.targets[0].target == &cuda_target();
  TRY(TargetContents contents, build.cuda ? build_for_cuda(loops, options, dump, build) : build_for_cpu(loops, options, dump, build));
  TRY_STATUS(pack(std::move(contents), options, build));
  for (size_t b = 0; b < build.loops.buffers.size(); ++b) CHECK(build.loops.buffers[b].name == build.plan.buffers[b].info.name, "the plan has other buffers");
  return build;
}

CompileOptions one_by_one(const CompileOptions& given) {
  CompileOptions options = given;
  options.without.emplace_back("images");
  return options;
}

}  // namespace

Result<WatchedBuild> build_watched(const Graph& graph, const CompileOptions& options) { return build_watched(graph, options, Dump("", options.log)); }

Result<WatchedBuild> build_watched(const Graph& graph, const CompileOptions& given, const Dump& dump) {
  const CompileOptions options = one_by_one(given);
  const Target& target = *options.targets[0].target;
  TRY_STATUS(check_target(target));
  WatchedBuild build;
  TRY(build.graph, simplified(graph, options, dump));
  TRY(const LoopProgram loops, loops_of(build.graph, target, options, dump));
  return build_loops(std::move(build), loops, options, dump);
}

Result<WatchedBuild> build_watched(LoopProgram lowered, const CompileOptions& given, const Dump& dump) {
  const CompileOptions options = one_by_one(given);
  const Target& target = *options.targets[0].target;
  TRY_STATUS(check_target(target));
  TRY(const LoopProgram loops, loops_after_passes(std::move(lowered), target, options, dump));
  return build_loops({}, loops, options, dump);
}

static Result<WatchedBuild> build_plan_alone(KernelPlan plan, const CompileOptions& options, const Dump& dump) {
  WatchedBuild build;
  layout_constants(plan);
  CpuPlan p{std::move(plan), {}};
  p.program = cpu::generate_kernels(p.plan);
  build.program = p.program;
  const LoopProgram none;
  const TargetJob job{none, build.graph, options, options.targets[0].architectures};
  HostOptions host;
  host.watched = true;
  TRY(TargetContents contents, build_plan(std::move(p), job, std::move(host), dump, [](const std::string&) {}));
  TRY_STATUS(pack(std::move(contents), options, build));
  return build;
}

Result<WatchedBuild> build_watched(KernelPlan plan, const CompileOptions& options, const Dump& dump) {
  if (options.targets[0].target != &target_for(this_machine())) {
    return Error{ErrorCode::bad_option, "a plan is made code for this machine's processor alone", "",
                 "leave out --target, or name a level of this machine's CPU"};
  }
  try {
    return build_plan_alone(std::move(plan), options, dump);
  } catch (const InternalError& error) {
    return Error{ErrorCode::bad_program, fmt::format("no code can be made of the plan: {}", error.what()), "", ""};
  }
}

namespace {

// Chunks in turn, the last first, as if each were another worker's.
struct Backwards {
  int workers;
  static void run(void* pool, int64_t count, int64_t grain, CoilChunkFn body, void* context) {
    const auto& self = *static_cast<const Backwards*>(pool);
    const int64_t size = std::max<int64_t>(grain, 1), chunks = (count + size - 1) / size;
    for (int64_t c = chunks; c-- > 0;) body(context, c * size, std::min(count, (c + 1) * size), static_cast<int32_t>(c % self.workers));
  }
};

// More threads than processors, which take small chunks in turn.
struct Crowded {
  int workers;
  static void run(void* pool, int64_t count, int64_t grain, CoilChunkFn body, void* context) {
    const auto& self = *static_cast<const Crowded*>(pool);
    const int64_t size = std::max<int64_t>(grain, 1);
    std::atomic<int64_t> next{0};
    const auto work = [&](int32_t worker) {
      for (int64_t begin = next.fetch_add(size); begin < count; begin = next.fetch_add(size)) body(context, begin, std::min(count, begin + size), worker);
    };
    std::vector<std::thread> threads;
    for (int32_t w = 1; w < self.workers && w * size < count; ++w) threads.emplace_back(work, w);
    work(0);
    for (std::thread& t : threads) t.join();
  }
};

class Watcher {
 public:
  Watcher(const WatchedBuild& build, const runtime::Device& device, const AfterKernel& after) : build_(build), device_(device), after_(after) {}

  static void hook(void* owner, int32_t kernel, void* const* results, const long* symbols) {
    static_cast<Watcher*>(owner)->see(static_cast<size_t>(kernel), results, symbols);
  }

  // An exception must not pass through generated code.
  void see(size_t kernel, void* const* results, const long* symbols) {
    if (problem_) return;
    try {
      CoilError error = {};
      if (device_.synchronise_all(&error)) throw error;
      const std::vector<int64_t> values(symbols, symbols + build_.plan.pool->num_symbols());
      std::vector<Written> written;
      const std::vector<BufferId> buffers = results_of(build_.plan, kernel);
      for (size_t i = 0; i < buffers.size() && results[i]; ++i) written.push_back(copy(buffers[i], results[i], values));
      after_(kernel, values, std::move(written));
    } catch (...) {
      problem_ = std::current_exception();
    }
  }

  // What the device reported, or what `after` threw.
  Status problem() const {
    if (!problem_) return ok_status();
    try {
      std::rethrow_exception(problem_);
    } catch (const CoilError& error) {
      return runtime::error_of(error);
    }
  }

 private:
  Written copy(BufferId id, const void* from, const std::vector<int64_t>& symbols) const {
    const BufferInfo& b = build_.plan.buffer(id).info;
    const auto size_of = [&](Expr e) { return evaluate_index(e, [&](SymbolId s) { return symbols[static_cast<size_t>(s.index)]; }); };
    Written out{id, {}, {}};
    out.data.dtype = b.dtype;
    int64_t last = 0;
    bool empty = false;
    for (size_t d = 0; d < b.sizes.size(); ++d) {
      out.data.sizes.push_back(size_of(b.sizes[d]));
      out.data.strides.push_back(size_of(b.strides[d]));
      empty = empty || out.data.sizes.back() <= 0;
      last += (out.data.sizes.back() - 1) * out.data.strides.back();
    }
    const auto bytes = std::make_shared<std::vector<uint8_t>>(empty ? 0 : static_cast<size_t>((last + 1) * byte_size(b.dtype)));
    out.read_again = [this, from, size = static_cast<int64_t>(bytes->size())](uint8_t* to) {
      CoilError error = {};
      if (size > 0 && device_.copy(to, from, size, nullptr, &error)) throw error;
    };
    out.read_again(bytes->data());
    out.data.bytes = *bytes;
    out.data.owner = bytes;
    return out;
  }

  const WatchedBuild& build_;
  const runtime::Device& device_;
  const AfterKernel& after_;
  std::exception_ptr problem_;
};

}  // namespace

Status run_watched(const WatchedBuild& build, std::span<const CoilTensorView> inputs, Order order, int threads, const AfterKernel& after) {
  Backwards backwards{std::max(threads, 3)};
  Crowded crowded{2 * std::max(threads, allowed_cpus()) + 2};
  runtime::ModelOptions options;
  options.num_threads = threads;
  if (order != Order::threads) {
    options.parallel_for = order == Order::backwards ? Backwards::run : Crowded::run;
    options.pool = order == Order::backwards ? static_cast<void*>(&backwards) : &crowded;
    options.num_threads = order == Order::backwards ? backwards.workers : crowded.workers;
  }
  TRY(const std::shared_ptr<runtime::Model> model, runtime::Model::open_memory(build.package, options));
  auto* table = static_cast<CoilWatch*>(model->symbol(COIL_WATCH_SYMBOL));
  CHECK(table, "a watched build exports its table");
  Watcher watcher(build, model->device(), after);
  table->owner = &watcher;
  table->hook = Watcher::hook;
  runtime::Context context(model);
  std::vector<CoilTensorView> outputs(static_cast<size_t>(model->code().num_outputs));
  CoilError error = {};
  TRY(const DeviceTensors there, DeviceTensors::make(*model, inputs));
  const int32_t code =
      context.run(there.views().data(), static_cast<int32_t>(there.views().size()), outputs.data(), static_cast<int32_t>(outputs.size()), &error);
  table->hook = nullptr;
  TRY_STATUS(watcher.problem());
  if (code != 0) return Error{static_cast<ErrorCode>(code), error.message, "", ""};
  if (context.synchronise(&error)) return runtime::error_of(error);
  return ok_status();
}

}  // namespace coil
