// The kinds of processors that packages hold CPU code for. One table (host_machine.cc): the compiler, the linker, the code generator, the
// manifest, the runtime and the command line ask it, and none of them names a machine by itself.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace coil {

// An instruction set that kernels are compiled for.
struct HostLevel {
  std::string_view name;               // "v3": the end of the names of functions that are compiled for it; no two levels of all machines share one
  std::string_view full_name;          // "x86-64-v3", as a loaded model names its code
  int32_t number;                      // in the machine's levels.h below device/
  std::string_view cpu;                // of clang's -target-cpu
  std::span<const char* const> flags;  // more of clang's front end for it
  int lanes;                           // floats of a vector in generated code
};

struct HostMachine {
  std::string_view name;                                // "x86-64"
  std::string_view triple;                              // clang's
  std::string_view abi;                                 // clang's -target-abi; empty: the triple's own
  std::string_view emulation;                           // of ld.lld -m
  uint16_t elf_machine;                                 // EM_X86_64
  int64_t most_page_size;                               // segments of a library are laid out for it
  std::string_view kernel_levels;                       // the header below device/ that declares its kernels; empty: kernels.h does
  HostLevel base;                                       // of host programs and whatever else runs on every such machine; not among the levels
  std::span<const HostLevel> levels;                    // rising
  const HostLevel* level(std::string_view name) const;  // by its name or full name; null: none
};

std::span<const HostMachine> host_machines();

// The machine that this program was built for.
const HostMachine& this_machine();

// null: there is none.
const HostMachine* machine_of_elf(uint16_t elf_machine);
const HostMachine* machine_named(std::string_view name);

// A level, its own machine beside it; by name or full name, the machines' base levels included ("x86-64-v2"). Both null: there is none.
struct LevelOfMachine {
  const HostMachine* machine = nullptr;
  const HostLevel* level = nullptr;
};
LevelOfMachine find_level(std::string_view name);

// Of `among` (names of levels; of this machine) the best that its processor runs and COIL_ISA allows; the machine's lowest level where there is none.
const HostLevel& level_here(const std::vector<std::string>& among);

// The levels of this machine that its processor runs, the base included, rising: "x86-64-v2", "x86-64-v3".
std::vector<std::string> levels_here();

}  // namespace coil
