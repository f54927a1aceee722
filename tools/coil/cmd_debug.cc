// coil debug: the stages of a compilation, one after the other, and each kernel as a program of its own.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "archive_option.h"
#include "base/files.h"
#include "base/text.h"
#include "command.h"
#include "compiler/kernel_programs.h"
#include "debug_plan.h"
#include "debug_stage.h"
#include "diff_text.h"
#include "line_diff.h"
#include "load_model.h"
#include "make_words.h"
#include "part_program.h"
#include "terminal.h"

namespace coil::tool {
namespace {

struct DebugArguments {
  std::string path, output, stage;
  GivenInputs inputs;
  CompileArguments compile;
  bool changes = false, json = false, kernels = false;
};

constexpr uint64_t kMostDebugText = uint64_t{1} << 28;

// A numbered file of a dump. Those of one family follow from each other: graphs, loops, and the plan.
struct Stage {
  std::string file, name, family, text;
  LineDiff diff;
  bool follows = false;
};

Result<std::vector<Stage>> read_stages(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code wrong;
  for (const auto& entry : std::filesystem::directory_iterator(folder, wrong)) {
    const std::string name = entry.path().filename().string();
    const bool numbered = name.size() > 3 && std::isdigit(static_cast<unsigned char>(name[0])) && std::isdigit(static_cast<unsigned char>(name[1]));
    if (numbered && entry.is_regular_file()) files.push_back(name);
  }
  if (wrong) return Error{ErrorCode::file_unreadable, fmt::format("cannot list '{}': {}", shown(folder), wrong.message()), "", ""};
  if (files.empty())
    return Error{ErrorCode::bad_option, fmt::format("'{}' has no stages of a compilation", shown(folder)), "",
                 "make it with COIL_DUMP=DIR coil compile, or coil debug MODEL.pt2 -o DIR"};
  std::sort(files.begin(), files.end(), [](const std::string& x, const std::string& y) { return std::pair(x.find('_'), x) < std::pair(y.find('_'), y); });
  std::vector<Stage> stages;
  for (const std::string& file : files) {
    Stage s;
    s.file = file;
    s.name = file.substr(file.find('_') + 1, file.rfind('.') - file.find('_') - 1);
    s.family = file.ends_with(".txt") ? s.name.substr(0, s.name.find('_')) : "";
    TRY(s.text, read_text_file(folder + "/" + file, kMostDebugText));
    for (size_t i = stages.size(); i-- > 0 && !s.family.empty() && !s.follows;) {
      if (stages[i].family != s.family) continue;
      s.follows = true;
      s.diff = line_diff(stages[i].text, s.text);
    }
    stages.push_back(std::move(s));
  }
  return stages;
}

std::string coloured(const std::string& diff, const Style& style) {
  std::string out;
  for (size_t at = 0; at < diff.size();) {
    const size_t end = diff.find('\n', at);
    const std::string line = diff.substr(at, end - at);
    out += (line.starts_with("- ") ? style.red(line) : line.starts_with("+ ") ? style.green(line) : style.dim(line)) + "\n";
    at = end + 1;
  }
  return out;
}

std::string list_text(const std::vector<Stage>& stages) {
  const Style style;
  Table table(2, {2, 3});
  for (const Stage& s : stages) {
    const auto lines = static_cast<size_t>(std::count(s.text.begin(), s.text.end(), '\n'));
    const std::string changed = !s.follows ? "" : s.diff.added + s.diff.removed == 0 ? "nothing changed" : fmt::format("+{} -{}", s.diff.added, s.diff.removed);
    table.add({s.file, style.bold(s.name), count_text(lines, "line"), changed});
  }
  return table.text();
}

Result<std::string> stage_text(const std::vector<Stage>& stages, const std::string& wanted) {
  const Style style;
  for (const Stage& s : stages) {
    if (s.name != wanted && s.file != wanted && s.file.substr(0, s.file.find('_')) != wanted) continue;
    std::string text = s.text;
    if (s.follows) text += style.bold("Changed") + fmt::format(": +{} -{}\n", s.diff.added, s.diff.removed) + coloured(s.diff.text, style);
    return text;
  }
  std::string names;
  for (const Stage& s : stages) names += (names.empty() ? "" : ", ") + s.name;
  return Error{ErrorCode::bad_option, fmt::format("there is no stage '{}'", shown(wanted)), "", "stages: " + names};
}

Status show(const std::string& folder, const DebugArguments& a) {
  TRY(const std::vector<Stage> stages, read_stages(folder));
  const Style style;
  if (a.json) {
    Json rows = Json::array();
    for (const Stage& s : stages)
      rows.push_back({{"file", s.file}, {"stage", s.name}, {"follows", s.follows}, {"added", s.diff.added}, {"removed", s.diff.removed}});
    put(json_text({{"folder", folder}, {"stages", rows}}));
  } else if (!a.stage.empty()) {
    TRY(const std::string text, stage_text(stages, a.stage));
    put(text);
  } else if (a.changes) {
    for (const Stage& s : stages) {
      if (s.follows) put(style.bold(s.name) + fmt::format(": +{} -{}\n", s.diff.added, s.diff.removed) + coloured(s.diff.text, style));
    }
  } else {
    put(list_text(stages));
  }
  return ok_status();
}

// Every pass verifies what it makes: a stage that is there is a valid program.
Status make(const DebugArguments& a) {
  TRY(const ZipReader zip, ZipReader::open(a.path));
  if (archive_kind(zip) == ArchiveKind::package)
    return Error{ErrorCode::bad_option, "this is a package: its stages are over", a.path,
                 "give the program that it was compiled from, or a folder of COIL_DUMP"};
  Progress silent;
  TRY(const ProgramInput program, read_input_program(zip, a.compile));
  TRY(CompileOptions options, compile_options(a.compile, silent));
  options.name = program.name;
  options.dump_folder = a.output;
  TRY([[maybe_unused]] const std::vector<uint8_t> package, compile_to_memory(with_own_pool(program.graph), options));
  if (a.inputs.none() && !a.kernels) return ok_status();
  options.dump_folder.clear();
  TRY(const WatchedBuild build, build_watched(with_own_pool(program.graph), options));
  CallInputs inputs;
  TRY_STATUS(gather_for_package(a.inputs, build.package, &inputs));
  std::error_code ignored;
  const std::string model = std::filesystem::absolute(a.path, ignored).string();
  TRY(const KernelPrograms made,
      write_kernel_programs(build, options.targets[0].architectures, inputs.views, {make_word(model), make_options(a.compile, true)}, a.output));
  std::string told;
  for (const std::string& folder : made.folders) told += fmt::format("  {}/{}: make run\n", shown(a.output), folder);
  const PartSource source{zip, program.graph, build, options, a.compile, inputs.views, model};
  for (const KernelPart& part : made.parts) {
    const Status written = write_part(source, part, a.output);
    if (written.ok()) told += fmt::format("  {}/{}: make run\n", shown(a.output), part.folder);
    else if (written.error().code == ErrorCode::unsupported_feature)
      told += fmt::format("  {} has no program of its own: {}\n", shown(part.name), shown(written.error().message));
    else return written.error();
  }
  if (!a.json) put(told);
  return ok_status();
}

Result<int> debug(const DebugArguments& a) {
  std::error_code ignored;
  if (a.path.ends_with(".txt")) {
    if (a.kernels || a.changes || !a.stage.empty())
      return Error{ErrorCode::bad_option, "--stage, --changes and --kernel-programs are for a program or a folder; this is one stage", a.path, ""};
    const StageArguments stage{a.path, a.output, a.inputs, a.compile, a.json};
    return is_plan_text(a.path) ? debug_plan(stage) : debug_stage(stage);
  }
  const bool folder = std::filesystem::is_directory(a.path, ignored);
  if (folder && (!a.output.empty() || !a.inputs.none() || a.kernels))
    return Error{ErrorCode::bad_option, "-o, -i, --shape and --kernel-programs are for a program; this is a folder", a.path, ""};
  if (!folder && !std::filesystem::exists(a.path, ignored))
    return Error{ErrorCode::file_not_found, fmt::format("'{}' does not exist", shown(a.path)), "", "check the path"};
  if (!folder && a.output.empty()) return Error{ErrorCode::bad_option, "where shall the stages go?", "", "give a folder: -o DIR"};
  if (!folder) TRY_STATUS(make(a));
  TRY_STATUS(show(folder ? a.path : a.output, a));
  return 0;
}

}  // namespace

Action add_debug(CommandLine& app) {
  auto a = std::make_shared<DebugArguments>();
  app.add_option("path", a->path,
                 "folder of COIL_DUMP, exported program, or one stage (a graph, loops or a plan) as text: it is compiled, and each kernel compared with the "
                 "reference")
      .required()
      .type_name("DIR|MODEL.pt2|STAGE.txt");
  app.add_option("-o,--output", a->output, "of a program or a stage: the folder to write").type_name("DIR");
  add_input_options(app, a->inputs);
  app.add_flag("--kernel-programs", a->kernels, "of a program: each kernel becomes a program of its own in DIR/kernels; --input and --shape say so too");
  app.add_option("--stage", a->stage, "print one stage, by its name or number, and what it changed").type_name("NAME");
  app.add_flag("--changes", a->changes, "print what each stage changed");
  add_archive_option(app, a->compile.program);
  add_compile_options(app, a->compile);
  app.add_flag("--json", a->json, "print the list of stages as JSON");
  app.footer(
      "Examples:\n"
      "  coil debug model.pt2 -o debug --kernel-programs\n"
      "  make -C debug/kernels/003_softmax_b784c542 run\n"
      "  coil debug debug --stage loops_find_attention\n"
      "  coil debug debug --changes\n"
      "  coil debug debug/04_graph_functionalize.txt     edited or not: a graph as a test case\n"
      "  coil debug debug/09_loops_lowered.txt           loops likewise\n"
      "  coil debug debug/17_plan.txt                    and a plan");
  return [a] { return debug(*a); };
}

}  // namespace coil::tool
