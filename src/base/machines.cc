// Descriptions may come from anyone: each number has bounds within which the models' arithmetic holds.
#include "base/machines.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/host_machine.h"
#include "base/json.h"
#include "base/json_read.h"

namespace coil {
namespace {

constexpr int kFormat = 1;
constexpr int64_t kMostBytes = 1 << 20;  // of a description
constexpr int64_t kMostUnits = 1024;     // multiprocessors, threads of a program
constexpr int64_t kLeastCache = 16 << 10, kMostCache = int64_t{1} << 34;

Status only(const JsonValue& object, std::initializer_list<std::string_view> known) {
  TRY(const JsonObject members, object.as_object());
  for (const auto& [name, value] : members) {
    if (std::find(known.begin(), known.end(), name) == known.end()) return value.error(fmt::format("is not known; here are {}", fmt::join(known, ", ")));
  }
  return ok_status();
}

Result<int64_t> integer(const JsonValue& object, std::string_view key, int64_t least, int64_t most) {
  TRY(const JsonValue value, object.get(key));
  TRY(const int64_t number, value.as_int());
  if (number < least || number > most) return value.error(fmt::format("is {}, expected {} to {}", number, least, most));
  return number;
}

// What is left out stays.
Status number(const JsonValue& object, std::string_view key, double least, double most, double& out) {
  const auto value = object.find(key);
  if (!value) return ok_status();
  TRY(const double read, value->as_double());
  if (!(read >= least && read <= most)) return value->error(fmt::format("is {}, expected {} to {}", read, least, most));
  out = read;
  return ok_status();
}

Status read_parts(const JsonValue& object, CudaMachine& m) {
  const auto value = object.find("parts");
  if (!value) return ok_status();
  TRY(const JsonArray parts, value->as_array());
  if (parts.empty() || parts.size() > static_cast<size_t>(kMostChipParts))
    return value->error(fmt::format("has {} parts, expected 1 to {}", parts.size(), kMostChipParts));
  m.parts = {};
  for (size_t i = 0; i < parts.size(); ++i) {
    TRY(const int64_t part, parts[i].as_int());
    if (part < 1 || part > kMostUnits) return parts[i].error(fmt::format("is {}, expected 1 to {}", part, kMostUnits));
    m.parts[i] = static_cast<int>(part);
  }
  if (std::accumulate(m.parts.begin(), m.parts.end(), 0) == m.multiprocessors) return ok_status();
  return value->error(fmt::format("does not add up to the {} multiprocessors", m.multiprocessors));
}

// "sm_90"; 0: it is none.
int architecture_number(std::string_view text) {
  int sm = 0;
  if (!text.starts_with("sm_")) return 0;
  const auto [end, problem] = std::from_chars(text.data() + 3, text.data() + text.size(), sm);
  return problem == std::errc() && end == text.data() + text.size() && sm >= kCudaMachines[0].sm && sm < 1000 ? sm : 0;
}

Result<CpuMachine> read_cpu_machine(const JsonValue& object) {
  TRY_STATUS(only(object, {"architecture", "name", "own_cache_bytes", "shared_cache_bytes", "threads"}));
  CpuMachine m{};
  TRY(m.own_cache, integer(object, "own_cache_bytes", kLeastCache, kMostCache));
  TRY(m.shared_cache, integer(object, "shared_cache_bytes", kLeastCache, kMostCache));
  TRY(const int64_t threads, integer(object, "threads", 1, kMostUnits));
  m.workers = static_cast<int>(threads);
  return m;
}

Status add_machine(const JsonValue& object, Machines& machines) {
  TRY(const JsonValue architecture, object.get("architecture"));
  TRY(const std::string_view name, architecture.as_string());
  if (architecture_number(name) > 0) {
    TRY(const CudaMachine m, read_cuda_machine(object));
    if (machines.gpu(m.sm)) return architecture.error(fmt::format("describes {} a second time", name));
    machines.gpus.push_back(m);
    return ok_status();
  }
  if (!machine_named(name)) return architecture.error(fmt::format("is '{}', expected x86-64, aarch64 or a GPU's such as sm_90", name));
  TRY(const CpuMachine m, read_cpu_machine(object));
  if (!machines.cpus.emplace(name, m).second) return architecture.error(fmt::format("describes {} a second time", name));
  return ok_status();
}

Result<Machines> machines_of(const JsonValue& root) {
  TRY_STATUS(only(root, {"coil_machines", "machines"}));
  TRY([[maybe_unused]] const int64_t format, integer(root, "coil_machines", kFormat, kFormat));
  TRY(const JsonArray all, root.get_array("machines"));
  Machines machines;
  for (const JsonValue object : all) TRY_STATUS(add_machine(object, machines));
  if (machines.empty()) return root.error("describes no machine");
  return machines;
}

}  // namespace

const CpuMachine* Machines::cpu(std::string_view name) const {
  const auto found = cpus.find(name);
  return found == cpus.end() ? nullptr : &found->second;
}

const CudaMachine* Machines::gpu(int sm) const {
  const auto found = std::find_if(gpus.begin(), gpus.end(), [&](const CudaMachine& m) { return m.sm == sm; });
  return found == gpus.end() ? nullptr : &*found;
}

Json machine_json(std::string_view architecture, const CpuMachine& m, const std::string& name) {
  return {{"architecture", architecture}, {"name", name}, {"own_cache_bytes", m.own_cache}, {"shared_cache_bytes", m.shared_cache}, {"threads", m.workers}};
}

Json machine_json(const CudaMachine& m, const std::string& name) {
  Json j = {{"architecture", fmt::format("sm_{}", m.sm)}, {"name", name}, {"multiprocessors", m.multiprocessors}};
  for (const int part : m.parts) {
    if (part > 0) j["parts"].push_back(part);
  }
  j.update({{"clock_ghz", m.clock}, {"memory_gb_s", m.memory}, {"f32_per_clock", m.f32}, {"f64_per_clock", m.f64}, {"half_per_clock", m.half}});
  return j;
}

std::string machines_text(Json machines) { return Json{{"coil_machines", kFormat}, {"machines", std::move(machines)}}.dump(1) + "\n"; }

Result<CudaMachine> read_cuda_machine(const JsonValue& object) {
  TRY_STATUS(
      only(object, {"architecture", "name", "multiprocessors", "parts", "clock_ghz", "memory_gb_s", "f32_per_clock", "f64_per_clock", "half_per_clock"}));
  TRY(const std::string_view architecture, object.get_string("architecture"));
  const int sm = architecture_number(architecture);
  if (sm == 0) return object.error(fmt::format("is of '{}', expected a GPU's architecture such as sm_90", architecture));
  TRY(const int64_t multiprocessors, integer(object, "multiprocessors", 1, kMostUnits));
  CudaMachine m = with_multiprocessors(cuda_machine(sm), static_cast<int>(multiprocessors));
  TRY_STATUS(read_parts(object, m));
  TRY_STATUS(number(object, "clock_ghz", 0.1, 10, m.clock));
  TRY_STATUS(number(object, "memory_gb_s", 1, 1e6, m.memory));
  TRY_STATUS(number(object, "f32_per_clock", 1, 1e5, m.f32));
  TRY_STATUS(number(object, "f64_per_clock", 1, 1e5, m.f64));
  TRY_STATUS(number(object, "half_per_clock", 1, 1e5, m.half));
  return m;
}

Result<Machines> parse_machines(std::string_view text, const std::string& name) {
  const auto read = [&]() -> Result<Machines> {
    TRY(const JsonDoc doc, JsonDoc::parse(text, name, {.max_depth = 16, .max_bytes = kMostBytes}));
    return machines_of(doc.root());
  };
  Result<Machines> machines = read();
  if (machines.ok()) return machines;
  return Error{ErrorCode::bad_option, "this is no description of machines: " + machines.error().message, "", "`coil machine > FILE` writes one"};
}

}  // namespace coil
