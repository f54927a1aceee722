// coil explain: what a compilation decided and why, in sentences.
#include <fmt/format.h>

#include <memory>

#include "base/text.h"
#include "command.h"
#include "decisions.h"
#include "load_model.h"
#include "measured.h"
#include "report/slow.h"
#include "terminal.h"
#include "time_requirement.h"

namespace coil::tool {
namespace {

struct ExplainArguments {
  std::string model;
  std::vector<std::string> fusion, choices, shapes, requirements;
  MeasureArguments measure;  // its compile is how a program is compiled
  TimeRecord record;
  bool memory = false, json = false, why_slow = false;
};

// The manifest of a package, or of what a program compiles to.
Result<Json> manifest_of(const ExplainArguments& a) {
  TRY(const ZipReader zip, ZipReader::open(a.model));
  if (archive_kind(zip) == ArchiveKind::package) return read_manifest(zip, a.measure.compile.program);
  return manifest_of_program(zip, a.measure.compile);
}

// Which of several programs it is about, where nobody said so.
Result<std::string> which_program(const ExplainArguments& a) {
  TRY(const ZipReader zip, ZipReader::open(a.model));
  if (archive_kind(zip) != ArchiveKind::package || !a.measure.compile.program.empty()) return std::string();
  TRY(const std::vector<std::string> names, program_names(zip));
  return names.size() < 2 ? std::string()
                          : fmt::format("Of {} programs ({}) this is about {}; --program chooses.\n", names.size(),
                                        shown(fmt::format("{}", fmt::join(names, ", "))), shown(names[0]));
}

Result<std::string> slow_sentences(const ExplainArguments& a) {
  MeasureArguments measure = a.measure;
  measure.inputs.shapes = a.shapes;
  TRY(const std::string text, measured_report(measure, a.model));
  std::string sentences;
  for (const std::string& s : report::why_slow(Json::parse(text))) sentences += shown(s) + "\n";
  return sentences;
}

// What there is to ask about.
std::string overview(const Json& m) {
  if (m.value("not_fused", Json::array()).empty())
    return count_text(m.at("kernels").size(), "kernel") + ": no two of them compute what one kernel could have computed.\n";
  std::string text = fmt::format("{} with {} between kernels that could have been fused and were not.\n", count_text(m.at("kernels").size(), "kernel"),
                                 count_text(m.value("not_fused", Json::array()).size(), "pair"));
  for (const Json& n : m.value("not_fused", Json::array()))
    text += fmt::format("{} was not fused into {}: {}.\n", shown(n.at("producer").get<std::string>()), shown(n.at("consumer").get<std::string>()),
                        shown(n.at("reason").get<std::string>()));
  return text;
}

Result<int> explain(const ExplainArguments& a) {
  TRY(const Json manifest, manifest_of(a));
  TRY(std::string about, which_program(a));
  std::string text;
  const auto add = [&](Result<std::string> more) -> Status {
    if (!more.ok()) return more.error();
    text += more.value();
    return ok_status();
  };
  if (!a.fusion.empty()) TRY_STATUS(add(fusion_sentence(manifest, a.fusion[0], a.fusion[1])));
  for (const std::string& kernel : a.choices) TRY_STATUS(add(choice_sentence(manifest, kernel)));
  if (a.why_slow) TRY_STATUS(add(slow_sentences(a)));
  if (!a.shapes.empty() && !a.why_slow) TRY_STATUS(add(size_sentences(manifest, a.shapes)));
  if (a.memory) TRY_STATUS(add(memory_sentences(manifest, a.shapes)));
  const Parted parted = part_requirements(a.requirements);
  TRY(std::vector<Requirement> requirements, check_requirements(manifest, parted.others, a.shapes));
  MeasureArguments measure = a.measure;
  measure.inputs.shapes = a.shapes;
  TRY(const std::vector<Requirement> times, check_times(a.model, measure, parted.times, a.record));
  requirements.insert(requirements.end(), times.begin(), times.end());
  if (text.empty() && a.requirements.empty()) text = overview(manifest);
  if (a.json) {
    Json rows = Json::array();
    for (const Requirement& r : requirements) rows.push_back({{"requirement", r.text}, {"met", r.met}, {"found", r.found}});
    put(json_text({{"model", a.model}, {"text", text}, {"requirements", rows}}));
  } else {
    for (const Requirement& r : requirements) {
      if (r.met) text += fmt::format("requirement '{}' is met: {}\n", shown(r.text), shown(r.found));
    }
    put(about + text);
  }
  return report_requirements(requirements);
}

}  // namespace

Action add_explain(CommandLine& app) {
  auto a = std::make_shared<ExplainArguments>();
  app.add_option("model", a->model, "package, or exported program (compiled in memory first)").required().type_name("MODEL");
  app.add_option("--fusion", a->fusion, "why two operators are one kernel, or are not: names of operators, modules or kernels").values(2, 2).type_name("A B");
  app.add_option("--choice", a->choices, "how a kernel is run, and who decided it").one_each().type_name("KERNEL");
  app.add_option("--size,--shape", a->shapes, "what a call of this size needs, and how it is run: batch=64").one_each().type_name("DIM=SIZE");
  app.add_flag("--memory", a->memory, "what the memory of a call holds");
  app.add_option("--require", a->requirements,
                 "what has to hold, such as \"kernels <= 40\", \"fused(attn.q, attn.k)\", \"peak <= 2GB\"; exit code 1 where it does not")
      .one_each()
      .type_name("CONDITION");
  app.add_flag(
      "--why-slow", a->why_slow,
      "what a call's time is made of, and what bounds the busiest kernels: of calls that are made here (with --input or --size, random inputs otherwise)");
  app.add_option("-i,--input", a->measure.inputs.files, "inputs of the calls, as for `coil run`").one_each().type_name("FILE");
  app.add_option("--times", a->measure.record, "a tuning record (--record of `coil compile`): what the variants of each kernel took").type_name("FILE");
  app.add_option("--time-record", a->record.path, "the record that \"time <= 1.2 * record\" compares with; default: MODEL.times.json beside the model")
      .type_name("FILE");
  app.add_flag("--update-times", a->record.update, "write the times that are measured into that record");
  add_device_option(app, a->measure.device);
  add_program_option(app, a->measure.compile.program);
  add_threads_option(app, a->measure.threads, "threads of a call; default: all that this process may use");
  add_compile_options(app, a->measure.compile);
  app.add_flag("--json", a->json, "print the sentences and requirements as JSON");
  app.footer(
      "Examples:\n"
      "  coil explain model.coil.pt2\n"
      "  coil explain model.coil.pt2 --fusion layer_norm linear\n"
      "  coil explain model.coil.pt2 --choice conv2d --size batch=64 --memory\n"
      "  coil explain model.coil.pt2 --require \"kernels <= 40\" --require \"peak <= 2GB\"\n"
      "  coil explain model.coil.pt2 --why-slow --input inputs.npz\n"
      "  coil explain model.coil.pt2 --require \"time(batch=1) <= 1.2 * record\"\n"
      "Everything comes from what the compilation recorded, and from calls where times are asked for; nothing is decided again.");
  return [a] { return of_manifest(a->model, [&] { return explain(*a); }); };
}

}  // namespace coil::tool
