// coil inspect of a package: interface, kernels, memory, fusion notes.
#include <fmt/format.h>

#include <algorithm>

#include "base/cpu_limits.h"
#include "base/host_machine.h"
#include "base/text.h"
#include "decisions.h"
#include "inspect.h"
#include "shapes.h"
#include "terminal.h"

namespace coil::tool {
namespace {

constexpr uint64_t kMaxNotice = uint64_t{1} << 28;

std::string range_text(const Json& low, const Json& high) {
  return high.is_null() ? fmt::format("at least {}", integer(low)) : fmt::format("{} to {}", integer(low), integer(high));
}

// "model.py:13 (layers.0.attn): return self.fc(x)"
std::string origin_text(const Json& o) {
  std::string text = o.value("source", "");
  const std::string module = o.value("module", ""), line = o.value("line", "");
  if (!module.empty()) text += fmt::format(" ({})", module);
  if (!line.empty()) text += ": " + line;
  return text;
}

// "cpu: v3, v4; cuda: sm_90, sm_80 (needs libcuda.so.1; uses libcublasLt.so.13 if there; repeated calls as CUDA graphs)"
std::string target_text(const Json& t) {
  if (t.is_string()) return t.get<std::string>();  // of packages for the CPU only
  const std::string device = t.at("device").get<std::string>();
  std::string text = t.value("machine", device);
  const Json names = t.value(t.contains("isas") ? "isas" : "architectures", Json::array());
  if (!names.empty()) text += fmt::format(": {}", fmt::join(names.get<std::vector<std::string>>(), ", "));
  const Json needs = t.value("needs", Json::array()), uses = t.value("uses", Json::array());
  std::string libraries;
  if (!needs.empty()) libraries = fmt::format("needs {}", fmt::join(needs.get<std::vector<std::string>>(), ", "));
  if (!uses.empty()) libraries += fmt::format("{}uses {} if there", libraries.empty() ? "" : "; ", fmt::join(uses.get<std::vector<std::string>>(), ", "));
  if (t.value("graphs", false)) libraries += fmt::format("{}repeated calls as CUDA graphs", libraries.empty() ? "" : "; ");
  if (!libraries.empty()) text += fmt::format(" ({})", libraries);
  return text;
}

std::string targets_text(const Json& m) {
  std::string text;
  for (const Json& t : m.value("targets", Json::array())) text += (text.empty() ? "" : "; ") + target_text(t);
  return text;
}

std::string interface_text(const Json& m, const Style& style) {
  Table inputs, outputs, symbols;
  std::vector<std::pair<int64_t, std::vector<std::string>>> rows;
  std::vector<int64_t> fixed;
  for (const Json& f : m.value("fixed_inputs", Json::array())) {
    fixed.push_back(integer(f.at("position")));
    rows.push_back({fixed.back(), {f.at("name").get<std::string>(), "fixed", f.at("value").dump()}});
  }
  int64_t position = 0;
  for (const Json& in : m.at("inputs")) {
    while (std::find(fixed.begin(), fixed.end(), position) != fixed.end()) ++position;
    const std::string type =
        in.contains("value") ? "integer " + in["value"].get<std::string>() : in.at("dtype").get<std::string>() + shape_text(in.at("shape"));
    rows.push_back({position++, {in.at("name").get<std::string>(), type}});
  }
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [at, row] : rows) {
    row.insert(row.begin(), fmt::format("in_{}", at));
    inputs.add(std::move(row));
  }
  const std::vector<int64_t> none = m.value("none_results", std::vector<int64_t>());
  int64_t place = 0;
  for (size_t i = 0; i < m.at("outputs").size(); ++i, ++place) {
    const Json& out = m["outputs"][i];
    while (std::find(none.begin(), none.end(), place) != none.end()) outputs.add({fmt::format("out_{}", place++), "None", ""});
    outputs.add({fmt::format("out_{}", place), out.at("name").get<std::string>(), out.at("dtype").get<std::string>() + shape_text(out.at("shape"))});
  }
  while (std::find(none.begin(), none.end(), place) != none.end()) outputs.add({fmt::format("out_{}", place++), "None", ""});
  for (const Json& s : m.value("symbols", Json::array())) {
    if (is_internal(s)) continue;
    symbols.add({s.at("name").get<std::string>(), range_text(s.at("min"), s.at("max")), s.value("from_data", false) ? "known when the program has run" : ""});
  }
  std::string text = style.bold("Inputs") + "\n" + inputs.text() + style.bold("Outputs") + "\n" + outputs.text();
  if (!symbols.empty()) text += style.bold("Dynamic dimensions") + "\n" + symbols.text();
  return text;
}

Result<std::string> memory_text(const Json& m, const Style& style) {
  const Json& memory = m.at("memory");
  TRY(Sizes sizes, Sizes::read(m));
  TRY(const std::string outputs, sizes.bytes_text(m.at("outputs")));
  TRY(const std::string peak, sizes.sum_text({memory.at("arena_bytes"), Json(outputs)}));
  Table table;
  table.add({"scratch", memory.at("arena_bytes").get<std::string>(), "bytes, one block per call, kept by its context"});
  table.add({"outputs", outputs, "bytes, unless the caller brings them"});
  table.add({style.bold("peak of a call"), style.bold(peak), "bytes, the sum of both"});
  table.add({"weights", bytes_text(static_cast<uint64_t>(integer(memory.at("constants_bytes")))), "mapped from the file, shared by all processes"});
  if (integer_or_zero(memory, "again_bytes") > 0)
    table.add({"", bytes_text(static_cast<uint64_t>(integer(memory["again_bytes"]))),
               "of them weights that are stored in another form too: as a lookup and as a product reads them"});
  if (integer_or_zero(memory, "shared_bytes") > 0)
    table.add({"", bytes_text(static_cast<uint64_t>(integer(memory["shared_bytes"]))),
               "of them shared with earlier programs of the package: stored and mapped once"});
  if (integer_or_zero(memory, "state_bytes") > 0)
    table.add({"state", bytes_text(static_cast<uint64_t>(integer(memory["state_bytes"]))), "mutated buffers, one copy per loaded model"});
  return style.bold("Memory") + "\n" + table.text();
}

// The formulas for the sizes of --shape, and for the smallest, a typical and the largest.
Result<std::string> memory_examples(const Json& m, const std::vector<std::string>& shapes, const Style& style) {
  Table table(2, {1, 2, 3});
  const int workers = allowed_cpus();
  table.add({style.dim(count_text(static_cast<size_t>(workers), "worker")), "scratch", "outputs", "peak of a call"});
  const auto add = [&](const std::string& label, Sizes& sizes) -> Status {
    sizes.set_workers(workers);
    TRY(const MemoryNeed need, memory_need(m, sizes));
    table.add({label, bytes_text(static_cast<uint64_t>(need.arena)), bytes_text(static_cast<uint64_t>(need.outputs)),
               style.bold(bytes_text(static_cast<uint64_t>(need.peak())))});
    return ok_status();
  };
  TRY(Sizes asked, Sizes::read(m));
  TRY_STATUS(apply_shapes(shapes, asked));
  const auto filled = asked.fill_defaults();
  std::string label = fmt::format("{}", fmt::join(shapes, " "));
  for (const auto& [name, value] : filled) label += fmt::format("{}{}={}", label.empty() ? "" : " ", name, value);
  TRY_STATUS(add(label.empty() ? "any call" : label, asked));
  if (shapes.empty() && !asked.symbols().empty()) {
    TRY(Sizes low, Sizes::read(m));
    TRY(Sizes high, Sizes::read(m));
    bool bounded = true;
    for (const DynamicSize& s : asked.symbols()) {
      if (s.internal) continue;
      TRY_STATUS(low.set(s.name, s.min));
      bounded = bounded && s.max < (int64_t{1} << 40);
      if (bounded) TRY_STATUS(high.set(s.name, s.max));
    }
    TRY_STATUS(add("smallest", low));
    if (bounded) TRY_STATUS(add("largest", high));
  }
  return table.text();
}

std::string arena_text(const Json& m, const Style& style) {
  Table table(2);
  for (const Json& b : m.at("memory").value("arena", Json::array())) {
    table.add(
        {b.at("name").get<std::string>(), b.at("dtype").get<std::string>() + shape_text(b.at("shape")), style.dim("at " + b.at("offset").get<std::string>())});
  }
  return table.empty() ? "" : style.bold("Buffers in the scratch block") + "\n" + table.text();
}

std::string choices_listed(const Json& k) {
  const Json choices = k.value("choices", Json());
  if (!choices.is_object()) return "";
  std::vector<std::pair<int64_t, std::string>> rows;
  for (const Json& r : choices.at("rows")) {
    rows.emplace_back(r.at("up_to").is_null() ? INT64_MAX : integer(r["up_to"]), r.at("run").get<std::string>());
  }
  return choices_text(choices.at("by").get<std::string>(), rows);
}

// The kernels that a tuner has run otherwise than by their defaults; equal ones once.
std::string tuned_text(const Json& m, const Style& style) {
  std::string isa;
  for (const Json& t : m.value("targets", Json::array())) isa = t.is_object() && t.contains("tuned_for") ? t["tuned_for"].get<std::string>() : isa;
  if (isa.empty()) return "";
  Table table;
  std::vector<std::pair<std::string, std::string>> seen;
  for (const Json& k : m.at("kernels")) {
    std::pair<std::string, std::string> row = {k.at("name").get<std::string>(), choices_listed(k)};
    if (row.second.empty() || std::find(seen.begin(), seen.end(), row) != seen.end()) continue;
    seen.push_back(row);
    table.add({row.first, row.second});
  }
  return style.bold("Tuned") + fmt::format(" for {}\n", find_level(isa).level ? std::string(find_level(isa).level->full_name) : isa) +
         (seen.empty() ? "  every kernel keeps its default\n" : table.text());
}

std::string kernels_text(const Json& m, const Style& style) {
  std::string text = style.bold("Kernels") + ", in the order in which a call runs them\n";
  size_t n = 0;
  for (const Json& k : m.at("kernels")) {
    const std::string function = k.at("function").is_string() ? k["function"].get<std::string>() : k.at("name").get<std::string>();
    text += fmt::format("  {:>3}  {}  {}  {}\n", n++, style.bold(function), k.at("kind").get<std::string>(),
                        fmt::join(k.at("ops").get<std::vector<std::string>>(), ", "));
    const std::string choices = choices_listed(k);
    if (!choices.empty()) text += "         tuned: " + choices + "\n";
    if (k.contains("replaced")) text += fmt::format("         replaced: its code is that of {}\n", k["replaced"].get<std::string>());
    std::vector<std::string> seen;
    for (const Json& o : k.value("origins", Json::array())) {
      const std::string line = origin_text(o);
      if (line.empty() || std::find(seen.begin(), seen.end(), line) != seen.end()) continue;
      seen.push_back(line);
      text += "         " + style.dim(line) + "\n";
    }
  }
  return text;
}

std::string fusion_text(const Json& m, const Style& style) {
  std::string text = style.bold("Not fused") + "\n";
  for (const Json& f : m.value("not_fused", Json::array())) {
    text += fmt::format("  {} -> {}: {}\n", f.at("producer").get<std::string>(), f.at("consumer").get<std::string>(), f.at("reason").get<std::string>());
  }
  return m.value("not_fused", Json::array()).empty() ? text + "  nothing: all neighbours became one kernel\n" : text;
}

std::string entries_text(const ZipReader& zip, const Style& style) {
  Table table(2, {0});
  for (const ZipEntry& e : zip.entries()) table.add({bytes_text(e.packed_size), e.name});
  return style.bold("Entries") + "\n" + table.text();
}

// The entry that names the parts and has their terms.
Result<std::string> licenses_text(const ZipReader& zip, const Json& m) {
  const std::string entry = m.at("name").get<std::string>() + "/data/coil/NOTICE";
  if (!zip.find(entry))
    return Error{ErrorCode::bad_package, "the package does not say what it contains: it has no entry data/coil/NOTICE", zip.name(),
                 "compile the program again"};
  TRY(const ZipEntry* e, zip.get(entry));
  return zip.read_text(*e, kMaxNotice);
}

Result<Json> to_json(const ZipReader& zip, const Json& m, const InspectArguments& a) {
  Json entries = Json::array();
  for (const ZipEntry& e : zip.entries()) entries.push_back({{"name", e.name}, {"bytes", e.packed_size}});
  Json out = {{"model", a.model}, {"kind", "package"}, {"package_bytes", zip.bytes().size()}};
  out.update(m);
  TRY(Sizes sizes, Sizes::read(m));
  TRY_STATUS(apply_shapes(a.shapes, sizes));
  sizes.fill_defaults();
  for (const DynamicSize& s : sizes.symbols()) {
    if (s.internal) continue;
    TRY(out["memory"]["example"]["sizes"][s.name], sizes.evaluate(Json(s.name)));
  }
  sizes.set_workers(allowed_cpus());
  out["memory"]["example"]["workers"] = allowed_cpus();
  TRY(const MemoryNeed need, memory_need(m, sizes));
  TRY(out["memory"]["output_bytes"], sizes.bytes_text(m.at("outputs")));
  TRY(out["memory"]["peak_bytes"], sizes.sum_text({m.at("memory").at("arena_bytes"), out["memory"]["output_bytes"]}));
  out["memory"]["example"]["arena_bytes"] = need.arena;
  out["memory"]["example"]["output_bytes"] = need.outputs;
  out["memory"]["example"]["peak_bytes"] = need.peak();
  out["entries"] = entries;
  if (a.licenses) {
    TRY(out["notice"], licenses_text(zip, m));
  }
  if (a.all_sources || !a.source.empty()) {
    TRY(out["source"], source_text(zip, m, a.source, a.device_text));
  }
  return out;
}

// What differs from target to target.
Result<std::string> target_details(const Json& m, const InspectArguments& a, const Style& style) {
  TRY(std::string text, memory_text(m, style));
  if (a.memory || !a.shapes.empty()) {
    TRY(const std::string examples, memory_examples(m, a.shapes, style));
    text += examples + arena_text(m, style);
  }
  text += tuned_text(m, style);
  if (a.kernels) text += kernels_text(m, style);
  if (a.fusion) text += fusion_text(m, style);
  return text;
}

// Which programs there are, and which of them go on with each other's states.
Result<std::string> programs_text(const ZipReader& zip, const std::vector<std::string>& names, const Style& style) {
  Table table;
  std::vector<std::pair<std::string, Json>> states;  // the first program that keeps these
  for (const std::string& name : names) {
    TRY(const Json manifest, read_manifest(zip, name));
    const Json& memory = manifest.at("memory");
    const int64_t weights = integer(memory.at("constants_bytes")), shared = integer_or_zero(memory, "shared_bytes"),
                  state = integer_or_zero(memory, "state_bytes");
    std::string kept = "no state";
    if (state > 0) {
      const Json own = manifest.value("states", Json::array());
      const auto same = std::find_if(states.begin(), states.end(), [&](const auto& s) { return s.second == own; });
      kept = same == states.end() ? "state " + bytes_text(static_cast<uint64_t>(state)) : "the state of " + same->first;
      if (same == states.end()) states.emplace_back(name, own);
    }
    table.add({style.bold(name), count_text(manifest.at("kernels").size(), "kernel"),
               fmt::format("weights {}{}", bytes_text(static_cast<uint64_t>(weights)),
                           shared > 0 ? ", of which " + bytes_text(static_cast<uint64_t>(shared)) + " are an earlier program's too" : ""),
               kept});
  }
  return style.bold("Programs") + "\n" + table.text();
}

Result<int> inspect_program_of(const ZipReader& zip, const InspectArguments& a, const std::vector<std::string>& names) {
  TRY(const Json manifest, read_manifest(zip, a.program));
  TRY(const std::vector<Requirement> requirements, check_requirements(manifest, a.requirements, a.shapes));
  const int code = report_requirements(requirements);
  if (a.json) {
    TRY(Json json, to_json(zip, manifest, a));
    for (const Requirement& r : requirements) json["requirements"].push_back({{"requirement", r.text}, {"met", r.met}, {"found", r.found}});
    if (manifest.contains("program")) json["programs"] = names;
    put(json_text(json));
    return code;
  }
  if (a.all_sources || !a.source.empty()) {
    TRY(const std::string text, source_text(zip, manifest, a.source, a.device_text));
    put(text);
    return code;
  }
  if (a.licenses) {
    TRY(const std::string text, licenses_text(zip, manifest));
    put(text);
    return code;
  }
  const Json m = shown_texts(manifest);
  const Style style;
  std::string text = fmt::format("{}: package '{}' of coil {}, {}\n", style.bold(a.model), m.at("name").get<std::string>(), m.at("coil").get<std::string>(),
                                 bytes_text(zip.bytes().size()));
  text += fmt::format("  from PyTorch {}; {}; {}\n", m.value("torch", "?"), targets_text(m), count_text(m.at("kernels").size(), "kernel"));
  if (m.contains("program")) {
    TRY(const std::string programs, programs_text(zip, names, style));
    text += programs + style.bold("Program " + m["program"].get<std::string>()) + (names.size() > 1 ? "  (another one: --program NAME)" : "") + "\n";
  }
  text += interface_text(m, style);
  const Json targets = m.value("targets", Json::array());
  const bool several = targets.size() > 1 && targets[0].is_object();
  for (size_t i = 0; i < (several ? targets.size() : 1); ++i) {
    if (several) text += "\n" + style.bold("Target " + target_text(targets[i])) + "\n";
    TRY(const std::string target, target_details(several ? manifest_of_target(m, targets[i]) : m, a, style));
    text += target;
  }
  if (a.entries) text += entries_text(zip, style);
  put(text);
  return code;
}

}  // namespace

Result<int> inspect_package(const ZipReader& zip, const InspectArguments& a) {
  TRY(const std::vector<std::string> names, program_names(zip));
  return inspect_program_of(zip, a, names);
}

}  // namespace coil::tool
