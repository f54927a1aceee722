// See report.h.
#include "report/report.h"

#include <algorithm>
#include <map>
#include "base/json.h"

#include "base/size_formula.h"
#include "report/advice.h"
#include "report/package_text.h"
#include "report/pairs.h"
#include "runtime/model.h"

namespace coil::report {
namespace {

constexpr uint64_t kMaxText = uint64_t{1} << 28;
constexpr std::string_view kSourceFolder = "/data/coil/src/";

Error bad(const runtime::Model& model, const std::string& what) {
  return Error{ErrorCode::bad_package, "data/coil/manifest.json: " + what, model.archive().name(), "compile the program again"};
}

// The sizes of the calls, by name.
struct SizesOfCall {
  std::vector<std::string> names;
  std::vector<int64_t> values;
  // A number or a formula; nothing when it says nothing.
  std::optional<double> of(const Json& amount) const {
    if (amount.is_number()) return amount.get<double>();
    return amount.is_string() ? evaluate_formula(amount.as_string(), names, values) : std::nullopt;
  }
};

double element_bytes(const std::string& dtype) {
  static const std::map<std::string, double> kBytes = {{"f64", 8},   {"i64", 8},     {"f32", 4},      {"i32", 4},   {"f16", 2},
                                                       {"bf16", 2},  {"i16", 2},     {"float64", 8},  {"int64", 8}, {"float32", 4},
                                                       {"int32", 4}, {"float16", 2}, {"bfloat16", 2}, {"int16", 2}};
  const auto found = kBytes.find(dtype);
  return found == kBytes.end() ? 1 : found->second;
}

class Reporter {
 public:
  Reporter(const runtime::Model& model, const runtime::Profile& profile, const Limits& limits, const ReportOptions& options)
      : model_(model), profile_(profile), limits_(limits), options_(options) {}

  Result<Json> run() {
    TRY_STATUS(read_manifest());
    read_profile();
    Json out = {{"report", 1}, {"coil", COIL_VERSION}, {"title", options_.title}};
    for (const char* key : {"name", "torch", "targets", "inputs", "outputs", "symbols"}) out[key] = manifest_.value(key, Json());
    for (const char* key : {"inputs", "outputs"}) {  // their buffers' numbers are the target's
      const Json ids = part_.at("memory").value(key, Json::array());
      for (size_t i = 0; i < ids.size() && i < out[key].size(); ++i) {
        if (ids[i].is_number_integer()) out[key][i]["buffer"] = ids[i];
      }
    }
    out["package_bytes"] = model_.archive().bytes().size();
    out["constants_bytes"] = part_.at("memory").value("constants_bytes", 0);
    out["call"] = call_;
    out["limits"] = Json::parse(limits_json(limits_));
    TRY(out["kernels"], kernels());
    TRY(out["sources"], sources(&out["kernels"]));
    out["not_fused"] = fusion();
    out["memory"] = memory();
    out["layouts"] = layouts();
    out["advice"] = advice_of(out);
    return out;
  }

 private:
  Status read_manifest() {
    const ZipReader& zip = model_.archive();
    TRY(const ZipEntry* entry, zip.get(model_.package().manifest_entry));
    TRY(manifest_, package_text(zip, *entry));
    if (!manifest_.is_object() || !manifest_.contains("kernels")) return bad(model_, "it is not what coil writes");
    part_ = manifest_;
    for (const Json& target : manifest_.value("targets", Json::array())) {  // a later target has its own kernels and memory
      if (target.is_object() && target.value("model", "") == model_.target().model && target.contains("kernels")) part_.update(target);
    }
    return ok_status();
  }

  void read_profile() {
    const Json all = Json::parse(profile_.table_json(&model_));
    call_ = all.at("models").empty() ? Json::object() : all["models"][0];
    if (all.contains("counters")) call_["counters"] = all["counters"];
    for (const Json& k : call_.value("kernels", Json::array())) times_[k.at("kernel").get<int>()] = k;
    call_.erase("kernels");
    for (const Json& s : part_.value("symbols", Json::array())) sizes_.names.push_back(s.at("name").get<std::string>());
    for (const std::string& name : sizes_.names) sizes_.values.push_back(call_.value("sizes", Json::object()).value(name, int64_t{0}));
    sizes_.names.emplace_back("workers");
    sizes_.values.push_back(std::max(model_.host().num_workers, 1));
  }

