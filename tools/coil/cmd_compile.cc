// coil compile: an exported program in, a package out.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <memory>

#include "base/files.h"
#include "base/text.h"
#include "compiler/options.h"
#include "compiler/target.h"
#include "command.h"
#include "compile_log.h"
#include "decisions.h"
#include "frontend/program_names.h"
#include "interrupt.h"
#include "load_model.h"
#include "package/package_writer.h"
#include "temporary_folder.h"
#include "terminal.h"
#include "time_requirement.h"
#include "triton_step.h"

namespace coil::tool {
namespace {

struct CompileCommand {
  std::vector<std::string> models;
  std::string model, output, tune_log;  // model: of a single program, or all of them for people
  CompileArguments compile;
  std::vector<std::string> requirements, shapes, triton;
  std::string program;  // that requirements are about
  TimeRecord record;
  bool json = false, quiet = false, debug_info = false;
};

// The folder of all entries of a package: a plain word from its file's name.
std::string output_stem(const std::string& path) {
  std::string stem = std::filesystem::path(path).filename().string();
  for (const std::string_view suffix : {".pt2", ".coil"}) {
    if (stem.ends_with(suffix)) stem.resize(stem.size() - suffix.size());
  }
  for (char& c : stem) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-') c = '_';
  }
  return stem.empty() || stem.size() > 100 ? "model" : stem;
}

// A program of a package of several: NAME=FILE, or the file's stem.
struct ProgramFile {
  std::string name, path;
};

ProgramFile program_file(const std::string& text) {
  std::error_code ignored;
  const size_t equals = text.find('=');
  if (equals != std::string::npos && !std::filesystem::exists(text, ignored)) return {text.substr(0, equals), text.substr(equals + 1)};
  std::string stem = std::filesystem::path(text).filename().string();
  if (stem.ends_with(".pt2")) stem.resize(stem.size() - 4);
  return {stem, text};
}

// What the command line names. A name that is given makes a package of programs of a single one too.
struct ProgramFiles {
  std::vector<ProgramFile> files;
  bool named = false;
};

ProgramFiles program_files(const std::vector<std::string>& texts) {
  ProgramFiles all;
  for (const std::string& text : texts) all.files.push_back(program_file(text));
  all.named = texts.size() > 1 || all.files[0].path != texts[0];
  return all;
}

// model.coil.pt2 -> model.coil.debug, beside it
std::string debug_folder(const std::string& output) { return (output.ends_with(".pt2") ? output.substr(0, output.size() - 4) : output) + ".debug"; }

// model.pt2 -> model.coil.pt2, beside it
std::string default_output(const std::string& model) {
  const bool pt2 = model.ends_with(".pt2");
  return (pt2 ? model.substr(0, model.size() - 4) : model) + ".coil.pt2";
}

Json to_json(const CompileCommand& a, const CompileReport& r, const CompileOptions& options, uint64_t bytes, double seconds) {
  Json stages = Json::object(), targets = Json::array();
  for (const StageTime& s : r.stages) stages[s.stage] = s.seconds;
  for (const std::string& name : target_names(options.targets)) targets.push_back(name);
  Json tuning = nullptr;
  if (r.tuning) tuning = Json::parse(tune::record_text(*r.tuning));
  return {{"model", a.model},
          {"tuning", tuning},
          {"hints", r.hints},
          {"replaced", r.replaced},
          {"output", a.output},
          {"seconds", seconds},
          {"stages", stages},
          {"targets", targets},
          {"graph_nodes", r.graph_nodes},
          {"loops", r.loops},
          {"kernels", r.kernels},
          {"functions", r.functions},
          {"code_bytes", r.code_bytes},
          {"constants_bytes", r.constants_bytes},
          {"shared_bytes", r.shared_bytes},
          {"package_bytes", bytes},
          {"arena_bytes", r.arena_formula}};
}

std::string stage_detail(const std::string& stage, const CompileReport& r, const CompileOptions& options) {
  if (stage == "simplify") return count_text(r.graph_nodes, "operator");
  if (stage == "loop passes") return count_text(r.loops, "loop");
  if (stage == "schedule") return count_text(r.kernels, "kernel");
  if (stage == "generate") return count_text(r.functions, "distinct function");
  if (stage == "build") return fmt::format("{}", fmt::join(target_names(options.targets), ", "));
  return "";
}

// What the choices of a problem brought at most, at any size that was timed; empty: they are not known to be faster.
std::string gain_text(const tune::Entry& e) {
  double most = 0;
  for (const tune::MeasuredPoint& p : e.measured) {
    const auto chosen = std::find_if(p.timings.begin(), p.timings.end(), [&](const tune::Timing& t) { return t.choice == p.chosen; });
    if (chosen != p.timings.end() && p.timings[0].median > 0) most = std::max(most, 100 * (1 - chosen->median / p.timings[0].median));
  }
  return most > 0 ? fmt::format("{}{:.1f} % faster", e.measured.size() > 1 ? "up to " : "", most) : "";
}

// The whole program with its choices and without, at each size in order; the sizes where it stays as it was are counted if they are many.
std::string whole_text(const tune::Record& record, const Style& style) {
  std::vector<tune::WholeProgram> whole = record.whole;
  std::stable_sort(whole.begin(), whole.end(), [](const auto& a, const auto& b) { return a.sizes < b.sizes; });
  std::string text;
  size_t left_out = 0;
  for (const tune::WholeProgram& w : whole) {
    if (!w.kept && whole.size() > 4) {
      ++left_out;
      continue;
    }
    std::string sizes;
    for (const auto& [name, value] : w.sizes) sizes += fmt::format(" {}={}", shown(name), value);
    text += fmt::format("  whole program{}: {} untuned, {} tuned{}\n", sizes, seconds_text(w.untuned * 1e-6), style.bold(seconds_text(w.tuned * 1e-6)),
                        w.kept ? "" : " (not surely faster: stays as it was)");
  }
  if (left_out > 0)
    text += fmt::format("  {} not surely faster: {} as {}\n", left_out == 1 ? "1 other size" : fmt::format("{} other sizes", left_out),
                        left_out == 1 ? "it stays" : "they stay", left_out == 1 ? "it was" : "they were");
  return text;
}

// A line for each problem that something else than its default serves, and what it brought.
std::string tuning_text(const tune::Record& record, bool cached, const Style& style) {
  if (record.untimed) {
    const char* kept = cached ? "is built and in the cache (`coil cache pack` takes it\nelsewhere)" : "builds; there is no cache to keep it in";
    return fmt::format(
        "Nothing was timed: this machine has no device of CUDA. What is to be timed for {} {}: the same command on a machine with one, with the same --record, goes on from there\n",
        record.hardware.isa, kept);
  }
  std::string text = style.bold("Tuned") + fmt::format(" for {} in {}: {}, {} of the program\n", record.hardware.text(), seconds_text(record.seconds),
                                                       count_text(record.entries.size(), "problem"), count_text(static_cast<size_t>(record.runs), "run"));
  Table table;
  size_t own = 0;
  for (const tune::Entry& e : record.entries) {
    if (e.rows.size() == 1 && e.rows[0].choice.empty()) {
      ++own;
      continue;
    }
    std::vector<std::pair<int64_t, std::string>> rows;
    for (const tune::Row& r : e.rows) rows.emplace_back(r.up_to, r.text);
    table.add({e.kernel, style.dim(gain_text(e)), choices_text(e.key, rows)});
  }
  text += table.text();
  if (own > 0) text += fmt::format("  {} as before\n", count_text(own, "problem"));
  if (record.least_seconds > 0)
    text += fmt::format("  nothing was timed: the budget is too small for this program; give at least --tune-budget {:.0f}s\n", record.least_seconds);
  return text + whole_text(record, style);
}

std::string summary(const CompileCommand& a, const CompileReport& r, const CompileOptions& options, uint64_t bytes, double seconds) {
  const Style style;
  std::string text = fmt::format("{} -> {} in {}\n", shown(a.model), style.bold(a.output), style.bold(seconds_text(seconds)));
  Table table(2, {1});
  for (const StageTime& s : r.stages) table.add({s.stage, seconds_text(s.seconds), style.dim(stage_detail(s.stage, r, options))});
  text += table.text();
  Table sizes;
  sizes.add({"package", fmt::format("{}: code {}, weights {}", bytes_text(bytes), bytes_text(r.code_bytes), bytes_text(r.constants_bytes))});
  if (r.shared_bytes > 0) sizes.add({"", fmt::format("programs have {} of weights in common, which are stored once", bytes_text(r.shared_bytes))});
  sizes.add({"scratch memory of a call", fmt::format("{} bytes", r.arena_formula)});
  for (const std::string& name : r.replaced) sizes.add({"replaced kernel", shown(name)});
  if (!options.debug_folder.empty()) sizes.add({"debug information", "its lines are those of the texts in " + shown(options.debug_folder)});
  text += sizes.text();
  if (!r.tuning) return text;
  text += tuning_text(*r.tuning, options.cache != nullptr, style);
  for (const tune::Record& more : r.more_tunings) text += tuning_text(more, options.cache != nullptr, style);
  for (const std::string& hint : r.hints) text += fmt::format("  hint: {}\n", shown(hint));
  return text;
}

// The record for machines, with what it had of other programs; the tables for readers.
Status write_tuning(const CompileCommand& a, const CompileReport& report) {
  if (!report.tuning) return ok_status();
  std::string tables = tune::record_tables(*report.tuning);
  for (const tune::Record& more : report.more_tunings) tables += "\n" + tune::record_tables(more);
  if (!a.tune_log.empty()) TRY_STATUS(write_file(a.tune_log, std::string_view(tables)));
  if (a.compile.record.empty()) return ok_status();
  TRY_STATUS(save_record(a.compile.record, *report.tuning));
  for (const tune::Record& more : report.more_tunings) TRY_STATUS(save_record(a.compile.record, more));
  return ok_status();
}

// Reads and compiles what the command line names.
Result<CompileReport> compile_files(const CompileCommand& a, const ProgramFiles& given, CompileOptions& options, Progress& progress, double* read_seconds) {
  std::vector<ZipReader> archives;  // outlive the programs' weights
  std::vector<ProgramInput> inputs;
  std::vector<NamedProgram> programs;
  std::vector<std::string> names;
  for (const ProgramFile& f : given.files) names.push_back(f.name);
  if (given.named) TRY_STATUS(check_program_names(names));
  for (const ProgramFile& f : given.files) {
    progress.begin("reading " + f.path, 0);
    TRY(ZipReader zip, ZipReader::open(f.path));
    archives.push_back(std::move(zip));
    CompileArguments compile = a.compile;
    if (!given.named || programs_in(archives.back()).size() > 1) compile.program = a.program;
    TRY(ProgramInput input, read_input_program(archives.back(), compile));
    *read_seconds += input.read_seconds;
    inputs.push_back(std::move(input));
  }
  if (!given.named) {
    options.name = inputs[0].name;
    return compile_to_file(inputs[0].graph, a.output, options);
  }
  options.name = output_stem(a.output);
  for (size_t i = 0; i < names.size(); ++i) programs.push_back({names[i], &inputs[i].graph});
  return compile_programs_to_file(programs, a.output, options);
}

// The programs with their Triton kernels compiled, each in a folder that lives as long as `folders`; the programs themselves without --triton.
Result<ProgramFiles> with_triton(ProgramFiles given, const CompileCommand& a, std::vector<std::unique_ptr<TemporaryFolder>>& folders) {
  if (a.triton.empty()) return given;
  for (ProgramFile& f : given.files) {
    folders.push_back(std::make_unique<TemporaryFolder>());
    const std::string& folder = folders.back()->path;
    if (folder.empty()) return Error{ErrorCode::file_unwritable, "no temporary folder can be made", "", "set TMPDIR"};
    TRY(f.path, compile_triton(f.path, a.triton, a.compile.target, folder));
  }
  return given;
}

// Of the program that --program names, the first one otherwise.
Result<int> meets_requirements(const CompileCommand& a, const ZipReader& package) {
  TRY(const std::vector<std::string> names, program_names(package));
  if (names.size() > 1 && a.program.empty()) note(fmt::format("--require is about {}, the first of {} programs; --program chooses", names[0], names.size()));
  const std::string program = names.size() > 1 ? a.program : "";
  TRY(const Json manifest, read_manifest(package, program));
  const Parted parted = part_requirements(a.requirements);
  TRY(std::vector<Requirement> requirements, check_requirements(manifest, parted.others, a.shapes));
  MeasureArguments measure;
  measure.inputs.shapes = a.shapes;
  measure.compile.program = program;
  TRY(const std::vector<Requirement> times, check_times(a.output, measure, parted.times, a.record));
  requirements.insert(requirements.end(), times.begin(), times.end());
  return report_requirements(requirements);
}

Result<int> compile(CompileCommand& a) {
  if (!a.tune_log.empty() && a.compile.tune == "off")
    return Error{ErrorCode::bad_option, "--tune-log writes what a tuner timed", "", "add --tune fast or --tune max"};
  const ProgramFiles given = program_files(a.models);
  const std::vector<ProgramFile>& files = given.files;
  a.model = fmt::format("{}", fmt::join(a.models, " "));
  if (a.output.empty()) {
    if (files.size() > 1)
      return Error{ErrorCode::bad_option, "a package of several programs needs a name of its own", "", "give it with -o, such as -o model.coil.pt2"};
    a.output = default_output(files[0].path);
  }
  if (a.debug_info) a.compile.debug_info = debug_folder(a.output);
  const double start = seconds_now();
  std::error_code ignored;
  for (const ProgramFile& f : files) {
    TRY(const ZipReader readable, ZipReader::open(f.path));
    if (!std::filesystem::equivalent(f.path, a.output, ignored)) continue;
    return Error{ErrorCode::bad_option, fmt::format("the output '{}' is the input", a.output), "", "choose another name with -o"};
  }
  std::vector<std::unique_ptr<TemporaryFolder>> folders;
  TRY(const ProgramFiles ready, with_triton(given, a, folders));
  clean_up_on_signals(a.output);
  Progress progress(a.quiet ? Progress::Mode::never : Progress::mode_from_env());
  TRY(CompileOptions options, compile_options(a.compile, progress));
  double read_seconds = 0;
  TRY(CompileReport report, compile_files(a, ready, options, progress, &read_seconds));
  progress.finish();
  report.stages.insert(report.stages.begin(), {"read", read_seconds});
  const double seconds = seconds_now() - start;
  TRY_STATUS(write_tuning(a, report));
  if (options.cache && !options.cache->distrust().empty()) note(options.cache->distrust());
  if (options.cache && !options.cache->problem().empty()) note("nothing could be kept for later compiles: " + options.cache->problem());
  TRY(const ZipReader package, ZipReader::open(a.output));
  log_compile(options.log, report, package);
  const uint64_t bytes = package.bytes().size();
  if (a.json) {
    put(json_text(to_json(a, report, options, bytes, seconds)));
  } else if (!a.quiet) {
    put(summary(a, report, options, bytes, seconds));
  }
  if (a.requirements.empty()) return 0;
  return meets_requirements(a, package);
}

}  // namespace

