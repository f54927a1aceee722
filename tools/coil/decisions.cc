#include "decisions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "base/cpu_limits.h"
#include "base/text.h"
#include "pattern.h"
#include "shapes.h"
#include "terminal.h"

namespace coil::tool {
namespace {

std::vector<std::string> ops_of(const Json& kernel) { return kernel.at("ops").get<std::vector<std::string>>(); }

bool has(const std::vector<std::string>& list, const std::string& word) { return std::find(list.begin(), list.end(), word) != list.end(); }

// "attn.q" is the end of "layers.0.attn.q".
bool ends_path(const std::string& path, const std::string& name) {
  return path == name || (path.size() > name.size() && path.ends_with(name) && path[path.size() - name.size() - 1] == '.');
}

std::string kernel_label(const Json& k) { return k.at("function").is_string() ? k["function"].get<std::string>() : k.at("name").get<std::string>(); }

Error unknown(const Json& manifest, const std::string& name) {
  std::set<std::string> ops;
  for (const Json& k : manifest.at("kernels")) {
    for (const std::string& op : ops_of(k)) ops.insert(op);
  }
  std::string some;
  for (const std::string& op : ops) {
    if (some.size() < 400) some += (some.empty() ? "" : ", ") + op;
  }
  return Error{ErrorCode::bad_option, fmt::format("no operator, module or kernel is called '{}'", shown(name)), "",
               "operators: " + shown(some) + "; `coil inspect --kernels` shows all"};
}

// The operators that a name stands for in notes about fusion: itself, or all that its kernels compute.
std::set<std::string> operators_of(const Json& manifest, const std::string& name, bool whole_kernels) {
  std::set<std::string> out;
  for (size_t i : kernels_of(manifest, name)) {
    const std::vector<std::string> ops = ops_of(manifest.at("kernels")[i]);
    if (has(ops, name) && !whole_kernels) out.insert(name);
    else out.insert(ops.begin(), ops.end());
  }
  out.insert(name);
  return out;
}

// The notes between two sets of operators, as sentences.
std::string notes_between(const Json& manifest, const std::set<std::string>& from, const std::set<std::string>& to) {
  std::string text;
  std::set<std::string> seen;
  for (const Json& n : manifest.value("not_fused", Json::array())) {
    const std::string producer = n.at("producer").get<std::string>(), consumer = n.at("consumer").get<std::string>();
    const bool forward = from.contains(producer) && to.contains(consumer), backward = to.contains(producer) && from.contains(consumer);
    const std::string line = fmt::format("{} was not fused into {}: {}.\n", shown(producer), shown(consumer), shown(n.at("reason").get<std::string>()));
    if ((forward || backward) && seen.insert(line).second) text += line;
  }
  return text;
}

std::string choices_of(const Json& k) {
  std::vector<std::pair<int64_t, std::string>> rows;
  const Json& choices = k.at("choices");
  for (const Json& r : choices.at("rows")) rows.emplace_back(r.at("up_to").is_null() ? INT64_MAX : integer(r["up_to"]), r.at("run").get<std::string>());
  return choices_text(choices.at("by").get<std::string>(), rows);
}

Result<Sizes> sizes_of(const Json& manifest, const std::vector<std::string>& shapes) {
  TRY(Sizes sizes, Sizes::read(manifest));
  TRY_STATUS(apply_shapes(shapes, sizes, "--size"));
  sizes.fill_defaults();
  sizes.set_workers(allowed_cpus());
  return sizes;
}

std::string at_sizes(const Sizes& sizes, const std::vector<std::string>& shapes) {
  if (std::all_of(sizes.symbols().begin(), sizes.symbols().end(), [](const DynamicSize& s) { return s.internal; })) return "any call";
  return shapes.empty() ? "a call of typical sizes" : fmt::format("a call with {}", fmt::join(shapes, ", "));
}

}  // namespace

bool computes(const Json& kernel, const std::string& name) {
  if (kernel.at("name") == name || kernel.at("function") == name || has(ops_of(kernel), name)) return true;
  for (const Json& o : kernel.value("origins", Json::array())) {
    if (ends_path(o.value("module", ""), name)) return true;
  }
  return false;
}

std::vector<size_t> kernels_of(const Json& manifest, const std::string& name) {
  std::vector<size_t> out;
  for (size_t i = 0; i < manifest.at("kernels").size(); ++i) {
    if (!name.empty() && computes(manifest["kernels"][i], name)) out.push_back(i);
  }
  return out;
}

namespace {

bool known_in_notes(const Json& manifest, const std::string& name) {
  for (const Json& n : manifest.value("not_fused", Json::array())) {
    if (n.at("producer") == name || n.at("consumer") == name) return true;
  }
  return false;
}

// The first kernel that computes both; -1: none does.
int shared_kernel(const Json& manifest, const std::string& a, const std::string& b) {
  for (size_t i : kernels_of(manifest, a)) {
    if (computes(manifest.at("kernels")[i], b)) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

Result<std::string> fusion_sentence(const Json& manifest, const std::string& a, const std::string& b) {
  for (const std::string& name : {a, b}) {
    if (kernels_of(manifest, name).empty() && !known_in_notes(manifest, name)) return unknown(manifest, name);
  }
  if (const int shared = shared_kernel(manifest, a, b); shared >= 0) {
    const Json& k = manifest.at("kernels")[static_cast<size_t>(shared)];
    const std::string together = fmt::format("{} and {} are one kernel, {}: it computes {}, and what goes from one to the other stays in registers.\n",
                                             shown(a), shown(b), kernel_label(k), shown(fmt::format("{}", fmt::join(ops_of(k), ", "))));
    return together + notes_between(manifest, operators_of(manifest, a, false), operators_of(manifest, b, false));  // others of the same names
  }
  for (const bool whole_kernels : {false, true}) {
    const std::string notes = notes_between(manifest, operators_of(manifest, a, whole_kernels), operators_of(manifest, b, whole_kernels));
    if (!notes.empty()) return notes;
  }
  std::string places;
  for (const std::string& name : {a, b}) {
    std::vector<std::string> labels;
    for (size_t i : kernels_of(manifest, name)) {
      if (labels.size() < 4) labels.push_back(kernel_label(manifest.at("kernels")[i]));
    }
    places +=
        fmt::format("{}{} is computed by {}", places.empty() ? "" : ", ", shown(name), labels.empty() ? "none" : fmt::format("{}", fmt::join(labels, ", ")));
  }
  return fmt::format("{} and {} are not one kernel, and were no candidates for it: neither reads the other's result alone, or at the same points ({}).\n",
                     shown(a), shown(b), places);
}

Result<std::string> choice_sentence(const Json& manifest, const std::string& kernel) {
  const std::vector<size_t> found = kernels_of(manifest, kernel);
  if (found.empty()) return unknown(manifest, kernel);
  std::string tuned;
  for (const Json& t : manifest.value("targets", Json::array())) tuned = t.is_object() ? t.value("tuned_for", tuned) : tuned;
  std::vector<std::pair<std::string, size_t>> sentences;  // and how many kernels each is about: layers that are alike share a function
  for (size_t i : found) {
    const Json& k = manifest.at("kernels")[i];
    std::string text;
    if (k.contains("replaced"))
      text += fmt::format("{} is an edited kernel: its code is that of {}.\n", kernel_label(k), shown(k["replaced"].get<std::string>()));
    if (k.contains("user"))
      text += fmt::format("{} is a user's kernel, {}, in the configuration {} of {}.\n", kernel_label(k), shown(k["user"].value("name", "")),
                          shown(k["user"].value("config", "")), integer_or_zero(k["user"], "configs"));
    if (k.contains("choices"))
      text += fmt::format("{} ({}): {}. The tuner chose so{}: it timed the variants inside of the program.\n", kernel_label(k), k.at("kind").get<std::string>(),
                          shown(choices_of(k)), tuned.empty() ? "" : " for " + tuned);
    else
      text += fmt::format("{} ({}) runs by its default rules, which go by the sizes of the call: {}.\n", kernel_label(k), k.at("kind").get<std::string>(),
                          tuned.empty() ? "the package is not tuned" : "the tuner found nothing faster");
    const auto same = std::find_if(sentences.begin(), sentences.end(), [&](const auto& s) { return s.first == text; });
    if (same == sentences.end()) sentences.emplace_back(std::move(text), 1);
    else same->second++;
  }
  std::string all;
  for (const auto& [text, times] : sentences) all += times == 1 ? text : fmt::format("{} kernels: {}", times, text);
  return all;
}

Result<std::string> size_sentences(const Json& manifest, const std::vector<std::string>& shapes) {
  TRY(Sizes sizes, sizes_of(manifest, shapes));
  TRY(const MemoryNeed need, memory_need(manifest, sizes));
  std::string text = fmt::format("{} needs {} of scratch memory and {} for its results, on {}; its inputs have {}.\n", at_sizes(sizes, shapes),
                                 bytes_text(static_cast<uint64_t>(need.arena)), bytes_text(static_cast<uint64_t>(need.outputs)),
                                 count_text(static_cast<size_t>(allowed_cpus()), "thread"), bytes_text(static_cast<uint64_t>(need.inputs)));
  for (const Json& k : manifest.at("kernels")) {
    if (!k.contains("choices")) continue;
    TRY(const int64_t key, sizes.evaluate(k["choices"].at("by")));
    for (const Json& r : k["choices"].at("rows")) {
      if (!r.at("up_to").is_null() && integer(r["up_to"]) < key) continue;
      text += fmt::format("{} runs as '{}', since {} is {}.\n", kernel_label(k), shown(r.at("run").get<std::string>()),
                          shown(k["choices"].at("by").get<std::string>()), key);
      break;
    }
  }
  return text;
}

// What is not stored row by row, and what is a copy: each reason once, with the values that it holds for.
static std::string layout_sentences(const Json& manifest) {
  constexpr size_t kNamed = 3;
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons;
  const auto add = [&](const Json& row, const std::string& name) {
    const std::string why = row.value("why", "");
    if (why.empty()) return;
    const auto found = std::find_if(reasons.begin(), reasons.end(), [&](const auto& r) { return r.first == why; });
    (found == reasons.end() ? reasons.emplace_back(why, std::vector<std::string>{}) : *found).second.push_back(name);
  };
  for (const Json& l : manifest.value("layouts", Json::array())) add(l, l.at("name").get<std::string>());
  for (const Json& k : manifest.at("kernels")) add(k, k.at("name").get<std::string>());
  std::string text;
  for (const auto& [why, names] : reasons) {
    const std::vector<std::string> some(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(names.size(), kNamed)));
    text += fmt::format("{}{}: {}.\n", shown(fmt::format("{}", fmt::join(some, ", "))),
                        names.size() > kNamed ? fmt::format(" and {} more", names.size() - kNamed) : "", shown(why));
  }
  return text.empty() ? "All tensors are stored row by row, and none is copied.\n" : "What lies in memory otherwise than row by row, and copies:\n" + text;
}

Result<std::string> memory_sentences(const Json& manifest, const std::vector<std::string>& shapes) {
  TRY(Sizes sizes, sizes_of(manifest, shapes));
  TRY(const MemoryNeed need, memory_need(manifest, sizes));
  const Json& memory = manifest.at("memory");
  std::string text = fmt::format("{} needs {} of scratch memory (the formula is {} bytes) and {} for its results: {} at its peak.\n", at_sizes(sizes, shapes),
                                 bytes_text(static_cast<uint64_t>(need.arena)), shown(memory.at("arena_bytes").get<std::string>()),
                                 bytes_text(static_cast<uint64_t>(need.outputs)), bytes_text(static_cast<uint64_t>(need.peak())));
  struct Owner {
    std::string name, type;
    int64_t bytes = 0, offset = 0;
    int times = 1;  // buffers of one kind at one place, one after the other: the scratch memory of each layer's attention
  };
  std::vector<Owner> owners;
  std::map<std::tuple<std::string, std::string, int64_t>, size_t> known;
  for (const Json& b : memory.value("arena", Json::array())) {
    Owner o{b.at("name").get<std::string>(), b.at("dtype").get<std::string>() + shape_text(b.at("shape")),
            static_cast<int64_t>(dtype_bytes_of(b.at("dtype").get<std::string>())), 0};
    for (const Json& s : b.at("shape")) {
      TRY(const int64_t n, sizes.evaluate(s));
      if (__builtin_mul_overflow(o.bytes, n, &o.bytes)) o.bytes = INT64_MAX;
    }
    TRY(o.offset, sizes.evaluate(b.at("offset")));
    const auto [same, first] = known.try_emplace({o.name, o.type, o.offset}, owners.size());
    if (first) owners.push_back(std::move(o));
    else ++owners[same->second].times;
  }
  std::stable_sort(owners.begin(), owners.end(), [](const Owner& x, const Owner& y) { return x.bytes > y.bytes; });
  if (owners.size() > 5) owners.resize(5);
  for (const Owner& o : owners)
    text += fmt::format("{} ({}) takes {} of it, at {}{}.\n", shown(o.name), shown(o.type), bytes_text(static_cast<uint64_t>(o.bytes)), o.offset,
                        o.times > 1 ? fmt::format(", {} times one after the other", o.times) : "");
  text += fmt::format("The weights have {}, which all processes share{}.\n", bytes_text(static_cast<uint64_t>(need.constants)),
                      need.state > 0 ? "; the state has " + bytes_text(static_cast<uint64_t>(need.state)) : "");
  return text + layout_sentences(manifest);
}

namespace {

Error bad_requirement(const std::string& text, const std::string& what) {
  return Error{
      ErrorCode::bad_option, fmt::format("--require '{}': {}", shown(text), what), "",
      "write it like \"kernels <= 40\", \"fused(attn.q, attn.k)\", \"not fused(a, b)\", \"kernels(softmax) == 1\", \"copies == 0\", \"peak <= 2GB\", \"scratch <= 64MiB\", \"weights <= 100MB\""};
}

// "40", "2GB", "1.5MiB".
Result<double> amount(const std::string& text, const std::string& whole) {
  const auto m = text.size() > 64 ? std::nullopt : match("[[:space:]]*([0-9]+(\\.[0-9]+)?)[[:space:]]*([A-Za-z]*)[[:space:]]*", text);
  if (!m) return bad_requirement(whole, fmt::format("'{}' is no amount", shown(text)));
  for (const auto& [unit, factor] : std::initializer_list<std::pair<const char*, double>>{
           {"", 1}, {"B", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}}) {
    if (m->at(3) == unit) return std::stod(m->at(1)) * factor;
  }
  return bad_requirement(whole, fmt::format("'{}' is no unit of memory", shown(m->at(3))));
}

bool holds(double found, const std::string& comparison, double wanted) {
  if (comparison == "<=") return found <= wanted;
  if (comparison == "<") return found < wanted;
  if (comparison == ">=") return found >= wanted;
  if (comparison == ">") return found > wanted;
  return found == wanted;
}

// What a word counts, and how it is written; nullopt: no such word.
Result<std::optional<std::pair<double, std::string>>> quantity(const Json& manifest, const std::string& word, const std::string& argument, Sizes& sizes) {
  using Found = std::optional<std::pair<double, std::string>>;
  const auto count = [](size_t n, const char* noun) { return Found({static_cast<double>(n), count_text(n, noun)}); };
  const auto bytes = [](int64_t n) { return Found({static_cast<double>(n), bytes_text(static_cast<uint64_t>(n))}); };
  const Json& kernels = manifest.at("kernels");
  if (word == "kernels") {
    Found found = count(argument.empty() ? kernels.size() : kernels_of(manifest, argument).size(), "kernel");
    if (found->first == 0 && !argument.empty()) found->second += fmt::format("; no operator, module or kernel is called '{}'", shown(argument));
    return found;
  }
  const auto rows = [&](const auto& is) { return static_cast<size_t>(std::count_if(kernels.begin(), kernels.end(), is)); };
  if (word == "copies" && argument.empty())
    return count(rows([](const Json& k) { return k.at("kind") == "copy" || ops_of(k) == std::vector<std::string>{"copy"}; }), "copy kernel");
  if (word == "replaced" && argument.empty()) return count(rows([](const Json& k) { return k.contains("replaced"); }), "replaced kernel");
  if (word == "not_fused" && argument.empty()) return count(manifest.value("not_fused", Json::array()).size(), "pair");
  TRY(const MemoryNeed need, memory_need(manifest, sizes));
  if (!argument.empty()) return Found();
  if (word == "peak") return bytes(need.peak());
  if (word == "scratch") return bytes(need.arena);
  if (word == "outputs") return bytes(need.outputs);
  if (word == "weights") return bytes(need.constants);
  if (word == "state") return bytes(need.state);
  return Found();
}

Result<Requirement> check(const Json& manifest, const std::string& text, const std::vector<std::string>& shapes) {
#define SPACE "[[:space:]]*"
#define WORDS SPACE "([^,()[:space:]]|[^,()[:space:]][^,()]*[^,()[:space:]])" SPACE
  constexpr const char* kFused = SPACE "(not[[:space:]]+)?fused" SPACE "\\(" WORDS "," WORDS "\\)" SPACE;
  constexpr const char* kAmount =
      SPACE "([a-z_]+)" SPACE "(\\(" SPACE "(|[^()[:space:]]|[^()[:space:]][^()]*[^()[:space:]])" SPACE "\\))?" SPACE "(<=|>=|==|<|>)" SPACE "(.+)";
#undef WORDS
#undef SPACE
  if (text.size() > 1000) return bad_requirement(text.substr(0, 60), "it is too long");
  if (const auto m = match(kFused, text)) {
    const std::string &negated = m->at(1), &one = m->at(2), &other = m->at(3);
    TRY(const std::string why, fusion_sentence(manifest, one, other));
    const bool fused = shared_kernel(manifest, one, other) >= 0;
    return Requirement{text, fused == negated.empty(), why.substr(0, why.find('\n'))};
  }
  const auto m = match(kAmount, text);
  if (!m) return bad_requirement(text, "it is no requirement");
  const std::string &word = m->at(1), &argument = m->at(3), &comparison = m->at(4), &limit = m->at(5);
  if (word == "time") return bad_requirement(text, "this command calls nothing; `coil explain` and `coil compile` measure times");
  TRY(Sizes sizes, sizes_of(manifest, shapes));
  TRY(const auto found, quantity(manifest, word, argument, sizes));
  if (!found) return bad_requirement(text, fmt::format("nothing is called '{}'", shown(word)));
  TRY(const double wanted, amount(limit, text));
  return Requirement{text, holds(found->first, comparison, wanted), found->second};
}

}  // namespace

Result<std::vector<Requirement>> check_requirements(const Json& manifest, const std::vector<std::string>& texts, const std::vector<std::string>& shapes) {
  std::vector<Requirement> out;
  for (const std::string& text : texts) {
    TRY(Requirement r, check(manifest, text, shapes));
    out.push_back(std::move(r));
  }
  return out;
}

int report_requirements(const std::vector<Requirement>& requirements) {
  int code = 0;
  for (const Requirement& r : requirements) {
    if (r.met) continue;
    std::fprintf(stderr, "requirement '%s' is not met: %s\n", shown(r.text).c_str(), shown(r.found).c_str());
    code = 1;
  }
  return code;
}

}  // namespace coil::tool
