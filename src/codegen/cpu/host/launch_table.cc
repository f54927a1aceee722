#include "codegen/cpu/host/launch_table.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "codegen/foreign_text.h"

namespace coil {
namespace {

constexpr size_t kLeastRun = 64;     // fewer are readable statements
constexpr size_t kMostBuffers = 16;  // of a launch in a table

// Where a buffer lies, as a row of the table has it: which of the call's pointers, and how far behind it (or which input or output).
enum Base { kArena, kConstants, kState, kInput, kOutput };

std::optional<std::pair<Base, int64_t>> fixed_place(const KernelPlan& plan, BufferId id) {
  const PlanBuffer& b = plan.buffer(id);
  const Placement& p = b.placement;
  switch (p.kind) {
    case Placement::Kind::arena:
    case Placement::Kind::state:
      if (!p.offset->is_constant()) return std::nullopt;
      return std::pair{p.kind == Placement::Kind::arena ? kArena : kState, p.offset->as_int()};
    case Placement::Kind::constant: return std::pair{kConstants, plan.constants[static_cast<size_t>(p.index)].offset};
    case Placement::Kind::input: return std::pair{kInput, static_cast<int64_t>(p.index)};
    case Placement::Kind::output:
      if (last_data_symbol(plan, b.info.sizes).valid()) return std::nullopt;
      return std::pair{kOutput, static_cast<int64_t>(p.index)};
    default: return std::nullopt;
  }
}

}  // namespace

bool LaunchTable::plain(size_t kernel) const {
  const Kernel& k = plan_.kernels[kernel];
  const cpu::CpuLaunch& launch = program_.launches[kernel];
  if (!std::holds_alternative<LoopKernel>(k.def) || !k.choices.rows.empty() || !launch.configs.empty() || launch.buffers.size() > kMostBuffers) return false;
  if (!launch.items->is_constant() || !launch.work->is_constant()) return false;
  return std::all_of(launch.buffers.begin(), launch.buffers.end(), [&](BufferId id) { return fixed_place(plan_, id).has_value(); });
}

size_t LaunchTable::run_length(size_t begin, size_t end) const {
  size_t at = begin;
  while (at < end && plain(at)) ++at;
  return at - begin < kLeastRun ? 0 : at - begin;
}

LaunchTable::Run LaunchTable::run(size_t begin, size_t end, const std::function<int(size_t kernel)>& flag) const {
  std::string launches, places;
  for (size_t k = begin; k < end; ++k) {
    const cpu::CpuLaunch& launch = program_.launches[k];
    launches += fmt::format("  {{{}, {}, {}, {}, {}, {}}},  // {}\n", k, launch.function, flag(k), launch.buffers.size(), launch.items->as_int(), launch.work->as_int(),
                            comment_text(plan_.kernels[k].name));
    places += " ";
    for (BufferId id : launch.buffers) {
      const auto place = fixed_place(plan_, id).value();
      places += fmt::format(" {}, {},", static_cast<int>(place.first), place.second);
    }
    places += "\n";
  }
  Run out;
  out.definitions = fmt::format("static const Launch kLaunches_{0}[] = {{\n{1}}};\nstatic const int64_t kPlaces_{0}[] = {{  // of each launch's pointers: base, offset\n{2}  0}};\n\n", begin,
                                launches, places);
  out.call = fmt::format("  launch_all(call, host, s, flags, kLaunches_{0}, {1}, kPlaces_{0});\n", begin, end - begin);
  return out;
}

std::string LaunchTable::support() {
  return fmt::format(
      "struct Launch {{\n  int32_t kernel, function, flag, buffers;\n  int64_t items, work;\n}};\n"
      "__attribute__((unused)) static void launch_all(const cd::TracedCall* call, const CoilHost* host, const long* s, int* flags, const Launch* l, int64_t n, const int64_t* place) {{\n"
      "  for (const Launch* const end = l + n; l != end; ++l) {{\n"
      "    COIL_BEGIN(l->kernel, 0);\n"
      "    void* p[{} + 1];\n"
      "    for (int32_t i = 0; i < l->buffers; ++i, place += 2) {{\n"
      "      switch (place[0]) {{\n"
      "        case {}: p[i] = call->arena + place[1]; break;\n"
      "        case {}: p[i] = (void*)(call->constants + place[1]); break;\n"
      "        case {}: p[i] = call->state + place[1]; break;\n"
      "        case {}: p[i] = call->inputs[place[1]]; break;\n"
      "        default: p[i] = call->outputs[place[1]];\n"
      "      }}\n    }}\n"
      "    p[l->buffers] = nullptr;\n"
      "    coil_args args = {{p, s, l->flag < 0 ? nullptr : flags + l->flag}};\n"
      "    launch(host, kFunctions[chosen][l->function], l->items, l->work, &args);\n"
      "    COIL_END(l->kernel, 0);\n  }}\n}}\n\n",
      kMostBuffers, static_cast<int>(kArena), static_cast<int>(kConstants), static_cast<int>(kState), static_cast<int>(kInput));
}

}  // namespace coil