Action add_compile(CommandLine& app) {
  auto a = std::make_shared<CompileCommand>();
  app.add_option("model", a->models,
                 "exported program (.pt2 of torch.export.save); several, or NAME=MODEL.pt2: programs of one package, which have their weights in common")
      .required()
      .type_name("MODEL.pt2");
  app.add_option("-o,--output", a->output, "package to write; default: MODEL.coil.pt2 beside the program").type_name("FILE");
  add_compile_options(app, a->compile);
  app.add_option("--tune-log", a->tune_log, "write what the tuner timed, a table for each problem").type_name("FILE");
  app.add_option("--triton", a->triton,
                 "Python file or module that defines the program's operators with Triton kernels, which COIL_TORCH (python3) compiles (docs/triton.md)")
      .one_each()
      .type_name("MODULE.py");
  add_threads_option(app, a->compile.threads, "threads of the compiler; default: all that this process may use");
  app.add_flag(
      "--debug-info", a->debug_info,
      "keep line tables and symbols in the code, and write the generated texts that they name beside the package (MODEL.coil.debug), for gdb, perf, nsys and ncu");
  app.add_option(
         "--require", a->requirements,
         "what has to hold of the package, such as \"kernels <= 40\", \"fused(attn.q, attn.k)\", \"peak <= 2GB\" (at --shape); exit code 1 where it does not")
      .one_each()
      .type_name("CONDITION");
  app.add_option("--program", a->program,
                 "which program of an archive of several is compiled; of a package of several, which one --require is about (default: the first one)")
      .type_name("NAME");
  app.add_option("--time-record", a->record.path, "the record that \"time <= 1.2 * record\" compares with; default: MODEL.coil.times.json beside the package")
      .type_name("FILE");
  app.add_flag("--update-times", a->record.update, "write the times that --require measures into that record");
  app.add_option("--shape", a->shapes, "size of a dynamic dimension for --require").one_each().type_name("DIM=SIZE");
  app.add_flag("--json", a->json, "print the summary as JSON");
  app.add_flag("-q,--quiet", a->quiet, "print nothing but errors");
  app.footer(
      "Examples:\n"
      "  coil compile model.pt2\n"
      "  coil compile model.pt2 -o /tmp/model.coil.pt2 --dim batch=x:0 --dim seq=ids:1\n"
      "  coil compile prefill.pt2 decode.pt2 -o model.coil.pt2   one package of two programs\n"
      "  coil compile model.pt2 --target cpu:x86-64-v3        one instruction set: half the time and size\n"
      "  coil compile model.pt2 --target cpu,cuda:sm_90       for both; needs NVRTC (COIL_NVRTC), but no GPU\n"
      "  coil compile model.pt2 --tune fast --record model.tune.json\n"
      "  coil compile model.pt2 --replay model.tune.json      the same package again, on any machine\n"
      "  coil compile model.pt2 --tune max --tune-budget 30s --warm batch=1,8,64 --tune-log tables.txt\n"
      "  coil compile model.pt2 --kernels kernels/ --tune fast   with your own operators, see docs/user_kernels.md\n"
      "  coil compile model.pt2 --triton ops.py --target cuda:sm_90   with kernels in Triton, see docs/triton.md\n"
      "The package runs with `coil run`, with coil's C library, and in PyTorch: torch._inductor.aoti_load_package.");
  return [a] { return compile(*a); };
}

}  // namespace coil::tool
