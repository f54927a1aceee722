#include "save_difference.h"

#include <fmt/format.h>

#include <set>

#include "base/text.h"
#include "compiler/program_values.h"
#include "compiler/target.h"

namespace coil::tool {

Status save_difference(const ZipReader& zip, const std::string& program, const Graph& graph, const WatchedBuild& build, const CompileOptions& options,
                       const KernelDifference& d, std::span<const CoilTensorView> inputs, const std::string& folder) {
  TRY(const ProgramDocument document, ProgramDocument::open(zip, graph, program));
  const Target& target = *options.targets[0].target;
  TRY(const auto value_of, values_of_buffers(build.graph, target, options));
  NamedTensors given;
  std::set<std::string> names;
  for (const auto& [buffer, data] : d.given) {
    const auto value = value_of.find(buffer);
    if (value == value_of.end() || !document.has(value->second)) continue;
    given[value->second] = data;
    names.insert(value->second);
  }
  TRY(const std::string wanted, value_after(build.graph, target, options, d.value));
  if (wanted.empty() || !document.has(wanted)) {
    return Error{ErrorCode::unsupported_feature, fmt::format("'{}' is no value of the program, so that it cannot be cut there", shown(d.value)), "",
                 "coil reduce finds a small part of it by trying"};
  }
  TRY(const ProgramDocument part, document.cut({wanted}, names));
  TRY(const NamedTensors arrays, inputs_of(part, given, graph, inputs));
  return save_program(part, arrays, folder);
}

}  // namespace coil::tool
