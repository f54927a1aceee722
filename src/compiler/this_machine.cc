#include "compiler/this_machine.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/cpu_limits.h"
#include "base/files.h"
#include "base/host_machine.h"
#include "base/machine.h"
#include "compiler/target.h"

namespace coil {
namespace {

// The first line of a file of the kernel's; empty: there is none.
std::string line_of(const std::filesystem::path& file) {
  constexpr uint64_t kMost = 4096;
  const Result<std::string> text = read_text_file(file.string(), kMost);
  return text.ok() ? text.value().substr(0, text.value().find('\n')) : "";
}

// "512K", "32768K", "32M"; 0: it is no size.
int64_t cache_bytes(const std::string& text) {
  int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(end, static_cast<size_t>(text.data() + text.size() - end));
  constexpr int64_t kMost = 1 << 24;  // of a unit
  if (problem != std::errc() || number <= 0 || number > kMost) return 0;
  return unit == "K" ? number << 10 : unit == "M" ? number << 20 : unit.empty() ? number : 0;
}

// What a chip keeps up under load of what the driver calls its clocks: an H200 1755 of 1980 MHz, and 3900 of 4917 GB/s.
constexpr double kClockKept = 1755.0 / 1980, kMemoryKept = 3900 / (3201e6 * 2 * 6144 / 8 / 1e9);

}  // namespace

CpuMachine this_cpu(const std::string& folder) {
  CpuMachine machine = kUsualCpu;
  int64_t own = 0, shared = 0, last = 0;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string type = line_of(entry.path() / "type"), level_text = line_of(entry.path() / "level");
    int64_t level = 0;
    std::from_chars(level_text.data(), level_text.data() + level_text.size(), level);
    const int64_t bytes = cache_bytes(line_of(entry.path() / "size"));
    if ((type != "Data" && type != "Unified") || level < 1 || bytes == 0) continue;
    constexpr int64_t kOfCore = 2;  // the last level that a core has to itself
    if (level <= kOfCore) own = std::max(own, bytes);
    if (level > last) last = level, shared = bytes;
  }
  if (own > 0) machine.own_cache = own;
  if (shared > 0) machine.shared_cache = shared;
  machine.workers = allowed_cpus();
  return machine;
}

CudaMachine machine_of(const runtime::CudaDeviceInfo& device) {
  CudaMachine machine = cuda_machine(device.major * 10 + device.minor);
  if (device.multiprocessors > 0) machine = with_multiprocessors(machine, device.multiprocessors);
  if (device.clock_khz > 0) machine.clock = std::round(device.clock_khz * 1e-3 * kClockKept) / 1000;
  const double peak = device.memory_clock_khz * 1e3 * 2 * device.memory_bits / 8 / 1e9;
  if (peak > 0) machine.memory = std::max(1.0, std::round(peak * kMemoryKept));
  return machine;
}

void MachinesAtHand::add_cpu() {
  const std::string name(this_machine().name);
  const CpuMachine machine = this_cpu();
  if (machines.cpus.emplace(name, machine).second) rows.push_back(machine_json(name, machine, cpu_name()));
}

void MachinesAtHand::add_gpus(const std::vector<int>& chips) {
  const Result<runtime::CudaInfo> info = runtime::cuda_info();
  if (!info.ok()) return;
  for (const runtime::CudaDeviceInfo& device : info.value().devices) {
    const CudaMachine machine = machine_of(device);
    if (machines.gpu(machine.sm) || std::find(chips.begin(), chips.end(), machine.sm) == chips.end()) continue;
    machines.gpus.push_back(machine);
    rows.push_back(machine_json(machine, device.name));
  }
}

Result<MachinesAtHand> machines_at_hand(const std::vector<TargetChoice>& targets) {
  MachinesAtHand found;
  for (const TargetChoice& choice : targets) choice.target->add_machines(choice.architectures, found);
  if (!found.machines.empty()) return found;
  return Error{ErrorCode::bad_option, fmt::format("none of the targets' machines is at hand: {}", fmt::join(target_names(targets), ", ")), "",
               "give --machine a file that `coil machine` wrote there"};
}

Result<Machines> machines_named(const std::string& name, const std::vector<TargetChoice>& targets) {
  if (name == "this") {
    TRY(MachinesAtHand found, machines_at_hand(targets));
    return std::move(found.machines);
  }
  constexpr uint64_t kMostBytes = 1 << 20;
  TRY(const std::string text, read_text_file(name, kMostBytes));
  TRY(Machines machines, parse_machines(text, name));
  const auto is_described = [&](const TargetChoice& choice) { return choice.target->is_described(machines, choice.architectures); };
  if (std::any_of(targets.begin(), targets.end(), is_described)) return machines;
  return Error{ErrorCode::bad_option, fmt::format("the description has no machine of the targets {}", fmt::join(target_names(targets), ", ")), name,
               "name the architecture that it describes in --target"};
}

}  // namespace coil
