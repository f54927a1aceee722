#include "compiler/without.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/text.h"

namespace coil {
namespace {

void no_inlining(TargetTraits& t) { t.inline_cost = -1, t.max_inlined_loads = -1; }

constexpr SchedulerStep kSteps[] = {
    {"fusion", "loops share kernels", [](TargetTraits& t) { t.fuse_epilogues = t.fuse_siblings = false, no_inlining(t), t.merges_loops = false; }},
    {"epilogues", "what reads a template's result runs with it", [](TargetTraits& t) { t.fuse_epilogues = false; }},
    {"siblings", "loops that read the same values share a kernel", [](TargetTraits& t) { t.fuse_siblings = false; }},
    {"tiles", "a loop that turns what it reads has a kernel of its own on a GPU", [](TargetTraits& t) { t.turns_in_tiles = false; }},
    {"inlining", "cheap values are computed where they are read", no_inlining},
    {"images", "kernels run image by image", [](TargetTraits& t) { t.kept_bytes = 0; }},
    {"in_place", "states and inputs are written where they are", [](TargetTraits& t) { t.writes_in_place = false; }},
    {"split", "long reductions are done in two steps", [](TargetTraits& t) { t.parallel_points = 0; }},
    {"small", "small products are loops, and products of few tiles and long sums are cut",
     [](TargetTraits& t) { t.small_product = 0, t.product_units = nullptr; }},
    {"keys", "attention reads a cache and new keys where they are", [](TargetTraits& t) { t.joins_keys = false; }},
    {"select", "short concatenations are computed where they are read", [](TargetTraits& t) { t.select_pieces = 0; }},
    {"beside", "kernels that do not need each other are one launch", [](TargetTraits& t) { t.most_beside = 1; }},
    {"joins", "products of the same few rows are one launch", [](TargetTraits& t) { t.joins_products = false; }},
    {"padding", "rows of matrices are moved apart", [](TargetTraits& t) { t.colliding_row_bytes = t.product_row_bytes = 0; }},
};

bool is_fusion_of(std::string_view step) { return step.starts_with(kFusionOf) && step.size() > kFusionOf.size(); }

}  // namespace

std::span<const SchedulerStep> scheduler_steps() { return kSteps; }

Status check_without(const std::vector<std::string>& steps) {
  for (const std::string& step : steps) {
    if (is_fusion_of(step) || std::any_of(std::begin(kSteps), std::end(kSteps), [&](const SchedulerStep& s) { return s.name == step; })) continue;
    std::string names;
    for (const SchedulerStep& s : kSteps) names += std::string(s.name) + ", ";
    return Error{ErrorCode::bad_option, fmt::format("--without: the scheduler has no step '{}'", shown(step)), "", fmt::format("steps: {}fusion:NAME", names)};
  }
  return ok_status();
}

void leave_out(TargetTraits& traits, const std::vector<std::string>& steps) {
  for (const std::string& step : steps) {
    if (is_fusion_of(step)) traits.stored.insert(step.substr(kFusionOf.size()));
    for (const SchedulerStep& s : kSteps) {
      if (s.name == step) s.leave_out(traits);
    }
  }
}

}  // namespace coil
