#include "compiler/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/env.h"
#include "base/files.h"
#include "compiler/device_files.h"
#include "compiler/target.h"
#include "compiler/this_machine.h"
#include "compiler/without.h"
#include "frontend/user_kernels.h"

namespace coil {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

namespace {

// "a,b" is two items.
std::vector<std::string> split_all(const std::vector<std::string>& items) {
  std::vector<std::string> all;
  for (const std::string& item : items) {
    for (std::string& part : split(item, ',')) all.push_back(std::move(part));
  }
  return all;
}

Error bad(const std::string& message, const std::string& hint = "") { return Error{ErrorCode::bad_option, message, "", hint}; }

// "30s", "2m", "500ms", "30": seconds.
Result<double> duration(const std::string& text) {
  size_t end = 0;
  double value = -1;
  try {
    value = std::stod(text, &end);
  } catch (const std::exception&) {}
  const std::string unit = text.substr(std::min(end, text.size()));
  const double factor = unit == "ms" ? 1e-3 : unit == "s" || unit.empty() ? 1 : unit == "m" ? 60 : -1;
  if (!(value > 0) || factor < 0 || !(value * factor < 1e7)) return bad(fmt::format("'{}' is no duration", text), "write it like 30s, 2m or 500ms");
  return value * factor;
}

}  // namespace

Result<uint64_t> memory_size(const std::string& text) {
  uint64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  uint64_t factor = 0;
  for (const auto& [name, bytes] : std::initializer_list<std::pair<std::string_view, uint64_t>>{
           {"", 1}, {"B", 1}, {"KB", 1000}, {"MB", 1000'000}, {"GB", 1000'000'000}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}}) {
    if (unit == name) factor = bytes;
  }
  uint64_t bytes = 0;
  if (problem != std::errc() || factor == 0 || value == 0 || __builtin_mul_overflow(value, factor, &bytes))
    return bad(fmt::format("'{}' is no amount of memory", text), "write it like 64MB or 1GiB");
  return bytes;
}

namespace {

Result<std::vector<int64_t>> numbers(const std::string& text) {
  std::vector<int64_t> out;
  for (const std::string& part : split(text, ',')) {
    int64_t v = 0;
    const auto [end, problem] = std::from_chars(part.data(), part.data() + part.size(), v);
    if (problem != std::errc() || end != part.data() + part.size() || v < 1) return bad(fmt::format("'{}' is no list of sizes", text));
    out.push_back(v);
  }
  if (out.empty()) return bad("a list of sizes is empty");
  return out;
}

Result<tune::Record> read_record(const std::string& path) {
  TRY(const std::string text, read_text_file(path, uint64_t{1} << 28));
  return tune::parse_record(text, path);
}

Status read_tuning(const CompileSettings& s, CompileOptions& options) {
  TuneOptions& t = options.tune;
  if (s.tune != "off" && s.tune != "fast" && s.tune != "max") return bad(fmt::format("there is no tuning '{}'", s.tune), "off, fast or max");
  t.mode = s.tune == "fast" ? TuneOptions::Mode::fast : s.tune == "max" ? TuneOptions::Mode::max : TuneOptions::Mode::off;
  const bool tunes = t.mode != TuneOptions::Mode::off;
  if ((tunes || !s.replay.empty()) && options.targets.size() > 1) {
    std::vector<std::string_view> names;
    for (const TargetChoice& choice : options.targets) names.push_back(choice.target->names.name);
    return bad("tuning, and a record of it, is of one device", fmt::format("compile for {} apart", fmt::join(names, " and for ")));
  }
  if (tunes) TRY_STATUS(options.targets[0].target->check_tuning(options.targets[0].architectures));
  if (!tunes && (!s.tune_budget.empty() || !s.warm.empty() || !s.record.empty() || !s.tune_memory.empty() || s.tune_threads > 0))
    return bad("a tuning budget, threads, memory, sizes to warm or a record to write need a tuner", "add --tune fast or --tune max");
  if (tunes && !s.replay.empty()) return bad("a record is replayed without tuning", "leave out --tune or --replay");
  if (s.tune_threads < 0 || s.tune_threads > kMostThreads)
    return bad(fmt::format("the number of threads is {}, expected 1 to {}", s.tune_threads, kMostThreads));
  t.threads = s.tune_threads;
  if (!s.tune_budget.empty()) {
    TRY(t.seconds, duration(s.tune_budget));
  }
  if (!s.tune_memory.empty()) {
    TRY(t.memory, memory_size(s.tune_memory));
  }
  for (const std::string& item : s.warm) {
    const size_t at = item.find('=');
    if (at == std::string::npos || at == 0) return bad(fmt::format("--warm '{}' is not of the form NAME=SIZE,SIZE", item));
    TRY(std::vector<int64_t> sizes, numbers(item.substr(at + 1)));
    auto& list = t.warm[item.substr(0, at)];
    list.insert(list.end(), sizes.begin(), sizes.end());
  }
  if (!s.replay.empty()) {
    TRY(t.replay, read_record(s.replay));
    if (t.replay->untimed) {
      return Error{ErrorCode::tuning_record, "nothing in this record was timed: it was written on a machine without a device", s.replay,
                   "tune with it on a machine with one: --tune ... --record " + s.replay};
    }
  }
  std::error_code ignored;
  if (!s.record.empty() && std::filesystem::exists(s.record, ignored)) {
    TRY(t.known, read_record(s.record));
  }
  return ok_status();
}

}  // namespace

Status save_record(const std::string& path, tune::Record record) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) {
    TRY(const tune::Record before, read_record(path));
    if (record.untimed && !before.untimed) return ok_status();  // what was timed is worth more
    TRY_STATUS(tune::merge(record, before));
  }
  return write_file(path, std::string_view(tune::record_text(record)));
}

Result<UserKernels> user_kernels(const std::vector<std::string>& registrations, const std::vector<std::string>& paths) {
  UserKernels out;
  const auto nothing = [](const std::string& file) -> Result<std::string> {
    return Error{ErrorCode::user_kernel, fmt::format("'{}': this registration holds its texts itself, it names no files", file), "",
                 "give the text as \"text\""};
  };
  const auto add = [&](Result<UserKernels> found) -> Status {
    if (!found.ok()) return std::move(found).error();
    out.insert(out.end(), found.value().begin(), found.value().end());
    return ok_status();
  };
  for (const std::string& text : registrations) TRY_STATUS(add(parse_user_kernels(text, "the registration of a user kernel", nothing)));
  for (const std::string& path : paths) TRY_STATUS(add(read_user_kernels(path)));
  TRY_STATUS(check_names(out));
  return out;
}

namespace {

// As PyTorch on this machine packs and reads.
Int4Block int4_block() {
  const std::string chosen = env("ATEN_CPU_CAPABILITY").value_or("");
  const bool avx512 = __builtin_cpu_supports("x86-64-v4"), avx2 = __builtin_cpu_supports("x86-64-v3");
  if (chosen == "default" || !avx2) return {32, false};
  if (chosen == "avx2" || !avx512) return {32, true};
  return {64, true};
}

}  // namespace

static Result<std::vector<KernelReplacement>> kernel_replacements(const std::vector<std::string>& items) {
  std::vector<KernelReplacement> out;
  for (const std::string& item : items) {
    const size_t at = item.find('=');
    if (at == std::string::npos || at == 0 || at + 1 == item.size()) return bad(fmt::format("--replace-kernel '{}' is not of the form NAME=FILE", item));
    KernelReplacement r{item.substr(0, at), item.substr(at + 1), "", ""};
    TRY(r.device, device_file(r.kernel));
    const auto same = [&](const KernelReplacement& other) { return other.kernel == r.kernel || (!r.device.empty() && other.device == r.device); };
    if (std::any_of(out.begin(), out.end(), same)) return bad(fmt::format("--replace-kernel names '{}' twice", r.kernel));
    TRY(r.text, read_text_file(r.file, uint64_t{1} << 24));
    out.push_back(std::move(r));
  }
  return out;
}

Result<CompileOptions> compile_options(const CompileSettings& settings) {
  CompileOptions options;
  static_cast<CompileSwitches&>(options) = settings;
  TRY(options.targets, parse_targets(settings.target));
  if (settings.opt_level < 0 || settings.opt_level > 3)
    return Error{ErrorCode::bad_option, fmt::format("the optimisation level is {}, expected 0 to 3", settings.opt_level), "", ""};
  if (settings.threads < 0 || settings.threads > kMostThreads)
    return Error{ErrorCode::bad_option, fmt::format("the number of threads is {}, expected 1 to {}", settings.threads, kMostThreads), "", ""};
  TRY(options.log, Log::from_env());
  TRY(const int64_t threads, env_int("COIL_THREADS", 1, kMostThreads, 0));
  options.threads = settings.threads > 0 ? settings.threads : static_cast<int>(threads);
  options.opt_level = settings.opt_level;
  const std::optional<Tf32> tf32 = tf32_by_name(settings.tf32);
  if (!tf32) return bad(fmt::format("tf32 is '{}', expected no, products, convolutions or all", settings.tf32));
  options.tf32 = *tf32;
  if (settings.activations != "float" && settings.activations != "int8")
    return bad(fmt::format("activations are '{}', expected float or int8", settings.activations));
  options.int8_activations = settings.activations == "int8";
  options.int4_block = int4_block();
  if (!settings.machine.empty()) {
    TRY(options.machines, machines_named(settings.machine, options.targets));
  }
  TRY_STATUS(read_tuning(settings, options));
  TRY(options.cache, cache::Cache::from_env());
  options.dump_folder = settings.dump.empty() ? env("COIL_DUMP").value_or("") : settings.dump;
  options.debug_folder = settings.debug_info.empty() ? env("COIL_DEBUG_INFO").value_or("") : settings.debug_info;
  options.skip_passes = split_all(settings.skip);
  options.without = split_all(settings.without);
  TRY_STATUS(check_without(options.without));
  TRY(options.replace_kernels, kernel_replacements(settings.replace_kernels));
  for (std::string& pass : split(env("COIL_SKIP").value_or(""), ',')) options.skip_passes.push_back(std::move(pass));
  return options;
}

}  // namespace coil