  Result<Json> kernels() {
    std::map<std::string, Json> tuned;
    TRY_STATUS(read_record(&tuned));
    Json rows = Json::array();
    for (const Json& k : part_.at("kernels")) {
      Json row = k;
      const int number = static_cast<int>(rows.size());
      row["n"] = number;
      row.erase("bytes"), row.erase("flops");
      for (const char* key : {"reads", "writes"}) {
        if (k.contains(key)) row[key] = buffer_numbers(k[key]);
      }
      if (k.contains("choices")) row["variant"] = variant(k["choices"]);
      if (const auto found = times_.find(number); found != times_.end()) add_times(found->second, &row);
      if (const auto found = tuned.find(k.value("name", "")); found != tuned.end()) row["tuned"] = found->second;
      rows.push_back(std::move(row));
    }
    return rows;
  }

  void add_times(const Json& times, Json* row) const {
    for (const char* key :
         {"us", "least_us", "median_us", "share", "launches", "bytes", "flops", "gb_s", "gflop_s", "threads_us", "cycles", "instructions", "cache_misses"}) {
      if (times.contains(key)) (*row)[key] = times[key];
    }
    if (!times.contains("bytes")) return;
    const double launches = std::max(times.value("launches", 1.0), 1e-9), flops = times.value("flops", 0.0);
    const Roof roof = roof_of(limits_, times["bytes"].get<double>() / launches, flops / launches);
    if (roof.us > 0) (*row)["roof_us"] = roof.us * launches, (*row)["bound"] = roof.bound;
  }

  // What a tuner's table says for these sizes.
  std::string variant(const Json& choices) const {
    const auto key = sizes_.of(choices.at("by"));
    for (const Json& r : choices.at("rows")) {
      if (r.at("up_to").is_null() || (key && *key <= r["up_to"].get<double>())) return r.at("run").get<std::string>();
    }
    return "";
  }

  // Of the tuning record: for the name of a kernel, what its variants took.
  Status read_record(std::map<std::string, Json>* tuned) const {
    if (options_.record.empty()) return ok_status();
    const Json record = Json::try_parse(options_.record).value_or(Json());
    const Error wrong{ErrorCode::tuning_record, "the tuning record is not one: it has no list of problems", "", "name a file that --record wrote"};
    if (!record.is_object() || !record.contains("problems") || !record["problems"].is_array()) return wrong;
    for (const Json& e : record["problems"]) {
      if (!e.is_object() || !e.contains("kernel") || !e["kernel"].is_string()) return wrong;
      tuned->emplace(e["kernel"].get<std::string>(), e.value("measured", Json::array()));
    }
    return ok_status();
  }

  // Tensors that kernels hand to one another through memory.
  std::map<int, StoredTensor> stored() const {
    std::map<int, StoredTensor> found;
    const Json outputs = manifest_.value("outputs", Json::array()), ids = part_.at("memory").value("outputs", Json::array());
    for (size_t i = 0; i < std::min(outputs.size(), ids.size()); ++i) {
      const auto bytes = outputs[i].is_object() ? bytes_of(outputs[i]) : std::nullopt;
      if (bytes && ids[i].is_number_integer()) found[ids[i].get<int>()] = {"", *bytes, true};
    }
    for (const Json& b : part_.at("memory").value("arena", Json::array())) {
      const auto bytes = bytes_of(b);
      if (bytes && b.contains("buffer")) found[b["buffer"].get<int>()] = {b.value("name", ""), *bytes, false};
    }
    return found;
  }

  // Fusing a pair would spare writing the producer's result, if nobody else needs it, and reading it again.
  Json fusion() const {
    const Pairs pairs(part_.at("kernels"), stored());
    Json rows = Json::array();
    for (const Json& n : part_.value("not_fused", Json::array())) {
      Json row = n;
      const auto bytes = pairs.spared(n.value("producer", ""), n.value("consumer", ""));
      if (bytes && *bytes == 0) row["within"] = true;
      if (bytes && *bytes > 0 && limits_.memory_gb_s > 0) {
        const double rate = *bytes < limits_.cache_bytes && limits_.cache_gb_s > 0 ? limits_.cache_gb_s : limits_.memory_gb_s;
        row["bytes"] = *bytes, row["saves_us"] = *bytes / rate / 1e3;
      }
      rows.push_back(std::move(row));
    }
    return rows;
  }

  std::optional<double> bytes_of(const Json& buffer) const {
    double elements = 1;
    for (const Json& size : buffer.value("shape", Json::array())) {
      const auto value = sizes_.of(size.is_string() && is_number(size.as_string()) ? Json(std::stod(size.get<std::string>())) : size);
      if (!value) return std::nullopt;
      elements *= *value;
    }
    return elements * element_bytes(buffer.value("dtype", ""));
  }
  static bool is_number(const std::string& text) {
    return !text.empty() && text.size() < 18 && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  }

