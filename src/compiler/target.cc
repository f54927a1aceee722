// The table of targets, and what users call them.
#include "compiler/target.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "compiler/cpu_target.h"
#include "compiler/cuda_target.h"
#include "compiler/options.h"

namespace coil {

// A new target is a row here.
std::span<const Target* const> targets() {
  static const Target* const table[] = {
      &cpu_target(),
      &aarch64_target(),
      &cuda_target(),
  };
  return table;
}

std::vector<TargetChoice> default_targets() { return parse_targets("cpu").value(); }

namespace {

// "cpu", "cpu:x86-64-v3"
struct Named {
  const Target* target = nullptr;
  std::vector<std::string> architectures;
};

Named named_by(const std::string& text) {
  for (const Target* target : targets()) {
    const TargetNames& names = target->names;
    Named found{target, {}};
    for (const TargetLevel& level : names.levels) {
      const bool all = names.all_levels && text == names.name;
      if (all || text == fmt::format("{}:{}", names.name, level.name)) found.architectures.emplace_back(level.architecture);
    }
    if (!found.architectures.empty()) return found;
  }
  return {};
}

// In the target's own order, each once.
void add_architectures(TargetChoice& choice, const std::vector<std::string>& more) {
  std::vector<std::string> all;
  for (const TargetLevel& level : choice.target->names.levels) {
    const auto has = [&](const std::vector<std::string>& list) { return std::find(list.begin(), list.end(), level.architecture) != list.end(); };
    if (has(choice.architectures) || has(more)) all.emplace_back(level.architecture);
  }
  choice.architectures = std::move(all);
}

Error unknown(const std::string& text) {
  std::vector<std::string_view> known;
  for (const Target* target : targets()) known.push_back(target->names.help);
  return {ErrorCode::bad_option, fmt::format("there is no target '{}'", text), "", fmt::format("targets: {}; several with commas", fmt::join(known, ", "))};
}

}  // namespace

Result<std::vector<TargetChoice>> parse_targets(const std::string& text) {
  std::vector<TargetChoice> choices;
  for (const std::string& part : split(text, ',')) {
    const Named named = named_by(part);
    if (!named.target) return unknown(part);
    auto choice = std::find_if(choices.begin(), choices.end(), [&](const TargetChoice& c) { return c.target == named.target; });
    if (choice == choices.end()) choice = choices.insert(choices.end(), {named.target, {}});
    add_architectures(*choice, named.architectures);
  }
  if (choices.empty()) return Error{ErrorCode::bad_option, "--target is empty", "", "leave it out, or name cpu"};
  return choices;
}

std::vector<std::string> target_names(const std::vector<TargetChoice>& choices) {
  std::vector<std::string> names;
  for (const TargetChoice& choice : choices) {
    for (const TargetLevel& level : choice.target->names.levels) {
      if (std::find(choice.architectures.begin(), choice.architectures.end(), level.architecture) == choice.architectures.end()) continue;
      names.push_back(fmt::format("{}:{}", choice.target->names.name, level.name));
    }
  }
  return names;
}

TargetContents contents_of(const Target& target, const std::vector<std::string>& architectures) {
  TargetContents contents;
  contents.name = target.names.name;
  contents.device = target.names.device;
  contents.architectures_key = target.names.architectures;
  contents.architectures = architectures;
  return contents;
}

Status check_user_kernels(const LoopProgram& loops, const Target& target) {
  for (const Loop& loop : loops.loops) {
    const auto* user = std::get_if<UserCall>(&loop.def);
    if (user && !target.has_source(*user->kernel)) {
      return Error{ErrorCode::user_kernel, fmt::format("user kernel '{}' has no source for {}", user->kernel->name, target.names.label),
                   loop.origins.empty() ? "" : loop.origins[0].source,
                   fmt::format("give the registration a \"{}\", or choose another --target", target.names.source)};
    }
    if (const auto* region = std::get_if<Region>(&loop.def)) {
      for (const RegionPart& part : region->parts) TRY_STATUS(check_user_kernels(*part.program, target));
    }
  }
  return ok_status();
}

}  // namespace coil
