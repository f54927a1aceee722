#include "base/host_machine.h"

#include <elf.h>

#include <algorithm>

#include "base/env.h"

#if defined(__x86_64__)
#include "device/x86_64/levels.h"
#elif defined(__aarch64__)
#include "device/aarch64/levels.h"
#endif

namespace coil {
namespace {

constexpr const char* kV3Flags[] = {"-DCOIL_ISA=v3", "-DCOIL_ISA_V3=1"};
// Without the first one clang splits vectors of 512 bits.
constexpr const char* kV4Flags[] = {"-mprefer-vector-width=512", "-DCOIL_ISA=v4", "-DCOIL_ISA_V4=1"};
constexpr HostLevel kX86Levels[] = {
    {"v3", "x86-64-v3", 3, "x86-64-v3", kV3Flags, 8},
    {"v4", "x86-64-v4", 4, "x86-64-v4", kV4Flags, 16},
};

// What clang's driver would add: the front end takes no feature for granted.
constexpr const char* kArmFlags[] = {"-target-feature", "+v8a", "-target-feature", "+fp-armv8", "-target-feature", "+neon"};
constexpr const char* kNeonFlags[] = {"-target-feature", "+v8a",  "-target-feature", "+fp-armv8",
                                      "-target-feature", "+neon", "-DCOIL_ISA=neon", "-DCOIL_ISA_NEON=1"};
constexpr const char* kI8mmFlags[] = {"-target-feature", "+v8.6a",          "-target-feature", "+fp-armv8",        "-target-feature",
                                      "+neon",           "-target-feature", "+i8mm",           "-target-feature",  "+bf16",
                                      "-target-feature", "+dotprod",        "-DCOIL_ISA=i8mm", "-DCOIL_ISA_I8MM=1"};
constexpr HostLevel kArmLevels[] = {
    {"neon", "aarch64-neon", 1, "generic", kNeonFlags, 8},
    {"i8mm", "aarch64-i8mm", 2, "generic", kI8mmFlags, 8},
};

constexpr HostMachine kMachines[] = {
    {"x86-64", "x86_64-unknown-linux-gnu", "", "elf_x86_64", EM_X86_64, 4096, "", {"v2", "x86-64-v2", 2, "x86-64-v2", {}, 4}, kX86Levels},
    {"aarch64",
     "aarch64-unknown-linux-gnu",
     "aapcs",
     "aarch64linux",
     EM_AARCH64,
     65536,
     "aarch64/kernel_levels.h",
     {"aarch64", "aarch64", 0, "generic", kArmFlags, 4},
     kArmLevels},
};

bool is_called(const HostLevel& level, std::string_view name) { return level.name == name || level.full_name == name; }

}  // namespace

const HostLevel* HostMachine::level(std::string_view wanted) const {
  for (const HostLevel& l : levels) {
    if (is_called(l, wanted)) return &l;
  }
  return nullptr;
}

std::span<const HostMachine> host_machines() { return kMachines; }

const HostMachine& this_machine() {
#if defined(__x86_64__)
  return kMachines[0];
#elif defined(__aarch64__)
  return kMachines[1];
#else
#error "add this machine to the table above"
#endif
}

const HostMachine* machine_of_elf(uint16_t elf_machine) {
  for (const HostMachine& m : kMachines) {
    if (m.elf_machine == elf_machine) return &m;
  }
  return nullptr;
}

const HostMachine* machine_named(std::string_view name) {
  for (const HostMachine& m : kMachines) {
    if (m.name == name) return &m;
  }
  return nullptr;
}

LevelOfMachine find_level(std::string_view name) {
  for (const HostMachine& m : kMachines) {
    if (is_called(m.base, name)) return {&m, &m.base};
    if (const HostLevel* level = m.level(name)) return {&m, level};
  }
  return {};
}

const HostLevel& level_here(const std::vector<std::string>& among) {
  const HostMachine& machine = this_machine();
  int32_t most = cd::machine_level();
  const LevelOfMachine wished = find_level(env("COIL_ISA").value_or(""));
  if (wished.machine == &machine) most = std::min(most, wished.level->number);
  const HostLevel* best = &machine.levels[0];
  for (const HostLevel& level : machine.levels) {
    const bool asked = std::any_of(among.begin(), among.end(), [&](const std::string& name) { return is_called(level, name); });
    if (asked && level.number <= most) best = &level;
  }
  return *best;
}

std::vector<std::string> levels_here() {
  std::vector<std::string> names;
  const HostMachine& machine = this_machine();
  const int32_t most = cd::machine_level();
  if (machine.base.number <= most) names.emplace_back(machine.base.full_name);
  for (const HostLevel& level : machine.levels) {
    if (level.number <= most) names.emplace_back(level.full_name);
  }
  return names;
}

}  // namespace coil