  // Each buffer of the scratch block: where, how large, from which kernel to which it is needed.
  Json memory() const {
    std::map<int, std::pair<int, int>> lives;
    int number = 0;
    for (const Json& k : part_.at("kernels")) {
      for (const char* key : {"writes", "reads"}) {
        for (const int id : buffer_numbers(k.value(key, Json("")))) {
          const auto [at, added] = lives.try_emplace(id, number, number);
          at->second.second = number;
        }
      }
      ++number;
    }
    Json rows = Json::array();
    for (const Json& b : part_.at("memory").value("arena", Json::array())) {
      const auto bytes = bytes_of(b);
      const auto offset = sizes_.of(b.at("offset"));
      if (!bytes || !offset) continue;
      Json row = {
          {"name", b.value("name", "")}, {"dtype", b.value("dtype", "")}, {"shape", b.value("shape", Json::array())}, {"bytes", *bytes}, {"offset", *offset}};
      if (b.contains("buffer")) {
        row["buffer"] = b["buffer"];
        if (const auto life = lives.find(b["buffer"].get<int>()); life != lives.end()) row["from"] = life->second.first, row["to"] = life->second.second;
      }
      rows.push_back(std::move(row));
    }
    return {{"arena_formula", part_.at("memory").value("arena_bytes", "")},
            {"arena_bytes", sizes_.of(part_.at("memory").at("arena_bytes")).value_or(0)},
            {"buffers", rows}};
  }

  // Why values lie in memory as they do, and what is a copy, each with the kernel that writes it.
  Json layouts() const {
    std::map<int, int> writer;
    int number = 0;
    for (const Json& k : part_.at("kernels")) {
      for (const int id : buffer_numbers(k.value("writes", Json("")))) writer.try_emplace(id, number);
      ++number;
    }
    Json rows = Json::array();
    for (const Json& l : part_.value("layouts", Json::array())) {
      Json row = l;
      if (const auto found = writer.find(l.at("buffer").get<int>()); found != writer.end()) row["kernel"] = found->second;
      rows.push_back(std::move(row));
    }
    return rows;
  }

  Result<Json> sources(Json* kernels) const {
    Json files = Json::object();
    const ZipReader& zip = model_.archive();
    const std::string folder = std::string(kSourceFolder) + (model_.package().several ? model_.package().program + "/" : "");
    for (const ZipEntry& e : zip.entries()) {
      const size_t at = e.name.find(folder);
      if (at == std::string::npos) continue;
      TRY(files[e.name.substr(at + folder.size())], zip.read_text(e, kMaxText));
    }
    for (const auto& [name, text] : files.items()) {
      if (name.starts_with("host")) add_calls(text.as_string(), kernels);
    }
    return functions_of(files);
  }

  // What the host program does to call a kernel: the block around its mark.
  static void add_calls(const std::string& host, Json* kernels) {
    for (Json& row : *kernels) {
      const size_t at = host.find("COIL_BEGIN(" + std::to_string(row["n"].get<int>()) + ", ");
      const size_t begin = at == std::string::npos ? at : host.rfind("\n  {  //", at), end = at == std::string::npos ? at : host.find("\n  }\n", at);
      if (begin != std::string::npos && end != std::string::npos) row["call"] = host.substr(begin + 1, end + 4 - begin);
    }
  }

  // The functions that kernels name, each from the comment above it to its closing brace; the host's block of each kernel is in host.cc, or one of the files
  // after it.
  Json functions_of(const Json& files) const {
    Json functions = Json::object();
    for (const Json& k : part_.at("kernels")) {
      const Json name = k.value("function", Json());
      if (!name.is_string() || functions.contains(name.get<std::string>())) continue;
      for (const auto& [file, content] : files.items()) {
        const std::string& text = content.as_string();
        const size_t at = text.find("COIL_NAME(" + name.get<std::string>() + ")(");
        if (at == std::string::npos) continue;
        const size_t before = text.rfind("\n\n", at), begin = before == std::string::npos ? 0 : before + 2, end = text.find("\n}\n", at);
        functions[name.get<std::string>()] = {{"file", file}, {"text", text.substr(begin, end == std::string::npos ? std::string::npos : end + 3 - begin)}};
        break;
      }
    }
    return functions;
  }

  const runtime::Model& model_;
  const runtime::Profile& profile_;
  const Limits& limits_;
  const ReportOptions& options_;
  Json manifest_, part_, call_;
  std::map<int, Json> times_;
  SizesOfCall sizes_;
};

}  // namespace

Result<std::string> report_json(const runtime::Model& model, const runtime::Profile& profile, const Limits& limits, const ReportOptions& options) {
  try {
    TRY(const Json json, Reporter(model, profile, limits, options).run());
    return json.dump();
  } catch (const Json::Exception& e) {  // a member of another kind than coil writes
    return bad(model, e.what());
  }
}

}  // namespace coil::report
