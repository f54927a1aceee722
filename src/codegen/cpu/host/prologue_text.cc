#include "codegen/cpu/host/prologue_text.h"

#include <algorithm>
#include <cctype>
#include <set>

#include <fmt/format.h>

#include "codegen/cpu/choices.h"
#include "codegen/interface/read_text.h"
#include "codegen/cpu/templates/parts.h"
#include "codegen/foreign_text.h"
#include "codegen/index_text.h"
#include "codegen/interface/call_text.h"
#include "loop/templates/template.h"

namespace coil {

static constexpr const char* kDeviceObjects[] = {"gemm", "gemm_bytes", "gemm_f64", "gemm_grouped", "gemm_grouped_bytes", "conv2d", "conv2d_f64", "attention"};

std::string device_object(const KernelPlan& plan, const TemplateKernel& t) {
  std::string object;
  visit_template(t.def, [&](const auto& def) { object = cpu::device_object(cpu::TemplateUse{plan, t}, def); });
  return object;
}

std::string function_table(std::string object) {
  object[0] = static_cast<char>(std::toupper(object[0]));
  return "k" + object;
}

bool asks_onednn(const KernelPlan& plan, const HostOptions& options, size_t k) {
  return cpu::asks_onednn(plan, plan.kernels[k], options.libraries && k < options.timed.size() && options.timed[k]);
}

namespace {

std::string launch_function(const PrologueWay& way) {
  return fmt::format(
      "// Small work stays on the calling thread; `work` is in vector operations an item.\n"
      "static inline void launch(const CoilHost* host, CoilChunkFn f, int64_t items, int64_t work, void* args{}) {{\n"
      "  if (items <= 0) return;\n  const int64_t grain = {} / (work + 1) + 1;\n"
      "  if (items <= grain || host->num_workers == 1) return f(args, 0, items, 0);\n"
      "  host->parallel_for(host->pool, items, grain, f, args);\n}}\n\n",
      way.tuning ? ", int32_t chunk = 0" : "", way.tuning ? fmt::format("(chunk > 0 ? chunk : {}L)", way.chunk_work) : fmt::format("{}L", way.chunk_work));
}

// The kernels' names, and the table of them: a row an instruction set.
std::string kernel_tables(const cpu::CpuProgram& program, const HostOptions& options, HostFile file) {
  const size_t n = std::max<size_t>(program.functions.size(), 1);
  const std::string table = fmt::format("const CoilChunkFn kFunctions[{}][{}]", options.isas.size(), n);
  if (file == HostFile::further) return shared_text(file, table, "");
  std::string text = "// The kernels, one row an instruction set.\n", rows = " = {\n";
  for (const std::string& isa : options.isas) {
    for (const auto& f : program.functions)
      text += fmt::format("extern \"C\" __attribute__((visibility(\"hidden\"))) void {}_{}(void*, int64_t, int64_t, int32_t);\n", f.name, isa);
    rows += "    {";
    for (const auto& f : program.functions) rows += fmt::format("{}_{}, ", f.name, isa);
    rows += program.functions.empty() ? "nullptr},\n" : "},\n";
  }
  return text + shared_text(file, table, rows + "};\n");
}

std::string levels_table(const HostOptions& options) {
  std::string levels;
  for (const std::string& isa : options.isas) levels += fmt::format("{}, ", options.machine->level(isa)->number);
  return "static const int32_t kLevels[] = {" + levels + "};\n";
}

std::string select_function(const HostOptions& options) {
  return fmt::format(
      "static int32_t select(const char** name, CoilError* error) {{\n"
      "  const int32_t row = cd::select_isa(kLevels, {}, name, error);\n"
      "  if (row >= 0) chosen = row;\n  return row < 0;\n}}\n\n",
      options.isas.size());
}

}  // namespace

std::string prologue_text(const KernelPlan& plan, const cpu::CpuProgram& program, const HostOptions& options, const PrologueWay& way) {
  std::string text = fmt::format("#include \"host_support.h\"\n#include \"kernels.h\"\n#include \"{}\"\n", kIndexHeader) +
                     (options.machine->kernel_levels.empty() ? "" : fmt::format("#include \"{}\"\n", options.machine->kernel_levels)) +
                     (uses_onednn(plan, options) ? "#include \"onednn.h\"\n" : "") + (library_routines(plan).empty() ? "\n" : "#include \"library.h\"\n\n") +
                     "struct coil_args {\n  void* const* p;\n  const long* s;\n  int* flag;\n};\n" + kUsesIndex + offset_functions(plan, way.offsets) +
                     "extern \"C\" void* memcpy(void*, const void*, size_t);\n\n" + launch_function(way);
  for (const std::string& routine : library_routines(plan)) text += fmt::format("COIL_LIBRARY_ROUTINE({});\n", routine);
  text += kernel_tables(program, options, way.file);
  for (const std::string& object : device_objects(plan)) {
    const std::string table = function_table(object);
    text += fmt::format("static void (*const {}[{}])(const Coil{}*, const CoilHost*) = {{", table, options.isas.size(), table.substr(1, table.find('_') - 1));
    for (const std::string& isa : options.isas) text += fmt::format("coil_{}_{}, ", object, isa);
    text += "};\n";
  }
  if (way.file != HostFile::further) text += levels_table(options);
  text += shared_text(way.file, "int32_t chosen", ";\n");
  return way.file == HostFile::further ? text : text + select_function(options);
}

bool uses_onednn(const KernelPlan& plan, const HostOptions& options) {
  for (size_t k = 0; k < plan.kernels.size(); ++k) {
    if (asks_onednn(plan, options, k)) return true;
  }
  return false;
}

std::vector<std::string> library_routines(const KernelPlan& plan) {
  std::set<std::string> names;
  for (const Kernel& k : plan.kernels) {
    if (const auto* l = std::get_if<LibraryKernel>(&k.def)) names.insert(l->def.routine);
  }
  return {names.begin(), names.end()};
}

std::vector<std::string> all_device_objects() { return {std::begin(kDeviceObjects), std::end(kDeviceObjects)}; }

std::vector<std::string> device_objects(const KernelPlan& plan) {
  std::set<std::string> names;
  for (const Kernel& k : plan.kernels) {
    if (const auto* t = std::get_if<TemplateKernel>(&k.def)) names.insert(device_object(plan, *t));
  }
  std::vector<std::string> out;
  for (const char* name : kDeviceObjects) {
    if (names.count(name)) out.push_back(name);
  }
  return out;
}

std::string model_text(const KernelPlan& plan, const HostOptions& options) {
  size_t outputs = 0;
  for (const LoopOutput& o : plan.outputs) outputs += o.kind == LoopOutput::Kind::user;
  return fmt::format(
      "static const CoilModel kModel = {{\n    COIL_ABI_VERSION, sizeof(CoilModel), {}, {}, {}, COIL_CPU, kInputDescs, kOutputDescs,\n    {},\n    {},\n"
      "    {}UL, 0x{:016x}UL, {}UL, {}UL, select, cd::bind<kSignature>, output_shape, arena_bytes, run, nullptr, nullptr, nullptr, nullptr, {}, {}, run_traced, cd::find_fault<kSignature>}};\n"
      "extern \"C\" __attribute__((visibility(\"default\"))) const CoilModel* coil_model(void) {{ return &kModel; }}\n",
      plan.inputs.size(), outputs, plan.pool->num_symbols() - 1, c_string(options.in_spec), c_string(options.out_spec), plan.constants_bytes,
      options.constants_hash, plan.state_offset, plan.state_bytes, reads_sizes(plan) ? 1 : 0, has_late_outputs(plan) ? "kLateOutputs" : "nullptr");
}

}  // namespace coil
